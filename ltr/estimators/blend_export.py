"""Export a fitted Blend as one ONNX file."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from ltr.datasets import Schema
from ltr.datasets.column_steps import Number
from ltr.estimators.blend_files import contents
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.export import Evaluation, Exported, export_model
from ltr.export.blend import ExportedBlend
from ltr.export.program import ExportedRanker
from ltr.export.trees import Trees, read_trees
from ltr.export.write import is_file


def export_blend(
    blend: Any,
    names: Sequence[str],
    path: str | PathLike[str],
    opset: int,
    per_document: bool,
    single: bool,
    evaluation: Evaluation | None,
) -> Exported:
    """Write the files of `Blend.export`; `names` are those of its rankers, for errors."""
    members: list[ExportedRanker | Trees] = []
    for name, one in zip(names, blend.rankers_, strict=True):
        if isinstance(one, NeuralRanker):
            members.append(ExportedRanker(one.model_, per_document))
        elif (trees := read_trees(one)) is not None:
            members.append(trees)
        else:
            raise ValueError(
                f"rankers must be NeuralRankers or trees of LightGBM and XGBoost, got {name}"
            )
    columns = [f"x{i}" for i in range(blend.n_features_in_)]
    schema = Schema("qid", steps=dict.fromkeys(columns, Number()))
    if blend.schema_ is not None:
        columns, schema = _columns(blend.feature_names_in_.tolist(), blend.schema_), blend.schema_
    elif blend.levels_:
        raise ValueError("columns must have text as names, and levels of one type")
    saved = None if is_file(path) else contents(blend, names)
    factors = (blend.weights_ * blend.scales_).tolist()
    predict = blend.model_.score_codes
    module = ExportedBlend(members, factors, schema, columns, predict, per_document, single, saved)
    return export_model(module, path, to="onnx", opset=opset, evaluation=evaluation)


def _columns(names: Sequence[str], schema: Schema) -> list[str]:
    """Return the names of columns, two for a column of dates if needed; see `in_form`."""
    widths = {name: schema.features[name] for name in schema.dates}
    return [one for name in names for one in (name, f"{name} (hour)")[: widths.get(name, 1)]]
