"""Reports: `evaluate` computes metrics; its result can be printed, drawn, or written as HTML.

The metrics themselves, paired tests and TREC files are in `ltr.metrics`.
"""

from ltr.reports.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
