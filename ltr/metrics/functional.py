"""Metrics as functions: `metric(scores, labels, top_k=10, mask=mask, reduction="mean")`.

Each function applies the arithmetic of the corresponding class to the given lists. All
arguments except scores and labels are given by name. Each function describes the arguments that
only some metrics have. The arguments below are common to all functions, except that some functions
lack `empty`, `ties` or `relevant_from`:

- `scores`: (..., n), floating point, not NaN. The item with the highest score has rank 1.
- `labels`: (..., n), finite and >= 0. An item with a label above 0 is relevant; a graded metric
  uses the grade.
- `mask`: (..., n) bool, True for a real item. Default: all are real.
- `weights`: (..., n), >= 0, item weights, only for a metric that describes their effect. Default:
  1 for each item.
- `lengths`: (R,) whole numbers, the length of each list, instead of a mask. The lists are then
  ragged and follow each other: scores and all other columns are (N,).
  Flat scores (N,) without `lengths` or `qid` are one list.
- `qid`: (N,) integers, the id of each item's list, instead of a mask or lengths. Ids may have any
  integer dtype, may be negative, and may be in any order. Scores and all other columns are (N,).
  Items of one list keep their order, which matters for ties. `RankingMetric.update` has the same
  argument under torchmetrics' name, `indexes`.
- `empty`: the value of a list without a relevant item, or with weights 0 for all of them: a number,
  "skip" (the list is left out) or "error". Default: 0.
- `ties`: how tied items count: "stable" (in list order), "worst" (in the order with the worst
  value, at the cost of two more sorts) or "expected" (the mean over all orders of tied items, in
  closed form). Default: "stable".
- `relevant_from`: the least label of a relevant item, > 0; lower labels count as 0. This is `-l` of
  trec_eval and `rel` of ir_measures. Default: any label above 0.
- `reduction`: "mean" over the lists that count, "sum", or "none": one value per list, NaN for a
  list that is left out.

The result is a scalar. With `reduction="none"` its shape is (...), or (R,) with `lengths`; with
`qid`, it has one value per list, in ascending order of id. A list without a real item is left out.
Lists given with `lengths` or `qid` are not padded to the longest list. `qid` costs one sort of the
ids, or one pass if the ids are ascending.

All functions compile with `torch.compile(fullgraph=True)`, with one graph for all masks, lengths
and ids of the same shapes. In compiled code:

- with `qid`, reduction="none" gives (N,), with NaN after the value of the last list;
- errors that depend on values cannot be raised: a list with a wrong score, label, weight or gain
  has the value NaN; with empty="error", a list on which the metric is not defined has the value NaN
  too; in both cases, the mean and the sum are also NaN;
- ragged lists are padded, in O(N log(N)) memory (`ltr.ragged.chunks`);
- `alpha_ndcg` loops over the positions; the graph holds each step, so compiling takes longer for
  longer lists.

>>> import torch
>>> scores, labels = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 1, 0])
>>> mrr(scores, labels, qid=torch.tensor([7, -3, 7]), reduction="none")
tensor([1.0000, 0.5000])
"""

from ltr.metrics.alpha_ndcg import alpha_ndcg
from ltr.metrics.arp import arp
from ltr.metrics.average_precision import average_precision, gmap
from ltr.metrics.bpref import bpref
from ltr.metrics.elementwise_accuracy import elementwise_accuracy
from ltr.metrics.err import err
from ltr.metrics.exact_match import exact_match
from ltr.metrics.hits import (
    f1,
    f_beta,
    hit_rate,
    precision,
    r_precision,
    recall,
    top_k_accuracy,
)
from ltr.metrics.interpolated import interpolated_precision
from ltr.metrics.judged import judged
from ltr.metrics.kendall import kendall_tau
from ltr.metrics.mrr import mrr
from ltr.metrics.ndcg import dcg, ndcg
from ltr.metrics.opa import opa
from ltr.metrics.rbo import rbo
from ltr.metrics.rbp import rbp, rbp_residual
from ltr.metrics.sets import set_f_beta, set_precision, set_recall
from ltr.metrics.spearman import spearman

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
    "f_beta",
    "gmap",
    "hit_rate",
    "interpolated_precision",
    "judged",
    "kendall_tau",
    "mrr",
    "ndcg",
    "opa",
    "precision",
    "r_precision",
    "rbo",
    "rbp",
    "rbp_residual",
    "recall",
    "set_f_beta",
    "set_precision",
    "set_recall",
    "spearman",
    "top_k_accuracy",
]
