"""Parsers of the `k:v` part of svmlight lines: a strict one, and a fast one that agrees with it.

The fast one hands a whole block of lines to Arrow's CSV parser (`1:0.5 2:3` becomes the rows
`1,0.5` and `2,3`). It gives up on anything unusual, whether right or wrong. Then the strict one
reads the block, and either returns the numbers or says what is wrong.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import csv

NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INDEX = re.compile(rb"-?[0-9]{1,18}")
FLOAT32_OVERFLOW = 3.4028235677973366e38  # float32 rounds a number to infinity from here on
MISSING = (b"NULL", b"NaN", b"nan")
MAX_INDEX = 2**20  # a larger index is treated as a typing error, unless `num_features` allows it

_PLAIN = b"0123456789eE+-.: \t\r\n"
_TO_CSV = bytes.maketrans(b": \t\r", b",\n\n\n")


class MalformedError(Exception):
    """Says what is wrong with a piece of text; the reader adds the file and the line."""

    def __init__(self, problem: str, text: bytes) -> None:
        super().__init__(problem)
        self.problem = problem
        self.text = text
        self.row = 0


@dataclass(frozen=True)
class Pairs:
    """The features of a block of lines, flat.

    Attributes:
        counts: (lines,) int64, how many pairs each line has.
        indices: (pairs,) int32, from 1; None if every line has the features 1 to counts[0] in this
            order.
        values: (pairs,) float32.
    """

    counts: np.ndarray
    indices: np.ndarray | None
    values: np.ndarray

    @property
    def width(self) -> int:
        """The largest feature index, 0 without a feature."""
        if self.indices is None:
            return int(self.counts[0]) if len(self.counts) else 0
        return int(self.indices.max(initial=0))

    def write_to(self, rows: np.ndarray) -> None:
        """Write the values into `rows` (lines, features), which is all 0."""
        if self.indices is None:
            width = self.width
            rows[:, :width] = self.values.reshape(len(self.counts), width)
        else:
            rows[np.repeat(np.arange(len(self.counts)), self.counts), self.indices - 1] = (
                self.values
            )


def parse_number(text: bytes) -> float | None:
    """Return `text` as a number that is finite in float32, or None if it is not one."""
    if NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if abs(value) < FLOAT32_OVERFLOW else None


def parse_pairs(
    text: bytes, num_features: int | None, keep_missing: bool
) -> tuple[list[int], list[float]]:
    """Return the indices and values of the `k:v` text of one line; refuse anything else."""
    limit = MAX_INDEX if num_features is None else num_features
    seen: dict[int, float] = {}
    for token in text.split():
        key, colon, value = token.partition(b":")
        if not colon or INDEX.fullmatch(key) is None:
            raise MalformedError("a feature must be written index:value", token)
        index = int(key)
        if index < 1:
            raise MalformedError("a feature index must be >= 1", token)
        if index > limit:
            declared = "declare num_features for more" if num_features is None else "num_features"
            raise MalformedError(f"a feature index must be <= {limit} ({declared})", token)
        if index in seen:
            raise MalformedError("a feature index must come once in a line", token)
        parsed = parse_number(value)
        if keep_missing and value in MISSING:
            parsed = math.nan
        if parsed is None:
            raise MalformedError("a feature value must be a finite number", token)
        seen[index] = parsed
    return list(seen), list(seen.values())


def quick_pairs(
    texts: Sequence[bytes], num_features: int | None, keep_missing: bool = False
) -> Pairs | None:
    """Return the pairs of a block of lines, or None if the strict parser has to read it."""
    text = b"\n".join(texts)
    if keep_missing:
        text = text.replace(b":NULL", b":nan").replace(b":NaN", b":nan")
    numbers = text.replace(b":nan", b":") if keep_missing else text
    if numbers.translate(None, _PLAIN):  # commas, quotes, hexadecimal, NULL, nan, ...
        return None
    counts = np.fromiter((t.count(b":") for t in texts), np.int64, len(texts))
    if not counts.any():
        return None
    try:
        table = csv.read_csv(
            pa.BufferReader(text.translate(_TO_CSV)),
            read_options=csv.ReadOptions(column_names=["index", "value"]),
            parse_options=csv.ParseOptions(quote_char=False, escape_char=False),
            convert_options=csv.ConvertOptions(
                column_types={"index": pa.int32(), "value": pa.float64()},
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    indices = table.column("index").to_numpy()
    with np.errstate(over="ignore"):
        values = table.column("value").to_numpy().astype(np.float32)
    limit = MAX_INDEX if num_features is None else num_features
    if len(indices) != counts.sum() or indices.min() < 1 or indices.max() > limit:
        return None
    if np.isinf(values).any():  # every nan in the text is one that is kept
        return None
    width = int(counts[0])
    if (counts == width).all() and (indices.reshape(-1, width) == np.arange(1, width + 1)).all():
        return Pairs(counts, None, values)
    rising = np.ones(len(indices), dtype=bool)  # within a line; if not, an index may come twice
    rising[1:] = np.diff(indices) > 0
    starts = np.cumsum(counts) - counts
    rising[starts[counts > 0]] = True
    return Pairs(counts, indices, values) if rising.all() else None


def strict_pairs(
    texts: Sequence[bytes], num_features: int | None, keep_missing: bool = False
) -> Pairs:
    """Return the pairs, parsed line by line; an error has the line's place in `texts` as `row`."""
    counts: list[int] = []
    indices: list[int] = []
    values: list[float] = []
    for row, text in enumerate(texts):
        try:
            line_indices, line_values = parse_pairs(text, num_features, keep_missing)
        except MalformedError as error:
            error.row = row
            raise
        counts.append(len(line_indices))
        indices += line_indices
        values += line_values
    return Pairs(
        np.array(counts, np.int64), np.array(indices, np.int32), np.array(values, np.float32)
    )
