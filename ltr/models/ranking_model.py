"""A trained ranker: the schema of its tables, its transform and its scorer, in one folder."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from os import PathLike
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from ltr.arrays import as_numbers, as_qids
from ltr.config import check_trust
from ltr.config.folder import (
    CONFIG,
    WEIGHTS,
    configs,
    describing,
    load_weights,
    read_folder,
    read_part,
    write_folder,
)
from ltr.datasets.column_steps import Number, counted_from
from ltr.datasets.frames import Frame
from ltr.datasets.infer import ROWS
from ltr.datasets.list_tables import holds_lists, keys_of, load_lists, with_schema
from ltr.datasets.lists import ListDataset
from ltr.datasets.prepare import RowOrder, check_types, group_rows, to_lists
from ltr.datasets.schema import Schema
from ltr.datasets.table_files import TableFiles, column_names, naming, rows_at_once
from ltr.datasets.transforms import FeatureTransform
from ltr.models.ragged import score_ragged
from ltr.models.scorer import Scorer, transformed
from ltr.names import shown_names

_BLOCK = 1 << 20  # a block of several lists on disk has at most this many feature values


class Predictor(Protocol):
    """A scorer of table rows: a `RankingModel`, or the model of a `Blend` or of an ONNX file."""

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

    def score(self, lists: ListDataset) -> np.ndarray:
        """Return the scores of lists with the schema's columns, float32 (documents,)."""
        ...

    def predict(self, table: Any, /, *, qid: Any = None) -> np.ndarray:
        """Return the scores of a table's rows, float32 (rows,)."""
        ...


class RankingModel(nn.Module):
    """A trained ranker: the schema of its tables, the transform of their columns, and the scorer.

    `NeuralRanker.model_` and `Ranker.model` are such models, and `ltr fit` writes one. A model is
    saved in a folder, from which it can be loaded, exported, served and explained.

    Args:
        scorer: the scorer, with its weights; it may be an `Ensemble`.
        transform: the fitted transform of features and categories; None for no transform.
        schema: how the columns of a table are used; None if the model was trained on arrays or on
            LETOR text without a schema.

    Attributes:
        num_features: the number of features of a document, before the transform; None if the
            scorer does not know it yet.
        looks_at_list: whether a score depends on the other documents of the list.

    Raises:
        ValueError: an argument has the wrong type.

    >>> from ltr.models import LinearScorer
    >>> model = RankingModel(LinearScorer(3))
    >>> model(torch.zeros(2, 5, 3)).shape, model.predict(np.zeros((7, 3))).shape
    (torch.Size([2, 5]), (7,))
    """

    def __init__(
        self,
        scorer: Scorer,
        transform: FeatureTransform | None = None,
        schema: Schema | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(scorer, Scorer):
            raise ValueError(f"scorer must be a Scorer, got {scorer!r}")
        for name, value, kind in (
            ("transform", transform, FeatureTransform),
            ("schema", schema, Schema),
        ):
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} must be a {kind.__name__} or None, got {value!r}")
        self.scorer = scorer
        self.transform = transform
        self.schema = schema

    @property
    def num_features(self) -> int | None:
        """The number of features of a document, before the transform."""
        source = self.scorer if self.transform is None else self.transform
        return getattr(source, "num_features", None)

    @property
    def looks_at_list(self) -> bool:
        """Whether a score depends on the other documents of the list."""
        within = self.transform is not None and self.transform.within_list
        return within or not self.scorer.per_document

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the scores (..., n) of raw features (..., n, *item); 0 for masked documents.

        With `lengths` the lists are ragged: features (N, *item), categories (N, c), scores (N,).

        Args:
            features: (..., n, *item), with NaN for missing values, if the transform takes NaN.
            mask: (..., n) bool, True for a real document. Default: all are real.
            categories: (..., n, c), codes, if the transform takes categories.
            lengths: (B,) int64, the number of documents of each list; instead of a mask.

        Raises:
            ValueError: there are categories but no transform that takes them; `mask` and `lengths`
                are both given; or a shape or dtype is wrong.
        """
        if mask is not None and lengths is not None:
            raise ValueError("mask must be None if lengths are given: ragged lists have no mask")
        if self.transform is None and categories is not None:
            raise ValueError("categories must be None: there is no transform that takes them")
        found = features
        if self.transform is not None:
            given = mask, categories, lengths
            found = transformed(self.scorer, self.transform, features, *given)
        # After `half()` or `double()`, the weights have another type than the features.
        if (weight := next(self.scorer.parameters(), None)) is not None:
            found = found.to(weight.dtype)
        if lengths is None:
            return self.scorer(found, mask)
        return score_ragged(self.scorer, found, lengths)

    def score(self, lists: ListDataset, *, device: str | torch.device = "cpu") -> np.ndarray:
        """Return the scores of lists, float32 (documents,), in the order of the documents.

        Args:
            lists: the lists, with the model's features and categories, in memory or on disk.
            device: where to compute.
        """
        device = torch.device(device)
        model = self
        if device.type != "cpu" or any(x.training for x in self.modules() if x is not self):
            model = copy.deepcopy(self).to(device).eval()  # other threads may use `self`
        with torch.inference_mode():
            found = [model(**x).float().cpu().numpy() for x in model.batches(lists, device)]
        return np.concatenate([np.empty(0, np.float32), *found])

    def batches(
        self, lists: ListDataset, device: str | torch.device = "cpu"
    ) -> Iterator[dict[str, Tensor]]:
        """Yield the arguments of `forward` for all documents, some thousand documents at a time.

        If `looks_at_list`, they are whole lists, with their lengths.

        Args:
            lists: the lists, in memory or on disk.
            device: the device of the tensors.
        """
        for part in lists.blocks():
            for start, end in _bounds(part, self.looks_at_list):
                batch = {"features": torch.from_numpy(part.features[start:end]).to(device)}
                if part.categories is not None:
                    batch["categories"] = torch.from_numpy(part.categories[start:end]).to(device)
                if self.looks_at_list:
                    inside = part.offsets[(part.offsets >= start) & (part.offsets <= end)]
                    batch["lengths"] = torch.from_numpy(np.diff(inside)).to(device)
                yield batch

    def predict(
        self, table: Any, qid: Any = None, *, device: str | torch.device = "cpu"
    ) -> np.ndarray:
        """Return a score for each row, float32 (rows,); in a query, the highest score ranks first.

        A file is read chunk by chunk, unless scores depend on the whole list.

        Args:
            table: a pandas or polars data frame, an Arrow table, or an array (rows, d), whose
                columns are called x0, x1 and so on; a file, a folder or a pattern of CSV, Parquet
                or LETOR text; or a folder that `ltr convert` wrote. Columns are matched by name;
                other columns are ignored.
            qid: the name of the query column, or an array (rows,) with the query of each row.
                Needed only if scores depend on the whole list. Default: the query column of the
                training data.
            device: where to compute.

        Raises:
            ValueError: a column is missing or has another type than in training; a value is
                infinite in float32; or `qid` is missing but needed.
        """
        return predict_table(self, table, qid, device=device)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the model into a folder: `config.json` and `model.safetensors`.

        Even if the process is killed, `load` finds either the folder's old model or this one. Other
        files in the folder stay. A part without a configuration (see `ltr.config.to_config`), such
        as a scorer whose class is in `__main__`, is left out with a warning; `load` then raises an
        error.

        Args:
            folder: the folder, made if it is missing.

        Raises:
            ValueError: a weight is not finite.
            OSError: a file cannot be written, for example because the disk is full. The folder is
                then unchanged.
        """
        write_folder(folder, self.parts, self.to_dict())

    @property
    def parts(self) -> dict[str, nn.Module | None]:
        """The scorer and transform by name. The names of saved weights begin with these names."""
        return {"scorer": self.scorer, "transform": self.transform}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `config.json`: the configurations of the parts, and the schema.

        A part without a configuration is None; the value of `unsaved` gives the reason.
        """
        unsaved: dict[str, str] = {}
        parts = configs(self.parts, unsaved)
        return {
            "unsaved": unsaved,
            "num_features": getattr(self.scorer, "num_features", None),
            **parts,
            "schema": None if self.schema is None else self.schema.to_dict(),
        }

    @classmethod
    def load(cls, folder: str | PathLike[str], *, trust: Sequence[str] = ()) -> Self:
        """Return the model of a folder. Loading runs no code from the files.

        Args:
            folder: a folder that `save`, `ltr fit`, `NeuralRanker.save` or an export wrote.
            trust: packages whose classes the configuration may use, besides `ltr` and `torch.nn`.

        Raises:
            ValueError: the folder holds no model, a file is damaged or names a class that is
                not trusted, the weights do not match their digest, a weight is not finite, or a
                part has no configuration.

        >>> from tempfile import mkdtemp
        >>> from ltr.models import LinearScorer
        >>> model, folder = RankingModel(LinearScorer(3)), mkdtemp()
        >>> model.save(folder)
        >>> features = torch.randn(2, 5, 3)
        >>> bool((RankingModel.load(folder)(features) == model(features)).all())
        True
        """
        trusted = check_trust(trust)
        content, files = read_folder(folder)
        with describing(folder):
            return cls.from_dict(content, files[WEIGHTS], folder=folder, trusted=trusted)

    @classmethod
    def from_dict(
        cls,
        content: Mapping[str, Any],
        weights: bytes,
        *,
        folder: str | PathLike[str],
        trusted: Sequence[str],
        prefix: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the model that `to_dict` described, with its weights.

        Args:
            content: what `to_dict` returned.
            weights: the content of `model.safetensors`.
            folder: the folder, for error messages.
            trusted: see `ltr.config.check_trust`.
            prefix: the text that stands before a part's name in the names of its weights.
            given: parts by name, used instead of parts made from their configurations.

        Raises:
            ValueError: see `load`.
        """
        made: dict[str, Any] = {"scorer": None, "transform": None, **(given or {})}
        if not {"unsaved", "num_features", "scorer", "transform", "schema"} <= {*content}:
            raise ValueError(f"{folder}: {CONFIG} is not the configuration of a model")
        kinds: dict[str, type[nn.Module]] = {"scorer": Scorer, "transform": FeatureTransform}
        for name, kind in kinds.items():
            if made[name] is not None:
                continue
            if reason := content["unsaved"].get(name):
                raise ValueError(
                    f"{name} of {folder} cannot be loaded, because it could not be saved: {reason}"
                )
            if content[name] is not None:
                made[name] = read_part(content[name], name, kind, trusted)
        schema = None if content["schema"] is None else Schema.from_dict(content["schema"])
        model = cls(**made, schema=schema)
        if content["num_features"] is not None:
            model.scorer.build(content["num_features"])
        parts = {f"{prefix}{name}": one for name, one in model.parts.items() if one is not None}
        load_weights(folder, weights, parts)
        return model.eval()


def predict_table(model: Predictor, table: Any, qid: Any, **options: Any) -> np.ndarray:
    """Return the scores of a table's rows, float32 (rows,); see `RankingModel.predict`.

    Args:
        model: the model that scores the rows.
        table: see `RankingModel.predict`.
        qid: see `RankingModel.predict`.
        options: further arguments of `model.score`.
    """
    if isinstance(table, str | PathLike):
        return np.concatenate([scores for _, scores in score_file(model, table, qid, **options)])
    frame, schema = read_frame(model, table)
    order = list_order(model, frame, qid)
    schema = Schema("", steps=schema.steps)  # the queries need not be a column of the table
    check_types(frame, schema, {""})
    size = rows_at_once(schema) if order is None else max(1, frame.num_rows)
    found, start = [np.empty(0, np.float32)], 0
    for part in frame.chunks([*schema.steps], size):
        one_list = RowOrder.of(np.zeros(part.num_rows, np.int64), ["0"])
        with counted_from(start):
            lists = to_lists(Frame.of(part), schema, order or one_list, "keep")
        scores = model.score(lists, **options)
        found.append(np.empty_like(scores))
        found[-1][lists.rows] = scores
        start += size
    return np.concatenate(found)


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


def score_file(
    model: Predictor,
    path: str | PathLike[str],
    qid: Any = None,
    keys: Sequence[str] = (),
    label: str | None = None,
    share: tuple[int, int] = (0, 1),
    **options: Any,
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Yield columns of a table and the scores of its rows, in chunks, in the order of the rows.

    Unless scores depend on the whole list, a table is read chunk by chunk, so the memory does not
    grow with the table. Lists on disk are read in blocks of whole lists.

    Args:
        model: the model that scores the rows.
        path: a file, a folder or a pattern of CSV, Parquet or LETOR text, or a folder that `ltr
            convert` wrote.
        qid: see `RankingModel.predict`.
        keys: the columns to yield with the scores. LETOR text and lists on disk have the columns
            "qid", "doc_id" and "label", if the lists have these values.
        label: the column of `keys` that is read as numbers; the other `keys` of a CSV file are
            read as text.
        share: the index of this process, from 0, and the number of processes, which take the
            chunks in turn.
        options: further arguments of `model.predict` or, for lists, of `model.score`.

    Yields:
        A table with the columns `keys` of a chunk of rows, and their scores, float32 (rows,). A
        table without rows is one chunk without rows.

    Raises:
        ValueError: see `RankingModel.predict`.
    """
    with naming(path):
        if holds_lists(path):
            yield from _score_lists(model, path, keys, share, **options)
        else:
            yield from _score_table(model, path, qid, keys, label, share, **options)


def _score_table(
    model: Predictor,
    path: str | PathLike[str],
    qid: Any,
    keys: Sequence[str],
    label: str | None,
    share: tuple[int, int],
    **options: Any,
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    schema = model.schema
    if schema is None:
        raise ValueError(
            "table must be an array (rows, d) or LETOR text: the model was not trained on a table"
        )
    there = column_names(path)
    wanted = Schema("", steps=schema.steps)
    wanted.check_names(there, {""})
    query = qid if isinstance(qid, str) else None
    if qid is None and model.looks_at_list:
        query = schema.qid
    named = [*keys] if query is None else [*keys, query]
    for name in named:
        if name not in there:
            raise ValueError(f"the table must have the column {name!r}, got {shown_names(there)}")
    used = list(dict.fromkeys([*schema.steps, *named]))
    types = {**dict.fromkeys(used, pa.string()), **wanted.text_types()}
    if label is not None:
        types[label] = pa.float64()
    files = TableFiles(path, types)
    start = 0
    rank, processes = share
    parts = iter(()) if model.looks_at_list else files.chunks(used, rows_at_once(schema))
    # All rows are read at once if scores depend on whole lists, or if there are no rows.
    first = next(parts, None)
    parts = chain([files.read(used) if first is None else first], parts)
    for number, part in enumerate(parts):
        if number % processes != rank:
            start += part.num_rows
            continue
        given = qid
        if query is not None:
            given = part.column(query)
        elif qid is not None:
            given = qid[start : start + part.num_rows]
        with counted_from(start):
            scores = model.predict(part, qid=given, **options)
        start += part.num_rows
        yield part.select([*keys]), scores


def _score_lists(
    model: Predictor,
    path: str | PathLike[str],
    keys: Sequence[str],
    share: tuple[int, int],
    **options: Any,
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    lists = load_lists(path, keep_order=True)
    if model.schema is not None:
        lists = with_schema(lists, model.schema)
    elif model.num_features is not None:
        lists = lists.widen(max(model.num_features, lists.num_features))
        if lists.num_features != model.num_features:
            raise ValueError(
                f"the lists must have the model's {model.num_features} features, got "
                f"{lists.num_features}"
            )
    for block in islice(lists.blocks(_BLOCK), share[0], None, share[1]):
        table = keys_of(block, "qid")
        order = slice(None) if block.rows is None else np.argsort(block.rows)
        if block.has_labels:
            table = table.append_column("label", pa.array(block.labels[order]))
        known = [name for name in keys if name in table.column_names]
        yield table.select(known), model.score(block, **options)[order]


def list_order(model: Predictor, frame: Frame, qid: Any) -> RowOrder | None:
    """Return the rows in the order of their queries; None if scores do not depend on the list."""
    if qid is None:
        if not model.looks_at_list:
            return None
        qid = "" if model.schema is None else model.schema.qid
        if qid not in frame.column_names:
            raise ValueError(
                "qid must be given, the query of each row: the scores of this model depend on the "
                "whole list"
            )
    if isinstance(qid, str):
        if qid not in frame.column_names:
            known = shown_names(frame.column_names)
            raise ValueError(f"qid must be a column of the table, one of {known}, got {qid!r}")
        column = frame.column(qid)
    elif isinstance(qid, pa.ChunkedArray | pa.Array) and len(qid) == frame.num_rows:
        column = pa.table([qid], ["qid"]).column(0)
    else:
        column = pa.chunked_array([as_qids("qid", qid, frame.num_rows)])
    return RowOrder.of(*group_rows(column, "qid")) if model.looks_at_list else None


def _bounds(lists: ListDataset, whole: bool) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks of at most `ROWS` documents; whole lists if `whole` is set."""
    ends = lists.offsets if whole else np.arange(len(lists.features) + 1)
    start = 0
    while start < ends[-1]:
        last, following = np.searchsorted(ends, [start + ROWS, start], side="right")
        stop = int(max(ends[last - 1], ends[following]))  # a longer list is a chunk of its own
        yield start, stop
        start = stop
