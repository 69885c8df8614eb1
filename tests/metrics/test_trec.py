"""TREC files: read, written, and worth what trec_eval says."""

import gzip
import json
import random

import pytest
import pytrec_eval
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_table import CLASSES

from ltr.metrics import (
    F1,
    MAP,
    MRR,
    NDCG,
    RBO,
    BPref,
    HitRate,
    KendallTau,
    Precision,
    Recall,
    RPrecision,
)
from ltr.metrics.core import CutoffCore
from ltr.metrics.trec import join, read_qrels, read_run, write_qrels, write_run

RUN = "301 Q0 FT911-3 1 2.5 me\n301 Q0 LA-7 2 -1e-3 me\n302 Q0 FT911-3 1 0 me\n"
QRELS = "301 0 FT911-3 2\n301 0 LA-7 0\n303 0 X -1\n"
AS_RUN = {"301": {"FT911-3": 2.5, "LA-7": -0.001}, "302": {"FT911-3": 0.0}}
AS_QRELS = {"301": {"FT911-3": 2, "LA-7": 0}, "303": {"X": -1}}

# ours, and trec_eval's name of it
AGREE = {
    "map": (MAP, {}),
    "recip_rank": (MRR, {}),
    "ndcg": (NDCG, {"gain": "linear"}),
    **{f"ndcg_cut_{k}": (NDCG, {"gain": "linear", "top_k": k}) for k in (5, 10, 20)},
    **{f"map_cut_{k}": (MAP, {"top_k": k, "divisor": "relevant"}) for k in (5, 10)},
    **{f"P_{k}": (Precision, {"top_k": k}) for k in (5, 20)},
    **{f"recall_{k}": (Recall, {"top_k": k}) for k in (5, 20)},
    **{f"success_{k}": (HitRate, {"top_k": k}) for k in (1, 5, 10)},
    "Rprec": (RPrecision, {}),
    "bpref": (BPref, {}),
}


@pytest.mark.parametrize("name", ["f", "f.gz"])
def test_files_as_they_come(tmp_path, name):
    ways = [RUN, RUN.replace("\n", "\r\n"), "\n\n" + RUN.replace(" ", "\t"), "\ufeff" + RUN]
    ways += [RUN.replace(" ", "   ").rstrip("\n")]
    for text in ways:
        raw = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
        assert read_run(tmp_path / name) == AS_RUN
    (tmp_path / "qrels").write_text(QRELS)
    assert read_qrels(tmp_path / "qrels") == AS_QRELS


def test_queries_need_not_stand_together(tmp_path):
    (tmp_path / "f").write_text("1 Q0 a 1 3 t\n2 Q0 a 1 3 t\n1 Q0 b 9 4 t\n")
    assert read_run(tmp_path / "f") == {"1": {"a": 3.0, "b": 4.0}, "2": {"a": 3.0}}


def test_names_are_kept_byte_by_byte(tmp_path):
    raw = b"007 Q0 0012 1 1.5 t\n007 Q0 caf\xc3\xa9 2 1.25 t\n007 Q0 caf\xe9\xa0x 3 1.0 t\n"
    (tmp_path / "a").write_bytes(raw)
    run = read_run(tmp_path / "a")
    assert list(run["007"])[:2] == ["0012", "café"]
    write_run(tmp_path / "b", run, tag="t")
    assert (tmp_path / "b").read_bytes() == raw


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_run, "1 Q0 a 1 2.0 t\n1 Q0 b 2 t\n", r"f, line 2: a line must have 6 fields \(qid Q"),
        (read_run, "\n\n1 Q0 a b 1 2 t\n", "f, line 3: a line must have 6 fields .* got '1 Q0 a b"),
        (read_run, "1 Q0 a 1 high t\n", "f, line 1: the score must be a finite number, got 'high'"),
        (read_run, "1 Q0 a 1 nan t\n", "line 1: the score must be a finite number, got 'nan'"),
        (read_run, "1 Q0 a 1 -inf t\n", "line 1: the score must be a finite number, got '-inf'"),
        (read_run, "1 Q0 a 1 1_0 t\n", "line 1: the score must be a finite number, got '1_0'"),
        (read_run, "1 Q0 a 1 2 t\n1 Q0 a 2 1 t\n", "line 2: query '1' has the document twice, got"),
        (read_run, " \n", "f: the file must have at least one line, got none"),
        (read_qrels, RUN, r"f, line 1: a line must have 4 fields \(qid 0 docno rel\), got '301 Q0"),
        (
            read_qrels,
            "1 0 a 1.5\n",
            r"line 1: the judgement must be .*'1\.5'",
        ),
        (read_qrels, "1 0 a 1\n1 0 a 1\n", "f, line 2: query '1' has the document twice, got 'a'"),
        (read_qrels, "", "f: the file must have at least one line, got none"),
    ],
)
def test_errors_name_file_and_line(tmp_path, read, text, message):
    (tmp_path / "f").write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "f")
    (tmp_path / "f").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "f")


def as_three(text: str, score: int) -> str:
    """Return lines with only the query, the document and the field `score`."""
    rows = [line.split() for line in text.splitlines()]
    return "".join(f"{row[0]}\t{row[2]}\t{row[score]}\n" for row in rows)


@pytest.mark.parametrize(
    "header",
    ["", "query-id\tcorpus-id\tscore\n", "qid docid rel\n", "\ufeffquery_id\tdoc_id\trelevance\n"],
)
@pytest.mark.parametrize("name", ["f.tsv", "f.gz"])
def test_lines_of_three_fields(tmp_path, header, name):
    for read, text, value in ((read_run, RUN, 4), (read_qrels, QRELS, 3)):
        raw = (header + as_three(text, value)).encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
        assert read(tmp_path / name) == (AS_RUN if read is read_run else AS_QRELS)


def test_ms_marco_has_ranks(tmp_path):
    (tmp_path / "f").write_text("7\tb\t1\n8\tx\t1\n7\ta\t2\n7\tc\t3\n")
    assert read_run(tmp_path / "f") == {"7": {"b": -1, "a": -2, "c": -3}, "8": {"x": -1}}
    for text, scores in (
        ("7 a 3\n7 b 2\n7 c 1\n", {"a": 3, "b": 2, "c": 1}),  # the best first, as runs are
        ("7 a 1\n7 b 2\n7 c 9\n", {"a": 1, "b": 2, "c": 9}),
        ("7 a 1.0\n7 b 2.0\n", {"a": 1, "b": 2}),
        ("7 a 1\n", {"a": 1}),
    ):
        (tmp_path / "f").write_text(text)
        assert read_run(tmp_path / "f") == {"7": scores}
    (tmp_path / "f").write_text("7 a 2\n7 b 3\n7 c 1\n8 a 1\n")
    with pytest.raises(ValueError, match=r"f: the third field may be a rank or a score: .* Write"):
        read_run(tmp_path / "f")


@pytest.mark.parametrize("text", ["2.0", "+2.", "2.000", "02"])
def test_judgements_may_be_written_as_floats(tmp_path, text):
    (tmp_path / "f").write_text(f"1 0 a {text}\n")
    assert read_qrels(tmp_path / "f") == {"1": {"a": 2}}
    for wrong in ("2.5", ".0", "2.0e0", "2.0.0", "2,0"):
        (tmp_path / "f").write_text(f"1 0 a {wrong}\n")
        with pytest.raises(ValueError, match="f, line 1: the judgement must be a whole number"):
            read_qrels(tmp_path / "f")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_as_ranx_writes_it(tmp_path, pack, indent):
    for read, content in ((read_run, AS_RUN), (read_qrels, AS_QRELS)):
        (tmp_path / "f.json").write_bytes(pack(json.dumps(content, indent=indent).encode()))
        assert read(tmp_path / "f.json") == content
    (tmp_path / "f.json").write_bytes(pack(b'\xef\xbb\xbf\n{"1": {"a": 2.0}}'))
    assert read_qrels(tmp_path / "f.json") == {"1": {"a": 2}}
    assert type(read_qrels(tmp_path / "f.json")["1"]["a"]) is int
    assert type(read_run(tmp_path / "f.json")["1"]["a"]) is float


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_run, '{"1": {"a": NaN}}', "query '1', document 'a': a score must be a finite number"),
        (read_run, '{"1": {"a": "2"}}', "query '1', document 'a': .* got '2'"),
        (read_run, '{"1": {"a": true}}', "query '1', document 'a': .* got True"),
        (read_run, '{"1": {"a": 1' + "0" * 400 + "}}", "document 'a': a score must be a finite"),
        (read_run, '{"1": ["a"]}', "query '1': a query must have a mapping .*, got .'a'."),
        (read_run, '{"1": {"a": 1}, "1": {}}', "not JSON with one value for each name: '1' occurs"),
        (read_run, '{"1": {"a": 1, "a": 2}}', "not JSON with one value for each name: 'a' occurs"),
        (read_run, '{"1": {"a": 1}', "not JSON"),
        (read_run, "{}", "at least one query, got none"),
        (read_qrels, '{"1": {"a": 1.5}}', "document 'a': the judgement must be a whole number"),
        (read_qrels, "qid docid rel\n", "f: the file must have at least one line, got none"),
        (read_qrels, "1 a 1\n1 0 b 1\n", r"f, line 2: a line must have 3 fields .qid docno rel., "),
        (read_qrels, "1 a one\n", "f, line 1: the judgement must be .*, got 'one'"),
        (
            read_run,
            "1 2\n",
            r"line 1: a line must have 6 fields .*got '1 2' \(or 3 fields, qid doc",
        ),
    ],
)
def test_errors_in_other_forms(tmp_path, read, text, message):
    (tmp_path / "f").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path / "f")
    assert str(tmp_path / "f") in str(caught.value)


@pytest.mark.parametrize(
    "value", ["-+5", "+-5", "--5", "1_000", "٣", "nan", "inf", "0x1", "9" * 5000, "1e3", "-"]
)
def test_numbers_of_strangers(tmp_path, value):
    (tmp_path / "f").write_text(f"1 0 a 1\n1 0 b {value}\n")
    with pytest.raises(ValueError, match="f, line 2: the judgement must be") as error:
        read_qrels(tmp_path / "f")
    assert len(str(error.value)) < 500
    if value == "1e3":
        return
    (tmp_path / "f").write_text(f"1 Q0 a 1 2 t\n1 Q0 b 2 {value} t\n")
    with pytest.raises(ValueError, match="f, line 2: the score must be a finite") as error:
        read_run(tmp_path / "f")
    assert len(str(error.value)) < 500


def test_signs_and_zeros_stay(tmp_path):
    (tmp_path / "f").write_text("1 0 a +2\n1 0 b -1\n1 0 c 007\n")
    assert read_qrels(tmp_path / "f") == {"1": {"a": 2, "b": -1, "c": 7}}


def test_a_missing_file_and_damaged_gzip(tmp_path):
    with pytest.raises(ValueError, match="path must"):
        read_run(tmp_path / "none")
    whole = gzip.compress("".join(f"1 Q0 d{i} 1 {i} t\n" for i in range(9999)).encode())
    (tmp_path / "f").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"f: the gzip file is damaged"):
        read_run(tmp_path / "f")


word = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\v\f\r "), min_size=1
)
finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(word, st.dictionaries(word, finite, min_size=1), min_size=1))
def test_a_run_that_is_written_reads_the_same(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("runs") / "f.gz"
    if next(iter(run)).startswith("\ufeff"):
        return  # the mark of a file's encoding
    write_run(path, run)
    assert read_run(path) == run


def test_qrels_that_are_written_read_the_same(tmp_path):
    for name in ("f", "f.gz"):
        write_qrels(tmp_path / name, AS_QRELS)
        assert read_qrels(tmp_path / name) == AS_QRELS
    assert (tmp_path / "f").read_text() == QRELS


def test_ranks_are_in_trec_evals_order(tmp_path):
    write_run(tmp_path / "f", {"1": {"a": 1.0, "c": 2.0, "b": 1.0}}, tag="me")
    assert (tmp_path / "f").read_text().splitlines() == [
        "1 Q0 c 1 2.0 me",
        "1 Q0 b 2 1.0 me",
        "1 Q0 a 3 1.0 me",
    ]


@pytest.mark.parametrize(
    ("run", "tag", "message"),
    [
        ({"1": {"a b": 1.0}}, "t", "names.*'a b' for a document"),
        ({"1": {"a": 1.0, "": 1.0}}, "t", "names.*'' for a document"),
        ({"1\n": {"a": 1.0}}, "t", "names.*.* for a query"),
        ({"1": {"a": 1.0}}, "my tag", "names.*'my tag' for a tag"),
        ({"1": {"a": float("inf")}}, "t", "scores.*inf for 'a' of '1'"),
        ({"1": {"a": float("nan")}}, "t", "scores.*NaN for 'a'"),
        ({"1": {1: 0.5, 2: 0.5}}, "t", "names.*got 1 for a document"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(tmp_path, run, tag, message):
    with pytest.raises(ValueError, match=message):
        write_run(tmp_path / "f", run, tag)
    for label in (0.5, float("inf"), float("nan"), None, 10**18):
        with pytest.raises(ValueError, match=f"whole numbers, got {label}"):
            write_qrels(tmp_path / "f", {"1": {"a": label}})
    assert not list(tmp_path.iterdir())


def make_case(seed: int):
    """Judgements and a run: unjudged documents, ties, missing relevant ones, empty lists."""
    draw = random.Random(seed)
    documents = [f"d{i}" for i in range(draw.choice([2, 12, 40]))]
    # apart as float64 but equal as float32, which trec_eval compares
    close = [lambda: 0.1 + draw.randrange(3) * 1e-9, lambda: 1e-9 * draw.random()]
    kinds = [draw.random, lambda: draw.randrange(-2, 2), lambda: -draw.random() * 1e6, *close]
    qrels, run = {}, {}
    for query in (f"q{i}" for i in range(6)):
        grades = draw.choice([[0, 0, 0, 1], [0, 1, 2, 3, 4], [0], [1]])
        judged = [d for d in documents if draw.random() < draw.choice([0.1, 0.6])] or ["x"]
        qrels[query] = {d: draw.choice([*grades, -1]) for d in judged}
        qrels[query]["judged"] = 0  # pytrec_eval crashes where all are below 0
        if draw.random() < 0.8:
            found = [d for d in documents if draw.random() < 0.7] or ["y"]
            run[query] = {d: float(draw.choice(kinds)()) for d in found}
    run.setdefault("q0", {"y": 1.0})
    run["not judged"] = {"d0": 1.0}
    return run, qrels


@pytest.mark.parametrize("name", AGREE)
def test_values_are_trec_evals(name):
    metric, options = AGREE[name]
    for seed in range(60):
        run, qrels = make_case(seed)
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {name.rstrip("_0123456789")}).evaluate(run)
        values = join(run, qrels, depth=20).values(metric(**options))
        expected = [theirs[q][name] if q in run else 0.0 for q in qrels]
        assert values.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", AGREE)
def test_queries_that_the_run_lacks(name):
    metric, options = AGREE[name]
    qrels = {"1": {"a": 1}, "2": {"a": 1}, "3": {"a": 0}}
    run = {"2": {"a": 1.0}, "4": {"a": 1.0}}
    counted = join(run, qrels)
    assert counted.qids == ["1", "2", "3"]
    best = 1 / options["top_k"] if metric is Precision else 1.0
    assert counted.values(metric(**options)).tolist() == [0, best, 0]
    some = counted.values(metric(empty="skip", **options))
    assert some.nan_to_num(-1).tolist() == [0, best, -1]
    skipped = join(run, qrels, skip_missing=True)
    assert skipped.values(metric(**options)).nan_to_num(-1).tolist() == [-1, best, -1]
    assert (counted.missing, counted.unjudged) == (2, 1)


@pytest.mark.parametrize("name", AGREE)
def test_a_judgement_below_zero_is_none(name):
    metric, options = AGREE[name]
    run = {"1": {"a": 3.0, "b": 2.0, "c": 1.0}}
    with_it = join(run, {"1": {"a": -1, "b": 0, "c": 2, "z": -2}}).values(metric(**options))
    without = join(run, {"1": {"b": 0, "c": 2}}).values(metric(**options))
    assert torch.equal(with_it, without)


def test_what_a_joined_list_looks_like():
    qrels = {"1": {"a": 2, "m": 1, "n": 0, "o": 3, "b": 0, "spam": -2}}
    lists = join({"1": {"b": 1.0, "u": 1.0, "a": 4.0}}, qrels, depth=5)
    assert lists.depth == 5
    #                               a  u  b  fillers  not retrieved: n, m, o
    assert lists.labels.tolist() == [[2, 0, 0, 0, 0, 0, 1, 3]]
    assert lists.scores.tolist() == [[0, -1, -1, -5, -5, -6, -6, -6]]
    assert lists.judged.tolist() == [[True, False, True, False, False, True, True, True]]
    assert lists.mask.all()


@pytest.mark.parametrize("large", [1e39, float("inf")])  # float32 has no 1e39
def test_equal_infinite_scores_are_tied(large):
    lists = join({"1": {"a": large, "b": 2 * large, "c": -large}}, {"1": {"a": 1}}, depth=3)
    assert lists.scores.tolist() == [[0, 0, -1]]
    assert lists.values(MRR(ties="expected")) == 0.75


def test_the_depth_grows_with_what_is_there():
    run = {"1": {f"d{i}": float(i) for i in range(7)}}
    assert join(run, {"1": {"d0": 1}}, depth=3).depth == 7
    assert join({"1": {"a": 1.0}}, {"1": {f"d{i}": 1 for i in range(9)}}, depth=3).depth == 9


# the others are refused: they would see what the run lacks
CUT = [cls for cls in CLASSES if issubclass(cls, CutoffCore) and not cls.divides_by_k]


@pytest.mark.parametrize("cls", CUT)
def test_the_depth_moves_no_value(cls):
    metric = cls()
    for seed in range(10):
        run, qrels = make_case(seed)
        expected = join(run, qrels, depth=1).values(metric)
        deep = join(run, qrels, depth=90).values(metric)
        assert torch.allclose(deep, expected, rtol=1e-12, atol=0, equal_nan=True)


def test_names_break_ties_by_their_bytes():
    names = ["B", "a", "é", "z", "\U0001f600", "\udcff"]  # the last one is the byte ff
    run = {"1": dict.fromkeys(names, 1.0)}
    for name in names:
        value = join(run, {"1": {name: 1}}).values(MRR()).item()
        larger = sum(
            n.encode("utf-8", "surrogateescape") >= name.encode("utf-8", "surrogateescape")
            for n in names
        )
        assert value == pytest.approx(1 / larger)


def test_where_we_differ_from_trec_eval():
    """As docs/metrics/trec.md lists it."""
    qrels = {"1": {"a": 1, "b": 1, "c": 1}}
    run = {"1": {"a": 2.0, "x": 1.0}}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"map_cut.2"}).evaluate(run)["1"]
    assert theirs["map_cut_2"] == pytest.approx(1 / 3)  # over all relevant documents
    lists = join(run, qrels)
    ours = lists.values(MAP(top_k=2))
    assert ours.item() == pytest.approx(1 / 2)  # over those that the first two ranks have room for
    ours = lists.values(MAP(top_k=2, divisor="relevant"))
    assert ours.item() == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: join({"1": {"a": 1.0}}, {"2": {"a": 1}}), "have a query in common, got none"),
        (lambda: join({"1": {"a": float("nan")}}, {"1": {"a": 1}}), "not be NaN, got NaN for 'a'"),
        (lambda: join({}, {}, depth=0), "depth.*0"),
        (
            lambda: join({"1": {"a": 1.0}}, {}, allow_disjoint=True),
            "^qrels must have at least one query, got none$",
        ),
        (lambda: JOINED.values(MRR(top_k=11)), "top_k must be <= depth 10 of the join, got 11"),
        (lambda: JOINED.values(Precision()), "top_k must be given for Precision"),
        (lambda: JOINED.values(F1()), "top_k must be given for F1"),
        (lambda: JOINED.values(KendallTau()), "metric must not need whole lists, got KendallTau"),
        (lambda: JOINED.values(RBO(top_k=3)), "metric must not need whole lists, got RBO"),
    ],
)
def test_what_cannot_be_joined(call, message):
    with pytest.raises(ValueError, match=message):
        call()


JOINED = join({"1": {"a": 1.0}}, {"1": {"a": 1}}, depth=10)
