"""Metrics as functions of padded batches: `metric(scores, labels, mask=None, ...)`."""

from ltr.metrics.functional._lists import group_lists
from ltr.metrics.functional.average_precision import average_precision
from ltr.metrics.functional.kendall import kendall_tau
from ltr.metrics.functional.mrr import mrr
from ltr.metrics.functional.ndcg import ndcg
from ltr.metrics.functional.perfect_order import perfect_order

__all__ = ["average_precision", "group_lists", "kendall_tau", "mrr", "ndcg", "perfect_order"]
