"""Reports: `evaluate` computes metrics; its result can be printed, drawn, or written as HTML.

`evaluate_labels` does so for several labels.

`agreement` and `grades_needed` ask how far judges agree, `merge_grades` merges their grades. The
metrics themselves, paired tests and TREC files are in `ltr.metrics`.
"""

from ltr.reports.evaluation import Evaluation, evaluate
from ltr.reports.judges import agreement, grades_needed
from ltr.reports.merging import merge_grades
from ltr.reports.several import LabelEvaluations, evaluate_labels

__all__ = [
    "Evaluation",
    "LabelEvaluations",
    "agreement",
    "evaluate",
    "evaluate_labels",
    "grades_needed",
    "merge_grades",
]
