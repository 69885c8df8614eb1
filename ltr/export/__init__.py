"""Export a trained ranker: ONNX, `torch.export`, weights, a model card."""

from ltr.export.card import CardMetrics, card_metrics
from ltr.export.program import describe
from ltr.export.write import Exported, export_model

__all__ = [
    "CardMetrics",
    "Exported",
    "card_metrics",
    "describe",
    "export_model",
]
