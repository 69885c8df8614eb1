"""Reports: `evaluate` computes metrics; its result can be printed, drawn, or written as HTML.

`agreement` and `grades_needed` ask how far judges agree, `merge_grades` merges their grades. The
metrics themselves, paired tests and TREC files are in `ltr.metrics`.
"""

from ltr.reports.evaluation import Evaluation, evaluate
from ltr.reports.judges import agreement, grades_needed
from ltr.reports.merging import merge_grades

__all__ = ["Evaluation", "agreement", "evaluate", "grades_needed", "merge_grades"]
