"""Export a trained ranker: ONNX, `torch.export`, weights, a model card."""

from ltr.export.card import Evaluation, evaluate
from ltr.export.loading import load_model
from ltr.export.program import ExportedRanker, describe
from ltr.export.write import Exported, export_model

__all__ = [
    "Evaluation",
    "Exported",
    "ExportedRanker",
    "describe",
    "evaluate",
    "export_model",
    "load_model",
]
