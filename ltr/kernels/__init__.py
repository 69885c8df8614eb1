"""Kernel sums over sorted scores: the engine below operators, losses and metrics.

Soft ranks, soft sorts and pairwise losses are defined by n x n matrices. Most of them do not have
to build such a matrix. Sort the scores, t_1 >= t_2 >= ... >= t_n. Then each of them is one of two
kinds of sums.

1. **Sums of exponentials**: y_i = sum_j k((t_i - t_j) / temperature) v_j. The kernel k is a short
   sum of exponentials on each side of 0 (`kernel.py`). The items above i are summed in one sweep
   from the top, L_i = exp(-lambda (t_(i-1) - t_i) / temperature) (L_(i-1) + v_(i-1)) for each
   exponential, and the items below i in one sweep from the bottom. This takes O(n) time after the
   sort. exp(-|x|) is exact. The logistic, normal and Gaussian kernels are fitted (`table.json`,
   `named.py`). `SigmoidRank`, `GaussianRank`, `LaplaceRank` and `SoftSort` are such sums.
2. **Pairs**: RankNet and LambdaRank sum log(1 + exp(-x)) over the pairs of different grade, with
   weights by rank. This is a sum of the first kind with one state for each grade. A sweep from the
   top and one from the bottom give the loss and its gradient.

| sum | function, with its shapes | defined plainly | compiled by numba |
| :-- | :-- | :-- | :-- |
| exponentials | `sums.kernel_sums` | `reference/sums.py` | `cpu/sums.py`, `cpu/lanes.py` |
| SoftSort's ranks | `softsort_ranks.compiled_ranks` | its `_gradient` | `cpu/softsort.py` |
| pairs | `pairs.graded_pair_sums` | `all_pairs` of the losses | `cpu/pairs.py` |

PyTorch code defines every function. It runs on every device, and tests compare the compiled code
with it. `choice.py` is the only file that chooses: short lists use a matrix, longer ones a sum, and
the sums on the CPU use numba's code.

**Derivatives.** Autograd does not trace these functions. The gradient of a kernel sum is another
kernel sum: by v_j it is the sum with k(-x), and by t_i it is a sum with k', both on the same
exponentials. So a function states its gradients as calls of itself. Such a statement is a `Rule`
(`autodiff.py`), and derivatives of every order follow from it, in reverse mode. The pairs return
loss and gradients at once. Their second derivatives come from the plain definition.

**Reading order.** `autodiff.py` (a rule), `kernel.py` (a kernel), `lists.py` and `sorting.py`
(lists in order), `sums.py` to the end of `kernel_sums`, and `reference/sums.py`. That is the
engine. Then `pairs.py` for losses. Read `cpu/` last: `jit.py` and `cache.py` compile and cache the
code. `table.py` holds the fitted constants. `two_sets.py` sums at points other than the items.

Users may need only `use`: it selects matrices or kernel sums.
"""

from ltr.kernels.choice import use

__all__ = ["use"]
