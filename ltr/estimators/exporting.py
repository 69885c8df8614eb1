"""Export a fitted estimator."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from ltr.datasets import Schema, read_table
from ltr.estimators import tables as tables
from ltr.estimators.blend_files import contents
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.saving import content
from ltr.estimators.scoring import score_codes
from ltr.export import Exported, ExportedRanker, evaluate, export_model
from ltr.export.blend import ExportedBlend
from ltr.export.card import evaluation_of
from ltr.export.program import Target
from ltr.export.trees import Trees, read_trees
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
        X, y, qid = _test_lists(test)
        table = tables.as_table(estimator, X)
        names = tables.query_names(table.num_rows, qid, None)
        labels = tables.as_labels(y, table.num_rows)
        columns = {schema.qid: names, schema.label: labels}
        plain = replace(schema, weight=None)
        evaluation = evaluate(module, read_table(tables.join(table, columns), plain))
    to = to or ("torch" if str(path).endswith(".pt2") else "onnx")
    config = None if is_file(path) else content(estimator)  # a folder that `load` can read
    return export_model(module, path, to=to, opset=opset, evaluation=evaluation, config=config)


def export_blend(
    blend: Any,
    names: Sequence[str],
    path: str | PathLike[str],
    opset: int,
    per_document: bool,
    single: bool,
    test: tuple[Any, Any, Any] | None,
) -> Exported:
    """Write the files of `Blend.export`; `names` are those of its rankers, for errors."""
    members: list[ExportedRanker | Trees] = []
    for name, one in zip(names, blend.rankers_, strict=True):
        if isinstance(one, NeuralRanker):
            given = one.transform_, one.scorer_, one.schema_, per_document
            members.append(ExportedRanker(*given))
        elif (trees := read_trees(one)) is not None:
            members.append(trees)
        else:
            raise ValueError(
                f"rankers must be NeuralRankers or trees of LightGBM and XGBoost, got {name}"
            )
    columns = [f"x{i}" for i in range(blend.n_features_in_)]
    schema = Schema("qid", features=dict.fromkeys(columns, 1))
    if blend.schema_ is not None:
        columns, schema = blend.feature_names_in_.tolist(), blend.schema_
    elif blend.levels_:
        raise ValueError("columns must have names that are text, and levels of one type")
    evaluation = None
    if test is not None:
        X, y, qid = _test_lists(test)
        labels = tables.as_labels(y, tables.row_count(X))
        groups, _ = tables.list_groups(tables.query_names(len(labels), qid, None))
        order = np.argsort(groups, kind="stable")
        ordered = (x[order] for x in (blend.predict(X, qid=qid), labels))
        scores, grades = map(torch.from_numpy, ordered)
        evaluation = evaluation_of(scores, grades, torch.from_numpy(np.bincount(groups)))
    saved = None if is_file(path) else contents(blend, names)
    factors = (blend.weights_ * blend.scales_).tolist()
    predict = partial(score_codes, blend)
    module = ExportedBlend(members, factors, schema, columns, predict, per_document, single, saved)
    return export_model(module, path, opset=opset, evaluation=evaluation)


def _test_lists(test: Any) -> tuple[Any, Any, Any]:
    if not isinstance(test, tuple | list) or len(test) != 3:
        raise ValueError(f"test must be (X, y, qid), got {type(test).__name__}")
    return test[0], test[1], test[2]
