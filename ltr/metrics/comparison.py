"""Compare models on the same lists: intervals, paired tests, Holm's correction, tables, plots."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from ltr.arrays import as_numbers
from ltr.metrics.resampling import bca_interval, bootstrap_means, bootstrap_p, sign_flip_p
from ltr.names import plural
from ltr.plots import bar_axes, draw_interval
from ltr.shapes import check_at_least, check_choice, check_fraction, check_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["Comparison", "Interval", "ModelResult", "compare", "holm", "mean_interval"]

Values = Tensor | np.ndarray | Sequence[float]
Test = Literal["randomization", "bootstrap"]
IntervalMethod = Literal["bca", "percentile"]


class Interval(NamedTuple):
    """A mean and its confidence interval.

    >>> print(Interval(0.5, 0.25, 0.75))
    0.5000 [0.2500, 0.7500]
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class ModelResult:
    """One model of a `Comparison`. For the baseline, all fields after `mean` are None.

    Attributes:
        name: the model's name.
        mean: the mean over the lists, with its interval.
        difference: the mean difference, model - baseline, with its interval.
        p: the p-value of the paired test.
        p_holm: `p`, corrected by `holm` for the number of tests.
        exact: whether the test used all combinations of signs, instead of random combinations.
        better: the number of lists on which the model has the higher value.
        equal: the number of lists on which the values are equal.
        worse: the number of lists on which the model has the lower value.
    """

    name: str
    mean: Interval
    difference: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    exact: bool | None = None
    better: int | None = None
    equal: int | None = None
    worse: int | None = None


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: `print` it, or call `markdown()`, `plot()` or `to_dict()`.

    `rich.print` prints a table in color.

    Attributes:
        models: the baseline first, then the others in the order given.
        lists: how many lists count.
        left_out: how many lists are left out, because a model has no value (NaN) for them.
        test: "randomization" or "bootstrap".
        confidence: the level of the intervals, in (0, 1).
        resamples: how many bootstrap samples were drawn. A randomization test drew this many
            combinations of signs, unless it used all combinations.
        seed: the seed of the draws.
        note: text at the beginning of the caption, such as the metric; "" for none.
    """

    models: tuple[ModelResult, ...]
    lists: int
    left_out: int
    test: Test
    confidence: float
    resamples: int
    seed: int
    note: str = field(default="", compare=False)

    @property
    def caption(self) -> str:
        """The note, the number of lists, and the method of the test."""
        exact = [model.exact for model in self.models if model.exact is not None]
        how = f"{self.resamples:,} resamples, seed {self.seed}"
        if self.test == "randomization" and any(exact):
            how += "; all flips of signs" + ("" if all(exact) else " where p has a *")
        left_out = f", {self.left_out:,} left out" if self.left_out else ""
        note = f"{self.note}; " if self.note else ""
        lists = f"{self.lists:,} {plural(self.lists, 'list')}"
        return f"{note}{lists}{left_out}; paired {self.test} test, {how}"

    def __str__(self) -> str:
        return "\n".join([*text_table(*self._cells()), self.caption])

    def __rich__(self) -> "Table":
        from rich import box
        from rich.table import Table
        from rich.text import Text

        head, rows = self._cells()
        table = Table(box=box.SIMPLE_HEAD, caption=self.caption, caption_justify="left")
        for number, name in enumerate(head):
            table.add_column(Text(name), justify="right" if number else "left")
        for row in rows:
            table.add_row(*map(Text, row))
        return table

    def markdown(self) -> str:
        """Return the table in Markdown, with the caption below it."""
        head, rows = self._cells()
        lines = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
        text = [f"| {' | '.join(line)} |" for line in lines]
        text.insert(1, "|:--" + "|--:" * (len(head) - 1) + "|")
        return "\n".join([*text, "", self.caption])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain dicts, lists and numbers, for JSON."""
        content = asdict(self)
        for model in content["models"]:
            for name in ("mean", "difference"):
                model[name] = None if model[name] is None else model[name]._asdict()
        content["models"] = list(content["models"])
        return content

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw each model's difference from the baseline with its interval.

        Args:
            axes: the axes to draw on. Default: those of a new figure, `plot().figure`.

        Returns:
            The axes. This needs matplotlib (the extra `plots`).
        """
        shown = self.models[1:]
        names, height = [model.name for model in shown], 1.2 + 0.5 * len(shown)
        label = f"difference from {self.models[0].name}, {100 * self.confidence:g}% interval"
        axes = bar_axes(axes, names, label, "Comparison.plot", height)
        for position, model in enumerate(shown):
            assert model.difference is not None  # only the baseline has none
            mean, low, high = model.difference
            sure = low > 0 or high < 0
            color = "tab:gray" if not sure else "tab:green" if mean > 0 else "tab:red"
            draw_interval(axes, position, model.difference, color)
            text = f"p = {_p_text(model.p)}".replace("= <", "< ")
            text += f", Holm {_p_text(model.p_holm)}" if len(shown) > 1 else ""
            axes.text(mean, position - 0.17, text, ha="center", size="small")
        return axes

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        level = f"{100 * self.confidence:g}%"
        several = len(self.models) > 2
        mixed = len({model.exact for model in self.models[1:]}) > 1
        head = ["", f"mean [{level}]", f"difference [{level}]", "p"]
        head += [*(["p (Holm)"] if several else []), "better / equal / worse"]
        rows = []
        for model in self.models:
            row = [model.name, str(model.mean)]
            if model.difference is None:
                row += [""] * (len(head) - 2)
            else:
                mean, low, high = model.difference
                row.append(f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]")
                row.append(_p_text(model.p) + ("*" if mixed and model.exact else ""))
                row += [_p_text(model.p_holm)] if several else []
                row.append(f"{model.better} / {model.equal} / {model.worse}")
            rows.append(row)
        return head, rows


def text_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table, with the first column left-aligned and the others right-aligned.

    >>> text_table(["", "mean"], [["ndcg", "1"]])
    ['      mean', 'ndcg     1']
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for first, *others in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def _p_text(p: float | None) -> str:
    if p is None:
        return ""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


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
    """Compare models by their per-list values, as a metric with `reduction="none"` returns them.

    The differences are model - baseline: positive if the model has the higher value. If a
    model has no value (NaN) for a list, the list is left out for all models, and is counted as
    left out.

    Args:
        a: the baseline's values, one per list, in any shape; or the values of several models by
            name.
        b: the other model's values, for the same lists as `a`; None if `a` is a mapping.
        baseline: if `a` is a mapping, the name of the model to compare with. Default: the first.
        names: the names of `a` and `b` in the table.
        test: "randomization" changes the signs of the differences (Fisher). It is exact if there
            are at most `resamples` combinations of signs, because it then tries each of them: by
            default, for up to 13 differences that are not 0. "bootstrap" shifts the bootstrap means
            of a difference so that they are centered at 0. Both tests are two-sided.
        interval: "bca", corrected for bias and skewness, or "percentile".
        confidence: the level of the intervals, in (0, 1).
        resamples: the number of draws.
        seed: the seed of the draws. A model's result does not depend on the other models, except
            for the lists that are left out because of them, and for Holm's correction.

    Returns:
        A `Comparison`. Cost: O(models * resamples * lists) time for at most 2,048 lists. More lists
        are drawn by the counts of 256 blocks of similar values, which takes
        O(models * (resamples * 256 + lists * log(lists))) time. Memory for one chunk of draws.

    Raises:
        ValueError: shapes differ, a value is infinite, fewer than two lists count, there are fewer
            than two models, or a name or an option is wrong.

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
    models = _models(a, b, baseline, names)
    first, *others = models
    check_choice("test", test, "randomization", "bootstrap")
    check_choice("interval", interval, "bca", "percentile")
    confidence, resamples, seed = check_draws(confidence, resamples, seed)
    table, left_out = _table(models)
    differences = table[:, 1:] - table[:, :1]
    columns = np.concatenate([table, differences], axis=1)
    intervals, means = bootstrap_intervals(columns, interval, confidence, resamples, seed)
    tests = []
    for x, of_draws in zip(differences.T, means.T[len(models) :], strict=True):
        if test == "bootstrap":
            tests.append((bootstrap_p(float(x.mean()), of_draws), False))
        else:
            tests.append(sign_flip_p(x, resamples, np.random.default_rng(seed)))
    corrected = holm([p for p, _ in tests])
    results = [ModelResult(first, intervals[0])]
    for i, (name, x, (p, exact)) in enumerate(zip(others, differences.T, tests, strict=True)):
        counts = [int(part.sum()) for part in (x > 0, x == 0, x < 0)]
        mean, difference = intervals[1 + i], intervals[len(models) + i]
        results.append(ModelResult(name, mean, difference, p, corrected[i], exact, *counts))
    return Comparison(tuple(results), len(table), left_out, test, confidence, resamples, seed)


def bootstrap_intervals(
    values: np.ndarray, interval: IntervalMethod, confidence: float, resamples: int, seed: int
) -> tuple[list[Interval], np.ndarray]:
    """Return each column's mean with its interval, and its bootstrap means (resamples, columns).

    Args:
        values: (lists, columns), without NaN.
        interval: see `compare`.
        confidence: see `compare`.
        resamples: see `compare`.
        seed: see `compare`.
    """
    means = bootstrap_means(values, resamples, np.random.default_rng(seed))
    intervals = [
        Interval(float(x.mean()), *bca_interval(x, of_draws, confidence, interval == "bca"))
        for x, of_draws in zip(values.T, means.T, strict=True)
    ]
    return intervals, means


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
        values: one value per list, of any shape; NaN for a list that is left out.
        interval: "bca" or "percentile".
        confidence: the level of the interval, in (0, 1).
        resamples: the number of draws.
        seed: the seed of the draws.

    Returns:
        `Interval(mean, low, high)`. The interval of a single list has length 0. If no list counts,
        all three values are NaN.

    Raises:
        ValueError: a value is infinite, or an option is wrong.

    >>> print(mean_interval([0.0, 1.0, 0.5, 0.25]))
    0.4375 [0.1250, 0.8750]
    """
    confidence, resamples, seed = check_draws(confidence, resamples, seed)
    check_choice("interval", interval, "bca", "percentile")
    table, _ = _table({"values": values}, least=0)
    if not len(table):
        return Interval(np.nan, np.nan, np.nan)
    (result,), _ = bootstrap_intervals(table, interval, confidence, resamples, seed)
    return result


def holm(p: Sequence[float]) -> list[float]:
    """Return the p-values, corrected for their number by Holm's step-down procedure.

    The order does not change. All hypotheses with a corrected p below alpha may be rejected at a
    family-wise error rate of alpha.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(np.minimum(factors * np.asarray(p)[order], 1.0))
    return corrected.tolist()


def _models(
    a: Values | Mapping[str, Values],
    b: Values | None,
    baseline: str | None,
    names: tuple[str, str],
) -> dict[str, Values]:
    """Return the values by model, the baseline first; raise `ValueError` for wrong arguments."""
    if not isinstance(a, Mapping):
        if b is None:
            raise ValueError("b must be the other model's values if a is not a mapping, got None")
        if baseline is not None:
            raise ValueError(f"baseline must be None if a is not a mapping, got {baseline!r}")
        if not isinstance(names, Sequence) or len(names) != 2 or names[0] == names[1]:
            raise ValueError(f"names must be two different names, got {names!r}")
        a, b = {names[0]: a, names[1]: b}, None
    if b is not None:
        raise ValueError("b must be None if a is a mapping of all models")
    if len(a) < 2:
        raise ValueError(f"a must have at least two models, got {list(a)}")
    if wrong := [name for name in a if not isinstance(name, str)]:
        raise ValueError(f"names must be text, got {wrong[0]!r}")
    first = next(iter(a)) if baseline is None else baseline
    if first not in a:
        raise ValueError(f"baseline must be one of {list(a)}, got {baseline!r}")
    return {first: a[first], **a}


def check_draws(confidence: float, resamples: int, seed: int) -> tuple[float, int, int]:
    """Return the options of the intervals; raise `ValueError` if one of them is out of range."""
    confidence = check_fraction("confidence", confidence)
    return confidence, check_whole("resamples", resamples), check_at_least("seed", seed, 0)


def _table(models: Mapping[str, Values], least: int = 2) -> tuple[np.ndarray, int]:
    """Return the values (lists, models) of lists without NaN, and the number of lists with NaN."""
    columns: list[np.ndarray] = []
    shape: tuple[int, ...] | None = None
    for name, values in models.items():
        if isinstance(titles := getattr(values, "values", None), Mapping):
            raise ValueError(
                f"values of {name!r} must be an array of numbers, got an {type(values).__name__}: "
                f"give evaluation.values[{next(iter(titles), 'ndcg@10')!r}] of each, or call "
                "evaluation.compare(other)"
            )
        x = as_numbers(f"values of {name!r}", values).astype(np.float64)
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
            f"values must have at least {least} lists with a value in every model, got "
            f"{known.sum()} of {len(known)}"
        )
    return table[known], int((~known).sum())
