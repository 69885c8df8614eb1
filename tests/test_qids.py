"""One rule says which qids are the same, in every function, table and file that has qids."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ltr.clicks import Cascade, simulate_clicks
from ltr.columns import qid_text
from ltr.datasets import ListDataset, Schema, load_table, query_folds, read_table
from ltr.estimators import tables
from ltr.models import AttentionScorer, RankingModel
from ltr.preferences import bradley_terry, lists_from_preferences
from ltr.reports import evaluate
from ltr.reports.scored_tables import Columns, read_scored
from ltr.rerank import diversify, fuse, fusion_weights, mmr, normalize_scores, rank
from ltr.serving import OnnxRanker

EAST = timezone(timedelta(hours=2))
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)

CASES: dict[str, tuple[Any, list[str]]] = {
    "zeros": ([0.0, -0.0, 0, "0"], ["0", "0", "0", "0"]),
    "numbers and text": ([1, "1", 1.0, Decimal("1.0"), np.float32(1), np.int8(1)], ["1"] * 6),
    "booleans": ([True, 1, "true", False, 0], ["true", "1", "true", "false", "0"]),
    "text as written": (["1", "01", "1.0", " 1"], ["1", "01", "1.0", " 1"]),
    "fractions": ([0.5, Decimal("0.50"), ".5", 1e-7], ["0.5", "0.5", ".5", "0.0000001"]),
    "large": ([1e22, 10**22, 2.0**60, 2**60], [str(10**22)] * 2 + [str(2**60)] * 2),
    "one instant": (
        [NOON, NOON.astimezone(EAST), NOON.replace(tzinfo=None)],
        ["2026-11-28 12:00:00Z", "2026-11-28 12:00:00Z", "2026-11-28 12:00:00"],
    ),
    "dates": (
        [date(2026, 11, 28), datetime(2026, 11, 28), pd.Timestamp("2026-11-28"), "2026-11-28"],
        ["2026-11-28"] * 4,
    ),
    "bytes": ([b"a", "a", "\u00e9".encode()], ["a", "a", "\u00e9"]),
    "float32 array": (np.array([1, -0.0, 0.1], np.float32), ["1", "0", "0.1"]),
    "float64 array": (np.array([2.0, 0.0, -0.0, 0.1]), ["2", "0", "0", "0.1"]),
    "big-endian array": (np.array([1, 2, 1], ">i4"), ["1", "2", "1"]),
    "bool tensor": (torch.tensor([True, False, True]), ["true", "false", "true"]),
    "float tensor": (torch.tensor([3.0, -0.0, 0.0]), ["3", "0", "0"]),
    "days": (np.array(["2026-11-28", "2026-12-01"], "M8[D]"), ["2026-11-28", "2026-12-01"]),
    "nanoseconds": (
        np.array(["2026-11-28T12", "2026-11-28T00:00:00.000000001", "2026-11-28"], "M8[ns]"),
        ["2026-11-28 12:00:00", "2026-11-28 00:00:00.000000001", "2026-11-28"],
    ),
    "pandas zone": (
        pd.Series([NOON, NOON]).dt.tz_convert("Europe/Berlin"),
        ["2026-11-28 12:00:00Z"] * 2,
    ),
    "pandas arrow": (
        pd.Series([Decimal("1.0"), Decimal("2.5")], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        ["1", "2.5"],
    ),
    "pandas category": (pd.Series([7.0, 8.0, 7.0], dtype="category"), ["7", "8", "7"]),
    "arrow zone": (
        pa.chunked_array([[NOON], [NOON.astimezone(EAST)]]),
        ["2026-11-28 12:00:00Z"] * 2,
    ),
    "arrow floats": (pa.array([1.0, 0.0, -0.0]), ["1", "0", "0"]),
    "polars zone": (pl.Series([NOON, NOON]), ["2026-11-28 12:00:00Z"] * 2),
    "polars category": (pl.Series(["b", "a", "b"], dtype=pl.Categorical), ["b", "a", "b"]),
}


SCORES = np.random.default_rng(0).permutation(8).astype(np.float64)
LABELS = np.array([0.0, 1, 2, 0, 1, 0, 2, 1])
X = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)


def of_model(qid: Any) -> Any:
    """Scores that depend on the other rows of a list."""
    torch.manual_seed(0)
    model = RankingModel(AttentionScorer(3, hidden=(8,), heads=2)).eval()
    return model.predict(X[: len(qid)], qid=qid)


def of_lists(qid: Any) -> Any:
    rows = len(qid)
    data = ListDataset.from_arrays(X[:rows], LABELS[:rows], qid, doc_id=qid)
    return [data.qids, data.doc_id.to_pylist(), data.features.tolist()]


def of_votes(names: Any) -> Any:
    """Each document beats one other document; and each is the query of a vote."""
    rows = len(names)
    found = bradley_terry(names, ["other"] * rows)
    lists = lists_from_preferences(["winner"] * rows, ["loser"] * rows, names)
    return [found.strength, lists.pairs]


def of_simulation(qid: Any) -> Any:
    rows = len(qid)
    log = simulate_clicks(Cascade([0.1, 0.5, 0.9]), LABELS[:rows], SCORES[:rows], qid, sessions=9)
    return [log["session"], log["row"], log["click"]]


DOORS: dict[str, Callable[[Any], Any]] = {
    "rank": lambda qid: rank(SCORES[: len(qid)], qid),
    "fuse": lambda qid: fuse([SCORES[: len(qid)], LABELS[: len(qid)]], qid),
    "fusion_weights": lambda qid: fusion_weights([SCORES[: len(qid)]] * 2, LABELS[: len(qid)], qid),
    "normalize_scores": lambda qid: normalize_scores(SCORES[: len(qid)], qid),
    "mmr": lambda qid: mmr(SCORES[: len(qid)], qid, vectors=X[: len(qid)]),
    "diversify": lambda qid: diversify(SCORES[: len(qid)], abs(X[: len(qid)]) / 9, qid),
    "evaluate": lambda qid: evaluate(LABELS[: len(qid)], SCORES[: len(qid)], qid).values["mrr"],
    "query_folds": lambda qid: _folds(qid),
    "simulate_clicks": of_simulation,
    "votes": of_votes,
    "from_arrays": of_lists,
    "fit": lambda qid: [*map(list, tables.list_groups(tables.query_names(len(qid), qid, None)))],
    "predict": of_model,
}


def _folds(qid: Any) -> Any:
    """The fold of each row, of a set in which each fold has a query."""
    plain = qid.tolist() if isinstance(qid, torch.Tensor) else plain_values(qid)
    return query_folds([*plain, *(f"other {i}" for i in range(20))], 2).folds


def plain_values(qid: Any) -> list[Any]:
    return qid.to_pylist() if isinstance(qid, pa.Array | pa.ChunkedArray) else [*qid]


@pytest.mark.parametrize("case", CASES)
def test_the_text_of_a_qid(case):
    given, texts = CASES[case]
    plain = [one.item() if isinstance(one, torch.Tensor) else one for one in plain_values(given)]
    assert [qid_text(value) for value in plain] == texts


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", CASES)
def test_every_function_finds_the_same_lists(case, door):
    given, texts = CASES[case]
    found, expected = DOORS[door](given), DOORS[door](texts)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


COLUMNS = [case for case, (given, _) in CASES.items() if not isinstance(given, list)]


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("source", ["frame", "parquet"])
def test_tables_and_files_have_the_same_qids(case, source, tmp_path):
    given, texts = CASES[case]
    if isinstance(given, torch.Tensor):
        given = given.numpy()
    if isinstance(given, np.ndarray):
        given = given.astype(given.dtype.newbyteorder("="))
    rows = len(texts)
    columns = {"q": given, "doc": given, "x": SCORES[:rows], "y": LABELS[:rows]}
    arrow = isinstance(given, pa.Array | pa.ChunkedArray)
    kind: Any = pl.DataFrame if isinstance(given, pl.Series) else pd.DataFrame
    table: Any = pa.table(columns) if arrow else kind(columns)
    if source == "parquet":
        file = tmp_path / "t.parquet"
        pq.write_table(table.to_arrow() if kind is pl.DataFrame else pa.table(table), file)
        table = file
    schema = Schema.infer(load_table(table), qid="q", label="y", doc_id="doc")
    found = read_table(table, schema)
    assert found.qids == list(dict.fromkeys(texts))
    assert found.doc_id.to_pylist() == np.array(texts)[found.rows].tolist()


def test_evaluations_of_two_types_of_qids_are_compared():
    numbers = evaluate(LABELS, SCORES, [1, 1, 2, 2, 3, 3, 4, 4], name="a")
    texts = evaluate(LABELS, -SCORES, ["4", "4", "3", "3", "2", "2", "1", "1"], name="b")
    assert numbers.compare(texts).lists == 4
    assert [*numbers.per_list.index] == [1, 2, 3, 4]


def test_the_names_of_votes_are_names():
    found = bradley_terry([1.0, 2.0, 1.0], [2, 3, 3])
    assert found.doc_id.tolist() == [1.0, 2.0, 3]


@pytest.mark.parametrize(
    ("qid", "message"),
    [
        (["a", "\ud800"], r"qid.*UTF-8.*'\\ud800' in row 1"),
        (["a", b"\xff"], r"qid.*UTF-8.*row 1"),
        ([timedelta(1), "a"], "qid.*duration.*row 0"),
        (np.array([1, 2], "m8[ns]"), "qid.*duration.*row 0"),
        (["a", Decimal("sNaN")], "qid.*sNaN.*row 1"),
        (np.array([1, "NaT"], "M8[ns]"), "qid.*NaT.*row 1"),
        (["a", ""], "qid.*'' in row 1"),
    ],
)
def test_qids_without_a_text(qid, message):
    doors = [rank, evaluate_scores, lambda s, q: tables.query_names(2, q, None)]
    for door in doors:
        with pytest.raises(ValueError, match=message):
            door(SCORES[:2], qid)


def evaluate_scores(scores, qid):
    return evaluate(LABELS[: len(scores)], scores, qid)


def test_evaluate_reads_qids_of_parquet_by_the_same_rule(tmp_path):
    columns = {"label": [1.0, 0.0, 1.0], "score": [3.0, 2.0, 1.0]}
    for number, qid in enumerate(([1e22, 0.0, -0.0], [str(10**22), "0", "0"])):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"qid": qid, **columns}), file)
        assert read_scored(str(file), Columns()).qids == [str(10**22), "0"]


@pytest.mark.parametrize("case", CASES)
def test_a_served_model_finds_the_same_lists(case, monkeypatch):
    given, texts = CASES[case]
    given = given.numpy() if isinstance(given, torch.Tensor) else given
    ranker = object.__new__(OnnxRanker)
    ranker.about = {"looks_at_list": True}
    rows = np.arange(len(texts), dtype=np.float32)[:, None]
    monkeypatch.setattr(ranker, "_encoded", lambda table: (rows, None))
    # The score of a row is its number, plus 100 for each row of the list.
    monkeypatch.setattr(ranker, "score_arrays", lambda x, codes: x[:, 0] + 100 * len(x))
    np.testing.assert_array_equal(ranker.predict(None, given), ranker.predict(None, texts))
