"""`read_ubi`: events become the columns of estimates, and what is left out is counted."""

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from ltr.clicks import PositionBased, PositionBias, evaluate_log, read_ubi, simulate_clicks

TIME = "2026-11-28T10:00:00.000Z"


def event(action, query="q1", doc="a", position=None, time=TIME, **others):
    attributes = {"object": {"object_id": doc}, "position": {"ordinal": position}}
    named = {"action_name": action, "query_id": query, "timestamp": time}
    return named | {"event_attributes": attributes} | others


def write(path, events):
    path.write_text("\n".join(map(json.dumps, events)) + "\n")
    return path


@pytest.fixture(scope="module")
def log():
    """A log of users who look at position k with probability 1 / k, as events."""
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(40), 6)
    wanted = (rng.random(240) < 0.4).astype(int)
    rankers = [rng.normal(size=240) for _ in range(2)]
    user = PositionBased([0.1, 0.9], PositionBias())
    drawn = pd.DataFrame(simulate_clicks(user, wanted, np.stack(rankers), query, sessions=600))
    drawn["doc"] = [f"d{i}" for i in drawn["row"]]
    events = []
    for row in drawn.itertuples():
        about = {"query": f"s{row.session}", "doc": row.doc, "user_query": f"query {row.qid}"}
        about |= {"client_id": f"c{row.session % 50}"}
        events.append(event("impression", position=row.position, **about))
        if row.click:
            later = "2026-11-28T10:01:00.000Z"
            events.append(event("click", position=row.position, time=later, **about))
    return drawn, events


def check(found, drawn):
    expected = drawn.assign(session=[f"s{i}" for i in drawn["session"]])
    expected = expected.sort_values(["session", "position"], ignore_index=True)
    rows = found.rows
    assert rows["session"].tolist() == expected["session"].tolist()
    assert rows["qid"].tolist() == [f"query {i}" for i in expected["qid"]]
    assert rows["doc_id"].tolist() == expected["doc"].tolist()
    assert rows["position"].tolist() == expected["position"].tolist()
    assert rows["click"].tolist() == rows["label"].tolist() == expected["click"].tolist()
    assert not any(found.left_out.values())
    assert not any(found.told.values())


@pytest.mark.parametrize("form", ["jsonl", "gz", "hits", "parquet", "flat", "numbers"])
def test_every_form_gives_the_logged_columns(log, tmp_path, form):
    drawn, events = log
    path = write(tmp_path / "events.jsonl", events)
    if form == "gz":
        path = tmp_path / "events.jsonl.gz"
        path.write_bytes(gzip.compress((tmp_path / "events.jsonl").read_bytes()))
    elif form == "hits":
        hits = [{"_index": "ubi_events", "_id": str(i), "_source": x} for i, x in enumerate(events)]
        path = write(tmp_path / "events.json", hits)
    elif form == "parquet":
        path = tmp_path / "events.parquet"
        pq.write_table(pyarrow.json.read_json(tmp_path / "events.jsonl"), path)
    elif form == "flat":
        path = tmp_path / "events.parquet"
        pd.json_normalize(events).to_parquet(path)
    elif form == "numbers":  # the schema allows integers as ids
        changed = json.loads(json.dumps(events))
        for one in changed:
            named = one["event_attributes"]["object"]
            named["object_id"] = int(named["object_id"][1:])
        path = write(tmp_path / "events.jsonl", changed)
        drawn = drawn.assign(doc=[x[1:] for x in drawn["doc"]])
    check(read_ubi(path), drawn)


def test_the_hits_of_queries_are_what_was_shown(log, tmp_path):
    drawn, events = log
    clicks = [x for x in events if x["action_name"] == "click"]
    for one in clicks:
        del one["user_query"]
    queries = [
        {
            "query_id": f"s{session}",
            "user_query": f"query {rows['qid'].iloc[0]}",
            "timestamp": TIME,
            "query_response_hit_ids": rows.sort_values("position")["doc"].tolist(),
        }
        for session, rows in drawn.groupby("session")
    ]
    path = write(tmp_path / "events.jsonl", clicks)
    check(read_ubi(path, write(tmp_path / "queries.jsonl", queries)), drawn)
    with pytest.raises(ValueError, match="nothing says which documents were shown"):
        read_ubi(path)


def test_the_columns_are_those_of_the_estimates(log, tmp_path):
    _, events = log
    rows = read_ubi(write(tmp_path / "events.jsonl", events)).rows
    bias = PositionBias.estimate(rows["click"], rows["position"], rows["qid"], rows["doc_id"])
    assert 0.3 < bias.examination[1] < 0.7
    scores = np.random.default_rng(1).normal(size=len(rows))
    about = rows["click"], rows["position"], rows["session"], bias
    assert evaluate_log(scores, *about, qid=rows["qid"]).sessions == 600


SHOWN = [event("impression", doc=doc, position=i) for i, doc in enumerate("abc", start=1)]


def test_actions_become_grades(tmp_path):
    events = [*SHOWN, event("click", doc="b"), event("purchase", doc="b"), event("click_through")]
    found = read_ubi(write(tmp_path / "e.jsonl", events))
    assert found.rows["label"].tolist() == [1, 3, 0]
    assert found.rows["click"].tolist() == [1, 1, 0]
    own = read_ubi(tmp_path / "e.jsonl", grades={"click": 0, "purchase": 5.5})
    assert own.rows["label"].tolist() == [0, 5.5, 0]
    assert own.rows["click"].tolist() == [0, 1, 0]
    assert own.left_out["events other than click, impression, purchase"] == 1


@pytest.mark.parametrize(
    ("extra", "kind", "reason", "count"),
    [
        ([event("click", query=None)], "left_out", "events without a query_id", 1),
        ([event("click", doc=None)], "left_out", "events without an object_id", 1),
        ([event("impression", doc="d")], "left_out", "impressions without a position from 1", 1),
        ([event("impression", doc="d", position=0)], "left_out", "without a position from 1", 1),
        ([event("click", doc="d")], "left_out", "on documents that were not shown", 1),
        ([event("click", doc="d", position=2)], "left_out", "position that another one has", 1),
        ([event("click", doc="d", position=4)], "told", "added at its position", 1),
        ([event("page_exit")], "left_out", "events other than", 1),
        ([event("click", time="2026-11-28T09:00:00Z")], "told", "before their list was shown", 1),
        ([event("click", time="yesterday")], "told", "timestamp cannot be read", 1),
        ([event("click", client_id="bot")] * 12, "left_out", "1 bots, with more than 10", 12),
        ([event("click", session_id="bot")] * 12, "left_out", "1 bots, with more than 10", 12),
        ([event("impression", doc="a", position=9)], "told", "query each", 1),
    ],
)
def test_what_is_wrong_is_counted(tmp_path, extra, kind, reason, count):
    found = read_ubi(write(tmp_path / "e.jsonl", [*SHOWN, *extra]), most_clicks=10)
    counts = {name: n for name, n in getattr(found, kind).items() if reason in name}
    assert [*counts.values()] == [count]
    assert f"{count} {next(iter(counts))}" in str(found)
    assert found.events == 3 + len(extra)
    added = kind == "told" and "added" in reason
    assert found.rows["doc_id"].tolist() == list("abcd" if added else "abc")
    assert found.rows["position"].tolist() == [1, 2, 3, 4][: 4 if added else 3]


def test_milliseconds_since_1970_are_times(tmp_path):
    events = [
        {**x, "timestamp": 1_764_000_000_000 - 5 * (x["action_name"] == "click")}
        for x in [*SHOWN, event("click")]
    ]
    found = read_ubi(write(tmp_path / "e.jsonl", events))
    assert found.told["events whose timestamp cannot be read"] == 0
    assert found.told["actions before their list was shown"] == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, {}, "no such file"),
        ("", {}, "no event has 'action_name'|Empty JSON"),
        ("{}\n", {}, "no event has 'action_name'"),
        ('{"action_name": 1}\n{broken\n', {}, r"e\.jsonl, line 2: "),
        ("[1]\n", {}, "line 1: an event must be a JSON object"),
        ('{"action_name": "click"}\n', {}, "no event has 'timestamp'"),
        ("", {"grades": {"click": -1}}, "grades must be >= 0, got -1 for 'click'"),
        ("", {"grades": {}}, "grades must be a grade for each action"),
        ("", {"grades": {"impression": 1}}, "no grade for 'impression'"),
        ("", {"most_clicks": 0}, "most_clicks must be"),
        (json.dumps(event("click", position=1)), {}, "nothing says which documents were shown"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, text, options, message):
    path = tmp_path / "e.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_ubi(path, **options)
    assert "\n" not in str(error.value)


def test_a_parquet_file_of_something_else(tmp_path):
    pq.write_table(
        pa.table({"action_name": ["click"], "event_attributes": [1]}), tmp_path / "e.parquet"
    )
    with pytest.raises(ValueError, match="no event has 'timestamp'"):
        read_ubi(tmp_path / "e.parquet")
    (tmp_path / "f.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"f\.parquet: "):
        read_ubi(tmp_path / "f.parquet")
