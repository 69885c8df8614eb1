"""Rankers on large generated tables, beside LightGBM: NDCG@10, CPU seconds and paired intervals.

    python benchmarks/large_tables.py "NeuralRanker()" "NeuralRanker(members=2)" --rows 100000
    python benchmarks/large_tables.py --rows 1000000 --tables noise
    python benchmarks/large_tables.py "NeuralRanker(members=2)" \
        "NeuralRanker(members=2, loss=SoftmaxLoss())" --against "NeuralRanker(members=2)" \
        --output benchmarks/results/large_tables_losses.json

A ranker is an expression. A trial fits one on one table with one seed, which draws the table too,
and adds a line to benchmarks/results/large_tables.json: NDCG@10 of 2,000 test lists, the seconds of
CPU time of `fit`, and how many columns were kept. The scores are kept in the folder `--cells`; what
is there already is not run again. Seeds from 100 on are for choosing; those below took no part in
it. `--data` names sets of `quality.py` in place of generated tables: there all folds are a trial.

"LightGBM, tuned" and "XGBoost, tuned" stop early, and have a learning rate of 0.1, 0.05 or 0.03 and
15 or 31 leaves (XGBoost: a depth of 6 or 8), as is best on the validation lists; see `rivals.py`,
which has CatBoost and bagged forests too. Their seconds are those of the chosen fit, and
"search_seconds" those of all fits. "best" of the file are the comparisons with the trees that are
best on the test lists of each set, which favors the trees.

"LightGBM" is what earlier results were compared with: its learning rate is 0.1. "blend" is the
average of `NeuralRanker()` and "LightGBM", each divided by its spread on the validation lists.
"Blend()" is ours as it comes: it tries two numbers of leaves, and chooses the weights on the
validation lists.

"screening" of the file are trials of the search, with all settings written out that were no
defaults then or are none now. "chosen" says where the columns of one came from if a script chose
them, and the seconds are without that choice; "narrow" is the fraction of the rows in a narrow bin.
Columns were chosen by halves, an earlier rule, unless "choice" says "longest run".

After the trials, `comparisons` of the file are computed again for all its trials: for each table
and number of rows the difference of each ranker from LightGBM over the test lists of all its seeds,
with its standard error, the 95 % interval, p, and p after Holm's correction. `draws` has the mean
difference of each seed, and `over_draws` Student's interval over them: draws of one table differ
more than lists. On a set of `quality.py` a list counts once, with its mean over the seeds.
`--against` is another ranker to compare with. A default is chosen on real tables first (`--data`),
where each set counts once. Generated tables check it: all draws of one table count as one set.
"""

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
from generated_tables import TABLES, generated_table
from measure import RESULTS, environment, rounded, write
from quality_sets import SETS as LETOR
from quality_sets import TABLES as REAL
from quality_sets import Fold, Lists, load
from quality_summary import spread, values
from rivals import BAGGED, RATES, RIVALS, TREES, Bagged, rival, scores_of, trees_of
from scipy import stats
from tries import TRIES

import ltr.datasets
import ltr.losses
import ltr.models
from ltr.estimators import Blend, NeuralRanker
from ltr.files import atomic_write
from ltr.metrics import compare, holm

RESULT = RESULTS / "large_tables.json"
EARLIER = "LightGBM"
SEARCHES = {EARLIER: [x for x in RIVALS[TREES] if x["learning_rate"] == RATES[0]], **RIVALS}
ALL_TREES = (EARLIER, *RIVALS, BAGGED)
BLEND = "blend"
NETWORKS = "NeuralRanker()"
OURS = "Blend()"
SETS = {**LETOR, **REAL}
KNOWN = {**vars(ltr.datasets), **vars(ltr.losses), **vars(ltr.models), **TRIES}


def made(ranker: str, seed: int) -> NeuralRanker | Blend:
    """Return the ranker of an expression."""
    if ranker == OURS:
        return Blend(NeuralRanker(random_state=seed, verbose=0), verbose=0)
    found = eval(ranker, {**KNOWN, "NeuralRanker": NeuralRanker})
    return found.set_params(random_state=seed, verbose=0)


def network(fold: Fold, ranker: str, seed: int) -> NeuralRanker | Blend:
    """Return our ranker, fitted."""
    train, val = fold.train, fold.val
    lists = {"qid": train.qid, "eval_set": [(val.X, val.y)], "eval_qid": [val.qid]}
    return made(ranker, seed).fit(train.X, train.y, **lists)


def ndcg(scores: np.ndarray, lists: Lists) -> np.ndarray:
    """Return NDCG@10 of each list."""
    return values(scores, lists.y, lists.lengths)


def fitted(
    fold: Fold, ranker: str, seed: int, settings: Sequence[Mapping[str, Any]]
) -> tuple[Any, float, dict[str, Any], int]:
    """Fit a ranker, with each of its settings.

    Returns:
        The model that is best on the validation lists, the CPU seconds of its fit, what a trial
        tells of it, and the index of its settings.
    """
    models: list[Any] = []
    spent: list[float] = []
    quality: list[float] = []
    for own in settings:
        start = time.process_time()
        if ranker == BAGGED:
            model = Bagged(fold, own)
        elif ranker in SEARCHES:
            model = rival(fold, TREES if ranker == EARLIER else ranker, own)
        else:
            model = network(fold, ranker, seed)
        spent.append(time.process_time() - start)
        models.append(model)
        quality.append(float(ndcg(predicted(model, fold.val), fold.val).mean()))
    best = int(np.argmax(quality))
    model: Any = models[best]
    about: dict[str, Any] = {**settings[best]}
    if about:
        about["trees"] = trees_of(model)
    if isinstance(model, NeuralRanker):
        about = {"epochs": model.n_iter_, "columns": len(model.schema_.columns) - 2}
        about |= {name: model.settings_[name] for name in ("kind", "relative")}
    if isinstance(model, Blend):
        about = {"weights": [rounded(x) for x in model.weights_.tolist()]}
    about["validation"] = rounded(quality[best])
    if ranker in SEARCHES:
        about["search_seconds"] = round(sum(spent), 1)
    return model, spent[best], about, best


def predicted(model: Any, lists: Lists) -> np.ndarray:
    """Return the scores of lists; our rankers may look at the whole list."""
    if isinstance(model, NeuralRanker | Blend):
        return model.predict(lists.X, lists.qid)
    return scores_of(model, lists)


def folder_of(out: Path, data: str, ranker: str, seed: int) -> Path:
    """Return the file of a trial's scores."""
    words = ("".join(c if c.isalnum() else "-" for c in text) for text in (data, ranker))
    return out / "_".join((*words, f"{seed}.npz"))


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file that `trial` wrote."""
    with np.load(path) as file:
        return dict(file)


def trial(out: Path, data: str, folds: list[Fold], ranker: str, seed: int) -> dict[str, Any]:
    """Fit a ranker on each fold, keep NDCG@10 of the test lists and the scores, and tell of it."""
    found: dict[str, list[np.ndarray]] = {"test": [], "val": []}
    total, told, best = 0.0, [], {}
    for number, fold in enumerate(folds):
        if ranker == BLEND:
            scores = {side: np.zeros(len(getattr(fold, side).y)) for side in found}
            for part in (NETWORKS, EARLIER):
                kept = arrays_of(folder_of(out, data, part, seed))
                total += float(kept["seconds"]) / len(folds)
                scale = 1 / spread(kept[f"val{number}"], fold.val.lengths)
                scores = {side: x + scale * kept[f"{side}{number}"] for side, x in scores.items()}
        else:
            settings = SEARCHES.get(ranker, [{}])
            if ranker == BAGGED:  # of the best fit of the search
                own = int(arrays_of(folder_of(out, data, TREES, seed))[f"best{number}"])
                settings = [SEARCHES[TREES][own]]
            model, seconds, about, chosen = fitted(fold, ranker, seed, settings)
            total += seconds
            told.append(about)
            best[f"best{number}"] = chosen
            scores = {side: predicted(model, getattr(fold, side)) for side in found}
        for side, kept in found.items():
            kept.append(np.asarray(scores[side], np.float32))
    parts = {f"{side}{i}": x for side, kept in found.items() for i, x in enumerate(kept)}
    lists = np.concatenate([ndcg(x, f.test) for x, f in zip(found["test"], folds, strict=True)])
    path = folder_of(out, data, ranker, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial_file, partial_file.open("wb") as file:
        np.savez_compressed(file, ndcg=lists, seconds=total, **parts, **best)
    merged = {key: [one[key] for one in told] for key in (told[0] if told else ())}
    return {
        "data": data,
        "ranker": ranker,
        "seed": seed,
        "ndcg_10": rounded(float(lists.mean())),
        "seconds": round(total, 1),
        **{key: x if len(x) > 1 else x[0] for key, x in merged.items()},
    }


def comparisons(
    out: Path,
    trials: list[dict[str, Any]],
    against: str = TREES,
    earlier: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the differences from LightGBM or another ranker, if both have scores, or had some."""
    key = "trees" if against in ALL_TREES else "against"
    rows: list[dict[str, Any]] = []
    for data in dict.fromkeys(one["data"] for one in trials):
        runs: dict[str, list[int]] = {}
        for one in trials:
            if one["data"] == data and folder_of(out, data, one["ranker"], one["seed"]).exists():
                runs.setdefault(one["ranker"], []).append(one["seed"])
        for confirming, ranker in product((False, True), runs):
            seeds = [
                x for x in runs[ranker] if x in runs.get(against, ()) and (x < 100) == confirming
            ]
            if ranker == against or not seeds:
                continue
            found = [
                [arrays_of(folder_of(out, data, name, seed))["ndcg"] for seed in seeds]
                for name in (against, ranker)
            ]
            # the seeds of a public set have the same lists, those of a generated table do not
            pair = [np.mean(x, axis=0) if data in SETS else np.concatenate(x) for x in found]
            result = compare(*pair).models[1]
            assert result.difference is not None
            each = pair[1] - pair[0]
            draws = [float((b - a).mean()) for a, b in zip(*found, strict=True)]
            rows.append(
                {
                    "data": data,
                    "ranker": ranker,
                    "seeds": seeds,
                    "lists": len(pair[0]),
                    key: rounded(float(pair[0].mean())),
                    "ndcg_10": rounded(float(pair[1].mean())),
                    "difference": [rounded(x) for x in result.difference],
                    "standard_error": rounded(float(each.std(ddof=1) / len(each) ** 0.5)),
                    "p": result.p,
                    "draws": [round(x, 4) for x in draws],
                }
            )
            _add_interval(rows[-1])
    rows = _with_earlier(rows, earlier)
    for confirming in (False, True):
        side = [row for row in rows if (row["seeds"][0] < 100) == confirming]
        for row, p in zip(side, holm([row["p"] for row in side]) if side else (), strict=True):
            row["p_holm"] = rounded(p)
    return rows


def beside_best(
    trials: list[dict[str, Any]], rows: Mapping[str, Sequence[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the comparisons of our rankers with the trees that are best on the test lists.

    To choose on the lists of the comparison favors the trees. The validation lists of small sets
    choose trees that others beat by .03.

    Args:
        trials: all trials. On each set, the trees are chosen by the draws that all of them share.
        rows: the comparisons with each kind of trees.
    """
    found = []
    for data in dict.fromkeys(one["data"] for one in trials):
        values: dict[str, dict[int, float]] = {}
        for one in trials:
            if one["data"] == data and one["ranker"] in rows:
                values.setdefault(one["ranker"], {})[one["seed"]] = one["ndcg_10"]
        seeds = set.intersection(*({*own} for own in values.values()))
        best = max(values, key=lambda name: np.mean([values[name][x] for x in seeds]))
        found += [
            {**row, "rival": best}
            for row in rows[best]
            if row["data"] == data and row["ranker"] in (NETWORKS, OURS) and row["seeds"][0] < 100
        ]
    for row, p in zip(found, holm([row["p"] for row in found]) if found else (), strict=True):
        row["p_holm"] = rounded(p)
    return found


def _side(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what two comparisons must share to be of the same."""
    return row["data"], row["ranker"], row["seeds"][0] < 100


def _with_earlier(
    rows: list[dict[str, Any]], earlier: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return comparisons together with earlier ones, whose scores may be gone."""
    found = {_side(row): row for row in earlier}
    for row in rows:
        before = found.get(_side(row))
        if before is not None and {*row["seeds"]} <= {*before["seeds"]}:
            continue
        apart = before is not None and not {*row["seeds"]} & {*before["seeds"]}
        pool = before is not None and apart and row["data"] not in SETS
        found[_side(row)] = pooled(before, row) if pool else row
    return [*found.values()]


def pooled(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return the comparison over the lists of two, of different draws of one table."""
    pair = before, row
    first, second = (one["difference"][0] for one in pair)
    lists = before["lists"] + row["lists"]
    shares = [one["lists"] / lists for one in pair]
    squares = sum(one["standard_error"] ** 2 * one["lists"] * (one["lists"] - 1) for one in pair)
    squares += shares[0] * shares[1] * lists * (first - second) ** 2
    error = (squares / lists / (lists - 1)) ** 0.5
    mean = shares[0] * first + shares[1] * second
    means = [key for key in ("trees", "against", "ndcg_10") if key in row]
    found = {
        **row,
        "seeds": [*before["seeds"], *row["seeds"]],
        "lists": lists,
        **{key: rounded(shares[0] * before[key] + shares[1] * row[key]) for key in means},
        "difference": [rounded(x) for x in (mean, mean - 1.96 * error, mean + 1.96 * error)],
        "standard_error": rounded(error),
        "p": float(2 * stats.norm.sf(abs(mean) / error)),
        "draws": [*before["draws"], *row["draws"]],
    }
    _add_interval(found)
    return found


def _add_interval(row: dict[str, Any]) -> None:
    """Add Student's interval over the draws of a generated table."""
    draws = row["draws"]
    if len(draws) > 1 and row["data"] not in SETS:
        wide = stats.t.interval(0.95, len(draws) - 1, np.mean(draws), stats.sem(draws))
        row["over_draws"] = [round(float(x), 4) for x in wide]


def _key(one: dict[str, Any]) -> tuple[Any, ...]:
    return one["data"], one["ranker"], one["seed"]


def main() -> None:
    """Run the trials that are missing, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rankers", nargs="*", default=[TREES, NETWORKS, OURS])
    parser.add_argument(
        "--tables", nargs="*", default=[x for x in TABLES if x != "tails"], choices=TABLES
    )
    parser.add_argument("--rows", nargs="+", type=int, default=[100_000])
    parser.add_argument("--data", nargs="*", default=[], choices=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--cells", type=Path, default=Path("runs/large_tables"))
    parser.add_argument("--against", default=TREES)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    kept: dict[str, Any] = {"trials": []}
    if arguments.output.exists():
        kept = json.loads(arguments.output.read_text())
    names = arguments.data or product(arguments.rows, arguments.tables)
    for name, seed in product(names, arguments.seeds):
        data = name if isinstance(name, str) else f"{name[1]}, {name[0]:,}"
        missing = [
            x for x in arguments.rankers if not folder_of(arguments.cells, data, x, seed).exists()
        ]
        if not missing:
            continue
        rows, table = (0, name) if isinstance(name, str) else name
        folds = load(table) if table in SETS else [generated_table(table, rows, seed)]
        for ranker in missing:
            done = trial(arguments.cells, data, folds, ranker, seed)
            kept["trials"] = [x for x in kept["trials"] if _key(x) != _key(done)] + [done]
            print(json.dumps(kept["trials"][-1]), flush=True)
            arguments.output.write_text(json.dumps(kept, indent=0) + "\n")
    screening = kept.get("screening", [])
    rows = comparisons(
        arguments.cells, kept["trials"], arguments.against, kept.get("comparisons", [])
    )
    others = {}
    for name in (*RIVALS, BAGGED) if arguments.against == TREES else ():
        if name != TREES and any(one["ranker"] == name for one in kept["trials"]):
            earlier = kept.get("others", {}).get(name, [])
            ours = [x for x in kept["trials"] if x["ranker"] in (name, NETWORKS, OURS)]
            others[name] = comparisons(arguments.cells, ours, name, earlier)
    result = {
        "environment": {**environment(), "lightgbm": lightgbm.__version__},
        "core_seconds": round(
            sum(
                one["seconds"]
                for one in (*kept["trials"], *screening)
                if one["ranker"] != BLEND  # trained already
            )
        ),
        "screening": screening,
        "trials": kept["trials"],
        "comparisons": rows,
    }
    if others:
        result |= {"others": others, "best": beside_best(kept["trials"], {TREES: rows, **others})}
    write(arguments.output, result)


if __name__ == "__main__":
    main()
