"""The benchmarks run, on tiny sizes, and the docs' tables are those of their results."""

import gzip
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch

from ltr.estimators import parameters

ROOT = Path(__file__).parents[1]

# Each benchmark is a process that imports what it measures, or trains, for seconds. The fast tests
# call some of their functions, and check the committed results.
slow = pytest.mark.slow


def run(script, output, *arguments):
    subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, "--output", output, *arguments],
        check=True,
        capture_output=True,
    )
    return json.loads(output.read_text())


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def few_test_lists(monkeypatch):
    """Have generated tables make 40 test lists, not 2,000."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(importlib.import_module("generated_tables"), "TEST_QUERIES", 40)


def shape(x):
    """The keys and types of a JSON value; of a list those of its first item."""
    if isinstance(x, dict):
        return {key: shape(value) for key, value in x.items()}
    if isinstance(x, list):
        return [shape(x[0])]
    return float if isinstance(x, int | float) else type(x)


def committed(name):
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


@slow
def test_judges(tmp_path):
    result = run("judges.py", tmp_path / "result.json", "--rows", "4000", "--repeats", "1")
    assert shape(result) == shape(committed("judges.json"))


@slow
def test_several_labels(tmp_path):
    output = tmp_path / "result.json"
    result = run("several_labels.py", output, "--sets", "shop", "--seeds", "1")
    assert shape(result) == shape(committed("several_labels.json"))


def test_the_page_shows_what_several_labels_keep_and_cost(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "several_labels.py")
    result = committed("several_labels.json")
    page = (ROOT / "docs" / "losses" / "several-labels.md").read_text()
    assert module.page(result) in page
    for data in {row["data"] for row in result["rows"]}:
        rows = {row["form"]: row for row in result["rows"] if row["data"] == data}
        # a larger weight of a label gives it more, and costs the other
        alone, one, four = (rows[form] for form in ("A alone", "sum, 1 : 1", "sum, 1 : 4"))
        assert alone["A"] > one["A"] > four["A"]
        assert alone["B"] < one["B"] < four["B"]
        # a floor keeps more of its label than labels that are added up
        assert rows["floor for A"]["A"] > rows["added up"]["A"]


@slow
def test_ubi(tmp_path):
    result = run("ubi.py", tmp_path / "result.json", "--events", "2000")
    assert shape(result) == shape(committed("ubi.json"))


@slow
def test_cutoffs(tmp_path):
    result = run("cutoffs.py", tmp_path / "result.json", "--rows", "2000")
    assert shape(result) == shape(committed("cutoffs.json"))


@slow
def test_slices(tmp_path):
    small = ("--rows", "4000", "--slices", "4", "--repeats", "3")
    result = run("slices.py", tmp_path / "result.json", *small)
    assert shape(result) == shape(committed("slices.json"))


@slow
def test_evaluate_by_the_number_of_lists(tmp_path):
    result = run("evaluate.py", tmp_path / "result.json", "--lists", "20", "--rounds", "1")
    assert shape(result) == shape(committed("evaluate.json"))


@slow
def test_two_checkouts_in_turns(tmp_path):
    result = run("before_after.py", tmp_path / "result.json", str(ROOT), "--turns", "1")
    assert shape(result) == shape(committed("before_after.json"))


@slow
def test_tables_of_two_checkouts(tmp_path):
    options = ["--turns", "1", "--rows", "2000", "--cases", "load csv"]
    result = run("tables.py", tmp_path / "result.json", str(ROOT), *options)
    assert shape(result["cases"]) == {
        "load csv": shape(committed("tables.json")["cases"]["load csv"])
    }


@slow
def test_compare_operators_at_equal_sharpness(tmp_path):
    sizes = ["--sizes", "12", "--lists", "2", "--rounds", "1"]
    result = run("compare_operators.py", tmp_path / "result.json", *sizes)
    assert shape(result) == shape(committed("compare_operators.json"))
    (size,) = result["sizes"]
    for kind, extra in (("ranks", ("HardRank", "Stochastic", "StraightThrough")), ("values", ())):
        rows = [row for row in size[kind] if not row["operator"].startswith(extra or ("-",))]
        means = [row["mean"] for row in rows]
        assert max(means) == pytest.approx(min(means), rel=0.01)
        assert all(row["largest"] >= row["mean"] > 0 for row in rows)
        assert all(row["gradient"] > 0 for row in rows)
        assert all(row["bytes"] > 0 for row in size[kind])


@slow
def test_neuralsort_as_published_is_ours(tmp_path):
    sizes = ["--sizes", "7", "30", "--lists", "2", "--rounds", "1"]
    result = run("neuralsort_cubed.py", tmp_path / "result.json", *sizes)
    assert shape(result) == shape(committed("neuralsort_cubed.json"))
    for size in result["sizes"] + committed("neuralsort_cubed.json")["sizes"]:
        assert size["difference_float64"] < 1e-12
        assert math.isfinite(size["ratio"])


@slow
def test_devices(tmp_path):
    options = ["--device", "cpu", "--seconds", "0.01", "--quick"]
    result = run("devices.py", tmp_path / "result.json", *options)
    assert result["environment"]["device"] == "cpu"
    assert {row["name"] for row in result["rows"]} >= {"torch.sort", "SoftSort", "SoftNDCG, n x n"}
    assert all(row["seconds"] > 0 for row in result["rows"])


@slow
def test_tied_scores(tmp_path):
    arguments = ["--shrink", "500", "--rounds", "1"]
    result = run("tied.py", tmp_path / "result.json", *arguments)
    saved = committed("tied.json")
    assert shape(result) == shape(saved)
    names = {row["name"] for row in result["rows"]}
    assert {"NeuralSort", "SoftSort, power 1", "LapSum.sort"} <= names
    for row in saved["rows"]:
        for kind in ("tied", "nearly"):
            assert max(row[kind].values()) <= saved["limit"], row["name"]


@slow
def test_a_training_step(tmp_path):
    result = run("training_step.py", tmp_path / "result.json", "--turns", "1", "--rounds", "1")
    assert shape(result) == shape(committed("training_step.json"))
    kinds = {(row["recipe"], row["precision"]) for row in result["rows"]}
    assert kinds >= set(product(("sort", "topk", "knn"), ("bfloat16", "float32")))
    assert all(seconds > 0 for row in result["rows"] for seconds in row["seconds"].values())


@slow
def test_training_beside_a_bare_loop(tmp_path):
    sizes = ["--lists", "6", "--epochs", "2", "--hidden", "8"]
    result = run("training.py", tmp_path / "result.json", *sizes)
    assert shape(result) == shape(committed("training.json"))
    assert [row["layers"] for row in result["rows"]] == ["default", "plain"]
    for row in result["rows"]:
        speed = row["documents_per_second"]
        assert row["ratio"] > 0
        assert speed["fit"] > 0 < speed["bare"]


@slow
def test_memory_of_predictions(tmp_path):
    result = run("predict.py", tmp_path / "result.json", "--rows", "600", "1200")
    saved = committed("predict.json")
    assert shape(result) == shape(saved)
    assert [row["rows"] for row in result["tables"]] == [600] * 3 + [1200] * 3
    for kind in ("parquet", "csv", "lists"):
        few, many = (row for row in saved["tables"] if row["kind"] == kind)
        assert many["anonymous"] < 1000  # megabytes
        # scores, ranks and the names of the queries: of a row of 20 features 80 bytes are features
        more = 1e6 * (many["anonymous"] - few["anonymous"]) / (many["rows"] - few["rows"])
        assert more < 120


@slow
def test_clicks(tmp_path):
    output = tmp_path / "result.json"
    sizes = ["--sessions", "1000", "20000"]
    whole = run("clicks.py", output, "--sets", "generated", "--seeds", "1", *sizes)
    for name in ("users", "propensities"):
        assert shape(whole[name]) == shape(committed("clicks.json")[name])
    result = whole["sets"]["generated"]
    saved = committed("clicks.json")["sets"]["generated"]
    assert result.keys() == saved.keys()
    assert [*result["rankers"]] == [*saved["rankers"]]
    for name, row in result["rankers"].items():
        assert row["seeds"]["0"] == pytest.approx(saved["rankers"][name]["seeds"]["0"], abs=0.02)
    # a run that was stopped resumes
    again = run("clicks.py", output, "--sets", "generated", "--seeds", "1")
    assert again["sets"]["generated"] == result


def test_clicks_are_simulated_and_propensities_estimated_in_time():
    result = committed("clicks.json")
    assert max(result["users"].values()) < 10  # seconds of a million sessions of ten documents
    for name, one in result["propensities"].items():
        assert one["seconds"] < 60, name
        assert one["error"] < 0.1, name
        assert one["inside"] >= 7, name


def test_positions_gain_in_learning_from_clicks():
    for one in committed("clicks.json")["sets"].values():
        rankers = one["rankers"]
        gains = {name: row["difference"] for name, row in rankers.items() if "difference" in row}
        assert len(gains) == 5
        assert all(mean > 0 for mean, _ in gains.values())
        for name in ("XENDCG, Unbiased", "SoftmaxLoss, Unbiased, split", "LightGBM, position"):
            assert gains[name][0] > 2 * gains[name][1], name
        best = max(row["ndcg_10"] for name, row in rankers.items() if name != "the grades")
        assert best < rankers["the grades"]["ndcg_10"]


def test_the_pages_show_the_results():
    tables = load(ROOT / "docs" / "tables.py")
    found = tables.tables()
    pages = [page.read_text() for page in tables.PAGES]
    assert [tables.filled(page, found) for page in pages] == pages
    assert all(f"<!-- table {name} -->" in "".join(pages) for name in found)


@slow
def test_operators_measures_every_kind(tmp_path):
    quick = run("operators.py", tmp_path / "result.json", "--quick")
    kinds, result = shape(quick), committed("operators.json")
    assert kinds["config"] == shape(result["config"])
    settings = {(point["scores"], point["threads"] == 1) for point in quick["points"]}
    assert {("random", True), ("sorted", True), ("reversed", True), ("tied", True)} <= settings
    groups = {row["group"] for row in quick["points"][0]["rows"]}
    assert {"sort", "compiled", "plain", "naive"} <= groups
    for point in quick["points"]:
        assert all(row["cpu"] >= 0 < row["wall"] for row in point["rows"])
        assert not point["left_out"]
    assert all(0 <= row["relative"] < 1e-5 for row in quick["accuracy"])
    assert all(0 <= row["gradient"] < 1e-3 for row in quick["accuracy"])
    assert all(row["bytes"] >= 4 * row["n"] and row["finite"] for row in quick["memory"])


def test_naive_operators_are_the_operators(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    contestants = load(ROOT / "benchmarks" / "operators_contestants.py")
    everyone = {c.key: c for c in contestants.contestants()}
    scores = contestants.scores_of(2, 30).double()
    naive = [c for c in everyone.values() if c.group == "naive"]
    assert len(naive) == 8
    for contestant in naive:
        ours = everyone[contestant.name]
        for found, expected in (
            (ours.values(scores), contestant.values(scores)),
            (ours.call(scores)(), contestant.call(scores)()),
        ):
            assert (found - expected).abs().max() < 1e-8 * expected.abs().max()


def test_a_call_that_would_take_too_long_is_left_out(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    time = load(ROOT / "benchmarks" / "operators_time.py")
    contestant = time.Contestant("x", "naive", lambda s: s, growth=2.0)
    forecast = time.Forecast()
    assert forecast.seconds(contestant, 10) == 0
    forecast.saw(contestant, 10, 1.0)
    assert forecast.seconds(contestant, 30) == pytest.approx(9.0)
    forecast.saw(contestant, 20, 8.0)  # it has grown with the third power
    assert forecast.seconds(contestant, 40) == pytest.approx(64.0)
    assert contestant.fits(1, 2000)
    assert not contestant.fits(1, 100_000)


def test_goals_are_met_or_not(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    goals = load(ROOT / "benchmarks" / "operators_goals.py").goals
    rows = [
        {"name": "torch.sort", "group": "sort", "cpu": 2.0},
        {"name": "SoftSort, power 1", "group": "compiled", "cpu": 1.5},
        {"name": "SigmoidRank", "group": "compiled", "cpu": 5.0},
        {"name": "SigmoidRank", "group": "naive", "cpu": 4.0},
        {"name": "torchsort.soft_rank, l2", "group": "peer", "cpu": 1.0},
    ]
    quick = [{**row, "cpu": 0.7 if row["group"] == "compiled" else 0.5} for row in rows]
    point = {"lists": 1, "n": 1_000_000, "scores": "random", "threads": 1, "rows": rows}
    short = {**point, "n": 30, "rows": quick}
    memory = {"name": "NeuralSort", "lists": 20, "n": 4000, "bytes": 2**20, "tensors": 3}
    result = {"points": [point, short], "memory": [memory], "accuracy": []}
    found = {goal["goal"]: (goal["measured"], goal["met"]) for goal in goals(result)}
    assert found["SoftSort, power 1, n = 1e6: time / torch.sort"] == (0.75, True)
    assert found["SigmoidRank, n = 1e6: time / torch.sort"] == (2.5, False)
    assert found["SoftSort, power 1, 1 x 1000000: time / torchsort's l2 rank"] == (1.5, False)
    assert found["NeuralSort, 20 x 4000: peak in MiB"] == (1.0, True)
    assert found["SigmoidRank, 64 x 128: naive time / time"] == (None, None)
    assert found["SigmoidRank, compiled, other sizes: time / naive time"] == (1.25, False)
    assert found["SigmoidRank, compiled, one list of up to 30: time / naive time"] == (1.4, True)


def test_the_speed_page_can_be_made(tmp_path):
    pytest.importorskip("matplotlib")
    result = committed("operators.json")
    speed = load(ROOT / "docs" / "speed.py")
    found = speed.tables(result)
    page = speed.PAGE.read_text()
    assert all(f"<!-- table {name} -->" in page for name in found)
    new = speed.filled(page, found)
    assert speed.filled(new, found) == new
    rows = {(row["name"], row["group"]) for row in result["points"][0]["rows"]}
    lines = found["times 1"].splitlines()
    assert all(any(f"| {name} | {group} |" in line for line in lines) for name, group in rows)
    speed.draw(result, tmp_path / speed.PLOT.name)
    assert (tmp_path / speed.PLOT.name).stat().st_size > 10_000
    assert f"]({speed.PLOT.name})" in page


def test_the_speed_page_shows_the_results():
    result = committed("operators.json")
    assert {1_000_000, 100} <= {point["n"] for point in result["points"]}
    speed = load(ROOT / "docs" / "speed.py")
    page = speed.PAGE.read_text()
    assert speed.filled(page, speed.tables(result)) == page
    goals = speed.GOALS.read_text()
    assert speed.filled(goals, {"goals": speed.goals(result)}) == goals


@slow
def test_losses_of_rerankers(tmp_path):
    options = ["--queries", "3", "--longest", "12", "--rounds", "1"]
    result = run("text.py", tmp_path / "text.json", *options)
    assert shape(result) == shape(committed("text.json"))
    memory = {(row["lists"], row["cached"]): row["MiB"] for row in result["memory"]}
    assert memory["100 documents", True] < 1.5 * memory["16 documents", False]
    assert memory["100 documents", False] > 4 * memory["16 documents", False]


@slow  # a real model
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rerankers", ["--lists", "32", "--seeds", "0", "--losses", "none", "ltr SoftmaxLoss()"]),
        ("distillation", ["--lists", "16", "--teacher-lists", "32", "--seeds", "0"]),
        ("first_stage", ["--lists", "16", "--queries", "8"]),
        ("retrievers", ["--lists", "16", "--queries", "8", "--seeds", "0"]),
    ],
)
def test_a_pretrained_model_of_text(name, options, data_root, tmp_path):
    model = os.environ.get("LTR_MINILM")
    if not model:
        pytest.skip("no pretrained model: set LTR_MINILM to a folder with all-MiniLM-L6-v2")
    if name in ("first_stage", "retrievers"):
        pytest.importorskip("bm25s")
    if name == "distillation":
        options = [*options, "--cache", tmp_path / "teacher"]
    for split, count in {"train": 32, "val": 8, "test": 16}.items():
        file = f"{split}.jsonl.gz"
        with gzip.open(data_root / "wordnet-senses" / file) as whole:
            few = b"".join(whole.readlines()[:count])
        (tmp_path / file).write_bytes(gzip.compress(few))
    stages = [["--tune"], ["--search"]] if name == "retrievers" else [[]]
    for stage in stages:
        chosen = [model, tmp_path, *options, *stage]
        result = run(f"{name}.py", tmp_path / "result.json", *chosen)
    kept = committed(f"{name}.json")
    assert shape(result["trials"]) == shape(kept["trials"])
    assert result.keys() == kept.keys()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rerankers", "trials"),
        ("distillation", "trials"),
        ("first_stage", "trials"),
        ("retrievers", "trials"),
        ("retrievers", "search"),
    ],
)
def test_the_committed_metrics_are_those_of_the_positions(name, kind):
    kept = committed(f"{name}.json")
    summary = kept["search_summary" if kind == "search" else "summary"]
    tables = summary if isinstance(summary, dict) else {None: summary}
    for lists, rows in tables.items():
        assert rows
        for row in rows:
            at = [
                int(x)
                for one in kept[kind]
                if one["loss"] == row["loss"] and lists in (None, str(one["lists"]))
                for x in one["positions"].split()
            ]
            ndcg = fmean(1 / math.log2(1 + x) if x <= 10 else 0.0 for x in at)
            found = fmean(1 / x for x in at), ndcg, fmean(x == 1 for x in at)
            assert (row["mrr"], row["ndcg_10"], row["p_1"]) == pytest.approx(found, rel=1e-3)
            for k, recall in row.get("recall", {}).items():
                assert recall == pytest.approx(fmean(x <= int(k) for x in at), rel=1e-3)


@slow
def test_lists_of_long_runs(tmp_path):
    result = run("candidates.py", tmp_path / "result.json", "--rows", "1000", "2000")
    kept = committed("candidates.json")
    assert shape(result["sizes"]) == shape(kept["sizes"])
    assert [row.get("lists") for row in result["sizes"]] == [None, 10, 20]


def test_the_memory_of_lists_grows_with_the_rows():
    start, *sizes = committed("candidates.json")["sizes"]
    per_row = [(row["peak_mib"] - start["peak_mib"]) / row["rows"] for row in sizes]
    assert sizes[-1]["rows"] == 1_000_000
    assert per_row == sorted(per_row, reverse=True)  # at most in proportion to the rows


def test_a_step_of_a_retriever_takes_at_most_the_time_of_the_librarys():
    steps = committed("retrievers.json")["steps"]
    for lists in (16, 64):
        own = [row for row in steps if row["lists"] == lists]
        [library] = [row["step_seconds"] for row in own if row["loss"].startswith("library")]
        assert all(row["step_seconds"] <= 1.1 * library for row in own)


@slow
def test_losses_with_tied_scores(tmp_path):
    result = run("losses_tied.py", tmp_path / "result.json", "--only", "XENDCG", "--rounds", "1")
    assert shape(result) == shape(committed("losses_tied.json"))
    assert [row["n"] for row in result["losses"]] == [100_000]


def test_the_committed_losses_with_tied_scores():
    kept = committed("losses_tied.json")
    for row in kept["losses"]:
        assert row["memory_ratio"] <= kept["goal"], row
        assert row["time_ratio"] <= kept["goal"], row


@slow
def test_data(tmp_path):
    where = ["--folder", tmp_path / "big", "--documents", "3000"]
    result = run("data.py", tmp_path / "result.json", *where)
    kept = committed("data.json")
    assert shape(result) == shape(kept)
    assert list((tmp_path / "big").iterdir()) == []


def test_the_sizing_page_is_that_of_its_numbers():
    sizing = load(ROOT / "docs" / "sizing.py")
    kept, _ = sizing.results()
    page = sizing.PAGE.read_text()
    assert sizing.filled(page, sizing.tables(*sizing.results())) == page
    assert [size["documents"] for size in kept["sizes"]] == [10**5, 10**6]
    for size in kept["sizes"]:
        for stage in ("parse", "convert", "group"):
            assert size[stage]["peak_mb"] < 800  # 1 GiB is 1074
    beside = kept["sizes"][1]
    assert beside["text_mb"] > 1000
    assert beside["sklearn"]["differences"] == 0
    for stage in ("sklearn", "sklearn_without"):
        assert beside[stage]["cpu"] > 5 * beside["parse"]["cpu"]
        if "times_sklearn" in size:
            assert size["times_sklearn"] >= 5


@slow
def test_estimators(tmp_path):
    result = run(
        "estimators.py", tmp_path / "result.json", "--rows", "400", "--turns", "1", "--epochs", "2"
    )
    [size] = result["sizes"]
    assert size["columns"] == 30
    for name in ("LGBMRanker", "NeuralRanker"):
        assert 0.3 < size[name]["ndcg_10"] < 1
        assert size[name]["fit_seconds"] > 0
    assert {*result["bare_loop"]} == {*committed("estimators.json")["bare_loop"]}


def test_the_committed_estimators():
    kept = committed("estimators.json")["bare_loop"]
    assert kept["ratio"] <= kept["goal"] == 1.25


def test_soft_ndcg_beside_other_losses(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    trials = load(ROOT / "benchmarks" / "soft_ndcg_trials.py")
    goal = load(ROOT / "benchmarks" / "soft_ndcg_goal.py")
    monkeypatch.setitem(trials.SIZES, "tiny", 1000)
    monkeypatch.setattr(goal, "SIZES", {"tiny": 1000})
    monkeypatch.setattr(goal, "DATA", ("tiny",))
    monkeypatch.setattr(goal, "trial", partial(trials.trial, max_epochs=1))
    for seed, name in product(goal.SEEDS, (goal.OURS, *goal.OTHERS)):
        goal.run(tmp_path, "tiny", name, seed)
    result = goal.summarize(tmp_path)
    kept = committed("soft_ndcg_goal.json")["sets"]["generated, 10,000"]
    assert shape(result["tiny"]["differences"]) == shape(kept["differences"])
    assert result["tiny"]["lists"] == 30
    assert all(0.2 < row["test"] < 1 for row in result["tiny"]["losses"].values())


def test_a_trial_goes_on_with_another_loss_at_a_lower_rate(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    trials = load(ROOT / "benchmarks" / "soft_ndcg_trials.py")
    monkeypatch.setitem(trials.SIZES, "tiny", 1000)
    known = {}
    given = {"data": "tiny", "seed": 0, "known": known, "max_epochs": 2}
    first = trials.trial("SoftmaxLoss()", **given)
    both = trials.trial("SoftmaxLoss() then SoftNDCG()", **given)
    alone = trials.trial("SoftmaxLoss() then SoftNDCG()", **(given | {"known": None}))
    assert (first["epochs"], both["epochs"]) == (2, 4)
    assert both["test"] == alone["test"] != first["test"]
    rates = [ranker.learning_rate for ranker, *_ in known[0].values()]
    assert rates == pytest.approx([1e-3, 1e-3 / 3])


def test_losses_on_standardized_scores(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    trials = load(ROOT / "benchmarks" / "soft_ndcg_trials.py")
    monkeypatch.setitem(trials.SIZES, "tiny", 1000)
    standardized = load(ROOT / "benchmarks" / "standardized.py")
    monkeypatch.setattr(standardized, "folds", trials.folds)
    kept = committed("standardized.json")["losses"]
    assert {*kept} == {*standardized.LOSSES}
    for name, (operators, kind, metric) in standardized.LOSSES.items():
        row = kept[name]
        assert [*row["operators"]] == [*operators]
        assert (row["labels"], row["metric"]) == (kind, metric)
        for cells in row["operators"].values():
            seeds = {data: tuple(one["seed"] for one in done) for data, done in cells.items()}
            assert seeds == standardized.DATA
    for name in ("SoftMRR({})", "QuantileLoss({}, q=1.0)"):
        operators, kind, metric = standardized.LOSSES[name]
        loss = name.format(operators[1])
        found = standardized.measure(loss, "tiny", 0, kind, metric, max_epochs=1)
        assert 0.05 < found["test"] < 1


def test_the_share_of_pairs_that_a_step_turns_around(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    training = load(ROOT / "benchmarks" / "soft_ndcg_training.py")
    before = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    after = torch.tensor([[2.0, 1.0, 3.0], [30.0, 2.0, 1.0]])
    assert training.turned(before, after) == pytest.approx(1 / 6)


def test_generated_lists_have_the_grades_of_their_targets(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    trials = load(ROOT / "benchmarks" / "soft_ndcg_trials.py")
    fold = trials.generated(1000, 0)
    assert [len(part.y) for part in (fold.train, fold.val, fold.test)] == [650, 100, 250]
    for labels in fold.train.y.reshape(-1, 25):
        assert [(labels >= grade).sum() for grade in (1, 2, 3)] == [10, 5, 2]


@pytest.mark.parametrize("name", ["noise", "levels", "tails", "pairs", "steps"])
def test_large_generated_tables(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "generated_tables.py")
    monkeypatch.setattr(module, "TEST_QUERIES", 40)
    fold, again = (module.generated_table(name, 1000, 7) for _ in range(2))
    assert [len(part.y) for part in (fold.train, fold.val, fold.test)] == [850, 150, 1000]
    assert fold.test.X.equals(again.test.X)
    for labels in fold.test.y.reshape(-1, 25):
        assert [(labels >= grade).sum() for grade in (1, 2, 3)] == [10, 5, 2]
    lossy = [column for column in fold.train.X if fold.train.X[column].isna().any()]
    assert len(lossy) == (10 if name in ("noise", "steps") else 0)


@slow
@pytest.mark.filterwarnings("ignore:The argument 'eval_")
def test_large_tables_beside_trees(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "large_tables.py")
    ranker = "NeuralRanker(members=1, max_epochs=2)"
    monkeypatch.setattr(module, "NETWORKS", ranker)
    folds = [module.generated_table("pairs", 1000, 0)]
    rankers = (module.EARLIER, ranker, module.BLEND, module.TREES)
    trials = [module.trial(tmp_path, "pairs, 1,000", folds, one, 0) for one in rankers]
    kept = committed("large_tables.json")
    more = {"epochs", "columns", "kind", "relative", "validation"}
    assert {*trials[1]} <= {*kept["trials"][0]} | more
    full = committed("large_tables_full.json")
    assert {*trials[3]} == {*full["trials"][0]} | {"validation"}
    assert trials[3]["search_seconds"] >= trials[3]["seconds"]
    assert trials[2]["seconds"] == pytest.approx(
        trials[0]["seconds"] + trials[1]["seconds"], abs=0.2
    )
    first, second, third = module.comparisons(tmp_path, trials, module.EARLIER)
    later = {"standard_error": 0.0, "draws": [0.0]}  # than the committed files
    assert shape({**kept["comparisons"][0], **later}) == shape(first)
    assert (first["lists"], second["ranker"]) == (2000, module.BLEND)
    assert first["ndcg_10"] - first["trees"] == pytest.approx(first["difference"][0], abs=2e-4)
    assert third["ranker"] == module.TREES
    assert {one["ranker"] for one in module.comparisons(tmp_path, trials)} == {*rankers[:3]}
    other, *_ = module.comparisons(tmp_path, trials, ranker)
    losses = committed("large_tables_losses.json")["comparisons"]
    assert shape(other) == shape({**losses[0], "draws": [0.0]})
    assert other["ranker"] == module.EARLIER
    assert other["difference"][0] == -first["difference"][0]
    assert other["standard_error"] == first["standard_error"] > 0


@slow
def test_trees_that_imitate_a_ranker(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "distilled_trees.py")
    network = partial(module.NeuralRanker, members=1, max_epochs=2)
    monkeypatch.setattr(module, "NeuralRanker", network)
    monkeypatch.setattr(module, "TREES", 20)
    entry = module.measured("pairs", 1000, 0)
    kept = next(one for one in committed("distilled_trees.json")["sets"] if "rows" in one)
    assert shape(entry) == shape(kept)
    assert entry["test_lists"] == 2000
    rankers = entry["rankers"]
    size = rankers["LightGBM"]["leaves"] + rankers["student"]["leaves"]
    assert rankers["LightGBM + student"]["leaves"] == size
    assert rankers["student"]["leaves"] == 8 * 20


def test_the_page_shows_trees_that_imitate_a_ranker():
    page = (ROOT / "docs" / "production.md").read_text()
    for one in committed("distilled_trees.json")["sets"]:
        values = [one["rankers"][x]["ndcg_10"] for x in ("LightGBM", "network", "student")]
        assert " | ".join(f"{x:.4f}" for x in values) in page


@slow
@pytest.mark.filterwarnings("ignore:The argument 'eval_")
def test_trees_at_full_strength(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "large_tables.py")
    rivals = importlib.import_module("rivals")
    few = {name: settings[:2] for name, settings in module.SEARCHES.items()}
    monkeypatch.setattr(module, "SEARCHES", few)
    fold = module.generated_table("levels", 1000, 0)
    names = (module.TREES, rivals.XGBOOST, rivals.BAGGED)
    trials = [module.trial(tmp_path, "levels, 1,000", [fold], name, 0) for name in names]
    for one in trials:
        scores = np.load(module.folder_of(tmp_path, one["data"], one["ranker"], 0))
        assert one["validation"] == pytest.approx(
            module.ndcg(scores["val0"], fold.val).mean(), abs=1e-4
        )
    first, second, bagged = trials
    assert min(one["search_seconds"] - one["seconds"] for one in (first, second)) > 0
    same = ("learning_rate", "leaves")  # five forests with the settings of the search
    assert [bagged[key] for key in same] == [first[key] for key in same]
    alone = rivals.lightgbm_trees(fold, *(first[key] for key in same), seed=4)
    five = rivals.Bagged(fold, {key: first[key] for key in same})
    np.testing.assert_allclose(five.models[4].predict(fold.test.X), alone.predict(fold.test.X))
    mean = np.mean([x.predict(fold.test.X) for x in five.models], axis=0)
    np.testing.assert_allclose(five.predict(fold.test.X), mean)

    # the comparisons that count are those with the trees that are best on the test lists
    ours = {"data": "levels, 1,000", "ranker": module.OURS, "seed": 0}
    rows = {
        name: [{**ours, "seeds": [0], "p": 0.01 * at}] for at, name in enumerate(names, start=1)
    }
    [row] = module.beside_best([*trials, ours], rows)
    assert row["rival"] == max(trials, key=lambda one: one["ndcg_10"])["ranker"]
    assert row["p_holm"] == row["p"]
    other = [{**row, "data": "no trees but LightGBM", "ranker": module.OURS}]
    known = [{"data": "no trees but LightGBM", "ranker": module.TREES, "seed": 0, "ndcg_10": 0.5}]
    [row] = module.beside_best(known, {module.TREES: other})
    assert row["rival"] == module.TREES


@slow
@pytest.mark.filterwarnings("ignore:The argument 'eval_")
def test_rules_for_the_trees_of_a_blend(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "blend_trees.py")
    quick = partial(module.NeuralRanker, members=1, max_epochs=2)
    monkeypatch.setattr(module, "NeuralRanker", quick)
    found = module.trial("pairs, 1,000", [module.generated_table("pairs", 1000, 0)], 0)
    rules = found["rules"]
    assert {*rules} == {*module.RULES}
    today, other = (rules[name] for name in (module.TODAY, "0.05, then 0.03 if better"))
    assert today["difference"] == 0
    assert other["seconds"] > today["seconds"]
    assert other["ndcg_10"] - today["ndcg_10"] == pytest.approx(other["difference"], abs=2e-4)
    assert {*found} == {*committed("blend_trees.json")["trials"][0]}


def test_the_summary_of_the_rules_is_that_of_their_trials(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    kept = committed("blend_trees.json")
    module = load(ROOT / "benchmarks" / "blend_trees.py")
    assert module.summary(kept["trials"]) == kept["summary"]


@pytest.mark.usefixtures("few_test_lists")
def test_ensembles_of_both_kinds(monkeypatch):
    module = load(ROOT / "benchmarks" / "mixed_kinds.py")
    for rows, kind in ((100, "periodic"), (30_000, "periodic"), (30_000, "bins")):
        settings = parameters.settings(module.ranker(kind, rows, rows // 10, 0), rows, rows // 10)
        given = parameters.settings(module.NeuralRanker(), rows, rows // 10, kind)
        names = ("members", "learning_rate", "schedule", "columns", "max_epochs", "patience")
        assert [getattr(settings, x) for x in names] == [getattr(given, x) for x in names]
    ranker = module.ranker
    quick = lambda *given: ranker(*given).set_params(max_epochs=2)  # noqa: E731
    monkeypatch.setattr(module, "ranker", quick)
    found = module.trial("pairs, 1,000", [module.generated_table("pairs", 1000, 0)], 0)
    ways = found["ways"]
    assert ways["chosen"]["difference"] == 0
    assert ways["chosen"]["ndcg_10"] in (ways["bins"]["ndcg_10"], ways["periodic"]["ndcg_10"])
    for one in ways.values():
        gain = one["ndcg_10"] - ways["chosen"]["ndcg_10"]
        assert gain == pytest.approx(one["difference"], abs=2e-4)
    kept = committed("mixed_kinds.json")
    assert {*found} == {*kept["trials"][0]}
    assert module.summary(kept["trials"]) == kept["summary"]


def test_tails_have_rare_levels(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "generated_tables.py")
    monkeypatch.setattr(module, "TEST_QUERIES", 40)
    train = module.generated_table("tails", 10_000, 0).train
    counts = train.X["brand"].value_counts()
    assert counts.max() > 50 > 3 > counts[counts > 0].median()


def test_tries_of_other_trainings(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "large_tables.py")
    tries = importlib.import_module("tries")
    fold = module.generated_table("levels", 1000, 0)
    given = "members=2, max_epochs=2, columns='all', max_levels=500"
    scores = {
        name: module.network(fold, f"{name}({given})", 0).predict(fold.test.X)
        for name in ("NeuralRanker", "OneProduct", "OneLayer", "Bfloat16", "level_dropout(0.5)")
    }
    plain = scores.pop("NeuralRanker")
    np.testing.assert_allclose(scores.pop("OneProduct"), plain, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(scores.pop("Bfloat16"), plain, atol=0.1)  # exact without AMX
    assert not any(np.allclose(plain, other, rtol=1e-3) for other in scores.values())
    assert tries.training.Training is tries.Training
    rare = module.network(fold, f"rare(NeuralRanker({given}), 3)", 0)
    counts = fold.train.X["brand"].value_counts()
    assert {*rare.schema_.categories["brand"].levels} == {*counts.index[counts >= 3]}
    assert rare.predict(fold.test.X).shape == (len(fold.test.y),)


@pytest.mark.usefixtures("few_test_lists")
def test_parts_of_a_fit(monkeypatch):
    module = load(ROOT / "benchmarks" / "fit_parts.py")
    layer, step = module.CodedLinear.forward, torch.optim.AdamW.step
    start = time.process_time()
    found = module.parts("noise", 1000, 0)
    assert sum(found.values()) <= time.process_time() - start
    assert min(found[part] for part in ("first layer, forward", "optimizer", "validation")) > 0
    assert found["other layers and loss, backward"] > found["optimizer"]
    assert (module.CodedLinear.forward, torch.optim.AdamW.step) == (layer, step)
    monkeypatch.setattr(module, "STEPS", ("OneProduct",))
    assert all(milliseconds > 0 for milliseconds in module.steps(3).values())
    kept = committed("fit_parts.json")
    assert {*kept["fits"][0]["seconds"]} >= {*found} - {"choice of columns: shuffling"}


def test_a_regression_table_as_lists(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("LTR_DATA", "nowhere")
    module = load(ROOT / "benchmarks" / "quality_sets.py")
    folds = module.load("diabetes")
    assert sum(len(fold.test.lengths) for fold in folds) == 40
    for fold in folds:
        assert {*fold.train.lengths} == {11}
        ages = [x.X[:, 0].reshape(-1, 11) for x in (fold.train, fold.test)]
        assert all((age.max(1) - age.min(1) < 10).all() for age in ages)


def test_senses_as_a_table(data_root, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("LTR_DATA", str(data_root))
    module = load(ROOT / "benchmarks" / "quality_sets.py")
    (fold,) = module.load("senses, 2,000")
    assert len(fold.train.lengths) == 2077
    for side in (fold.train, fold.val, fold.test):
        assert (np.bincount(side.qid, side.y) == 1).all()
        assert side.X["last"].cat.categories.equals(fold.train.X["last"].cat.categories)
    assert not fold.train.X.isna().any(axis=None)
    assert 0.1 < fold.test.X["last"].isna().mean() < 0.3  # new words


def test_comparisons_of_other_draws_are_pooled(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = load(ROOT / "benchmarks" / "large_tables.py")
    draws, trials = np.random.default_rng(0), []
    for seed, ranker in product(range(4), (module.TREES, module.OURS)):
        path = module.folder_of(tmp_path, "noise, 100", ranker, seed)
        lists = draws.normal(0.01 * seed * (ranker == module.OURS), 1, 50 + seed)
        np.savez(path, ndcg=lists)
        trials.append({"data": "noise, 100", "ranker": ranker, "seed": seed})
    (whole,) = module.comparisons(tmp_path, trials)
    (early,) = module.comparisons(tmp_path, trials[:4])
    (late,) = module.comparisons(tmp_path, trials[4:])
    found = module.pooled(early, late)
    exact = ("seeds", "lists", "draws", "over_draws")
    assert [found[key] for key in exact] == [whole[key] for key in exact]
    for key in ("ndcg_10", "trees", "standard_error"):
        assert found[key] == pytest.approx(whole[key], rel=1e-3, abs=1e-4)
    assert found["difference"] == pytest.approx(whole["difference"], rel=0.1)
    assert found["p"] == pytest.approx(whole["p"], rel=0.05)
    # whose scores are gone is pooled with what has scores, once
    (again,) = module.comparisons(tmp_path, trials[4:], earlier=[early])
    assert again["seeds"] == [0, 1, 2, 3]
    assert module.comparisons(tmp_path, trials[4:], earlier=[again]) == [again]
    assert module.comparisons(tmp_path, [], earlier=[again]) == [again]


@slow
def test_tuning(tmp_path, data_root):
    options = ["--sets", "OHSUMED", "--folds", "1", "--trials", "2"]
    options += ["--journal", str(tmp_path / "study.journal")]
    result = run("tuning.py", tmp_path / "result.json", *options)
    (fold,) = result["sets"]["OHSUMED"]["folds"]
    assert {"default_test", "tuned_test", "parameters", "pruned"} <= {*fold}
    assert [one["name"] for one in result["sets"]["OHSUMED"]["test"]["models"]] == [
        "default",
        "tuned",
    ]
