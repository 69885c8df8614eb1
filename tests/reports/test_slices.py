"""Slices of queries: `evaluate(by=...)`, `compare_slices`, `ltr evaluate --by`, the report."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.cli import main
from ltr.metrics.comparison import compare, holm
from ltr.metrics.trec import write_qrels, write_run
from ltr.reports import evaluate
from ltr.reports.slices import FEWEST, list_values, segments

LISTS, ROWS = 120, 6


def rows(seed=0):
    """Labels, two columns of scores, qids and the segment of each row: 70, 40 and 10 lists."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, LISTS * ROWS)
    before, after = (labels + noise * rng.normal(size=len(labels)) for noise in (3.0, 1.0))
    segment = np.repeat(["head", "torso", "tail"], [70 * ROWS, 40 * ROWS, 10 * ROWS])
    order = rng.permutation(len(labels))
    qid = np.repeat([f"q{i}" for i in range(LISTS)], ROWS)
    return tuple(x[order] for x in (labels, before, after, qid, segment))


def test_each_slice_is_evaluated_as_if_it_were_alone():
    labels, scores, _, qid, segment = rows()
    found = evaluate(labels, scores, qid, by={"segment": segment}, resamples=500, seed=3)
    assert [one.value for one in found.slices] == ["head", "torso", "tail"]
    for one in found.slices:
        mine = segment == one.value
        alone = evaluate(labels[mine], scores[mine], qid[mine], resamples=500, seed=3)
        assert one.lists == len(alone.qids)
        assert one.fraction == one.lists / LISTS
        assert [found.qids[i] for i in one.positions] == alone.qids
        for title, interval in alone.intervals.items():
            if one.lists < FEWEST:
                assert one[title].mean == pytest.approx(interval.mean, abs=1e-15)
                assert np.isnan(one[title][1:]).all()
            else:
                assert one[title] == interval
    assert "only 10: too few" in str(found)
    assert found.slices["segment", "torso"].lists == 40
    with pytest.raises(KeyError):
        found.slices["segment", "unknown"]


def test_paired_tests_of_slices_are_those_of_compare_with_holm_over_slices():
    labels, before, after, qid, segment = rows(1)
    old = evaluate(labels, before, qid, ["map"], by=segment, resamples=500, name="old")
    new = evaluate(labels[::-1], after[::-1], qid[::-1], ["map"], resamples=500, name="new")
    found = old.compare_slices(new)
    values = old.values["map"], new.values["map"][old._positions(new)]
    expected = []
    for one in found:
        result, x = one["map"], [v[one.positions] for v in values]
        if one.lists < FEWEST:
            assert result.models[1].p is result.models[1].p_holm is None
            assert result.models[1].difference.mean == pytest.approx((x[1] - x[0]).mean())
            assert result.models[1].better == (x[1] > x[0]).sum()
            continue
        plain = compare(*x, names=("old", "new"), resamples=500)
        assert result.models[1].p == plain.models[1].p
        assert result.models[1].difference == plain.models[1].difference
        expected.append(plain.models[1].p)
    assert len(expected) == 2
    assert [s["map"].models[1].p_holm for s in found if s.lists >= FEWEST] == holm(expected)
    with pytest.raises(ValueError, match="needs slices"):
        new.compare_slices(old)


@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        list,
        pd.Series,
        lambda x: pd.Series(x, dtype="category"),
        pl.Series,
        pa.array,
        lambda x: pa.chunked_array([pa.array(x[:4]), pa.array(x[4:])]),
        lambda x: torch.tensor(pd.factorize(x)[0]),
    ],
)
def test_any_array_gives_the_same_slices(kind):
    labels, scores, _, qid, segment = rows(2)
    found = evaluate(labels, scores, qid, ["mrr"], by={"s": kind(segment)}, resamples=5).slices
    assert sorted(one.lists for one in found) == [10, 40, 70]


def test_numbers_are_cut_into_ranges_and_counts_need_no_column():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 60, 200)
    qid = np.repeat(np.arange(200), sizes)
    labels = rng.integers(0, 2, len(qid))
    frequency = rng.permutation(10_000)[:200]
    by = {"frequency": frequency[qid], "size": "length", "good": "relevant"}
    found = evaluate(labels, rng.normal(size=len(qid)), qid, ["mrr"], by=by, resamples=5)
    relevant = np.bincount(qid, labels)
    for column, numbers in {"frequency": frequency, "size": sizes, "good": relevant}.items():
        slices = found.slices.columns()[column]
        assert len(slices) == 4
        assert sum(one.lists for one in slices) == 200
        last = -1
        for one in slices:
            low, high = map(int, one.value.split(" to "))
            mine = numbers[one.positions]
            assert (mine.min(), mine.max()) == (low, high)
            assert last < low
            assert 35 <= one.lists <= 65
            last = high
    one = evaluate(labels, rng.normal(size=len(qid)), qid, ["mrr"], by="length", resamples=5)
    assert [s.column for s in one.slices] == ["length"] * 4


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(-40, 40), st.floats(width=32)), min_size=1))
def test_ranges_hold_every_list_once(values):
    lists = np.arange(len(values))
    column = list_values("by", np.array(values, float), lists, lists)
    distinct = len({*column.drop_null().to_pylist()} | ({None} if column.null_count else set()))
    if distinct < 2:
        with pytest.raises(ValueError, match="at least two different values"):
            segments("by", column)
        return
    codes, names = segments("by", column)
    assert len({*names}) == len(names)
    assert sorted({*codes.tolist()}) == [*range(len(names))]
    assert (names[-1] == "missing") == bool(column.null_count)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (np.array([0.2, 0.1, -0.0, np.nan], np.float32), ["0", "0.1", "0.2", "missing"]),
        (np.array([0.2, 0.1, -0.0, np.nan], np.float16), ["0", "0.1", "0.2", "missing"]),
        ([2**60 + 1, 2**60, -3, 5], ["-3", "5", f"{2**60}", f"{2**60 + 1}"]),
        (
            np.array([2**64 - 1, 2**64 - 2, 7, 8], np.uint64),
            ["7", "8", f"{2**64 - 2}", f"{2**64 - 1}"],
        ),
    ],
)
def test_numbers_have_names_and_an_order_in_their_own_type(values, names):
    found = evaluate([0, 1, 0, 1], [1, 2, 3, 4], range(4), ["mrr"], by=values, resamples=5)
    assert [one.value for one in found.slices] == names


def test_ranges_of_large_integers_keep_their_ends():
    rng = np.random.default_rng(0)
    values = 2**62 + rng.permutation(40)
    found = segments("by", pa.array(values))
    assert found.names == [f"{2**62 + i} to {2**62 + i + 9}" for i in (0, 10, 20, 30)]
    assert found.codes.tolist() == ((values - 2**62) // 10).tolist()


def test_a_missing_value_is_a_slice():
    labels, scores, _, qid, segment = rows(3)
    by = np.where(segment == "tail", None, segment)
    found = evaluate(labels, scores, qid, ["mrr"], by=by, resamples=5)
    assert [(one.value, one.lists) for one in found.slices] == [
        ("head", 70),
        ("torso", 40),
        ("missing", 10),
    ]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (["a"] * 5, r"by must have one value for each of the 6 rows, got shape \(5,\)"),
        (list("aababb"), r"by must have one value in all rows of a list, got 'a' and 'b' in list"),
        ([1.0, 1.0, np.nan, 2.0, 2.0, 2.0], r"got 1\.0 and None in list 'x'"),
        (["a"] * 6, r"at least two different values, got 'a' in all lists"),
        ([None] * 6, r"at least two different values, got 'missing' in all lists"),
        ("segment", r"one of \('length', 'relevant'\), got 'segment'"),
        ({}, "at least one column"),
        ({"a": list("aabbbb")}, r"by\['a'\] must have one value in all rows"),
        (3, "by must be an array, got 3"),
    ],
)
def test_wrong_columns_are_one_line(by, message):
    qid = list("xxxyyy")
    with pytest.raises(ValueError, match=message) as error:
        evaluate([0, 1, 0, 1, 0, 1], [1, 2, 3, 4, 5, 6], qid, by=by)
    assert "\n" not in str(error.value)


def test_too_many_slices_are_refused():
    qid = np.arange(1001)
    with pytest.raises(ValueError, match="at most 1,000 different values, got 1,001"):
        evaluate(qid % 2, qid, qid, ["mrr"], by=[f"v{i}" for i in qid], resamples=5)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels, before, after, qid, segment = rows(4)
    columns = {"qid": qid, "label": labels, "before": before, "after": after, "segment": segment}
    pd.DataFrame(columns).to_parquet("scored.parquet")
    pd.DataFrame(columns).to_csv("scored.csv", index=False)
    return labels, before, after, qid, segment


@pytest.mark.parametrize("name", ["scored.parquet", "scored.csv"])
def test_the_command_prints_and_writes_what_python_gives(table, capsys, name):
    labels, before, after, qid, segment = table
    arguments = [name, "--score", "before", "--score", "after", "--metrics", "map"]
    written = ["--output", "out.json", "--html", "report.html", "--resamples", "300"]
    assert main(["evaluate", *arguments, "--by", "segment", "relevant", *written]) in (0, None)
    out = capsys.readouterr().out
    options = {"resamples": 300}
    by = {"segment": segment, "relevant": "relevant"}
    old = evaluate(labels, before, qid, ["map"], by=by, name="before", **options)
    new = evaluate(labels, after, qid, ["map"], name="after", **options)
    expected = old.compare_slices(new)
    content = json.loads(Path("out.json").read_text())
    assert content["slices"] == expected.to_dict()
    assert [*content["by"]] == ["segment", "relevant"]
    assert dict(zip(content["qids"], content["by"]["segment"], strict=True)) == dict(
        zip(qid.tolist(), segment.tolist(), strict=True)
    )
    for _, _, shown in expected.tables():
        for row in shown:
            for cell in row:
                assert cell in out
    page = Path("report.html").read_text(encoding="utf-8")
    assert "By <bdi" in page
    assert "only 10: too few" in page
    assert page.count('class="interval') == 1 + sum(one.lists >= FEWEST for one in expected)


def test_one_model_on_the_command_line(table, capsys):
    labels, before, _, qid, segment = table
    arguments = ["--metrics", "map", "mrr", "--resamples", "50", "--html", "report.html"]
    main(["evaluate", "scored.csv", "--score", "before", *arguments, "--by", "segment"])
    out = capsys.readouterr().out
    for one in evaluate(
        labels, before, qid, ["map", "mrr"], by={"segment": segment}, resamples=50
    ).slices:
        mine = one["mrr"]
        shown = str(mine) if one.lists >= FEWEST else f"{mine.mean:.4f} (only 10: too few)"
        assert shown in out
    assert "Worst queries of each slice, by map" in Path("report.html").read_text()


def test_runs_have_slices_by_what_is_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    qrels = {f"q{i}": {f"d{j}": int(j <= i % 3) for j in range(8)} for i in range(90)}
    write_qrels("qrels.txt", qrels)
    write_run("a.run", {q: {d: float(rng.normal()) for d in x} for q, x in qrels.items()})
    options = ["--qrels", "qrels.txt", "--resamples", "20", "--output", "out.json"]
    main(["evaluate", "a.run", *options, "--by", "relevant"])
    slices = json.loads(Path("out.json").read_text())["slices"]
    assert [(one["value"], one["lists"]) for one in slices] == [("1", 30), ("2", 30), ("3", 30)]
    assert main(["evaluate", "a.run", *options, "--by", "segment"]) == 2
    assert "a.run: a run has no column 'segment'" in capsys.readouterr().err


def test_a_table_with_judgements_has_slices(table):
    labels, _, _, qid, _ = table
    docs = [f"d{i}" for i in range(len(qid))]
    pd.read_parquet("scored.parquet").assign(doc_id=docs).to_parquet("named.parquet")
    qrels: dict[str, dict[str, int]] = {"unseen": {"d0": 1}}
    for q, doc, label in zip(qid.tolist(), docs, labels.tolist(), strict=True):
        qrels.setdefault(q, {})[doc] = label
    write_qrels("qrels.txt", qrels)
    options = ["--qrels", "qrels.txt", "--resamples", "20", "--output", "out.json"]
    main(["evaluate", "named.parquet", "--score", "after", *options, "--by", "segment"])
    slices = json.loads(Path("out.json").read_text())["slices"]
    assert [(one["value"], one["lists"]) for one in slices] == [
        ("head", 70),
        ("torso", 40),
        ("tail", 10),
        ("missing", 1),
    ]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (["nothing"], "no column 'nothing'"),
        (["after"], "column 'after' must have one value in all rows of a list"),
    ],
)
def test_wrong_columns_on_the_command_line(table, capsys, by, message):
    assert main(["evaluate", "scored.parquet", "--score", "before", "--by", *by]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_tables_that_disagree_about_a_slice_are_refused(table, capsys):
    pd.read_parquet("scored.parquet").assign(segment="x").to_parquet("other.parquet")
    options = ["--score", "before", "--resamples", "20", "--by", "segment"]
    assert main(["evaluate", "scored.parquet", "other.parquet", *options]) == 2
    assert (
        "column 'segment' must have one value for a query in all files" in capsys.readouterr().err
    )


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ([0, 1, 7, 8], [0.5, 1.5, 7, 8], ["0", "0.5", "1", "1.5", "7", "8"]),
        ([0, 1, 7, 8], ["a", "b", "7", "8"], ["0", "1", "7", "8", "a", "b"]),
        ([None] * 4, ["a", "b", None, None], ["a", "b", "missing"]),
    ],
)
def test_files_with_other_lists_and_types_share_a_column(
    tmp_path, monkeypatch, judged, first, second, names
):
    monkeypatch.chdir(tmp_path)
    write_qrels("qrels.txt", {f"q{i}": {"d": 1, "e": 0} for i in range(6)})
    pd.DataFrame({"qid": ["q0", "q1", "q4", "q5"], "by": first}).assign(
        label=1, score=1.0, doc_id="d"
    ).to_parquet("a.parquet")
    pd.DataFrame({"qid": ["q2", "q3", "q4", "q5"], "by": second}).assign(
        label=1, score=1.0, doc_id="d"
    ).to_parquet("b.parquet")
    options = ["--by", "by", "--metrics", "mrr", "--resamples", "20", "--output", "o.json"]
    options += ["--qrels", "qrels.txt"] * judged
    for files in (["a.parquet", "b.parquet"], ["b.parquet", "a.parquet"]):
        assert main(["evaluate", *files, *options]) == 0
        content = json.loads(Path("o.json").read_text())
        assert [one["value"] for one in content["slices"]] == names
        slices = dict(zip(content["qids"], content["by"]["by"], strict=True))
        for number, value in enumerate([*first[:2], *second]):
            assert slices[f"q{number}"] == ("missing" if value is None else f"{value}")


def test_the_report_of_several_models_has_each_in_each_slice(tmp_path):
    labels, before, after, qid, segment = rows(5)
    by = {"<b>segment</b>": segment}
    old = evaluate(labels, before, qid, ["map"], by=by, resamples=50, name="old")
    others = [
        evaluate(labels, x, qid, ["map"], resamples=50, name=name)
        for name, x in (("new", after), ("same", before))
    ]
    old.report(tmp_path / "report.html", *others)
    page = (tmp_path / "report.html").read_text()
    assert "<b>segment" not in page
    section = page.partition('id="slices"')[2].partition("</section>")[0]
    assert section.count(">new</bdi></td>") == section.count(">same</bdi></td>") == 3
    assert "No query of" in section  # the same scores lose nowhere


def test_the_page_has_the_measured_coverage():
    root = Path(__file__).parents[2]
    result = json.loads((root / "benchmarks" / "results" / "slices.json").read_text())
    page = (root / "docs" / "metrics" / "after-the-mean.md").read_text()
    for lists, covered in result["coverage"].items():
        numbers = " | ".join(f"{x:.3f}" for x in covered.values())
        assert f"| {lists} | {numbers} |" in page
        if int(lists) >= FEWEST:
            assert min(covered.values()) > 0.94
    seconds = result["large"]["seconds"]["evaluate by"]
    assert f"takes {seconds:.0f} CPU seconds" in " ".join(page.split())
