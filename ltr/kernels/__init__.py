"""Kernel sums over sorted scores: the engine below operators, losses and metrics.

Soft ranks, soft sorts and pairwise losses are defined by n x n matrices. None of them needs one.
Sort the scores, t_1 >= t_2 >= ... >= t_n. Then each of them is one of three kinds of sums.

1. **Sums of exponentials**: y_i = sum_j k((t_i - t_j) / temperature) v_j. The kernel k is a short
   sum of exponentials on each side of 0 (`kernel.py`). The items above i add up in one sweep from
   the top, L_i = exp(-lambda (t_(i-1) - t_i) / temperature) (L_(i-1) + v_(i-1)) for each
   exponential, and the items below i in one sweep from the bottom. That is O(n) after the sort.
   exp(-|x|) is exact. The logistic, normal and Gaussian kernels are fitted (`table.json`,
   `named.py`). `SigmoidRank`, `GaussianRank`, `LaplaceRank`, `SoftSort` and `SoftRank` are such
   sums.
2. **Pairs**: RankNet and LambdaRank sum log(1 + exp(-x)) over the pairs of different grade, with
   weights by rank. This is a sum of the first kind with one state for each grade. A sweep from the
   top and one from the bottom give the loss and its slopes.
3. **Rows in windows**: a row of NeuralSort's matrix is a softmax that falls to both sides of its
   item. So a row ends where its entries are below rounding, and the matrix is a band. That is
   O(n w) for rows w entries wide.

| sum | function, with its shapes | defined plainly | compiled by numba |
| :-- | :-- | :-- | :-- |
| exponentials | `sums.kernel_sums` | `reference/sums.py` | `cpu/sums.py`, `cpu/lanes.py` |
| SoftSort's ranks | `softsort_ranks.compiled_ranks` | its `_gradient` | `cpu/softsort.py` |
| pairs | `pairs.graded_pair_sums` | `all_pairs` of the losses | `cpu/pairs.py` |
| rows | `rows.row_products` and two more | `reference/rows.py` | `cpu/rows.py` |

What is defined plainly is PyTorch. It runs on every device, and tests compare the compiled code
with it. `choice.py` is the one place that chooses: short lists take a matrix, longer ones a sum,
and the sums of the CPU are numba's code.

**Derivatives.** Autograd does not look into these functions. The gradient of a kernel sum is a
kernel sum again: by v_j it is the sum with k(-x), and by t_i it is a sum with k', both on the same
exponentials. Rows are closed too: their weights (j - i)^u become (j - i)^(u + 1). So a function
states its gradients and its tangents as calls of itself. Such a statement is a `Rule`
(`autodiff.py`), and derivatives of every order follow from it. The pairs give loss and slopes at
once; their second derivatives are those of the plain definition.

**The order to read in.** `autodiff.py` (a rule), `kernel.py` (a kernel), `lists.py` and
`sorting.py` (lists in order), `sums.py` to the end of `kernel_sums`, and `reference/sums.py`. That
is the engine. Then `rows.py` and `rows_function.py` for NeuralSort, and `pairs.py` for losses. Read
`cpu/` last: `jit.py` and `cache.py` say how it is compiled. `table.py`, `powers.py` and
`profiles.py` hold the fitted constants. `two_sets.py` sums at points other than the items, and
`tied_rows.py` has rows of equal scores.

`use` is all that a user may need from here: it pins matrices or kernel sums.
"""

from ltr.kernels.choice import use

__all__ = ["use"]
