"""The results of one model, or of several on the same lists: printed, drawn, or written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ltr.metrics.comparison import Comparison, Interval, Test, compare, mean_interval, text_table
from ltr.metrics.named import AnyMeasure
from ltr.reports.evaluated import Evaluated, empty_text
from ltr.reports.slices import Segments, Slices, slice_models


@dataclass(frozen=True)
class Results:
    """The means of a model's metrics, or the comparisons of several models with the first.

    Attributes:
        models: the values of each model, for the same lists in the same order.
        metrics: for each metric's title, the mean with its interval, or the comparison.
        segments: the slice of each list, by the name of each column of slices.
        slices: the results of each slice; None without columns of slices.
        draws: the `confidence`, `resamples` and `seed` of the intervals and tests.
        options: the `gain`, `empty` and `ties` of the metrics.
        notes: sentences on lists that are missing, not judged or without a relevant item.
    """

    models: Sequence[Evaluated]
    metrics: dict[str, Interval | Comparison]
    segments: dict[str, Segments]
    slices: Slices | None
    draws: dict[str, Any]
    options: dict[str, Any]
    notes: list[str]

    @classmethod
    def of(
        cls,
        models: Sequence[Evaluated],
        segments: dict[str, Segments],
        draws: dict[str, Any],
        options: dict[str, Any],
        *,
        test: Test = "randomization",
        notes: Sequence[str] | None = None,
    ) -> "Results":
        """Return the results of models; see the class.

        Args:
            models: see the class.
            segments: see the class.
            draws: see the class.
            options: see the class.
            test: see `ltr.metrics.compare`.
            notes: see the class. Default: how many lists of each model have no relevant item.

        Raises:
            ValueError: there are several models, and fewer than two lists have a value in each.
        """
        by_model = {model.name: model.values for model in models}
        metrics: dict[str, Interval | Comparison] = {}
        for title, values in models[0].values.items():
            if len(models) == 1:
                metrics[title] = mean_interval(values, **draws)
                continue
            of_models = {name: values[title] for name, values in by_model.items()}
            comparison = compare(of_models, test=test, **draws)
            note = comparison_note(models[0].measures[title], options, [*by_model])
            metrics[title] = replace(comparison, note=note)
        slices = slice_models(segments, by_model, test=test, **draws) if segments else None
        if notes is None:
            notes = [note for model in models for note in empty_notes(model, options)]
        return cls(models, metrics, segments, slices, draws, options, [*notes])

    @property
    def gains(self) -> list[str]:
        """A sentence on the gain, if a metric takes it."""
        measures = self.models[0].measures.values()
        takes = any(measure.gain(self.options) is not None for measure in measures)
        return [f"gain: {self.options['gain']}"] * takes

    def __str__(self) -> str:
        if len(self.models) == 1:
            means: dict[str, Any] = self.metrics
            (model,) = self.models
            parts = ["\n".join(means_table(model.name, means, model.values, self.draws))]
        else:
            parts = [f"{title}\n{comparison}" for title, comparison in self.metrics.items()]
        parts += [] if self.slices is None else [str(self.slices)]
        return "\n\n".join([*parts, *(["\n".join([*self.notes, *self.gains])])]).rstrip()

    def plot(self, path: Path) -> None:
        """Draw the means, or the differences from the first model, with their intervals.

        Args:
            path: the file to write; its ending says the format.
        """
        from ltr.reports.drawing import draw

        draw(self, path)

    def write_page(
        self, path: str | PathLike[str], sources: Mapping[str, str] | None = None
    ) -> None:
        """Write an HTML page; see `ltr.reports.report.write_report`."""
        from ltr.reports.report import write_report

        write_report(path, self, sources or {})

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics and the values of each list as plain data, for JSON; None for NaN."""
        first, *_ = self.models
        metrics = {}
        for title, result in self.metrics.items():
            if isinstance(result, Comparison):
                metrics[title] = result.to_dict()
            else:
                mean = dict(zip(result._fields, _plain(result), strict=True))
                metrics[title] = {"lists": counted_lists(first.values[title]), "mean": mean}
        values = {
            model.name: {title: _plain(x) for title, x in model.values.items()}
            for model in self.models
        }
        content = {"metrics": metrics, "qids": first.qids, "values": values}
        if self.slices is not None:
            names = {name: [x.names[i] for i in x.codes] for name, x in self.segments.items()}
            content |= {"slices": self.slices.to_dict(), "by": names}
        return content


def means_table(
    name: str,
    means: Mapping[str, Interval],
    values: Mapping[str, np.ndarray],
    draws: Mapping[str, Any],
) -> list[str]:
    """Return the lines of a table of means: a metric in each row."""
    head = ["", f"{name} [{100 * draws['confidence']:g}%]", "lists"]
    rows = [[x, str(mean), f"{counted_lists(values[x]):,}"] for x, mean in means.items()]
    return text_table(head, rows)


def comparison_note(measure: AnyMeasure, options: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return what a comparison compares: the metric, its gain, and the sign of differences."""
    gain = measure.gain(options)
    gain = "" if gain is None else f" with gain {getattr(gain, '__name__', gain)}"
    sign = " - ".join(reversed(names)) if len(names) == 2 else f"differences from {names[0]}"
    return f"{measure.title}{gain}, {sign}"


def empty_notes(model: Evaluated, options: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the lists without a relevant item, if there are any."""
    if not model.empty:
        return []
    how, total = empty_text(options["empty"]), len(model.qids)
    return [f"{model.name}: {model.empty:,} of {total:,} lists have no relevant item: {how}"]


def counted_lists(values: np.ndarray) -> int:
    """Return how many lists have a value."""
    return int((~np.isnan(values)).sum())


def _plain(values: Sequence[float] | np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
