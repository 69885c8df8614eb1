"""Export a trained ranker: ONNX, `torch.export`, search engines, weights, a model card."""

from ltr.export.card import CardMetrics, card_metrics
from ltr.export.engines import EngineExport
from ltr.export.program import describe
from ltr.export.write import Exported, export_model

__all__ = [
    "CardMetrics",
    "EngineExport",
    "Exported",
    "card_metrics",
    "describe",
    "export_model",
]
