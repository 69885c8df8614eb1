"""Resampling of per-list values: bootstrap means, BCa intervals, the sign-flip test."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ltr.shapes import check_fraction

_DRAWS_PER_CHUNK = 1 << 20
"""About this many random numbers are drawn at a time, to limit the memory."""

_LISTS_ONE_BY_ONE = 1 << 11
"""Up to this many lists are drawn one by one; more lists are drawn by `_Blocks`."""

_BLOCKS = 256
"""The number of blocks of lists that `_Blocks` makes. A block has lists of similar values."""

_TOLERANCE = 1e-12  # ties have this relative tolerance, as a sum's rounding depends on its order


def bootstrap_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return each column's mean over lists drawn with replacement, the same lists for all columns.

    Args:
        values: (lists, columns).
        resamples: how many times to draw.
        rng: the random number generator for the draws.

    Returns:
        (resamples, columns). Cost: O(resamples * lists * columns) time for at most 2,048 lists,
        otherwise O((resamples * 256 + lists * log(lists)) * columns); memory for the result and for
        one chunk of draws. More than 2,048 lists are drawn by the counts of blocks of similar
        values, for each column by itself.

    >>> bootstrap_means(np.array([[1.0], [1.0]]), 3, np.random.default_rng(0)).ravel().tolist()
    [1.0, 1.0, 1.0]
    """
    lists = len(values)
    means = np.empty((resamples, values.shape[1]))
    if lists > _LISTS_ONE_BY_ONE:
        for number, column in enumerate(values.T):
            # The result of a column must not depend on the other columns.
            means[:, number] = _Blocks.of(column).drawn_means(resamples, deepcopy(rng))
        return means
    columns = np.ascontiguousarray(values.T)
    for start, stop in _chunks(resamples, lists):
        drawn = rng.integers(0, lists, (stop - start, lists), dtype=np.int32)
        for number, column in enumerate(columns):
            means[start:stop, number] = column[drawn].mean(-1)
    return means


def _chunks(draws: int, lists: int) -> Iterator[tuple[int, int]]:
    """Yield the first draw and the end of each chunk of draws from this many lists."""
    rows = max(1, _DRAWS_PER_CHUNK // max(lists, 1))
    for start in range(0, draws, rows):
        yield start, min(start + rows, draws)


@dataclass(frozen=True)
class _Blocks:
    """Lists in blocks of similar values, for sums over many drawn lists.

    How many lists of each block are drawn is random, with exactly the law of drawing lists one by
    one. Given these counts, the sum of the deviations from the blocks' means is drawn from a normal
    distribution with the correct variance. This variance is tiny, since the values of a block are
    similar: it is 0 if there are at most `_BLOCKS` distinct values.

    Attributes:
        counts: (blocks,), the number of lists of each block.
        means: (blocks,), the mean value of each block.
        variances: (blocks,), the variance of the values within each block.
    """

    counts: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> "_Blocks":
        edges = np.unique(values)
        if len(edges) > _BLOCKS:
            # Half of the blocks have equal numbers of lists, and half have equal widths, which are
            # for the tails. Equal values are in the same block.
            half = np.linspace(0, 1, _BLOCKS // 2)
            widths = edges[0] + half * (edges[-1] - edges[0])
            edges = np.unique([*np.quantile(values, half, method="lower"), *widths])
        blocks = np.searchsorted(edges, values, side="right") - 1
        counts = np.bincount(blocks, minlength=len(edges))
        sizes = np.maximum(counts, 1)
        means = np.bincount(blocks, values, len(edges)) / sizes
        squares = np.bincount(blocks, (values - means[blocks]) ** 2, len(edges))
        used = counts > 0
        return cls(counts[used], means[used], (squares / sizes)[used])

    def drawn_means(self, resamples: int, rng: np.random.Generator) -> np.ndarray:
        """Return the means over as many lists as there are, drawn with replacement."""
        lists = self.counts.sum()
        means = np.empty(resamples)
        for start, stop in _chunks(resamples, len(self.counts)):
            drawn = rng.multinomial(lists, self.counts / lists, stop - start).astype(np.float64)
            noise = np.sqrt(drawn @ self.variances) * rng.standard_normal(stop - start)
            means[start:stop] = (drawn @ self.means + noise) / lists
        return means

    def flipped_sums(self, resamples: int, rng: np.random.Generator) -> np.ndarray:
        """Return the sums over all lists, of values with random signs."""
        sums = np.sqrt(self.counts @ self.variances) * rng.standard_normal(resamples)
        # With one count at a time, numpy prepares the binomial law only once for all draws.
        for count, mean in zip(self.counts.tolist(), self.means.tolist(), strict=True):
            sums += mean * (count - 2.0 * rng.binomial(count, 0.5, resamples))
        return sums


def bca_interval(
    values: np.ndarray, means: np.ndarray, confidence: float, adjust: bool = True
) -> tuple[float, float]:
    """Return the bootstrap interval of a mean: bias-corrected and accelerated, or by percentiles.

    Args:
        values: (lists,).
        means: (resamples,), the bootstrap means of the values.
        confidence: the level of the interval, such as 0.95.
        adjust: whether to correct the percentiles for bias and skewness (BCa).

    Returns:
        The lower and the upper end. If all values are equal, the interval has length 0.

    Reference: Efron, "Better bootstrap confidence intervals", JASA 1987.

    >>> bca_interval(np.ones(3), np.ones(9), 0.95)
    (1.0, 1.0)
    """
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    mean = values.mean()
    centered = values - mean
    slack = _TOLERANCE * np.abs(values).max()
    below = ((means < mean - slack).mean() + (means <= mean + slack).mean()) / 2
    if adjust and 0 < below < 1 and centered.any():
        normal = NormalDist()
        bias = normal.inv_cdf(float(below))
        # The means of the jackknife differ from the mean by -centered / (lists - 1).
        skew = float((centered**3).sum() / (6 * (centered**2).sum() ** 1.5))
        for i, tail in enumerate(tails):
            z = bias + normal.inv_cdf(float(tail))
            # Beyond the pole of the correction, at skew * z = 1, the corrected level is 0 or 1.
            tails[i] = normal.cdf(bias + z / (1 - skew * z)) if skew * z < 1 else float(z > 0)
    low, high = np.quantile(means, tails)
    return float(low), float(high)


def sign_flip_p(
    differences: np.ndarray, resamples: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Return the p-value of the paired randomization test, and whether it is exact.

    A flip multiplies each difference by 1 or -1. The p-value is the fraction of flips that give a
    mean at least as far from 0 as the observed mean.

    Args:
        differences: (lists,). A difference of 0 has no sign to flip.
        resamples: how many flips to draw. If at most this many flips exist, each is tried once.
        rng: the random number generator for the draws.

    Returns:
        The two-sided p-value, and whether it is exact. If flips are drawn, the p-value is
        (extreme + 1) / (resamples + 1), which is never 0. Here `extreme` is the number of drawn
        flips that give a mean at least as far from 0 as the observed mean.
        Cost: O(resamples * lists) time for at most 2,048 differences that are not 0, otherwise
        O(resamples * 256 + lists * log(lists)), by the counts of blocks of similar differences;
        memory for one chunk of flips.

    Reference: Fisher, "The design of experiments", 1935; Phipson and Smyth, "Permutation p-values
    should never be zero", 2010.

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0, 0.0]), 100, np.random.default_rng(0))
    (0.25, True)
    """
    signed = differences[differences != 0]
    lists, total = len(signed), signed.sum()
    least = abs(total) - _TOLERANCE * np.abs(signed).sum()
    exact = lists < 63 and 2**lists <= resamples
    tries = 2**lists if exact else resamples
    if lists > _LISTS_ONE_BY_ONE:
        sums = _Blocks.of(np.abs(signed)).flipped_sums(resamples, rng)
        return (int((np.abs(sums) >= least).sum()) + 1) / (resamples + 1), False
    extreme = 0
    for start, stop in _chunks(tries, lists):
        if exact:
            codes = np.arange(start, stop)
            flips = codes[:, None] >> np.arange(lists) & 1
        else:
            drawn = rng.integers(0, 256, (stop - start, -(-lists // 8)), dtype=np.uint8)
            flips = np.unpackbits(drawn, axis=1, count=lists)
        sums = total - 2 * (flips.astype(np.float64) @ signed)
        extreme += int((np.abs(sums) >= least).sum())
    return (extreme / tries if exact else (extreme + 1) / (tries + 1)), exact


def bootstrap_p(difference: float, means: np.ndarray) -> float:
    """Return the p-value of the bootstrap-shift test.

    The p-value is the fraction of bootstrap means that are at least as far from the observed
    difference as the observed difference is from 0.

    Args:
        difference: the observed mean difference.
        means: (resamples,), the bootstrap means of the difference.

    Returns:
        The two-sided p-value (extreme + 1) / (resamples + 1), where `extreme` is the number of
        bootstrap means at least abs(difference) away from the difference; 1 for a difference of 0.

    Reference: Smucker, Allan and Carterette, "A comparison of statistical significance tests for
    information retrieval evaluation", CIKM 2007.

    >>> bootstrap_p(1.0, np.array([0.5, 1.0, 2.5]))
    0.5
    """
    far = np.abs(means - difference) >= abs(difference) * (1 - _TOLERANCE)
    return (int(far.sum()) + 1) / (len(means) + 1)


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations a two-sided normal interval extends to each side.

    Raises:
        ValueError: confidence is not in (0, 1).

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return NormalDist().inv_cdf((1 + check_fraction("confidence", confidence)) / 2)
