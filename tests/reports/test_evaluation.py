"""`ltr.reports.evaluate` against ir_measures, scikit-learn and the metrics themselves."""

import ir_measures
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.metrics import ndcg_score

from ltr.metrics import compare, functional, mean_interval
from ltr.metrics.named import metric_names, parse_measures
from ltr.reports import evaluate
from ltr.reports.scored_tables import Columns, read_scored

SIZES = [3, 1, 8, 12, 5]


def rows(seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(["q9", "b", "7", "007", "x y"], SIZES)
    labels = rng.integers(0, 4, len(qid))
    labels[qid == "b"] = 0
    return labels, rng.permutation(len(qid)) / 7, qid


def test_values_are_those_of_ir_measures():
    labels, scores, qid = rows()
    docs = [f"d{i}" for i in range(len(qid))]
    qrels = pd.DataFrame({"query_id": qid, "doc_id": docs, "relevance": labels})
    run = pd.DataFrame({"query_id": qid, "doc_id": docs, "score": scores})
    names = ["nDCG@10", "nDCG", "RR", "AP", "P@5", "P@20", "R@3", "Success@1", "Rprec"]
    measures = [ir_measures.parse_measure(name) for name in names]
    found = evaluate(labels, scores, qid, names, gain="linear", resamples=10)
    for one in ir_measures.iter_calc(measures, qrels, run):
        title = parse_measures([str(one.measure)])[0].title
        assert found.per_list.loc[one.query_id, title] == pytest.approx(one.value), one
    assert list(found.per_list.index) == ["q9", "b", "7", "007", "x y"]


def test_ndcg_is_that_of_scikit_learn():
    labels, scores, qid = rows(1)
    found = evaluate(labels, scores, qid, ["ndcg@4"], gain="linear").per_list["ndcg@4"]
    for name in ["q9", "7", "007", "x y"]:
        mine = qid == name
        assert found[name] == pytest.approx(ndcg_score([labels[mine]], [scores[mine]], k=4))


@pytest.mark.parametrize("name", metric_names())
def test_every_metric_is_its_function(name):
    labels, scores, qid = rows(2)
    ids = torch.tensor(pd.factorize(qid)[0])
    long = {"map": "average_precision"}.get(name, name)
    options = {"max_label": float(labels.max())} if name in ("err", "rbp") else {}
    options |= {"gain": "exp2"} if name == "rbp" else {}
    expected = getattr(functional, long)(
        torch.tensor(scores), torch.tensor(labels).double(), qid=ids, reduction="none", **options
    )
    found = evaluate(labels, scores, qid, [name], resamples=5).values[name]
    np.testing.assert_allclose(found, expected.numpy(), equal_nan=True)


@pytest.mark.parametrize("ids", [str, int, float, lambda i: pd.Timestamp(2020, 1, 1 + i)])
@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        list,
        pd.Series,
        pl.Series,
        pa.array,
        lambda x: pa.chunked_array([pa.array(x)[:4], pa.array(x)[4:]]),
        lambda x: torch.tensor(x, requires_grad=x.dtype.kind == "f"),
    ],
    ids=["numpy", "list", "pandas", "polars", "arrow", "chunks", "torch"],
)
def test_any_array_and_any_qid_in_any_order(kind, ids):
    labels, scores, _ = rows(3)
    number = np.repeat(np.arange(len(SIZES)), SIZES)
    expected = evaluate(labels, scores, number)
    order = np.random.default_rng(0).permutation(len(labels))
    qid = [ids(i) for i in number[order].tolist()]
    found = evaluate(kind(labels[order]), kind(scores[order]), qid)
    assert {q: i for i, q in enumerate(expected.qids)} == {i: i for i in range(len(SIZES))}
    for i in range(len(SIZES)):
        position = found.qids.index(ids(i))
        for title, values in expected.values.items():
            assert found.values[title][position] == values[i]


@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        pd.Series,
        lambda x: pd.Series(x, dtype="category"),
        pl.Series,
        pa.array,
        lambda x: pa.array(x).dictionary_encode(),
        lambda x: torch.tensor(pd.factorize(x)[0]),
    ],
)
def test_qids_of_any_array(kind):
    labels, scores, qid = rows(4)
    found, expected = evaluate(labels, scores, kind(qid)), evaluate(labels, scores, qid)
    assert len(found.qids) == len(SIZES)
    for title, values in expected.values.items():
        np.testing.assert_array_equal(found.values[title], values)


def test_qids_that_are_dates_stay_dates():
    labels, scores, _ = rows(4)
    days = np.repeat(pd.date_range("2024-01-01", periods=5).astype("datetime64[ns]"), SIZES)
    found = evaluate(labels, scores, days, resamples=5)
    assert found.qids == [*pd.date_range("2024-01-01", periods=5)]


def test_intervals_tables_and_options():
    labels, scores, qid = rows(5)
    found = evaluate(labels, scores, qid, confidence=0.9, resamples=50, seed=3, name="mine")
    assert list(found.intervals) == ["ndcg@10", "map", "mrr"]
    for title, values in found.values.items():
        expected = mean_interval(values, confidence=0.9, resamples=50, seed=3)
        assert found[title] == found.intervals[title] == expected
        assert str(expected) in str(found)
    assert "mean [90%]" in str(found)
    assert "1 of 5 lists have no relevant item" in str(found)
    assert found["RR"] == found["mrr"] == found["recip_rank"]
    skipped = evaluate(labels, scores, qid, ["mrr"], empty="skip")
    assert skipped.per_list["mrr"].isna().sum() == 1
    assert str(skipped).splitlines()[1].endswith(" 4")
    assert skipped["mrr"].mean == pytest.approx(found.values["mrr"].sum() / 4)
    tied = evaluate(labels, np.zeros(len(qid)), qid, ["ndcg"], ties="worst")
    assert tied["ndcg"].mean < evaluate(labels, labels, qid, ["ndcg"])["ndcg"].mean


def test_compare_is_the_paired_test_whatever_the_order_of_the_lists():
    labels, scores, qid = rows(6)
    before, after = evaluate(labels, scores, qid), evaluate(labels[::-1], labels[::-1], qid[::-1])
    assert after.qids == before.qids[::-1]
    found = before.compare(after, "map", names=("old", "new"))
    assert found == compare(before.values["map"], after.values["map"][::-1], names=("old", "new"))
    assert [one.name for one in before.compare(after).models] == ["self", "other"]
    named = evaluate(labels, scores, qid, name="bm25").compare(evaluate(labels, labels, qid))
    assert [one.name for one in named.models] == ["bm25", "scores"]
    part = evaluate(labels[qid != "7"], scores[qid != "7"], qid[qid != "7"])
    for one, other in [(before, part), (part, before)]:
        with pytest.raises(ValueError, match=r"other.* 1 qids.* '7'"):
            one.compare(other)
    with pytest.raises(ValueError, match=r"metric.* 'ndcg@5'"):
        before.compare(after, "ndcg@5")
    for option in ({"gain": "linear"}, {"empty": "skip"}, {"ties": "worst"}):
        with pytest.raises(ValueError, match=r"^other must have the options \{'gain': 'exp2', "):
            before.compare(evaluate(labels, scores, qid, **option))


def test_a_report_compares_with_others_in_any_order(tmp_path):
    labels, scores, qid = rows(6)
    ids = np.array([f"{q}-{i}" for i, q in enumerate(qid)])
    before = evaluate(labels, scores, qid, doc_id=ids, name="before")
    after = evaluate(labels[::-1], labels[::-1], qid[::-1], doc_id=ids[::-1], name="after")
    before.report(tmp_path / "new" / "report.html", after)
    text = (tmp_path / "new" / "report.html").read_text()
    for metric in before.values:
        comparison = before.compare(after, metric)
        for model in comparison.models:
            assert f"<b>{model.mean.mean:.4f}</b>" in text
        assert comparison.caption in text
    assert "before: 1 of 5 lists have no relevant item" in text
    assert ">q9-0<" in text
    before.report(tmp_path / "one.html")
    assert f"<b>{before['map'].mean:.4f}</b>" in (tmp_path / "one.html").read_text()
    by_row = evaluate(labels, scores, qid), evaluate(labels, labels, qid, name="after")
    by_row[0].report(tmp_path / "rows.html", by_row[1])
    assert ">row 1<" in (tmp_path / "rows.html").read_text()
    assert "the documents have no ids" not in (tmp_path / "rows.html").read_text()


def test_a_report_of_large_equal_values_and_of_lists_that_must_have_a_value(tmp_path):
    found = evaluate([45, 45], [1.0, 2.0], ["a", "b"], ["dcg"], empty="error", resamples=5)
    found.report(tmp_path / "one.html")
    assert "<dt>Nothing relevant</dt><dd>an error</dd>" in (tmp_path / "one.html").read_text()


def test_a_report_refuses_what_cannot_be_compared(tmp_path):
    labels, scores, qid = rows(6)
    before, page = evaluate(labels, scores, qid), tmp_path / "report.html"
    part = evaluate(labels[qid != "7"], scores[qid != "7"], qid[qid != "7"], name="part")
    for other, message in [
        (before, "names.* 'scores'"),
        (part, r"other.* 1 qids.* '7'"),
        (evaluate(labels, scores, qid, ["map"], name="map"), "metric.* 'ndcg@10'"),
        (evaluate(labels, scores, qid, gain="linear", name="new"), "options.* 'linear'.* 'new'"),
    ]:
        with pytest.raises(ValueError, match=message):
            before.report(page, other)
    with pytest.raises(ValueError, match=r"path.* folder"):
        before.report(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_plot():
    labels, scores, qid = rows(7)
    axes = evaluate(labels, scores, qid, name="mine").plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ndcg@10", "map", "mrr"]
    assert axes.get_xlabel() == "mine: 95% interval"
    assert evaluate(labels, scores, qid).plot(axes) is axes


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ({"scores": [1.0, 2.0]}, r"scores.* \(2,\)"),
        ({"scores": [1.0, np.nan, 3.0]}, "scores.* nan in row 1"),
        ({"scores": ["a", "b", "c"]}, "scores.*'a'"),
        ({"scores": [[1.0, 2.0, 3.0]]}, r"scores.* \(1, 3\)"),
        ({"labels": [1.0, np.inf, 0.0]}, "labels.* inf in row 1"),
        ({"labels": [0, 1, -1]}, "labels.* -1 in row 2"),
        ({"labels": [], "scores": [], "qid": []}, "labels.* none"),
        ({"qid": ["a", "b"]}, r"qid.* \(2,\)"),
        ({"qid": ["a", None, "b"]}, "qid.* None in row 1"),
        ({"qid": 3}, "qid.* 3"),
        ({"doc_id": ["x", "y"]}, r"doc_id.* \(2,\)"),
        ({"doc_id": ["x", "", "y"]}, "doc_id.* '' in row 1"),
        ({"doc_id": ["x", "x", "y"]}, "doc_id.* 'x' again in row 1"),
        ({"metrics": ["ncdg@10"]}, "metrics.* 'ncdg'.* ndcg"),
        ({"metrics": ["ndcg@0"]}, "metrics.* 'ndcg@0'"),
        ({"metrics": ["spearman@3"]}, "metrics.* 'spearman@3'"),
        ({"metrics": "ndcg"}, "metrics.* 'ndcg'"),
        ({"metrics": []}, r"metrics.* \[\]"),
        ({"metrics": None}, "metrics.* None"),
        ({"metrics": ["spearman"], "gain": "cubic"}, "gain.* 'cubic'"),
        ({"metrics": ["spearman"], "ties": "best"}, "ties.* 'best'"),
        ({"metrics": ["exact_match"], "empty": "ignore"}, "empty.* 'ignore'"),
        ({"confidence": "1"}, "confidence.* '1'"),
        ({"gain": "cubic"}, "gain.* 'cubic'"),
        ({"ties": "best"}, "ties.* 'best'"),
        ({"empty": "ignore"}, "empty.* 'ignore'"),
        ({"confidence": 1}, "confidence.* 1"),
        ({"resamples": 0}, "resamples.* 0"),
    ],
)
def test_bad_input_is_one_error(change, given):
    arguments = {"labels": [0, 1, 2], "scores": [1.0, 2.0, 3.0], "qid": ["a", "a", "b"], **change}
    with pytest.raises(ValueError, match=given) as error:
        evaluate(**arguments)
    assert "\n" not in str(error.value)


def test_a_row_of_a_csv_file_without_a_qid_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("qid,label,score\na,1,2\n,0,1\n")
    with pytest.raises(ValueError, match=r"t\.csv, row 2: column 'qid' must have a value"):
        read_scored(str(tmp_path / "t.csv"), Columns())


def test_names_of_other_libraries():
    pairs = {
        "nDCG@10": "ndcg@10",
        "ndcg_cut_10": "ndcg@10",
        "ndcg_cut.10": "ndcg@10",
        "NDCG": "ndcg",
        "AP": "map",
        "AP@100": "map@100",
        "map_cut_100": "map@100",
        "RR": "mrr",
        "RR@10": "mrr@10",
        "recip_rank": "mrr",
        "P@5": "precision@5",
        "P_5": "precision@5",
        "R@1000": "recall@1000",
        "recall_1000": "recall@1000",
        "Success@1": "hit_rate@1",
        "success_1": "hit_rate@1",
        "Rprec": "r_precision",
        "Bpref": "bpref",
        "ERR@20": "err@20",
    }
    assert [one.title for one in parse_measures([*pairs])] == [*dict.fromkeys(pairs.values())]
    for theirs, ours in pairs.items():
        assert parse_measures([theirs])[0].title == ours


def test_a_comparison_names_the_metric_the_gain_and_the_sign():
    labels, qid = [0, 1, 1, 0], [1, 1, 2, 2]
    one = evaluate(labels, [1.0, 2, 3, 4], qid, ["ndcg@10", "mrr"], gain="linear")
    two = evaluate(labels, [1.0, 2, 3, 2], qid, ["ndcg@10", "mrr"], gain="linear")
    printed = str(one.compare(two))
    assert "\nndcg@10 with gain linear, other - self; 2 lists; paired" in printed
    assert one.compare(two).models[1].difference.mean > 0
    named = one.compare(two, "mrr", names=("old", "new"))
    assert named.caption.startswith("mrr, new - old; 2 lists; ")
    assert named.caption in named.markdown()


@pytest.mark.parametrize(
    ("wrong", "right"), [("ngcd", "ndcg"), ("ncdg@10", "ndcg"), ("mpa", "map"), ("mrrr", "mrr")]
)
def test_a_wrong_name_of_a_metric_brings_the_nearest(wrong, right):
    with pytest.raises(ValueError, match=f"did you mean {right}"):
        evaluate([1, 0], [1.0, 2.0], [1, 1], [wrong])


def test_compare_of_evaluations_says_which_values_it_takes():
    labels, qid = [1, 0, 0, 1, 1, 0], [1, 1, 2, 2, 3, 3]
    a = evaluate(labels, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], qid, ["mrr"])
    b = evaluate(labels, [0.3, 0.2, 0.1, 0.4, 0.5, 0.6], qid, ["mrr"])
    message = r"^values of 'a' .* got an Evaluation: give evaluation\.values\['mrr'\] of each, or"
    for args in [({"a": a, "b": b},), (a, b), ({"a": a, "b": b.values["mrr"]},)]:
        with pytest.raises(ValueError, match=message):
            compare(*args)
    table = str(compare({"a": a.values["mrr"], "b": b.values["mrr"]}))
    assert all(f"{one.values['mrr'].mean():.4f}" in table for one in (a, b))
