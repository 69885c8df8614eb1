"""Metrics as functions of padded batches: `metric(scores, labels, mask=None, ...)`.

`flat` applies them to flat values with a list id each.
"""

from ltr.metrics.alpha_ndcg import alpha_ndcg
from ltr.metrics.arp import arp
from ltr.metrics.average_precision import average_precision
from ltr.metrics.bpref import bpref
from ltr.metrics.elementwise_accuracy import elementwise_accuracy
from ltr.metrics.err import err
from ltr.metrics.exact_match import exact_match
from ltr.metrics.f1 import f1
from ltr.metrics.flat import flat, group_lists
from ltr.metrics.hit_rate import hit_rate
from ltr.metrics.kendall import kendall_tau
from ltr.metrics.mrr import mrr
from ltr.metrics.ndcg import dcg, ndcg
from ltr.metrics.opa import opa
from ltr.metrics.precision import precision
from ltr.metrics.r_precision import r_precision
from ltr.metrics.rbo import rbo
from ltr.metrics.rbp import rbp
from ltr.metrics.recall import recall
from ltr.metrics.spearman import spearman
from ltr.metrics.top_k_accuracy import top_k_accuracy

__all__ = [
    "alpha_ndcg",
    "arp",
    "average_precision",
    "bpref",
    "dcg",
    "elementwise_accuracy",
    "err",
    "exact_match",
    "f1",
    "flat",
    "group_lists",
    "hit_rate",
    "kendall_tau",
    "mrr",
    "ndcg",
    "opa",
    "precision",
    "r_precision",
    "rbo",
    "rbp",
    "recall",
    "spearman",
    "top_k_accuracy",
]
