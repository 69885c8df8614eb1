"""Image classification by the soft top-k loss (Cuturi et al. 2019)."""

from ltr.papers.topk.classifier import ImageClassifier

__all__ = ["ImageClassifier"]
