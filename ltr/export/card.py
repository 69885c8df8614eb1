"""The model card, a page that is written beside an exported model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ltr.datasets import ListDataset
from ltr.export.program import ExportedModule, Target
from ltr.metrics.comparison import Interval, mean_interval
from ltr.metrics.named import ranking_measure
from ltr.models.predictor import Predictor
from ltr.names import plural

_METRICS = ("NDCG@1", "NDCG@5", "NDCG@10", "MRR")

_CARD = """\
# A ranking model

`{file}` scores documents; within a query, higher scores rank first. {depends}

## Inputs and output

{inputs}

The output `scores` has one float32 for each document. {runs}; it does not need ltr. It was \
compared with the model on {difference.rows:,} rows in lists of 1 to 130 documents, with extreme \
and missing values, and numbers on the splits of trees. The largest difference is \
{difference.largest:.1e} of the largest score, and {differing} by more than 1e-4 of it.

## Data

{features} and {categories}.
{columns}
## Model

{module.summary}

## Metrics

{metrics}

## License

To be filled in.
"""


@dataclass(frozen=True)
class CardMetrics:
    """Metrics of a model on test lists.

    Attributes:
        lists: the number of test lists.
        documents: the number of documents in these lists.
        metrics: for each metric, the mean over the lists with its 95 % confidence interval. A list
            without a relevant document counts as 0.
    """

    lists: int
    documents: int
    metrics: dict[str, Interval]


def card_metrics(
    model: Predictor, data: ListDataset, exact: np.ndarray | None = None
) -> CardMetrics:
    """Return the metrics of a model on lists with labels.

    Args:
        model: a `RankingModel`, or the `model_` of a `Blend`.
        data: the lists, two or more.
        exact: float64 (documents, d), the features of `data` as they were read, for the trees of a
            blend. Default: only their float32 numbers are known.

    Raises:
        ValueError: the data have no labels or several, fewer than two lists, or another number of
            features or categories than the model.

    >>> from ltr.models import LinearScorer, RankingModel
    >>> rows, labels = [[1.0], [2.0], [3.0], [4.0]], [0, 1, 0, 1]
    >>> data = ListDataset.from_arrays(rows, labels, qid=[7, 7, 8, 8])
    >>> model = RankingModel(LinearScorer(1))
    >>> _ = torch.nn.init.ones_(next(model.parameters()))
    >>> card_metrics(model, data).metrics["NDCG@10"].mean
    1.0
    """
    if not isinstance(data, ListDataset):
        raise ValueError(f"data must be a ListDataset, got {type(data).__name__}")
    if not data.has_labels or len(data) < 2:
        raise ValueError(f"data must have labels and at least two lists, got {len(data)} lists")
    if data.labels.ndim > 1:
        raise ValueError(f"data must have one label for a card, got {data.labels.shape[1]}")
    if data.num_features != model.num_features:
        raise ValueError(
            f"data must have the model's {model.num_features} features, got {data.num_features}"
        )
    categories = 0 if model.schema is None else len(model.schema.categories)
    if data.num_categories != categories:
        raise ValueError(
            f"data must have the model's {categories} categories, got {data.num_categories}"
        )
    scores = torch.from_numpy(model.score(data, exact))
    labels = torch.tensor(data.labels)  # a copy, since lists on disk are read-only
    return card_metrics_of(scores, labels, torch.from_numpy(data.lengths))


def card_metrics_of(scores: Tensor, labels: Tensor, lengths: Tensor) -> CardMetrics:
    """Return the metrics of the given scores.

    Args:
        scores: (documents,), list by list.
        labels: (documents,), in the same order.
        lengths: (lists,), the sizes of the lists.
    """
    given, largest = (scores, labels, lengths), float(labels.max())
    measures = {name: ranking_measure(name.lower()) for name in _METRICS}
    values = {name: measure.per_list(*given, largest=largest) for name, measure in measures.items()}
    intervals = {name: mean_interval(of_lists) for name, of_lists in values.items()}
    return CardMetrics(len(lengths), len(scores), intervals)


@dataclass(frozen=True)
class Difference:
    """How much the scores of an export differ from the scores of the model.

    Attributes:
        largest: the largest difference, as a fraction of the largest absolute score.
        rows: how many rows were compared.
        differing: how many rows differ by more than 1e-4 of the largest absolute score.
    """

    largest: float
    rows: int
    differing: int


def model_card(
    module: ExportedModule,
    file: str,
    to: Target,
    difference: Difference,
    evaluation: CardMetrics | None,
) -> str:
    """Return the text of a model card, in Markdown."""
    schema, lists = module.schema, "(N, {})" if module.per_document else "(lists, documents, {})"
    shapes = {
        "features": f"{'float32' if module.single else 'float64'} "
        f"{lists.format(module.num_features)}; NaN is a missing value",
        "categories": f"int64 {lists.format(module.num_categories)}; codes of the levels, 0 for a "
        "missing or unseen value",
        "mask": "bool (lists, documents); True for a real document",
    }
    columns, metrics = "", "No test lists were passed to the export."
    if schema is not None:
        numbers = {name: _what(x, schema.dates.get(name)) for name, x in schema.features.items()}
        categories = schema.categories.items()
        levels = {
            name: f"{category.kind} with {_count(len(category.levels), 'level')}"
            for name, category in categories
        }
        rows = [(f"`{name}`", what) for name, what in {**numbers, **levels}.items()]
        columns = f"\n{_table(['column', 'what it is'], rows)}\n"
    if evaluation is not None:
        means = [
            (name, f"{x.mean:.4f}", f"{x.low:.4f} to {x.high:.4f}")
            for name, x in evaluation.metrics.items()
        ]
        metrics = (
            f"On {evaluation.lists:,} test lists with {evaluation.documents:,} documents. A list "
            "without a relevant document counts 0. Intervals are over lists.\n\n"
        ) + _table(["metric", "mean", "95 % interval"], means)
    whole = "A score depends on the whole list, so a list must come as a whole."
    return _CARD.format(
        file=file,
        depends=whole if module.looks_at_list else "A score depends only on its document.",
        inputs=_table(["input", "what it is"], [(name, shapes[name]) for name in module.inputs]),
        runs="Run the file with onnxruntime"
        if to == "onnx"
        else "Load it with `torch.export.load`",
        difference=difference,
        differing=_count(difference.differing, "row differs", "rows differ"),
        features=_count(module.num_features, "feature"),
        categories=_count(module.num_categories, "category", "categories"),
        module=module,
        columns=columns,
        metrics=metrics,
    )


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {plural(number, one, several)}"


def _what(width: int, zone: str | None) -> str:
    """Return the card's description of a column of features."""
    if zone is None:
        return f"{width} numbers" if width > 1 else "number"
    hour = ", and the hour of the day" if width > 1 else ""
    return f"date: days since 1970-01-01{hour} ({'UTC' if zone == 'utc' else 'no time zone'})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).rstrip()
