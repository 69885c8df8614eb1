"""Slices of queries: the lists that share a value, such as a category, each with its own means."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ltr.arrays import as_names, is_missing, name_texts, pc
from ltr.columns import qid_text
from ltr.metrics.comparison import (
    Comparison,
    Interval,
    ModelResult,
    Test,
    bootstrap_intervals,
    compare,
    holm,
    mean_interval,
    text_table,
)

FEWEST = 20
"""A slice with fewer lists has no interval: benchmarks/slices.py shows how far one misses."""

COMPUTED = ("length", "relevant")
"""What `by` may name instead of a column: the number of documents, and of relevant ones."""

MISSING = "missing"
"""The name of the slice of the lists that have no value."""

_MOST_NUMBERS = 20  # numbers with more different values are cut into ranges
_RANGES = 4
_MOST_SLICES = 1000


class Segments(NamedTuple):
    """The slice of each list.

    Attributes:
        codes: (lists,) the index of each list's slice in `names`.
        names: the names of the slices, in the order of tables: numbers ascending, text by
            descending number of lists; `MISSING` is last.
    """

    codes: np.ndarray
    names: list[str]


@dataclass(frozen=True)
class Slice:
    """The lists that share a value of one column.

    Attributes:
        column: the name of the column.
        value: the value, or a range of numbers, as text.
        lists: how many lists the slice has.
        fraction: the fraction of all lists that are in the slice.
        results: for each metric's name, the mean with its interval, or the comparison of several
            models. If fewer than `FEWEST` lists have a value, the ends of the intervals are NaN
            and there is no test; see `is_few`.
        positions: (lists,) the indices of the slice's lists among all lists.
    """

    column: str
    value: str
    lists: int
    fraction: float
    results: dict[str, Interval | Comparison]
    positions: np.ndarray = field(repr=False, compare=False)

    def __getitem__(self, metric: str) -> Interval | Comparison:
        """Return the result of a metric."""
        return self.results[metric]

    def is_few(self, metric: str) -> bool:
        """Return whether the slice has too few lists for an interval and a test."""
        result = self.results[metric]
        mean = result.models[0].mean if isinstance(result, Comparison) else result
        return bool(np.isnan(mean.low))


@dataclass(frozen=True)
class Slices:
    """Slices by one or several columns: `print` them, go through them, or take one by its name.

    Attributes:
        items: the slices, column after column.
        confidence: the level of the intervals, in (0, 1).

    >>> from ltr.reports import evaluate
    >>> qid = [i // 2 for i in range(80)]
    >>> labels, scores = [1, 0] * 40, [0.1, 0.2] * 5 + [0.2, 0.1] * 35
    >>> segment = ["tail"] * 10 + ["head"] * 70
    >>> slices = evaluate(labels, scores, qid, ["mrr"], by={"segment": segment}).slices
    >>> print(slices)
    segment  lists  queries                 mrr [95%]
    head        35     88 %   1.0000 [1.0000, 1.0000]
    tail         5     12 %  0.5000 (only 5: too few)
    >>> slices["segment", "tail"].lists
    5
    """

    items: tuple[Slice, ...]
    confidence: float

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, name: tuple[str, str]) -> Slice:
        """Return the slice of a column and a value.

        Raises:
            KeyError: no slice has this name.
        """
        for segment in self.items:
            if (segment.column, segment.value) == name:
                return segment
        raise KeyError(name)

    def columns(self) -> dict[str, list[Slice]]:
        """Return the slices of each column."""
        columns: dict[str, list[Slice]] = {}
        for segment in self.items:
            columns.setdefault(segment.column, []).append(segment)
        return columns

    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return tables: the metric ("" for all), the heads of the columns, and the rows."""
        level, tables = f"[{100 * self.confidence:g}%]", []
        for column, slices in self.columns().items():
            head, rows = [column, "lists", "queries"], [[*_about(segment)] for segment in slices]
            plain = [t for t, r in slices[0].results.items() if isinstance(r, Interval)]
            if plain:
                for row, segment in zip(rows, slices, strict=True):
                    row += [_mean(segment, title) for title in plain]
                tables.append(("", [*head, *(f"{title} {level}" for title in plain)], rows))
                continue
            for title, result in slices[0].results.items():
                assert isinstance(result, Comparison)
                several = len(result.models) > 2
                names = [model.name for model in result.models]
                heads = [*head, *(["model"] if several else []), names[0]]
                heads += ["mean"] if several else names[1:]
                heads += [f"difference {level}", "p (Holm)"]
                shown = [
                    row for segment in slices for row in _compared(segment, title, several=several)
                ]
                tables.append((title, heads, shown))
        return tables

    def __str__(self) -> str:
        parts = []
        for title, head, rows in self.tables():
            parts += ["\n".join([*([title] if title else []), *text_table(head, rows)])]
        return "\n\n".join(parts)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the slices as plain dicts, lists and numbers, for JSON; None for NaN."""
        return [
            {
                "column": segment.column,
                "value": segment.value,
                "lists": segment.lists,
                "fraction": segment.fraction,
                "metrics": {title: _plain(result) for title, result in segment.results.items()},
            }
            for segment in self.items
        ]


def _plain(result: Interval | Comparison) -> dict[str, Any]:
    if isinstance(result, Interval):
        return {name: None if np.isnan(x) else x for name, x in result._asdict().items()}
    content = result.to_dict()
    for model in content["models"]:
        for name in ("mean", "difference"):
            if model[name] is not None:
                model[name] = {k: None if np.isnan(x) else x for k, x in model[name].items()}
    return content


def _about(segment: Slice) -> tuple[str, str, str]:
    return segment.value, f"{segment.lists:,}", f"{100 * segment.fraction:.0f} %"


def _mean(segment: Slice, title: str) -> str:
    result = segment.results[title]
    assert isinstance(result, Interval)
    return (
        f"{result.mean:.4f} ({few_text(segment.lists)})" if segment.is_few(title) else str(result)
    )


def few_text(lists: int) -> str:
    """Return what a table says instead of an interval.

    >>> few_text(5)
    'only 5: too few'
    """
    return f"only {lists:,}: too few"


def _compared(segment: Slice, title: str, *, several: bool) -> list[list[str]]:
    """Return a row for each model but the first."""
    result = segment.results[title]
    assert isinstance(result, Comparison)
    first, *others = result.models
    rows = []
    for number, model in enumerate(others):
        about = [*_about(segment)] if number == 0 else ["", "", ""]
        assert model.difference is not None  # only the first model has none
        mean, low, high = model.difference
        row = [*about, *([model.name] if several else [])]
        row += [f"{first.mean.mean:.4f}", f"{model.mean.mean:.4f}"]
        if model.p_holm is None:
            row += [f"{mean:+.4f} ({few_text(result.lists)})", ""]
        else:
            p = "<0.0001" if model.p_holm < 0.0001 else f"{model.p_holm:.4f}"
            row += [f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]", p]
        rows.append(row)
    return rows


def list_values(argument: str, values: Any, lists: np.ndarray, qids: Sequence[Any]) -> pa.Array:
    """Return the value of each list, (lists,); null for a missing one.

    Args:
        argument: the name of the argument or the column, for errors.
        values: (rows,) numbers, text or dates; the same value in all rows of a list.
        lists: (rows,) the number of each row's list.
        qids: the name of each list, for errors.

    Raises:
        ValueError: the length is wrong, or a value changes inside a list.

    >>> list_values("by", ["a", "b", "a"], np.array([0, 1, 0]), ["x", "y"]).to_pylist()
    ['a', 'b']
    >>> list_values("by", ["a", "b", "c"], np.array([0, 1, 0]), ["x", "y"])
    Traceback (most recent call last):
    ValueError: by must have one value in all rows of a list, got 'a' and 'c' in list 'x'
    """
    names = as_names(argument, values)
    if names.shape != lists.shape:
        raise ValueError(
            f"{argument} must have one value for each of the {len(lists)} rows, got shape "
            f"{names.shape}"
        )
    try:
        column = pa.array(names, from_pandas=True)
    except pa.ArrowException:  # numbers and text are mixed
        texts = [None if is_missing(name) else qid_text(name) for name in names.tolist()]
        column = pa.array(texts, pa.string())
    return of_lists(argument, column, lists, qids)


def of_lists(
    argument: str, column: pa.Array | pa.ChunkedArray, lists: np.ndarray, qids: Sequence[Any]
) -> pa.Array:
    """Return the value of each list of a column of Arrow, as `list_values` does."""
    plain: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(plain, pa.DictionaryArray):
        plain = plain.dictionary_decode()
    if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
        plain = name_texts(plain, argument)
        empty = np.asarray(pc.equal(plain, "").fill_null(False))
        if empty.any():  # an empty field of a CSV file is the text ""
            plain = pc.if_else(pa.array(~empty), plain, None)
    elif pa.types.is_floating(plain.type):
        # Numpy turns -0.0 into 0.0 in the column's own type, on which the shortest text depends.
        numbers = plain.to_numpy(zero_copy_only=False) + 0.0
        plain = pa.array(numbers, plain.type, from_pandas=True)
    elif not is_number(plain.type):
        plain = name_texts(plain, argument)
    codes = plain.dictionary_encode("encode").indices.to_numpy()
    starts = np.unique(lists, return_index=True)[1]
    if (bad := np.flatnonzero(codes != codes[starts][lists])).size:
        row = int(bad[0])
        number = int(lists[row])
        first, other = plain[int(starts[number])].as_py(), plain[row].as_py()
        raise ValueError(
            f"{argument} must have one value in all rows of a list, got {first!r} and {other!r} "
            f"in list {qids[number]!r}"
        )
    return plain.take(pa.array(starts))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type of Arrow are numbers; booleans are not."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def segments(argument: str, values: pa.Array) -> Segments:
    """Return the slice of each list, from the result of `list_values`.

    Numbers with more than 20 different values are cut into four ranges with about equal numbers of
    lists.

    Raises:
        ValueError: there are fewer than two slices, or more than 1,000.

    >>> segments("by", pa.array(["b", "a", "b", None]))
    Segments(codes=array([0, 1, 0, 2]), names=['b', 'a', 'missing'])
    >>> segments("by", pa.array(range(40))).names
    ['0 to 9', '10 to 19', '20 to 29', '30 to 39']
    """
    encoded = values.dictionary_encode()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)
    missing = codes == len(encoded.dictionary)
    if is_number(values.type):
        of_slices = encoded.dictionary
        exact = pa.types.is_integer(values.type)  # float64 holds no integers above 2**53
        numbers = np.asarray(of_slices if exact else of_slices.cast(pa.float64()))
        names = name_texts(of_slices, argument).to_pylist()
        order = np.argsort(numbers, kind="stable")
        if len(numbers) > _MOST_NUMBERS:
            codes, names, order = _ranges(numbers, codes, names, missing)
    else:
        names = encoded.dictionary.cast(pa.string()).to_pylist()
        counts = np.bincount(codes, minlength=len(names))[: len(names)]
        order = np.lexsort((np.array(names, dtype=object).astype(str), -counts))
    names = [names[i] for i in order]
    if len(names) > _MOST_SLICES:
        raise ValueError(
            f"{argument} must have at most {_MOST_SLICES:,} different values, got {len(names):,}"
        )
    number = np.empty(len(names) + 1, np.int64)
    number[order], number[-1] = np.arange(len(names)), len(names)
    names += [MISSING] if missing.any() else []
    if len(names) < 2:
        raise ValueError(
            f"{argument} must have at least two different values, got {names[0]!r} in all lists"
        )
    return Segments(number[codes], names)


def _ranges(
    numbers: np.ndarray, codes: np.ndarray, names: list[str], missing: np.ndarray
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Return the range of each list, and the ranges' names in ascending order."""
    known = numbers[codes[~missing]]
    inner = np.quantile(known, np.arange(1, _RANGES) / _RANGES, method="higher")
    ranges = np.searchsorted(np.unique(inner), numbers, side="right")
    used_ranges, ranges = np.unique(ranges, return_inverse=True)
    text = []
    for number in range(len(used_ranges)):
        mine = np.flatnonzero(ranges == number)
        low, high = mine[np.argmin(numbers[mine])], mine[np.argmax(numbers[mine])]
        text.append(names[low] if low == high else f"{names[low]} to {names[high]}")
    return np.r_[ranges, len(used_ranges)][codes], text, np.arange(len(used_ranges))


def slice_models(
    columns: Mapping[str, Segments],
    models: Mapping[str, Mapping[str, np.ndarray]],
    *,
    test: Test = "randomization",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Slices:
    """Return the means of each slice, or the comparisons of several models.

    Holm's correction is for all tests of one metric by one column: its slices times the models
    but the first.

    Args:
        columns: the slices of each list, by the name of the column.
        models: for each model, the values (lists,) of each metric; NaN for a list that is left out.
        test: see `ltr.metrics.compare`.
        confidence: the level of the intervals, in (0, 1).
        resamples: the number of bootstrap samples, or of random signs.
        seed: the seed of the draws.
    """
    draws: dict[str, Any] = {"confidence": confidence, "resamples": resamples, "seed": seed}
    items: list[Slice] = []
    for column, of_column in columns.items():
        codes, names = of_column
        order, ends = np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))
        slices = []
        for name, positions in zip(names, np.split(order, ends[:-1]), strict=True):
            results: dict[str, Interval | Comparison] = {}
            if len(models) == 1:
                (values,) = models.values()
                metric_values = {title: x[positions] for title, x in values.items()}
                results |= _intervals(metric_values, confidence, resamples, seed)
            else:
                for title in next(iter(models.values())):
                    several = {model: x[title][positions] for model, x in models.items()}
                    results[title] = _comparison(several, test, draws)
            slices.append(
                Slice(column, name, len(positions), len(positions) / len(codes), results, positions)
            )
        items += _corrected(slices)
    return Slices(tuple(items), confidence)


def _intervals(
    values: dict[str, np.ndarray], confidence: float, resamples: int, seed: int
) -> dict[str, Interval]:
    """Return the mean of each metric, with the interval of `mean_interval` if lists are enough.

    The metrics that have a value for all lists share the draws, which saves half of the time.
    """
    complete = [title for title, x in values.items() if not np.isnan(x).any()]
    intervals = {}
    for title, x in values.items():
        known = x[~np.isnan(x)]
        if len(known) < FEWEST:
            intervals[title] = _bare(known)
        elif title not in complete:
            intervals[title] = mean_interval(
                x, confidence=confidence, resamples=resamples, seed=seed
            )
    shared = [title for title in complete if title not in intervals]
    if shared:
        table = np.stack([values[title] for title in shared], axis=1)
        of_shared, _ = bootstrap_intervals(table, "bca", confidence, resamples, seed)
        intervals |= dict(zip(shared, of_shared, strict=True))
    return {title: intervals[title] for title in values}


def _comparison(values: dict[str, np.ndarray], test: Test, draws: dict[str, Any]) -> Comparison:
    """Return the comparison of several models, without intervals and tests if lists are few."""
    first, *others = values
    known = ~np.isnan(np.stack([*values.values()])).any(0)
    if known.sum() >= FEWEST:
        return compare(values, test=test, **draws)
    results = [ModelResult(first, _bare(values[first][known]))]
    for name in others:
        x = values[name][known] - values[first][known]
        counts = [int(part.sum()) for part in (x > 0, x == 0, x < 0)]
        results.append(
            ModelResult(name, _bare(values[name][known]), _bare(x), None, None, None, *counts)
        )
    left_out = int((~known).sum())
    return Comparison(tuple(results), int(known.sum()), left_out, test, **draws)


def _bare(values: np.ndarray) -> Interval:
    """Return a mean without an interval; NaN for no values."""
    return Interval(float(values.mean()) if len(values) else np.nan, np.nan, np.nan)


def _corrected(slices: list[Slice]) -> list[Slice]:
    """Return the slices with p-values that are corrected for the number of tests of a metric."""
    changed = [{**segment.results} for segment in slices]
    for title in slices[0].results:
        p = [
            model.p
            for segment in slices
            if isinstance(result := segment.results[title], Comparison)
            for model in result.models
            if model.p is not None
        ]
        corrected = iter(holm(p))
        for results in changed:
            result = results[title]
            if isinstance(result, Comparison):
                models = [
                    model if model.p is None else replace(model, p_holm=next(corrected))
                    for model in result.models
                ]
                results[title] = replace(result, models=tuple(models))
    return [replace(segment, results=r) for segment, r in zip(slices, changed, strict=True)]
