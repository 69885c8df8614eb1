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


ROWS = 350
"""The most rows of a Sinkhorn problem that takes less time as one array than in strips."""

# The keys: the operator, whether its sums are compiled, whether the scores are float64.
THRESHOLDS: dict[tuple[Operator, bool, bool], Threshold] = {
    ("laplace", True, False): Threshold(0, 42_000),
    ("laplace", True, True): Threshold(4, 22_995),
    ("laplace", False, False): Threshold(16, 502_740),
    ("laplace", False, True): Threshold(8, 420_000),
    ("logistic", True, False): Threshold(4, 258_048),
    ("logistic", True, True): Threshold(8, 91_980),
    ("logistic", False, False): Threshold(150, 2_688_000),
    ("logistic", False, True): Threshold(200, 840_000),
    ("neuralsort", True, False): Threshold(16, 451_584),
    ("neuralsort", True, True): Threshold(24, 216_384),
    ("neuralsort", False, False): Threshold(150, 2_688_000),
    ("neuralsort", False, True): Threshold(150, 2_688_000),
    ("normal", True, False): Threshold(0, 42_000),
    ("normal", True, True): Threshold(8, 21_504),
    ("normal", False, False): Threshold(100, 240_845),
    ("normal", False, True): Threshold(100, 240_845),
    ("softsort", True, False): Threshold(32, 451_584),
    ("softsort", True, True): Threshold(16, 38_640),
    ("softsort", False, False): Threshold(0, 18_900_000),
    ("softsort", False, True): Threshold(0, 4_200_000),
    ("softsort 1", True, False): Threshold(0, 168_000),
    ("softsort 1", True, True): Threshold(4, 64_512),
    ("softsort 1", False, False): Threshold(32, 1_806_336),
    ("softsort 1", False, True): Threshold(0, 2_100_000),
    ("softsort 1 ranks", True, False): Threshold(0, -1),
    ("softsort 1 ranks", True, True): Threshold(0, -1),
    ("softsort 2", True, False): Threshold(0, 241_920),
    ("softsort 2", True, True): Threshold(0, 94_500),
    ("softsort 2", False, False): Threshold(200, 1_344_000),
    ("softsort 2", False, True): Threshold(200, 367_500),
}
