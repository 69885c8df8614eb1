"""Read logs of User Behavior Insights (UBI 1.3.0), which OpenSearch and Solr write."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ltr.arrays import pc
from ltr.files import check_path
from ltr.names import one_line, plural
from ltr.shapes import check_whole

if TYPE_CHECKING:
    import pandas as pd

GRADES = {"click": 1.0, "click_through": 1.0, "add_to_cart": 2.0, "purchase": 3.0}
"""The default grades of actions."""

_EVENT = {
    "action_name": ("action_name",),
    "query_id": ("query_id",),
    "session_id": ("session_id",),
    "client_id": ("client_id",),
    "timestamp": ("timestamp",),
    "user_query": ("user_query",),
    "doc_id": ("event_attributes", "object", "object_id"),
    "position": ("event_attributes", "position", "ordinal"),
}
_QUERY = {
    "query_id": ("query_id",),
    "timestamp": ("timestamp",),
    "user_query": ("user_query",),
    "hits": ("query_response_hit_ids",),
}


@dataclass(frozen=True)
class UbiLog:
    """The result of `read_ubi`: `print` it for what was read and what was left out.

    Attributes:
        rows: a pandas table, one row for each document of each showing: `session` (the query_id:
            one showing of one list), `qid` (the text of the query), `doc_id`, `position`, `click`
            (1 if an action with a grade above 0 was taken, else 0) and `label` (the highest grade
            of the actions, 0 without one).
        events: how many events the log has.
        left_out: how many events or documents were left out, by the reason.
        told: how many events or documents were kept but are suspicious, by the reason.
    """

    rows: "pd.DataFrame"
    events: int
    left_out: dict[str, int]
    told: dict[str, int]

    def __str__(self) -> str:
        rows = self.rows
        counts: Any = rows[["session", "qid"]].nunique()
        showings, queries = counts["session"], counts["qid"]
        lines = [
            f"{self.events:,} {plural(self.events, 'event')}: {len(rows):,} "
            f"{plural(len(rows), 'document')} in {showings:,} {plural(showings, 'showing')} of "
            f"{queries:,} {plural(queries, 'query', 'queries')}, {rows['click'].sum():,} clicked"
        ]
        for title, counts in (("left out", self.left_out), ("kept", self.told)):
            lines += [f"{title}: {n:,} {reason}" for reason, n in counts.items() if n]
        return "\n".join(lines)


def read_ubi(
    events: str | PathLike[str],
    queries: str | PathLike[str] | None = None,
    *,
    grades: Mapping[str, float] | None = None,
    most_clicks: int = 1000,
) -> UbiLog:
    """Read a log of UBI 1.3.0 into the columns that training and click estimates need.

    What was shown comes from the hits of `queries`, in their order, or else from the events
    `impression` with their `event_attributes.position.ordinal`. An action belongs to the document
    of its `query_id` and `event_attributes.object.object_id`. So a purchase needs no position of
    its own. If a document has an action but was not among the shown ones, it is added at the
    position of the action.

    Args:
        events: the file of events: JSON lines (.json, .jsonl, .ndjson, also .gz), each line an
            event or a hit of OpenSearch with its `_source`; or Parquet with nested columns, or with
            columns such as "event_attributes.object.object_id".
        queries: the file of queries, in the same forms, with `query_response_hit_ids` and
            `user_query`. Default: only events are read.
        grades: the grade of each action, >= 0; other actions are left out. Default: "click" and
            "click_through" 1, "add_to_cart" 2, "purchase" 3.
        most_clicks: a client (or session, if the log has no clients) with more graded actions is a
            bot: all its events are left out.

    Returns:
        A `UbiLog`, with rows ordered by session and position. In a session, each position keeps
        one document and each document one position: the first in the log. If a query has no text,
        its query_id is the `qid`. Cost: a few seconds for a million events.

    Raises:
        ValueError: a file is missing or cannot be read, a line is not a JSON object, a column is
            missing, a grade is invalid, nothing says what was shown, or no row is left.

    Reference: the schema of UBI, github.com/o19s/ubi.

    >>> from tempfile import mkdtemp
    >>> def event(action, doc, position=None):
    ...     attributes = {"object": {"object_id": doc}, "position": {"ordinal": position}}
    ...     named = {"action_name": action, "query_id": "q1", "user_query": "shoes"}
    ...     return named | {"timestamp": "2026-11-28T10:00:00Z", "event_attributes": attributes}
    >>> log = [event("impression", "a", 1), event("impression", "b", 2), event("purchase", "b")]
    >>> path = Path(mkdtemp(), "events.jsonl")
    >>> _ = path.write_text(chr(10).join(map(json.dumps, [*log, {"action_name": "x"}])))
    >>> found = read_ubi(path)
    >>> print(found)
    4 events: 2 documents in 1 showing of 1 query, 1 clicked
    left out: 1 events without a query_id
    >>> print(found.rows)
      session    qid doc_id  position  click  label
    0      q1  shoes      a         1      0    0.0
    1      q1  shoes      b         2      1    3.0
    """
    import pandas as pd

    grade_of = _check_grades(GRADES if grades is None else grades)
    most_clicks = check_whole("most_clicks", most_clicks)
    table: Any = _read(events, _EVENT, needed=["action_name", "timestamp"])
    total = len(table)
    left_out: dict[str, int] = {}
    told: dict[str, int] = {}

    def drop(bad: Any, reason: str) -> None:
        nonlocal table
        left_out[reason] = int(bad.sum())
        table = table[~bad] if left_out[reason] else table

    drop(table["query_id"].isna(), "events without a query_id")
    drop(table["doc_id"].isna(), "events without an object_id")
    actions = [*grade_of, "impression"]
    drop(~table["action_name"].isin(actions), f"events other than {', '.join(sorted(actions))}")
    client = table["client_id"].fillna(table["session_id"])
    is_action = table["action_name"].isin(list(grade_of))
    clicks = client[is_action].value_counts()
    bots = clicks.index[clicks > most_clicks]
    drop(client.isin(bots), f"events of {len(bots):,} bots, with more than {most_clicks:,} actions")
    table = table.assign(time=_times(table["timestamp"]))
    told["events whose timestamp cannot be read"] = int(table["time"].isna().sum())
    is_valid = (table["position"] >= 1) & (table["position"] % 1 == 0)
    is_action = table["action_name"].isin(list(grade_of))
    key = ["query_id", "doc_id"]
    shown: Any = table.loc[~is_action & is_valid, [*key, "position", "time"]]
    left_out["impressions without a position from 1"] = int((~is_action & ~is_valid).sum())
    texts = table.dropna(subset=["user_query"]).drop_duplicates("query_id")
    text_of = texts.set_index("query_id")["user_query"]
    if queries is not None:
        asked = _read(queries, _QUERY, needed=["query_id"]).dropna(subset=["query_id"])
        asked = asked.drop_duplicates("query_id").assign(time=_times(asked["timestamp"]))
        text_of = text_of.combine_first(asked.set_index("query_id")["user_query"].dropna())
        shown = pd.concat([_hits(asked), shown], ignore_index=True)
    if not len(shown):
        raise ValueError(
            f"{events}: nothing says which documents were shown: the log has no impressions with a "
            "position, so give `queries` with their hits"
        )
    done = table[is_action]
    first = shown.groupby("query_id")["time"].min()
    before = done["time"] < done["query_id"].map(first)
    told["actions before their list was shown"] = int(before.sum())
    shown = shown.drop_duplicates(key)
    is_shown = pd.MultiIndex.from_frame(done[key]).isin(pd.MultiIndex.from_frame(shown[key]))
    valid = is_valid[is_action].to_numpy()
    left_out["actions without a position, on documents that were not shown"] = int(
        (~is_shown & ~valid).sum()
    )
    added = done.loc[~is_shown & valid, [*key, "position", "time"]].drop_duplicates(key)
    told["documents with an action that were not shown: added at its position"] = len(added)
    shown = pd.concat([shown, added], ignore_index=True)
    taken = shown.duplicated(["query_id", "position"])
    left_out["documents at a position that another one has"] = int(taken.sum())
    shown = shown[~taken]
    best = done.assign(label=done["action_name"].map(grade_of)).groupby(key, as_index=False)
    rows = shown.merge(best["label"].max(), on=key, how="left").fillna({"label": 0.0})
    qid = rows["query_id"].map(text_of).astype(object)
    told["showings without the text of their query: a query each"] = int(
        rows["query_id"][qid.isna()].nunique()
    )
    if not len(rows):
        raise ValueError(f"{events}: no document is left")
    rows = pd.DataFrame(
        {
            "session": rows["query_id"],
            "qid": qid.fillna(rows["query_id"]),
            "doc_id": rows["doc_id"],
            "position": rows["position"].astype(np.int64),
            "click": (rows["label"] > 0).astype(np.int64),
            "label": rows["label"],
        }
    )
    rows = rows.sort_values(["session", "position"], ignore_index=True)
    return UbiLog(rows, total, left_out, told)


def _check_grades(grades: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(grades, Mapping) or not grades:
        raise ValueError(f"grades must be a grade for each action, got {grades!r}")
    for name, grade in grades.items():
        if not isinstance(grade, int | float) or not 0 <= grade < np.inf:
            raise ValueError(f"grades must be >= 0, got {grade!r} for {name!r}")
        if name == "impression":
            raise ValueError("grades must have no grade for 'impression'")
    return {str(name): float(grade) for name, grade in grades.items()}


def _hits(asked: Any) -> Any:
    """Return what the hits of queries show: query_id, doc_id, position and time."""
    hits = asked.dropna(subset=["hits"])
    rows = hits.explode("hits").dropna(subset=["hits"])
    position = rows.groupby(level=0).cumcount() + 1
    found = rows[["query_id", "time"]].assign(doc_id=rows["hits"].map(str), position=position)
    return found[["query_id", "doc_id", "position", "time"]]


def _times(texts: Any) -> Any:
    """Return points in time, in UTC: from ISO 8601, or from milliseconds since 1970."""
    import pandas as pd

    numbers: Any = pd.to_numeric(texts, errors="coerce")
    texts = texts.where(numbers.isna())
    named: Any = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    counted: Any = pd.to_datetime(numbers, unit="ms", utc=True, errors="coerce")
    kind = "datetime64[us, UTC]"
    return named.astype(kind).fillna(counted.astype(kind))


def _read(
    path: str | PathLike[str], fields: Mapping[str, tuple[str, ...]], needed: list[str]
) -> Any:
    """Return fields of a file as columns: text, except the position (a number) and the hits."""
    import pandas as pd

    file = check_path("path", path)
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    try:
        read = _parquet if file.name.endswith(".parquet") else _json
        columns = read(file, fields)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(one_line(f"{file}: {error}")) from None
    for name in needed:
        if columns[name] is None or columns[name].null_count == len(columns[name]):
            raise ValueError(f"{file}: no event has {'.'.join(fields[name])!r}, as UBI 1.3.0 has")
    rows = max(len(column) for column in columns.values() if column is not None)
    found = {}
    for name, column in columns.items():
        if column is None:
            column = pa.nulls(rows)
        if name == "position":
            numbers = pd.to_numeric(column.to_pandas(), errors="coerce")
            found[name] = pd.Series(numbers, dtype=np.float64)
        elif name == "hits":
            found[name] = pd.Series(column.to_pylist(), dtype=object)
        else:
            texts = column.cast(pa.string()).to_pandas().astype(object)
            given = texts.notna() & (texts != "")
            found[name] = pd.Series(np.where(given, texts, None), dtype=object)
    return pd.DataFrame(found)


def _parquet(file: Path, fields: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return each field's column; None for one that the file lacks."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(file)
    found = {}
    for name, keys in fields.items():
        flat = ".".join(keys)
        column: Any = None
        if flat in table.column_names:
            column = table.column(flat)
        elif keys[0] in table.column_names:
            column = table.column(keys[0])
            for key in keys[1:]:
                if not pa.types.is_struct(column.type) or column.type.get_field_index(key) < 0:
                    column = None
                    break
                column = pc.struct_field(column, key)
        found[name] = column
    return found


def _json(file: Path, fields: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return each field's column of JSON lines, by Arrow if it can, else line by line."""
    import pyarrow.json

    schema = pa.schema(
        [(name, pa.string()) for name, keys in fields.items() if len(keys) == 1 and name != "hits"]
    )
    if "hits" in fields:
        schema = schema.append(pa.field("query_response_hit_ids", pa.list_(pa.string())))
    else:
        inner = {"object": ("object_id", pa.string()), "position": ("ordinal", pa.int64())}
        parts = [(name, pa.struct([field])) for name, field in inner.items()]
        schema = schema.append(pa.field("event_attributes", pa.struct(parts)))
    try:
        with pa.input_stream(str(file)) as stream:  # this unpacks .gz
            table = pyarrow.json.read_json(
                stream,
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
        if table.column(0).null_count < len(table):
            flat = table.flatten().flatten() if "hits" not in fields else table
            return {name: flat.column(".".join(keys)) for name, keys in fields.items()}
    except pa.ArrowInvalid:
        pass  # numbers as ids, or events inside of `_source`
    columns: dict[str, list[Any]] = {name: [] for name in fields}
    for content in _lines(file):
        for name, keys in fields.items():
            value: Any = content
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            if name == "hits":
                value = [str(x) for x in value] if isinstance(value, list) else None
            elif isinstance(value, dict | list):
                value = None
            columns[name].append(value if value is None or name == "hits" else str(value))
    hits = pa.list_(pa.string())
    return {
        name: pa.array(values, hits if name == "hits" else pa.string())
        for name, values in columns.items()
    }


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the event of each line that is not empty."""
    with pa.input_stream(str(file)) as stream:
        text = stream.read().decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ValueError(one_line(f"{file}, line {number}: {error}")) from None
        if not isinstance(content, dict):
            raise ValueError(f"{file}, line {number}: an event must be a JSON object")
        source = content.get("_source")
        yield source if isinstance(source, dict) else content
