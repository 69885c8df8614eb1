"""Kernel sums over sorted scores: the engine below operators, losses and metrics.

Soft ranks, soft sorts and pairwise losses are defined by n x n matrices. Most of them can be
computed without a matrix, as sums over the sorted scores t_1 >= t_2 >= ... >= t_n. There are two
kinds of sums.

1. **Sums of exponentials**: y_i = sum_j k((t_i - t_j) / temperature) v_j, for values v_j. The
   kernel k is a short sum of exponentials exp(-lambda |x|) on each side of 0 (`kernel.py`). For
   each exponential, one sweep from the top sums the items above i, by L_i =
   exp(-lambda (t_(i-1) - t_i) / temperature) (L_(i-1) + v_(i-1)), and one sweep from the bottom
   sums the items below i. This takes O(n) time after the sort. The kernel exp(-|x|) is exact. The
   logistic, normal and Gaussian kernels are fitted (`table.json`, `named.py`). `SigmoidRank`,
   `GaussianRank`, `LaplaceRank` and `SoftSort` are computed by these sums.
2. **Pairs**: RankNet and LambdaRank are weighted sums of log(1 + exp(-x)) over the pairs of items
   with different grades. Here x is the scaled difference of the two scores, and the weight of a
   pair may depend on the two ranks. These sums are of the first kind, with separate sums L_i for
   each grade. One sweep from the top and one from the bottom give the loss and its gradient.

| sum | function | plain definition | compiled by numba |
| :-- | :-- | :-- | :-- |
| exponentials | `sums.kernel_sums` | `reference/sums.py` | `cpu/sums.py` |
| SoftSort | `softsort_ranks.compiled_ranks` | `_gradient` in the same file | `cpu/softsort.py` |
| pairs | `pairs.graded_pair_sums` | `all_pairs` in `losses/pair_sums.py` | `cpu/pairs.py` |

The plain definitions are PyTorch code. They run on every device, and tests compare the compiled
code with them. `sums.prefers_dense` alone chooses the form: short lists and small batches use
matrices, and all others use sums. Sums on the CPU use numba's code. `choice.py` holds what the
current context chooses instead.

**Derivatives.** Autograd does not trace these functions. The gradients of a kernel sum are other
kernel sums: the gradient by v_j is the sum with k(-x), and the gradient by t_i consists of sums
with k'. Both gradients use the same exponentials as the sum. So a function computes its gradients
by calling itself. A `Rule` (`autodiff.py`) pairs a function with its gradients, and derivatives of
every order follow from the rule, in reverse mode. The sums over pairs return the loss and its
gradient at once. Second derivatives of the loss come from the plain definition.

**Reading order.** Begin with the engine: `autodiff.py` (a rule), `kernel.py` (a kernel), `lists.py`
and `sorting.py` (sorted lists), `kernel_sums` (in `sums.py`), and `reference/sums.py`.
Then read `pairs.py`, for losses. Read `cpu/` last: `jit.py` and `cache.py` compile and cache the
code. `table.py` holds the fitted constants. `two_sets.py` sums at points other than the items.

The only function for users is `use`, which fixes the choice between matrices and kernel sums.
"""

from ltr.kernels.choice import use

__all__ = ["use"]
