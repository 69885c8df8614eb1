"""Metrics as functions of padded batches: `metric(scores, labels, mask=None, ...)`.

`flat` gives the same for flat values with a list id each.
"""

from ltr.metrics.functional._lists import group_lists
from ltr.metrics.functional.alpha_ndcg import alpha_ndcg
from ltr.metrics.functional.arp import arp
from ltr.metrics.functional.average_precision import average_precision
from ltr.metrics.functional.bpref import bpref
from ltr.metrics.functional.elements_in_place import elements_in_place
from ltr.metrics.functional.err import err
from ltr.metrics.functional.flat import flat
from ltr.metrics.functional.kendall import kendall_tau
from ltr.metrics.functional.mrr import mrr
from ltr.metrics.functional.ndcg import dcg, ndcg
from ltr.metrics.functional.opa import opa
from ltr.metrics.functional.perfect_order import perfect_order
from ltr.metrics.functional.precision_recall import hit_rate, precision, r_precision, recall
from ltr.metrics.functional.rbo import rbo
from ltr.metrics.functional.rbp import rbp
from ltr.metrics.functional.spearman import spearman
from ltr.metrics.functional.top_k_accuracy import top_k_accuracy

__all__ = [
    "alpha_ndcg",
    "arp",
    "average_precision",
    "bpref",
    "dcg",
    "elements_in_place",
    "err",
    "flat",
    "group_lists",
    "hit_rate",
    "kendall_tau",
    "mrr",
    "ndcg",
    "opa",
    "perfect_order",
    "precision",
    "r_precision",
    "rbo",
    "rbp",
    "recall",
    "spearman",
    "top_k_accuracy",
]
