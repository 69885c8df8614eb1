"""The strict parser of the `k:v` part of svmlight lines: it says what is wrong with a line.

The compiled parser (`ltr.datasets.svmlight_jit`) reads the usual lines and leaves the others to
this one.
"""

import math
import re

# the `+` after a quantifier keeps the match linear: it gives no digit back
NUMBER = re.compile(rb"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
INDEX = re.compile(rb"-?[0-9]{1,18}")
FLOAT32_OVERFLOW = 3.4028235677973366e38  # float32 rounds a number to infinity from here on
MISSING = (b"NULL", b"NaN", b"nan")
MAX_INDEX = 2**20  # a larger index is treated as a typing error, unless `num_features` allows it


class MalformedError(Exception):
    """Says what is wrong with a piece of text; the reader adds the file and the line."""

    def __init__(self, problem: str, text: bytes) -> None:
        super().__init__(problem)
        self.problem = problem
        self.text = text


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
    for found in re.finditer(rb"\S+", text):  # one at a time: a line may be long
        token = found[0]
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
