"""Score tables with any trained model: one function goes through a table in chunks."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ltr.arrays import as_names, as_numbers, as_qids
from ltr.datasets.column_steps import Number, counted_from
from ltr.datasets.frames import Frame
from ltr.datasets.list_files import is_list_folder
from ltr.datasets.list_tables import (
    holds_lists,
    keys_of,
    load_lists,
    of_columns,
    with_schema,
)
from ltr.datasets.lists import ListDataset
from ltr.datasets.prepare import Prepared
from ltr.datasets.reading import RowOrder, frame_lists, group_rows
from ltr.datasets.schema import Schema
from ltr.datasets.table_files import TableFiles, column_names, naming, rows_at_once
from ltr.names import shown_names

_BLOCK = 1 << 20  # a block of several lists on disk has at most this many feature values


class Predictor(Protocol):
    """A scorer of lists: a `RankingModel`, or the model of a `Blend` or of an ONNX file."""

    @property
    def schema(self) -> Schema | None:
        """How the columns of a table are used; None if the model knows no column names."""
        ...

    @property
    def num_features(self) -> int | None:
        """The number of features of a document; None if the model does not know it yet."""
        ...

    @property
    def looks_at_list(self) -> bool:
        """Whether a score depends on the other rows of the query."""
        ...

    @property
    def takes_exact(self) -> bool:
        """Whether scores of a table need its numbers in float64, as in trees."""
        ...

    def score(self, lists: ListDataset, exact: np.ndarray | None = None) -> np.ndarray:
        """Return the scores of lists with the schema's columns, (documents,).

        Args:
            lists: the lists.
            exact: float64 (documents, d), the features of `lists` as they were read; None if only
                their float32 numbers are known.
        """
        ...


def predict_table(model: Predictor, table: Any, qid: Any = None, **options: Any) -> np.ndarray:
    """Return the scores of a table's rows, (rows,); see `score_table` for the arguments."""
    parts = (scores for _, scores in score_table(model, table, qid, **options))
    return np.concatenate([np.empty(0, np.float32), *parts])


def score_table(
    model: Predictor,
    table: Any,
    qid: Any = None,
    *,
    keys: Sequence[str] = (),
    label: str | Sequence[str] | None = None,
    share: tuple[int, int] = (0, 1),
    **options: Any,
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Yield columns of a table and the scores of its rows, in chunks, in the order of the rows.

    Unless scores depend on the whole list, a table is read chunk by chunk, so the memory does not
    grow with the table. Lists on disk are read in blocks of whole lists.

    Args:
        model: the model that scores the rows.
        table: see `RankingModel.predict`.
        qid: see `RankingModel.predict`.
        keys: the columns to yield with the scores. LETOR text and lists have the columns "qid",
            "doc_id" and "label", if the lists have these values; several labels have their names in
            the model's schema.
        label: the column or columns of `keys` that are read as numbers; the other `keys` of a CSV
            file are read as text.
        share: the index of this process, from 0, and the number of processes, which take the
            chunks in turn.
        options: further arguments of `model.score`.

    Yields:
        A table with the columns `keys` of a chunk of rows, and their scores, (rows,). A table
        without rows is one chunk without rows.

    Raises:
        ValueError: see `RankingModel.predict`.
    """
    of_path = isinstance(table, str | PathLike)
    with naming(table):
        if isinstance(table, ListDataset | Prepared) or (of_path and holds_lists(table)):
            if qid is not None and not (isinstance(qid, str) and qid == "qid"):
                given = repr(qid) if isinstance(qid, str) else "an array"
                raise ValueError(f"qid must be None for lists, which bring their own, got {given}")
            yield from _score_lists(model, table, keys, share, **options)
            return
        frame, schema = None, model.schema
        if not of_path:
            frame, schema = read_frame(model, table)
            if qid is not None and not isinstance(qid, str):
                qid = _as_column(qid, frame.num_rows)
        elif not (qid is None or isinstance(qid, str | pa.Array | pa.ChunkedArray)):
            qid = as_names("qid", qid)
        if schema is None:
            raise ValueError(
                "table must be an array (rows, d) or LETOR text: the model was not trained on a "
                "table"
            )
        plain = Schema("", steps=schema.steps)  # the queries need not be a column of the table
        names = column_names(table) if frame is None else frame.column_names
        plain.check_names(names)
        query = _query_column(model, names, qid)
        for name in keys:
            if name not in names:
                known = shown_names(names)
                raise ValueError(f"the table must have the column {name!r}, got {known}")
        used: list[str] = [*plain.steps, *keys, *([] if query is None else [query])]
        columns = list(dict.fromkeys(used))
        source = frame
        if source is None:
            types = {**dict.fromkeys(columns, pa.string()), **plain.text_types()}
            labels = [label] if isinstance(label, str) else label or ()
            source = TableFiles(table, {**types, **dict.fromkeys(labels, pa.float64())})
        rows = None if model.looks_at_list else rows_at_once(plain)
        start = 0
        for number, part in enumerate(_parts(source, columns, rows)):
            stop = start + part.num_rows
            if number % share[1] == share[0]:
                qids = None if qid is None else qid[start:stop]
                if query is not None:
                    qids = part.column(query)
                with counted_from(start):
                    yield part.select([*keys]), _score_rows(model, part, plain, qids, options)
            start = stop
        if qid is not None and query is None:
            _as_column(qid, start)  # a table that is read in chunks has its length at its end


def read_frame(model: Predictor, table: Any) -> tuple[Frame, Schema]:
    """Return a table or an array (columns x0, x1 and so on) as a `Frame`, and its schema."""
    if hasattr(table, "__arrow_c_stream__") or isinstance(table, Frame | pa.RecordBatch):
        if model.schema is None:
            raise ValueError(
                "table must be an array (rows, d): the model was not trained on a table, got "
                f"{type(table).__name__}"
            )
        return Frame.of(table), model.schema
    values = as_numbers("table", table)
    if values.ndim != 2:
        raise ValueError(f"table must be (rows, d), got shape {values.shape}")
    frame = Frame.of_array(values)
    if model.schema is not None:
        return frame, model.schema
    if model.num_features != values.shape[1]:
        raise ValueError(
            f"table must have the model's {model.num_features} columns, got {values.shape[1]}"
        )
    return frame, Schema("qid", steps=dict.fromkeys(frame.column_names, Number()))


def _query_column(model: Predictor, names: Sequence[str], qid: Any) -> str | None:
    """Return the column with the query of each row; None if `qid` has them or none is needed."""
    if isinstance(qid, str):
        if qid not in names:
            raise ValueError(
                f"qid must be a column of the table, one of {shown_names(names)}, got {qid!r}"
            )
        return qid
    if qid is not None or not model.looks_at_list:
        return None
    name = "" if model.schema is None else model.schema.qid
    if name not in names:
        raise ValueError(
            "qid must be given, the query of each row: the scores of this model depend on the "
            "whole list" + f", and the table has no column {name!r}" * bool(name)
        )
    return name


def _parts(
    source: TableFiles | Frame, columns: Sequence[str], rows: int | None
) -> Iterator[pa.Table]:
    """Yield at least one part of a table: chunks of at most `rows` rows, or all rows for None."""
    parts = iter(()) if rows is None else source.chunks(columns, rows)
    first = next(parts, None)
    yield source.read(columns) if first is None else first
    yield from parts


def _as_column(qid: Any, rows: int) -> pa.ChunkedArray:
    """Return the query of each row as a column of the given length."""
    if isinstance(qid, pa.ChunkedArray | pa.Array) and len(qid) == rows:
        return pa.table([qid], ["qid"]).column(0)
    return pa.chunked_array([as_qids("qid", qid, rows)])


def _score_rows(
    model: Predictor, part: pa.Table, schema: Schema, qids: Any, options: Mapping[str, Any]
) -> np.ndarray:
    """Return the scores of rows, (rows,); `qids` are their queries, or None."""
    order = None
    if qids is not None:
        column = _as_column(qids, part.num_rows)
        if model.looks_at_list:
            order = RowOrder.of(*group_rows(column, "qid"))
    lists, exact = frame_lists(Frame.of(part), schema, exact=model.takes_exact, order=order)
    return in_row_order(model.score(lists, exact, **options), lists)


def in_row_order(scores: np.ndarray, lists: ListDataset) -> np.ndarray:
    """Return scores (rows,) of lists in the order of the table that they were made from."""
    ordered = np.empty_like(scores)
    ordered[lists.rows] = scores
    return ordered


def _score_lists(
    model: Predictor, source: Any, keys: Sequence[str], share: tuple[int, int], **options: Any
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Do the work of `score_table` for lists in memory or on disk, or LETOR text.

    The scores of a path are in the order of its rows, those of lists in the order of the documents.
    """
    of_path = isinstance(source, str | PathLike)
    if isinstance(source, Prepared):
        if source.val is not None:
            raise ValueError("X must be one set of lists, got training and validation lists")
        lists = source.train
        if model.schema is not None:
            lists = of_columns(lists, source.schema, model.schema)
    else:
        lists = load_lists(source) if of_path else source
        if model.schema is not None:
            lists = with_schema(lists, model.schema)
    if model.schema is None and model.num_features is not None:
        lists = lists.widen(max(model.num_features, lists.num_features))
        if lists.num_features != model.num_features:
            raise ValueError(
                f"the lists must have the model's {model.num_features} features, got "
                f"{lists.num_features}"
            )
    labels = getattr(model.schema, "labels", ())
    own = source.schema if isinstance(source, Prepared) else lists.schema
    if own is not None and {*own.labels} == {*labels}:
        labels = own.labels  # which may be in another order
    if of_path and not is_list_folder(source):  # lines of text may be in another order than lists
        lists = lists.in_memory()
    for block in islice(lists.blocks(_BLOCK), share[0], None, share[1]):
        scores = model.score(block, **options)
        by_row = np.arange(len(scores)) if block.rows is None else np.argsort(block.rows)
        table, scores = keys_of(block, "qid"), scores[by_row]
        if block.has_labels:
            columns = block.labels[by_row].reshape(len(by_row), -1).T
            names = ("label",) if len(columns) == 1 else labels
            if len(names) == len(columns):
                for name, values in zip(names, columns, strict=True):
                    # As from a table, a label that is not known is null.
                    table = table.append_column(name, pa.array(values, from_pandas=True))
        if not of_path:
            by_document = np.argsort(by_row)
            table, scores = table.take(pa.array(by_document)), scores[by_document]
        yield table.select([name for name in keys if name in table.column_names]), scores
