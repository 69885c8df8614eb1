"""Export a fitted estimator."""

from dataclasses import replace
from os import PathLike
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ltr.datasets import read_table
from ltr.estimators import tables as tables
from ltr.estimators.saving import content
from ltr.export import Exported, ExportedRanker, evaluate, export_model
from ltr.export.program import Target
from ltr.export.write import is_file


def export(
    estimator: Any,
    path: str | PathLike[str],
    to: Target | None,
    opset: int,
    per_document: bool,
    test: tuple[Any, Any, Any] | None,
) -> Exported:
    """Write the files of `NeuralRanker.export`."""
    check_is_fitted(estimator)
    schema = estimator.schema_
    module = ExportedRanker(estimator.transform_, estimator.scorer_, schema, per_document)
    evaluation = None
    if test is not None:
        X, y, qid = lists_of(test)
        table = tables.as_table(estimator, X)
        names = tables.query_names(table.num_rows, qid, None)
        labels = tables.as_labels(y, table.num_rows)
        columns = {schema.qid: names, schema.label: labels}
        plain = replace(schema, weight=None)
        evaluation = evaluate(module, read_table(tables.join(table, columns), plain))
    to = to or ("torch" if str(path).endswith(".pt2") else "onnx")
    config = None if is_file(path) else content(estimator)  # a folder that `load` can read
    return export_model(module, path, to=to, opset=opset, evaluation=evaluation, config=config)


def lists_of(test: Any) -> tuple[Any, Any, Any]:
    """Return (X, y, qid) of test lists, or raise a ValueError."""
    if not isinstance(test, tuple | list) or len(test) != 3:
        raise ValueError(f"test must be (X, y, qid), got {type(test).__name__}")
    return test[0], test[1], test[2]
