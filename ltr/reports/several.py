"""Evaluate scores against several labels, such as clicks and purchases: a column for each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import as_array, as_names, as_numbers
from ltr.metrics.comparison import text_table
from ltr.metrics.named import Measure, Metric
from ltr.reports.evaluation import DEFAULT, Evaluation, evaluate


class LabelEvaluations(dict[str, Evaluation]):
    """The evaluation for each label, by the label's name; `print` shows a column for each."""

    def __str__(self) -> str:
        titles = next(iter(self.values())).intervals
        rows = [[title, *(str(x.intervals[title]) for x in self.values())] for title in titles]
        rows.append(["lists", *(f"{len(x.qids):,}" for x in self.values())])
        return "\n".join(text_table(["", *self], rows))


def evaluate_labels(
    labels: Any,
    scores: Any,
    qid: Any,
    metrics: Sequence[Metric | Measure] = DEFAULT,
    **options: Any,
) -> LabelEvaluations:
    """Evaluate scores against each of several labels; see `evaluate`.

    A row whose label is NaN or missing is left out for this label alone, and so is a list without
    another row.

    Args:
        labels: several labels by name: a frame, or a dict of columns (rows,), numbers >= 0 or NaN.
        scores: (rows,), the higher the better.
        qid: (rows,), the query of each row.
        metrics: as in `evaluate`.
        options: as in `evaluate`, except `by` and `doc_id`.

    Raises:
        ValueError: there is no label, a label is not known in any row, columns have different
            lengths, or as in `evaluate`; the message names the label.

    >>> labels = {"click": [1, 1, 0, 1], "buy": [0, 1, None, None]}
    >>> print(evaluate_labels(labels, [2.0, 1.0, 0.0, 3.0], ["a", "a", "a", "b"], ["ndcg@10"]))
                               click                      buy
    ndcg@10  1.0000 [1.0000, 1.0000]  0.6309 [0.6309, 0.6309]
    lists                          2                        1
    """
    if isinstance(labels, Mapping):
        columns = [*labels.items()]
    elif hasattr(labels, "__arrow_c_stream__"):
        import pandas as pd

        frame = labels if isinstance(labels, pd.DataFrame) else pa.table(labels).to_pandas()
        columns = [(str(name), frame.iloc[:, i]) for i, name in enumerate(frame.columns)]
    else:
        kind = type(labels).__name__
        raise ValueError(f"labels must be a frame or a dict of columns, got {kind}")
    if not columns:
        raise ValueError("labels must have at least one column, got none")
    if len({name for name, _ in columns}) < len(columns):
        raise ValueError(f"labels must have different names, got {[name for name, _ in columns]}")
    rows = as_array(scores), as_names("qid", qid)
    evaluations = LabelEvaluations()
    for name, column in columns:
        grades = as_numbers(f"labels[{name!r}]", column).astype(np.float64)
        if any(x.shape != grades.shape for x in rows) or grades.ndim != 1:
            shapes = f"{grades.shape}, {rows[0].shape} and {rows[1].shape}"
            raise ValueError(f"label {name!r}, scores and qid must be (rows,), got {shapes}")
        known = ~np.isnan(grades)
        if not known.any():
            raise ValueError(f"label {name!r} must be known in some row, got none")
        try:
            own = evaluate(grades[known], rows[0][known], rows[1][known], metrics, **options)
        except ValueError as error:
            raise ValueError(f"label {name!r}: {error}") from None
        evaluations[str(name)] = own
    return evaluations
