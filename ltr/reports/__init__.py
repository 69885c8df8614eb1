"""Reports: `evaluate` measures arrays; its result prints, draws and writes an HTML page.

The metrics themselves, paired tests and TREC files are in `ltr.metrics`.
"""

from ltr.reports.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
