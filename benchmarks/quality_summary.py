"""The table of `quality.py`'s cells: means, ensembles, and paired tests against LightGBM."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import rounded
from quality_sets import Fold

from ltr.metrics import ModelResult, compare, mean_interval
from ltr.metrics.functional import ndcg

TREES = "LightGBM, "
"""How the names of the rows begin that the others are compared with."""

KINDS = ("single", "ensemble")
"""The mean over the seeds, and the average of their scores."""


def cell_path(out: Path, data: str, method: str, seed: int) -> Path:
    """Return the file of a cell."""
    names = ("".join(c if c.isalnum() else "-" for c in name) for name in (data, method))
    return Path(out, *names, f"{seed}.npz")


def values(scores: np.ndarray, y: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return NDCG@10 of each list, (lists,) float64; 0 without a relevant row."""
    predicted, target = (torch.from_numpy(np.asarray(x, np.float32)) for x in (scores, y))
    found = ndcg(predicted, target, lengths=torch.from_numpy(lengths), top_k=10, reduction="none")
    return found.double().numpy()


def spread(scores: np.ndarray, lengths: np.ndarray) -> float:
    """Return the mean standard deviation of the scores within a list."""
    parts = np.split(np.asarray(scores, np.float64), np.cumsum(lengths)[:-1])
    return float(np.mean([part.std() for part in parts if len(part) > 1]))


def cut(scores: np.ndarray, folds: Sequence[Fold], side: str) -> list[np.ndarray]:
    """Return the part (choices, rows) of each fold of the scores (choices, rows of all folds)."""
    sizes = [len(getattr(fold, side).y) for fold in folds]
    return np.split(scores, np.cumsum(sizes)[:-1], axis=1)


def validation(folds: Sequence[Fold], cell: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the mean NDCG@10 on the validation lists, (choices, folds)."""
    parts = zip(folds, cut(cell["val"], folds, "val"), strict=True)
    means = [
        [values(one, fold.val.y, fold.val.lengths).mean() for one in scores]
        for fold, scores in parts
    ]
    return np.array(means).T


class Row:
    """One method on one set, with what is chosen on the validation lists of each fold.

    Args:
        folds: of the set.
        cells: the content of the files, one a seed.

    Attributes:
        chosen: (folds,), the position of the value that has the best mean over the seeds.
        validation: the mean NDCG@10 of the chosen ones on the validation lists.
        singles: (seeds, lists), NDCG@10 on the test lists.
        ensemble: (lists,), that of the average of the seeds' scores.
    """

    def __init__(self, folds: Sequence[Fold], cells: Sequence[Mapping[str, np.ndarray]]) -> None:
        means = np.mean([validation(folds, cell) for cell in cells], axis=0)
        self.chosen = means.argmax(axis=0)
        self.validation = float(means.max(axis=0).mean())
        self.seconds = float(np.mean([cell["seconds"].sum() for cell in cells]))
        val, test = ([cut(cell[side], folds, side) for cell in cells] for side in ("val", "test"))
        singles, ensemble = [], []
        for number, (fold, position) in enumerate(zip(folds, self.chosen, strict=True)):
            y, lengths = fold.test.y, fold.test.lengths
            scores = np.stack([cell[number][position] for cell in test]).astype(np.float64)
            spreads = [spread(cell[number][position], fold.val.lengths) for cell in val]
            scales = np.array([x if x > 0 else 1 for x in spreads])
            singles.append([values(one, y, lengths) for one in scores])
            ensemble.append(values((scores / scales[:, None]).mean(0), y, lengths))
        self.singles = np.concatenate(singles, axis=1)
        self.ensemble = np.concatenate(ensemble)


def summarize(
    folds: Sequence[Fold],
    out: Path,
    data: str,
    methods: Mapping[str, Sequence[Any]],
    seeds: int,
    beside: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the rows of a set, those whose cells are all there, with their tests.

    Args:
        folds: of the set.
        out: the folder of the cells.
        data: the name of the set.
        methods: the values that each method chooses from, by its name.
        seeds: how many seeds a row has.
        beside: the methods that are tested against each row of LightGBM.
    """
    rows: dict[str, Row] = {}
    for name in methods:
        files = [cell_path(out, data, name, seed) for seed in range(seeds)]
        if all(file.exists() for file in files):
            rows[name] = Row(folds, [dict(np.load(file)) for file in files])
    trees = [name for name in rows if name.startswith(TREES)]
    baseline = max(trees, key=lambda name: rows[name].validation)
    found: dict[str, Any] = {
        "set": data,
        "folds": len(folds),
        "lists": sum(len(fold.test.lengths) for fold in folds),
        "rows": sum(len(fold.test.y) for fold in folds),
        "columns": folds[0].test.X.shape[1],
        "baseline": baseline,
        "methods": {},
    }
    tests = {kind: _tests(rows, kind, baseline) for kind in KINDS}
    for name, row in rows.items():
        one: dict[str, Any] = {"validation": rounded(row.validation)}
        one["chosen"] = [
            methods[name][position] if methods[name] else None for position in row.chosen
        ]
        one["cpu_seconds_a_seed"] = rounded(row.seconds)
        one["deviation_over_seeds"] = rounded(
            float(row.singles.mean(1).std(ddof=min(1, seeds - 1)))
        )
        for kind, models in tests.items():
            one[kind] = {"ndcg_10": rounded(models[name].mean.mean), **_test(models[name])}
        found["methods"][name] = one
    found["beside_trees"] = {
        name: {
            kind: {
                tree: _test(_tests({tree: rows[tree], name: rows[name]}, kind, tree)[name])
                for tree in trees
            }
            for kind in KINDS
        }
        for name in rows
        if name in beside
    }
    return found


def _tests(rows: Mapping[str, Row], kind: str, baseline: str) -> dict[str, ModelResult]:
    """Return the paired test of each row against the baseline."""
    table = {name: _kind(row, kind) for name, row in rows.items()}
    if len(table) == 1:
        return {baseline: ModelResult(baseline, mean_interval(table[baseline]))}
    return {model.name: model for model in compare(table, baseline=baseline).models}


def _test(model: ModelResult) -> dict[str, Any]:
    """Return the difference with its interval, p, and p corrected by Holm's method."""
    if model.difference is None or model.p is None or model.p_holm is None:
        return {}
    difference = [rounded(x) for x in model.difference]
    return {"difference": difference, "p": rounded(model.p), "p_holm": rounded(model.p_holm)}


def _kind(row: Row, kind: str) -> np.ndarray:
    return row.singles.mean(0) if kind == "single" else row.ensemble
