"""LETOR text as a table: columns `qid`, `label`, and the features by their numbers."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from lightning.pytorch.utilities import rank_zero_info

from ltr.datasets.cache import load_letor, load_letor_files
from ltr.datasets.letor import read_letor
from ltr.datasets.lists import ListDataset, find_return, gather_runs, join_lists
from ltr.datasets.schema import Schema
from ltr.datasets.splits import find_splits
from ltr.datasets.table_files import find_files, kind_of_file


def is_letor(source: Any) -> bool:
    """Whether a table is files of LETOR text, by their names.

    Raises:
        ValueError: there is no such file.
    """
    if not isinstance(source, str | PathLike):
        return False
    return kind_of_file(find_files(Path(source).expanduser())[0]) == "letor"


def load_letor_table(
    source: Any,
    *,
    sort_by_qid: bool = False,
    missing: Literal["keep", "error"] = "keep",
    keep_order: bool = False,
) -> ListDataset:
    """Load the lists of a file, a folder or a pattern of LETOR text, in the order of their names.

    Args:
        source: the path or pattern.
        sort_by_qid: gather the lines of a qid that comes back, in any of the files.
        missing: see `read_letor`.
        keep_order: give each document its row, counted from 0 through all files.

    Raises:
        ValueError: what `read_letor` raises; a folder holds several splits; or a qid comes back in
            another file.
    """
    path = Path(source).expanduser()
    if path.is_dir() and len(splits := find_splits(path, 1)) > 1:
        names = ", ".join(one.name for one in splits.values())
        raise ValueError(f"a folder of a table must hold one split, got {names} in {path}")
    files = find_files(path)
    # a cache does not know the rows of lines that were gathered
    if len(files) > 1 and not (keep_order and sort_by_qid):
        data = load_letor_files(files, sort_by_qid=sort_by_qid, missing=missing)
        if data is not None:
            return data.numbered(0) if keep_order else data
    read = read_letor if keep_order and sort_by_qid else load_letor
    parts = [read(file, sort_by_qid=sort_by_qid, missing=missing) for file in files]
    width = max(part.num_features for part in parts)
    parts = [part.widen(width) for part in parts]
    if keep_order:
        starts = np.cumsum([0, *(int(part.offsets[-1]) for part in parts)])
        parts = [part.numbered(int(start)) for part, start in zip(parts, starts, strict=False)]
    return parts[0] if len(parts) == 1 else _joined(parts, files, sort_by_qid)


def letor_schema(data: ListDataset, features: Sequence[str] | None = None) -> Schema:
    """Return the schema of LETOR text: all features, or those that are named.

    >>> data = ListDataset.from_arrays([[1.0, 2.0]], labels=[0], qid=[7])
    >>> letor_schema(data).features
    {'1': 1, '2': 1}
    """
    numbers = [str(i) for i in range(1, data.num_features + 1)]
    for name in features or ():
        if name not in numbers:
            raise ValueError(
                f"features must be numbers from 1 to {data.num_features} for LETOR text, got "
                f"{name!r}"
            )
    names = numbers if features is None else features
    return Schema("qid", "label", features=dict.fromkeys(names, 1))


def by_schema(data: ListDataset, schema: Schema) -> ListDataset:
    """Return the lists with the features of a schema; one that no line has is 0.

    Raises:
        ValueError: the schema has a column that LETOR text cannot have.
    """
    for name in (*schema.features, *schema.categories):
        if not name.isdecimal() or name[0] == "0" or schema.features.get(name) != 1:
            raise ValueError(
                f"the table must have the column {name!r}, as in training, got LETOR text with the "
                f"features 1 to {data.num_features}"
            )
    places = np.array([int(name) - 1 for name in schema.features])
    unused = sorted({*range(data.num_features)} - {*places.tolist()})
    if unused:
        shown = ", ".join(str(place + 1) for place in unused[:12])
        more = f" and {len(unused) - 12} more" if len(unused) > 12 else ""
        rank_zero_info(f"features that the model does not use: {shown}{more}")
    data = data.widen(max(data.num_features, int(places.max()) + 1))
    if not np.array_equal(places, np.arange(data.num_features)):
        data = data.take_features(places)
    return data


def keys_of(data: ListDataset, qid: str) -> pa.Table:
    """Return the columns of qids and, where there are any, of document ids, by `data.rows`."""
    rows = data.rows
    back = np.arange(int(data.offsets[-1])) if rows is None else np.argsort(rows)
    qids = np.repeat(np.array(data.qids, dtype=object), data.lengths)
    columns: dict[str, Any] = {qid: pa.array(qids[back], pa.string())}
    if data.doc_ids is not None:
        columns["doc_id"] = data.doc_ids.take(pa.array(back))
    return pa.table(columns)


def with_keys(batch: dict[str, Any], qid: str) -> dict[str, Any]:
    """Return a batch of the lists of a store with the columns that its predictions need.

    Args:
        batch: ragged, with `rows`; see `StoredLists.numbered`.
        qid: the name of the column of the qids.

    Returns:
        The batch with `keys`, `rows` and `piece`, as `RowStream` gives them; here `piece` is
        the row in the store, int64 (N,).

    >>> batch = {"qid": ["a"], "lengths": torch.tensor([2]), "rows": torch.tensor([7, 8])}
    >>> found = with_keys(batch, "q")
    >>> found["keys"].to_pydict(), found["rows"], found["piece"]
    ({'q': ['a', 'a']}, tensor([0, 1]), array([7, 8]))
    """
    qids = np.repeat(np.array(batch["qid"], dtype=object), batch["lengths"].numpy())
    columns: dict[str, Any] = {qid: pa.array(qids, pa.string())}
    if "doc_ids" in batch:
        columns["doc_id"] = pa.array(batch["doc_ids"], pa.string())
    rows = torch.arange(len(batch["rows"]))
    return {**batch, "keys": pa.table(columns), "rows": rows, "piece": batch["rows"].numpy()}


def _joined(parts: list[ListDataset], files: list[Path], sort_by_qid: bool) -> ListDataset:
    qids = [qid for part in parts for qid in part.qids]
    if not sort_by_qid and (back := find_return(qids)) is not None:
        ends = np.cumsum([len(part) for part in parts])
        first, again = (files[int(np.searchsorted(ends, run, side="right"))] for run in back)
        raise ValueError(
            f"{again}: a qid must not come back, got {qids[back[1]]!r}, which stood in {first} "
            "(sort_by_qid=True gathers it)"
        )
    return gather_runs(join_lists(parts))
