"""Which trade-off between several labels? Train with several weights, and compare."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ltr.datasets import ListDataset
from ltr.estimators import tables as tables
from ltr.estimators.list_input import read_data
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.parameters import max_levels
from ltr.losses import XENDCG, SeveralLabels
from ltr.metrics.comparison import text_table
from ltr.metrics.named import Metric, as_measures
from ltr.plots import new_figure
from ltr.shapes import check_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ltr.metrics.comparison import Interval
    from ltr.reports.several import LabelEvaluations


@dataclass(frozen=True)
class TradeOff:
    """A ranker that was trained with some weights of the labels.

    Attributes:
        weights: the weight of each label.
        ranker: the fitted ranker.
        evaluations: the evaluation of each label on the validation lists.
        unbeaten: whether no other ranker is at least as good in all labels and better in one.
    """

    weights: dict[str, float]
    ranker: NeuralRanker
    evaluations: "LabelEvaluations"
    unbeaten: bool = True

    @property
    def means(self) -> np.ndarray:
        """The mean of the metric of each label, (labels,)."""
        return np.array([interval.mean for interval in _intervals(self)])


class TradeOffs(list[TradeOff]):
    """The result of `trade_offs`, in the order of the weights; `print` shows a row for each."""

    def __str__(self) -> str:
        names = [*self[0].weights]
        titles = [next(iter(x.intervals)) for x in self[0].evaluations.values()]
        head = [f"{title} of {name}" for title, name in zip(titles, names, strict=True)]
        rows = [
            [_ratio(point), *map(str, _intervals(point)), "unbeaten" if point.unbeaten else ""]
            for point in self
        ]
        return "\n".join(text_table(["weights", *head, ""], rows))

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the first two labels' metrics with their intervals, and join the unbeaten points.

        Args:
            axes: the axes to draw in. Default: the axes of a new figure, `plot().figure`.

        Returns:
            The axes. The method needs matplotlib (the extra `plots`).
        """
        axes = axes or new_figure("TradeOffs.plot", 6.4, 4.8).subplots()
        first, second = [*self[0].evaluations][:2]
        for point in self:
            x, y = _intervals(point)[:2]
            color = "tab:blue" if point.unbeaten else "tab:gray"
            axes.errorbar(
                *(x.mean, y.mean),
                xerr=[[x.mean - x.low], [x.high - x.mean]],
                yerr=[[y.mean - y.low], [y.high - y.mean]],
                fmt="o",
                color=color,
                alpha=0.8,
            )
            axes.annotate(_ratio(point), (x.mean, y.mean), (5, 5), textcoords="offset points")
        best = sorted(point.means[:2].tolist() for point in self if point.unbeaten)
        axes.plot(*zip(*best, strict=True), color="tab:blue", linewidth=1, zorder=1)
        title = next(iter(self[0].evaluations[first].intervals))
        axes.set_xlabel(f"{title} of {first}, validation lists")
        axes.set_ylabel(f"{title} of {second}, validation lists")
        return axes


def _intervals(point: TradeOff) -> "list[Interval]":
    """Return the mean of the first metric of each label, with its interval."""
    return [next(iter(x.intervals.values())) for x in point.evaluations.values()]


def _ratio(point: TradeOff) -> str:
    """Return the weights in words, such as "1 : 3"."""
    return " : ".join(f"{weight:g}" for weight in point.weights.values())


def trade_offs(
    make_ranker: Callable[[dict[str, float]], NeuralRanker] | None,
    X: Any,
    Y: Any,
    *,
    qid: Any = None,
    group: Any = None,
    weights: Sequence[Mapping[str, float]] | None = None,
    validation: float = 0.2,
    metrics: Sequence[Metric] = ("ndcg@10",),
) -> TradeOffs:
    """Train a ranker for each of several weights of the labels, and compare them.

    All rankers share the training lists, the validation lists and the encoded columns, which are
    made once. The validation lists stop the training early, too, so that the values are a little
    too high, and alike for all.

    Args:
        make_ranker: a function that returns an unfitted `NeuralRanker` with a `SeveralLabels` for
            the weights of the labels. Default (None): `NeuralRanker()` with the sum of `XENDCG`.
        X: (rows, columns), as in `NeuralRanker.fit`.
        Y: (rows, labels), a frame, or an array with the labels y0, y1 and so on.
        qid: (rows,), the query of each row.
        group: instead of `qid`, the sizes of the lists.
        weights: the weights of each ranker. Default: each label alone, all with weight 1, and for
            each label three times as much as for the others.
        validation: the fraction of the queries that is held out, in (0, 1).
        metrics: the metrics of `evaluations`, as in `ltr.reports.evaluate`; the first one decides
            which rankers are unbeaten.

    Returns:
        A list of `TradeOff`.

    Raises:
        ValueError: Y has fewer than two labels, weights do not name the labels or are below 0 or
            all 0, `make_ranker` does not return a `NeuralRanker`, no query is held out,
            a label is not known in the held-out rows, or as in `NeuralRanker.fit`.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 2)), np.arange(600) // 10
    >>> Y = (X > 1) * 1.0  # one column for each label
    >>> make = lambda weights: NeuralRanker(
    ...     loss=SeveralLabels({name: (XENDCG(), w) for name, w in weights.items()}),
    ...     members=1, max_epochs=5, random_state=0, verbose=0)
    >>> found = trade_offs(make, X, Y, qid=qid, weights=[{"y0": 1, "y1": 0}, {"y0": 1, "y1": 1}])
    >>> bool(found[0].means[0] > found[1].means[0]), bool(found[0].means[1] < found[1].means[1])
    (True, True)
    """
    from ltr.reports.several import evaluate_labels

    rows = tables.row_count(tables.with_rows(X))
    labels = tables.label_columns(Y, rows, ())
    if len(labels) < 2:
        raise ValueError(f"Y must have several labels, (rows, labels), got {np.shape(Y)}")
    check_fraction("validation", validation)
    mixes = default_weights([*labels]) if weights is None else [{**mix} for mix in weights]
    for mix in mixes:
        if {*mix} != {*labels}:
            raise ValueError(f"weights must name the labels {', '.join(labels)}, got {mix}")
    if not mixes:
        raise ValueError("weights must have at least one entry, got none")
    make = make_ranker or _default_ranker
    mixes = [{name: float(mix[name]) for name in labels} for mix in mixes]
    made = [make({**mix}) for mix in mixes]
    for ranker in made:
        if not isinstance(ranker, NeuralRanker):
            raise ValueError(f"make_ranker must return a NeuralRanker, got {ranker!r}")
    data, _ = read_data(
        made[0],
        X,
        {"y": Y, "qid": qid, "group": group},
        partial(tables.side_columns, made[0].loss),
        validation=validation,
        max_levels=partial(max_levels, made[0]),
    )
    names, named = made[0].columns_, hasattr(made[0], "feature_names_in_")
    if data.val is None:
        raise ValueError(f"validation must hold out some of the queries, got {validation}")
    val: ListDataset = data.val.in_memory()
    columns = {name: val.labels[:, i] for i, name in enumerate(data.schema.labels)}
    qids = np.repeat(np.array(val.qids, dtype=object), val.lengths)
    points = []
    for mix, ranker in zip(mixes, made, strict=True):
        ranker.fit(data)
        scores = ranker.predict(replace(data, train=val, val=None))
        tables.set_columns(ranker, names, named=named)  # those of X, in their order
        points.append(TradeOff(mix, ranker, evaluate_labels(columns, scores, qids, metrics)))
    measure = as_measures(metrics)[0]
    means = np.stack([point.means for point in points]) * (1 if measure.higher_is_better else -1)
    beaten = [bool(((means >= x).all(1) & (means > x).any(1)).any()) for x in means]
    pairs = zip(points, beaten, strict=True)
    return TradeOffs(replace(point, unbeaten=not lost) for point, lost in pairs)


def default_weights(names: Sequence[str]) -> list[dict[str, float]]:
    """Return the default weights of `trade_offs`.

    >>> default_weights(["a", "b"])  # doctest: +NORMALIZE_WHITESPACE
    [{'a': 1.0, 'b': 0.0}, {'a': 3.0, 'b': 1.0}, {'a': 1.0, 'b': 1.0}, {'a': 1.0, 'b': 3.0},
     {'a': 0.0, 'b': 1.0}]
    """
    alone = [{name: float(name == x) for name in names} for x in names]
    tripled = [{name: 3.0 if name == x else 1.0 for name in names} for x in names]
    equal = dict.fromkeys(names, 1.0)
    return [alone[0], tripled[0], equal, *tripled[1:], *alone[1:]]


def _default_ranker(weights: dict[str, float]) -> NeuralRanker:
    losses = {name: (XENDCG(gamma="random"), weight) for name, weight in weights.items()}
    return NeuralRanker(loss=SeveralLabels(losses), random_state=0, verbose=0)
