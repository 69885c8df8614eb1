"""Shares of the lists of a file, by a hash of their names: no list is in two of them."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

Share = tuple[int, int]
"""(part, parts): the lists that a hash gives to one of several parts, counted from 0."""

ROW = "ltr:row"
"""The column that counts a file's rows from 1, where a share of them is read."""


def in_share(names: Sequence[str], share: Share) -> np.ndarray:
    """Return which names a hash gives to the part, bool (len(names),).

    >>> [in_share(["a", "b", "c"], (part, 2)).tolist() for part in (0, 1)]
    [[True, True, False], [False, False, True]]
    """
    texts = (name.encode(errors="surrogatepass") for name in names)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8") % share[1] == share[0]


def rows_of_share(
    pieces: Iterable[pa.RecordBatch], types: dict[str, pa.DataType], qid: str, share: Share
) -> pa.Table:
    """Return the rows of the lists of a share, in memory for these rows and a piece of the file.

    Args:
        pieces: the rows of the file, in order.
        types: the columns' types to give them.
        qid: the column of the lists' names. Rows without one are in the first part.
        share: which lists.

    Returns:
        The rows, with the column `ROW`.

    Raises:
        ValueError: the file has no row.
    """
    found: list[pa.Table] = []
    rows = 0
    for batch in pieces:
        numbers = pa.array(np.arange(rows + 1, rows + len(batch) + 1))
        rows += len(batch)
        piece = pa.Table.from_batches([batch])
        piece = piece.cast(pa.schema([(name, types[name]) for name in piece.column_names]))
        piece = piece.append_column(ROW, numbers)
        coded = piece.column(qid).combine_chunks().dictionary_encode()
        own = np.append(in_share(coded.dictionary.to_pylist(), share), share[0] == 0)
        found.append(piece.filter(pa.array(own[coded.indices.fill_null(-1).to_numpy()])))
    if not rows:
        raise ValueError("the table must have at least one row, got none")
    return pa.concat_tables(found)
