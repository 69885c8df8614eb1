"""Reports: `evaluate` computes metrics; its result can be printed, drawn, or written as HTML.

`agreement` and `grades_needed` ask how far judges agree. The metrics themselves, paired tests and
TREC files are in `ltr.metrics`.
"""

from ltr.reports.evaluation import Evaluation, evaluate
from ltr.reports.judges import agreement, grades_needed

__all__ = ["Evaluation", "agreement", "evaluate", "grades_needed"]
