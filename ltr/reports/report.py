"""The report: an HTML page that shows which model is better, how certainly, and on which lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ltr import __version__
from ltr.files import atomic_write, check_path
from ltr.metrics.comparison import Comparison, Interval, ModelResult
from ltr.reports.charts import Axis, Histogram, axis_of, histograms
from ltr.reports.documents import Document, Documents, RankingAgreement, ranking_agreement
from ltr.reports.evaluated import Evaluated, empty_text
from ltr.reports.slices import Slice, Slices, few_text

if TYPE_CHECKING:
    from jinja2 import Template

    from ltr.reports.results import Results

SHOWN = 10
"""How many of a list's first documents are shown, and compared by `RankingAgreement.overlap`."""

_QUERIES = 5  # at most this many best lists are shown, and as many worst lists
_WORST = 3  # at most this many worst lists of a slice are shown
_NAME = 160  # names have at most this many characters, and the end of a longer name is cut off
_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Metric:
    """One metric's results.

    Attributes:
        title: the name of the metric, such as "ndcg@10".
        sign: 1 if higher is better, else -1.
        result: the mean with its interval, or the comparison of several models.
        axis: the axis for the interval of the mean, or for the intervals of the differences from
            the first model.
        counted: (lists,) whether all models have a value for the list.
    """

    title: str
    sign: int
    result: Interval | Comparison
    axis: Axis
    counted: np.ndarray


class Spread(NamedTuple):
    """The distribution over lists of a metric's values, or of differences from the first model."""

    title: str
    sign: int
    name: str
    histogram: Histogram | None
    low: float
    median: float
    high: float
    result: ModelResult | None


class Ranking(NamedTuple):
    """The first documents of a list in one model's ranking.

    Attributes:
        name: the model's name.
        value: the model's value of the first metric for the list.
        documents: the first `SHOWN` documents.
        before: each document's position in the first model's ranking; None if it has none there,
            or if the documents of the two models cannot be compared.
        relevant: how many of `documents` are relevant.
        next: the position of the first relevant document after `documents`; None if there is none.
        lacking: how many relevant documents the model has not ranked at all.
    """

    name: str
    value: float
    documents: list[Document]
    before: list[int | None]
    relevant: int
    next: int | None
    lacking: int


class Query(NamedTuple):
    """A list, its first documents in one or two rankings, and its number of relevant documents."""

    qid: str
    difference: float
    rankings: list[Ranking]
    relevant: int


class Extremes(NamedTuple):
    """The lists on which a model is best and worst, alone or compared with the first model."""

    name: str
    best: list[Query]
    worst: list[Query]


class SlicedMetric(NamedTuple):
    """One metric's results in the slices of a column, and the axis for their intervals."""

    title: str
    sign: int
    axis: Axis
    results: list[Interval | Comparison]


class WorstOfSlice(NamedTuple):
    """The worst lists of a slice, for each model that is compared, or for the only model."""

    value: str
    extremes: list[Extremes]


class SlicedColumn(NamedTuple):
    """The slices of a column: the results of each metric, and the worst lists by the first one."""

    column: str
    slices: list[Slice]
    metrics: list[SlicedMetric]
    worst: list[WorstOfSlice]


class Pair(NamedTuple):
    """The agreement of two models; None if their documents cannot be compared."""

    first: str
    second: str
    agreement: RankingAgreement | None


def load_template() -> "Template":
    """Return the page's template.

    Raises:
        ValueError: jinja2, the extra `report`, is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise ValueError("a report needs jinja2: pip install 'ltr-torch[report]'") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "few": few_text,
        "number": _number,
        "p": _p,
        "score": _score,
        "short": _short,
        "signed": _signed,
    }
    return environment.from_string(files("ltr.reports").joinpath("report.html").read_text("utf-8"))


def write_report(path: str | PathLike[str], results: "Results", sources: Mapping[str, str]) -> None:
    """Write an HTML page that needs no other file; it is written completely or not at all.

    Args:
        path: the file; its folder is made if it is missing.
        results: the results, whose models have documents. The other models are compared with the
            first. The first metric decides which lists are the best and the worst.
        sources: where the data came from, by the label that the page shows.

    Raises:
        ValueError: jinja2 is not installed, or the path is a folder.
        OSError: the file cannot be written.
    """
    template = load_template()
    target = check_path("path", path)
    if target.is_dir():
        raise ValueError(f"path must be a file, got the folder {target}")
    models, options, draws = results.models, results.options, results.draws
    metrics = [_metric(title, result, models) for title, result in results.metrics.items()]
    resampled = f"{draws['resamples']:,} resamples, seed {draws['seed']}"
    details = {
        **sources,
        "Gain": options["gain"],
        "Equal scores": options["ties"],
        "Nothing relevant": empty_text(options["empty"]),
        "Intervals": f"bootstrap over queries (BCa), {resampled}",
    }
    if isinstance(first := next(iter(results.metrics.values())), Comparison):
        details["Test"] = f"paired {first.test} test, two-sided"
    page = template.render(
        models=[model.name for model in models],
        lists=len(models[0].qids),
        metrics=metrics,
        spreads=[*zip(*(_spreads(metric, models) for metric in metrics), strict=True)],
        extremes=_extremes(metrics[0], models),
        sliced=_sliced(results.slices, metrics, models),
        pairs=[_pair(*pair) for pair in combinations(models, 2)],
        has_ids=all(_documents(model).has_ids for model in models),
        level=f"{100 * draws['confidence']:g}%",
        alpha=1 - draws["confidence"],
        shown=SHOWN,
        details=details,
        notes=results.notes,
        version=__version__,
    )
    with atomic_write(target) as partial:
        # A name may have characters that UTF-8 cannot encode.
        partial.write_bytes(page.encode("utf-8", "backslashreplace"))


def _metric(title: str, result: Interval | Comparison, models: Sequence[Evaluated]) -> Metric:
    values = np.array([model.values[title] for model in models])
    counted = np.asarray(np.isfinite(values).all(axis=0))
    if isinstance(result, Comparison):
        shown = [end for model in result.models[1:] for end in model.difference or ()]
        axis = axis_of([0, *shown], 4)
    else:
        axis = axis_of([0, 1, *(end for end in result if np.isfinite(end))], 4)
    sign = 1 if models[0].measures[title].higher_is_better else -1
    return Metric(title, sign, result, axis, counted)


def _sliced(
    slices: Slices | None, metrics: Sequence[Metric], models: Sequence[Evaluated]
) -> list[SlicedColumn]:
    """Return what the page shows of the slices of each column."""
    columns = []
    for column, several in ({} if slices is None else slices.columns()).items():
        sliced = []
        for metric in metrics:
            results = [segment.results[metric.title] for segment in several]
            shown = [0.0] if len(models) > 1 else [0.0, 1.0]
            for result in results:
                if isinstance(result, Comparison):
                    intervals = [model.difference for model in result.models if model.difference]
                else:
                    intervals = [result]
                shown += [end for interval in intervals for end in interval if np.isfinite(end)]
            sliced.append(SlicedMetric(metric.title, metric.sign, axis_of(shown, 4), results))
        worst = [
            WorstOfSlice(
                segment.value,
                _extremes(metrics[0], models, within=segment.positions, best=0, worst=_WORST),
            )
            for segment in several
        ]
        columns.append(SlicedColumn(column, several, sliced, worst))
    return columns


def _spreads(metric: Metric, models: Sequence[Evaluated]) -> list[Spread]:
    """Return the distribution of a single model's values, or of differences from the first model.

    With several models, there is one distribution for each model but the first.
    """
    first, *others = (model.values[metric.title][metric.counted] for model in models)
    names = [model.name for model in models]
    if isinstance(metric.result, Comparison):
        columns, names = [other - first for other in others], names[1:]
        results = [*metric.result.models[1:]]
    else:
        columns, results = [first], [None]
    drawn = columns if results[0] is None else [x[x != 0] for x in columns]
    charts = histograms(drawn) if any(len(x) for x in drawn) else [None] * len(drawn)
    return [
        Spread(metric.title, metric.sign, name, chart, *_quantiles(x), result)
        for name, chart, x, result in zip(names, charts, columns, results, strict=True)
    ]


def _quantiles(values: np.ndarray) -> tuple[float, float, float]:
    if not len(values):
        return np.nan, np.nan, np.nan
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    return low, median, high


def _extremes(
    metric: Metric,
    models: Sequence[Evaluated],
    *,
    within: np.ndarray | None = None,
    best: int = _QUERIES,
    worst: int = _QUERIES,
) -> list[Extremes]:
    """Return the best and worst lists of a single model, or of all others against the first.

    Args:
        metric: the metric that decides.
        models: the models.
        within: the indices of the lists to choose from. Default: all lists.
        best: at most this many best lists.
        worst: at most this many worst lists.
    """
    first, *others = models
    within = np.arange(len(first.qids)) if within is None else within
    known = _documents(first).relevant
    relevant = np.array([known.get(first.qids[i], 0) > 0 for i in within], dtype=bool)
    candidates = within[metric.counted[within] & relevant]
    extremes = []
    for model in others or [first]:
        values = metric.sign * model.values[metric.title]
        if others:
            values = values - metric.sign * first.values[metric.title]
        # The sort is stable, so lists with equal values keep their order.
        positions = candidates[np.argsort(-values[candidates], kind="stable")]
        half = (len(positions) + 1) // 2 if best else 0
        high, low = positions[:half], positions[half:]
        if others:
            high, low = positions[values[positions] > 0], positions[values[positions] < 0]
        shown = [first, model] if others else [first]
        chosen = (
            [_query(metric.title, shown, int(position)) for position in several]
            for several in (high[:best], low[::-1][:worst])
        )
        extremes.append(Extremes(model.name, *chosen))
    return extremes


def _query(title: str, models: Sequence[Evaluated], position: int) -> Query:
    qid = models[0].qids[position]
    first, *_ = models
    known: dict[str, int] = {}
    if _documents(models[-1]).has_the_documents_of(_documents(first)):
        known = {document.name: document.position for document in _documents(first).of(qid)}
    rankings = []
    for model in models:
        documents = _documents(model).of(qid)
        relevant = [document.position for document in documents if document.label > 0]
        rankings.append(
            Ranking(
                name=model.name,
                value=float(model.values[title][position]),
                documents=documents[:SHOWN],
                before=[known.get(document.name) for document in documents[:SHOWN]],
                relevant=sum(position <= SHOWN for position in relevant),
                next=next((position for position in relevant if position > SHOWN), None),
                lacking=_documents(model).relevant.get(qid, 0) - len(relevant),
            )
        )
    difference = rankings[-1].value - rankings[0].value
    return Query(str(qid), difference, rankings, _documents(first).relevant.get(qid, 0))


def _pair(first: Evaluated, second: Evaluated) -> Pair:
    a, b = _documents(first), _documents(second)
    agreed = ranking_agreement(a, b, SHOWN) if a.has_the_documents_of(b) else None
    return Pair(first.name, second.name, agreed)


def _documents(model: Evaluated) -> Documents:
    assert model.documents is not None  # callers of `write_report` keep the documents
    return model.documents


def _number(value: float) -> str:
    return "\N{EN DASH}" if np.isnan(value) else f"{value:.4f}".replace("-", _MINUS)


def _signed(value: float) -> str:
    return _number(value) if np.isnan(value) or value == 0 else f"{value:+.4f}".replace("-", _MINUS)


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def _score(value: float) -> str:
    plain = value == 0 or 1e-3 <= abs(value) < 1e6
    return (f"{value:.4f}" if plain else f"{value:.4g}").replace("-", _MINUS)


def _short(name: Any) -> str:
    text = str(name)
    return text if len(text) <= _NAME else text[: _NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"
