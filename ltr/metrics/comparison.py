"""The result of a comparison of models: numbers, a table, a plot."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

Test = Literal["randomization", "bootstrap"]


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
        difference: the mean of model - baseline, with its interval.
        p: the p-value of the paired test.
        p_holm: p, corrected for the number of models.
        exact: whether the test went through all flips of signs, instead of drawing some.
        better: lists on which the model has the higher value.
        equal: lists on which the values are equal.
        worse: lists on which the model has the lower value.
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
        left_out: how many lists are left out, since one of the models has no value (NaN) for them.
        test: "randomization" or "bootstrap".
        confidence: level of the intervals.
        resamples: how many bootstrap samples were drawn, and how many flips of signs if not all.
        seed: seed of the draws.
    """

    models: tuple[ModelResult, ...]
    lists: int
    left_out: int
    test: Test
    confidence: float
    resamples: int
    seed: int

    @property
    def caption(self) -> str:
        """The number of lists, and the method of the test."""
        exact = [model.exact for model in self.models if model.exact is not None]
        how = f"{self.resamples:,} resamples, seed {self.seed}"
        if self.test == "randomization" and any(exact):
            how += "; all flips of signs" + ("" if all(exact) else " where p has a *")
        left_out = f", {self.left_out:,} left out" if self.left_out else ""
        return f"{self.lists:,} lists{left_out}; paired {self.test} test, {how}"

    def __str__(self) -> str:
        head, rows = self._cells()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = []
        for row in (head, *rows):
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, self.caption])

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
            axes: where to draw. Default: a new figure, `plot().figure`.

        Returns:
            The axes. Needs matplotlib (the extra `plots`).
        """
        shown = self.models[1:]
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6.4, 1.2 + 0.5 * len(shown)), layout="constrained").subplots()
        axes.axvline(0, color="black", linewidth=1)
        for place, model in enumerate(shown):
            assert model.difference is not None  # only the baseline has none
            mean, low, high = model.difference
            sure = low > 0 or high < 0
            color = "tab:gray" if not sure else "tab:green" if mean > 0 else "tab:red"
            axes.plot([low, high], [place, place], color=color, linewidth=2)
            axes.plot([mean], [place], "o", color=color)
            label = f"p = {_text(model.p)}".replace("= <", "< ")
            label += f", Holm {_text(model.p_holm)}" if len(shown) > 1 else ""
            axes.annotate(
                label, (mean, place), (0, 6), textcoords="offset points", ha="center", size="small"
            )
        axes.set_yticks(range(len(shown)), [model.name for model in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlabel(
            f"difference from {self.models[0].name}, {100 * self.confidence:g}% interval"
        )
        axes.grid(axis="x", alpha=0.3)
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
                row.append(_text(model.p) + ("*" if mixed and model.exact else ""))
                row += [_text(model.p_holm)] if several else []
                row.append(f"{model.better} / {model.equal} / {model.worse}")
            rows.append(row)
        return head, rows


def _text(p: float | None) -> str:
    if p is None:
        return ""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
