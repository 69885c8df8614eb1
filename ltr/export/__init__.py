"""Export a trained ranker: ONNX, `torch.export`, weights, a model card."""

from ltr.export.card import Evaluation, evaluate
from ltr.export.program import describe
from ltr.export.write import Exported, export_model

__all__ = [
    "Evaluation",
    "Exported",
    "describe",
    "evaluate",
    "export_model",
]
