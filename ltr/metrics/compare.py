"""Compare models on the same lists: intervals, paired tests, Holm's correction."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from torch import Tensor

from ltr.metrics.comparison import Comparison, Interval, ModelResult, Test
from ltr.metrics.resampling import bca_interval, bootstrap_means, bootstrap_p, sign_flip_p
from ltr.shapes import check_whole

__all__ = ["Comparison", "Interval", "ModelResult", "compare", "holm", "mean_interval"]

Values = Tensor | np.ndarray | Sequence[float]
IntervalMethod = Literal["bca", "percentile"]


def compare(
    a: Values | Mapping[str, Values],
    b: Values | None = None,
    *,
    baseline: str | None = None,
    names: tuple[str, str] = ("a", "b"),
    test: Test = "randomization",
    interval: IntervalMethod = "bca",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare models by their per-list values: a metric with `reduction="none"`.

    The differences are model - baseline: positive if the model is better than `a`. A list without
    a value (NaN) in one model is left out of all models, and counted as left out.

    Args:
        a: the baseline's values, one a list, of any shape; or the values of several models by name.
        b: the other model's values, for the same lists as `a`. None if `a` is a mapping.
        baseline: if `a` is a mapping, the name of the model to compare with. Default: the first.
        names: the names of `a` and `b` in the table.
        test: "randomization" flips the signs of the differences (Fisher): exact where there are no
            more flips than `resamples`, which is up to 13 differences that are not 0 by default;
            "bootstrap" shifts the bootstrap means to 0. Both are two-sided.
        interval: "bca", corrected for bias and skewness, or "percentile".
        confidence: level of the intervals, in (0, 1).
        resamples: the number of draws.
        seed: seed of the draws. A model's result does not depend on the other models, except for
            the lists that they leave out and for Holm's correction.

    Returns:
        A `Comparison`. Cost: O(models * resamples * lists) time, memory for one chunk of draws.

    Raises:
        ValueError: shapes differ, a value is infinite, fewer than two lists count, there are fewer
            than two models, or a name or option is unknown.

    Reference: Smucker, Allan and Carterette, "A comparison of statistical significance tests for
    information retrieval evaluation", CIKM 2007; Holm, "A simple sequentially rejective multiple
    test procedure", 1979.

    >>> a = [0.1, 0.5, 0.4, 0.3, 0.6, 0.2]
    >>> b = [0.2, 0.7, 0.4, 0.5, 0.7, 0.5]
    >>> print(compare(a, b, names=("before", "after")))
                         mean [95%]            difference [95%]       p  better / equal / worse
    before  0.3500 [0.2167, 0.4833]
    after   0.5000 [0.3500, 0.6333]  +0.1500 [+0.0667, +0.2333]  0.0625               5 / 1 / 0
    6 lists; paired randomization test, 10,000 resamples, seed 0; all flips of signs
    """
    models, first = _models(a, b, baseline, names)
    for name, value, choices in (
        ("test", test, ("randomization", "bootstrap")),
        ("interval", interval, ("bca", "percentile")),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be {choices[0]!r} or {choices[1]!r}, got {value!r}")
    _check_draws(confidence, resamples)
    table, left_out = _table(models)
    differences = table[:, 1:] - table[:, :1]
    columns = np.concatenate([table, differences], axis=1)
    means = bootstrap_means(table, resamples, np.random.default_rng(seed))
    means = np.concatenate([means, means[:, 1:] - means[:, :1]], axis=1)  # on the same lists
    intervals = [
        Interval(float(x.mean()), *bca_interval(x, m, confidence, interval == "bca"))
        for x, m in zip(columns.T, means.T, strict=True)
    ]
    others = []
    for column, name in enumerate(list(models)[1:]):
        x, place = differences[:, column], len(models) + column
        if test == "bootstrap":
            p, exact = bootstrap_p(intervals[place].mean, means[:, place]), False
        else:
            p, exact = sign_flip_p(x, resamples, np.random.default_rng(seed))
        counts = [int(part.sum()) for part in (x > 0, x == 0, x < 0)]
        mean = intervals[1 + column]
        others.append((name, mean, intervals[place], p, exact, *counts))
    corrected = holm([other[3] for other in others])
    results = [
        ModelResult(name, mean, difference, p, p_holm, exact, better, equal, worse)
        for (name, mean, difference, p, exact, better, equal, worse), p_holm in zip(
            others, corrected, strict=True
        )
    ]
    return Comparison(
        models=(ModelResult(first, intervals[0]), *results),
        lists=len(table),
        left_out=left_out,
        test=test,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )


def mean_interval(
    values: Values,
    *,
    interval: IntervalMethod = "bca",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Return the mean of per-list values with its bootstrap interval, as in `compare`.

    Args:
        values: one value a list, of any shape; NaN for a list that is left out.
        interval: "bca" or "percentile".
        confidence: level of the interval, in (0, 1).
        resamples: the number of draws.
        seed: seed of the draws.

    Returns:
        `Interval(mean, low, high)`. The interval of a single list has length 0; that of no list is
        NaN.

    Raises:
        ValueError: a value is infinite, or an option is unknown.

    >>> print(mean_interval([0.0, 1.0, 0.5, 0.25]))
    0.4375 [0.1250, 0.8750]
    """
    _check_draws(confidence, resamples)
    if interval not in ("bca", "percentile"):
        raise ValueError(f"interval must be 'bca' or 'percentile', got {interval!r}")
    table, _ = _table({"values": values}, least=0)
    if not len(table):
        return Interval(np.nan, np.nan, np.nan)
    means = bootstrap_means(table, resamples, np.random.default_rng(seed))
    x = table[:, 0]
    return Interval(float(x.mean()), *bca_interval(x, means[:, 0], confidence, interval == "bca"))


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values in their order, corrected for their number by Holm's step-down procedure.

    All hypotheses with a corrected p below alpha may be rejected at a family-wise error of alpha.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p)
    largest = 0.0
    for step, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - step) * p[place]))
        corrected[place] = largest
    return corrected


def _models(
    a: Values | Mapping[str, Values],
    b: Values | None,
    baseline: str | None,
    names: tuple[str, str],
) -> tuple[dict[str, Values], str]:
    if not isinstance(a, Mapping):
        if b is None:
            raise ValueError("b must be the other model's values if a is not a mapping, got None")
        if baseline is not None:
            raise ValueError(f"baseline must be None if a is not a mapping, got {baseline!r}")
        if len(names) != 2 or names[0] == names[1]:
            raise ValueError(f"names must be two different names, got {names!r}")
        return {names[0]: a, names[1]: b}, names[0]
    if b is not None:
        raise ValueError("b must be None if a is a mapping of all models")
    if len(a) < 2:
        raise ValueError(f"a must have at least two models, got {list(a)}")
    first = next(iter(a)) if baseline is None else baseline
    if first not in a:
        raise ValueError(f"baseline must be one of {list(a)}, got {baseline!r}")
    return {first: a[first], **{name: v for name, v in a.items() if name != first}}, first


def _check_draws(confidence: float, resamples: int) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    check_whole("resamples", resamples)


def _table(models: Mapping[str, Values], least: int = 2) -> tuple[np.ndarray, int]:
    """Return the values (lists, models) of lists that all models have, and how many lack one."""
    columns: list[np.ndarray] = []
    shape: tuple[int, ...] | None = None
    for name, values in models.items():
        if isinstance(values, Tensor):
            values = values.detach().cpu().double().numpy()
        x = np.asarray(values, dtype=np.float64)
        if shape is not None and x.shape != shape:
            raise ValueError(
                f"values must have one shape, a value for each list, got {shape} for "
                f"{next(iter(models))!r} and {x.shape} for {name!r}"
            )
        if np.isinf(x).any():
            raise ValueError(f"values must be finite or NaN, got an infinite one for {name!r}")
        shape = x.shape
        columns.append(x.ravel())
    table = np.stack(columns, axis=1)
    known = np.asarray(~np.isnan(table).any(axis=1))
    if known.sum() < least:
        raise ValueError(
            f"values must have at least {least} lists that count in every model, "
            f"got {known.sum()} of {len(known)}"
        )
    return table[known], int((~known).sum())
