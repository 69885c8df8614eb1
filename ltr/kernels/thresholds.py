"""Where dense forms end: data for `ltr.kernels.choice`.

`python benchmarks/thresholds.py` measures and writes the numbers.
"""

from typing import Literal, NamedTuple

Operator = Literal[
    "logistic",
    "normal",
    "laplace",
    "softsort 1",
    "softsort 1 ranks",
    "softsort 2",
    "softsort",
    "neuralsort",
]
"""The sums that have a dense form: ranks by a distribution, and rows by a power of the distance.

"softsort" is any other power. "softsort 1 ranks" is one compiled call; without it, "softsort 1".
"""


class Threshold(NamedTuple):
    """Where the dense form of an operator ends: lists * n * (n - length) <= entries.

    The time of the matrices is a + b lists n^2, and that of the sums c + d lists n. So the matrices
    are faster for `length` = d / b and `entries` = (c - a) / b.
    """

    length: int
    entries: int


ROWS = 320
"""The most rows of a Sinkhorn problem that takes less time as one array than in strips."""

# The keys: the operator, whether its sums are compiled, whether the scores are float64.
THRESHOLDS: dict[tuple[Operator, bool, bool], Threshold] = {
    ("laplace", True, False): Threshold(0, 5_145),
    ("laplace", True, True): Threshold(0, 5_145),
    ("laplace", False, False): Threshold(0, 262_500),
    ("laplace", False, True): Threshold(0, 262_500),
    ("logistic", True, False): Threshold(0, 107_520),
    ("logistic", True, True): Threshold(4, 64_512),
    ("logistic", False, False): Threshold(100, 2_016_000),
    ("logistic", False, True): Threshold(48, 999_600),
    ("neuralsort", True, False): Threshold(24, 216_384),
    ("neuralsort", True, True): Threshold(0, 241_920),
    ("neuralsort", False, False): Threshold(100, 2_016_000),
    ("neuralsort", False, True): Threshold(48, 2_042_880),
    ("normal", True, False): Threshold(4, 16_128),
    ("normal", True, True): Threshold(0, 10_500),
    ("normal", False, False): Threshold(64, 241_920),
    ("normal", False, True): Threshold(48, 237_300),
    ("softsort", True, False): Threshold(16, 963_379),
    ("softsort", True, True): Threshold(32, 18_585),
    ("softsort", False, False): Threshold(0, 3_870_720),
    ("softsort", False, True): Threshold(24, 2_042_880),
    ("softsort 1", True, False): Threshold(0, 94_500),
    ("softsort 1", True, True): Threshold(0, 42_000),
    ("softsort 1", False, False): Threshold(24, 2_322_432),
    ("softsort 1", False, True): Threshold(0, 967_680),
    ("softsort 1 ranks", True, False): Threshold(0, -1),
    ("softsort 1 ranks", True, True): Threshold(0, -1),
    ("softsort 2", True, False): Threshold(0, 94_500),
    ("softsort 2", True, True): Threshold(0, 94_500),
    ("softsort 2", False, False): Threshold(32, 1_806_336),
    ("softsort 2", False, True): Threshold(150, 672_000),
}
