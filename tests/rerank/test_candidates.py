"""`lists_from_run`: which documents a list has, with which labels, and what is counted."""

import gzip
import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltr.rerank import lists_from_run, read_texts

RUN = {"q": {"a": 5.0, "b": 4.0, "c": 3.0, "d": 2.0, "e": 1.0}}
QRELS = {"q": {"b": 2, "c": 0, "e": -1, "z": 1}}
QUERIES = {"q": "cat"}
ESCAPE = "surrogateescape"
TEXTS = {name: f"text {name}" for name in "abcdez"}


@pytest.mark.parametrize("name", ["new/lists.jsonl", "lists.jsonl.gz"])
def test_the_name_says_whether_a_file_is_compressed(tmp_path, name):
    lists = made()
    lists.write(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    text = gzip.decompress(content) if name.endswith(".gz") else content
    assert [json.loads(line) for line in text.splitlines()] == lists.rows


def made(**given):
    return lists_from_run(RUN, QRELS, QUERIES, TEXTS, **given)


def test_candidates_keep_their_order_and_unjudged_ones_are_irrelevant():
    [row] = made().rows
    assert row["query"] == "cat"
    assert row["doc_ids"] == ["a", "b", "c", "d", "e"]
    assert row["labels"] == [0, 2, 0, 0, 0]
    assert row["documents"] == [TEXTS[name] for name in row["doc_ids"]]
    assert made().dropped == {"relevant, but no candidate": 1}
    assert made().columns() == {k: [row[k]] for k in ("query", "documents", "labels")}


@pytest.mark.parametrize(
    ("given", "ids", "dropped"),
    [
        ({"depth": 3}, "abc", {}),
        ({"unjudged": "drop"}, "bc", {"not judged": 3}),
        ({"skip": 0.0}, "bcde", {"not judged, and as good as a relevant one": 1}),
        ({"skip": 2.5}, "bce", {"not judged, and as good as a relevant one": 2}),
        ({"add_relevant": True}, "abcdez", {"relevant, but no candidate": 0}),
    ],
)
def test_what_is_left_out_is_counted(given, ids, dropped):
    lists = made(**given)
    assert lists.rows[0]["doc_ids"] == [*ids]
    expected = {"relevant, but no candidate": 1, **dropped}
    assert lists.dropped == {reason: count for reason, count in expected.items() if count}
    assert lists.found == min(given.get("depth", 50), 5)
    for count in lists.dropped.values():
        assert f"  {count}  " in str(lists)


def test_a_draw_of_negatives_is_uniform_and_keeps_the_order():
    counts = Counter()
    for seed in range(200):
        [row] = made(negatives=2, seed=seed).rows
        assert row["doc_ids"] == sorted(row["doc_ids"])
        assert row["labels"].count(0) == 2
        assert "b" in row["doc_ids"]
        counts.update(row["doc_ids"])
    assert counts.pop("b") == 200
    assert min(counts.values()) > 70  # 100 each are expected
    assert max(counts.values()) < 130
    assert made(negatives=2, seed=3).dropped["irrelevant, not drawn"] == 2
    run, judged = {"p": {"a": 1.0}, **RUN}, {"p": {"a": 1}, **QRELS}
    alone = lists_from_run(run, judged, {"p": "x", **QUERIES}, TEXTS, negatives=2)
    assert alone.rows[1] == made(negatives=2).rows[0]  # other queries do not matter


def test_queries_that_teach_nothing_are_left_out():
    run = {**RUN, "unjudged": {"a": 1.0}, "mute": {"b": 1.0}, "none": {"a": 1.0}}
    qrels = {**QRELS, "mute": {"b": 1}, "none": {"b": 1}}
    lists = lists_from_run(run, qrels, {**QUERIES, "none": "dog"}, {**TEXTS, "c": ""})
    assert [row["qid"] for row in lists.rows] == ["q"]
    assert lists.rows[0]["doc_ids"] == ["a", "b", "d", "e"]
    assert lists.dropped == {
        "query without judgements": 1,
        "query without text": 1,
        "query without a relevant document": 1,
        "relevant, but no candidate": 2,
        "without text": 1,
    }


@given(st.integers(0, 10_000))
def test_no_document_is_lost(seed):
    draw = random.Random(seed)
    run = {f"q{i}": {f"d{j}": draw.random() for j in range(draw.randrange(1, 9))} for i in range(3)}
    qrels = {q: {d: draw.randrange(-1, 3) for d in ["d0", "d1", "d2"]} for q in run}
    qrels["q0"] = {max(run["q0"], key=run["q0"].__getitem__): 1}
    given = {
        "depth": draw.randrange(1, 9),
        "negatives": draw.choice([None, 1, 2]),
        "unjudged": draw.choice(["drop", "irrelevant"]),
        "skip": draw.choice([None, 0.1]),
    }
    texts = {f"d{j}": "x" for j in range(8)}
    lists = lists_from_run(run, qrels, dict.fromkeys(run, "q"), texts, **given)
    kept = sum(len(row["documents"]) for row in lists.rows)
    without = [qid for qid in run if qid not in {row["qid"] for row in lists.rows}]
    of_others = {name for name in lists.dropped if not name.startswith(("query", "relevant"))}
    lost = sum(lists.dropped[name] for name in of_others)
    in_lost_queries = sum(min(given["depth"], len(run[qid])) for qid in without)
    assert lists.found - in_lost_queries <= kept + lost <= lists.found
    if not without:
        assert kept + lost == lists.found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": 0}, "depth must be"),
        ({"negatives": 0}, "negatives must be"),
        ({"unjudged": "zero"}, "unjudged must be"),
        ({"skip": -1.0}, "skip must be"),
        ({"add_relevant": "yes"}, "add_relevant must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_arguments(given, message):
    with pytest.raises(ValueError, match=message):
        made(**given)


def test_bad_runs():
    for at, name in enumerate(("run", "qrels", "queries", "documents")):
        given = [RUN, QRELS, QUERIES, TEXTS]
        given[at] = 3
        with pytest.raises(ValueError, match=f"{name} must be a dict or the name of a file, got 3"):
            lists_from_run(*given)
    with pytest.raises(ValueError, match="queries and documents must be text, got 3 for 'a'"):
        lists_from_run(RUN, QRELS, QUERIES, {**TEXTS, "a": 3})
    with pytest.raises(ValueError, match=r"must be UTF-8 text, got 'caf\\udce9' for 'a'"):
        lists_from_run(RUN, QRELS, QUERIES, {**TEXTS, "a": b"caf\xe9".decode("utf-8", ESCAPE)})
    with pytest.raises(ValueError, match=r"must be UTF-8 text, got 'cat' for '\\ud800'"):
        lists_from_run({"\ud800": {"a": 1}}, {"\ud800": {"a": 1}}, {"\ud800": "cat"}, TEXTS)
    with pytest.raises(ValueError, match="qrels must judge a query of the run, got none"):
        lists_from_run(RUN, {"p": {"a": 1}}, QUERIES, TEXTS)
    with pytest.raises(ValueError, match=r"run must give a list .* got 1 query without text"):
        lists_from_run(RUN, {"q": {"a": 1}}, {}, TEXTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q cat\n", "x.txt:1: a line must be name<TAB>text or JSON, got 'q cat'"),
        ("\tcat\n", "x.txt:1: a line must be name<TAB>text"),
        ("q\tcat\nq\tdog\n", "x.txt:2: the name 'q' must stand once"),
        ('{"_id": "q"\n', "x.txt:1: the line must be JSON"),
        ('{"_id": "q"}\n', "x.txt:1: JSON must have text and a name"),
        ('{"text": "q"}\n', "x.txt:1: JSON must have text and a name"),
    ],
)
def test_bad_texts(tmp_path, text, message):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        list(read_texts(tmp_path / "x.txt"))
