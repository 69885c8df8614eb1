"""Losses as objectives of LightGBM and XGBoost, and metrics as their evaluation functions.

`objective` and `metric` return callables for `lightgbm.LGBMRanker`, `lightgbm.train` and
`xgboost.train`. This module imports neither library.
"""

import copy
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ltr.datasets.batches import pad_documents, real_places
from ltr.losses.base import Loss
from ltr.losses.pair_sums import logistic_temperature, pair_curvature
from ltr.losses.pairwise import PairwiseLoss
from ltr.losses.several import SeveralLabels
from ltr.losses.softmax import XENDCG, ListNet, SoftmaxLoss
from ltr.ragged import list_ids, sum_lists
from ltr.shapes import check_at_least, check_number
from ltr.training.seeds import GENERATORS

if TYPE_CHECKING:
    from ltr.metrics import RankingMetric

__all__ = ["metric", "objective"]

Arrays = tuple[np.ndarray, np.ndarray]

FLOOR = 1e-3
"""The smallest Hessian of a row, relative to the mean over all rows."""

TILE_ROWS = 1 << 16
"""At most this many rows are passed to a loss at a time, unless a single list is longer."""


def objective(
    loss: Loss,
    max_step: float = 1.0,
    probes: int = 2,
    seed: int = 0,
    *,
    labels: Any = None,
) -> "Objective":
    """Turn a loss into an objective on which LightGBM and XGBoost can train.

    Train with `LGBMRanker(objective=objective(loss))`, with
    `lightgbm.train({"objective": objective(loss)}, data)` or with
    `xgboost.train(params, data, obj=objective(loss))`. The `Booster` that the last two return can
    be exported (`ltr.export.export_model`) and blended (`ltr.estimators.Blend`). XGBoost's
    `XGBRanker` refuses any objective that is not its own. The result can be pickled and copied, so
    an `LGBMRanker` with this objective can be cloned and used in scikit-learn's grid searches.

    The objective is the sum over all lists l of w_l times the loss of list l, where w_l is the mean
    weight of the rows of list l. The loss's own `reduction` is not used. The item weights of the
    loss are the weights of the rows divided by w_l. So a list whose rows all have weight 3 counts
    three times, as in LightGBM and XGBoost.

    Each call computes, in float64, the gradient g_i of each row i, and a value h_i > 0 in place of
    H_ii, the element of row i on the diagonal of the Hessian H:

    - For `SoftmaxLoss`, `ListNet` and `XENDCG`, h_i is exactly H_ii = q_i (1 - q_i), where q is the
      softmax of the scores. With `normalize=False`, this is multiplied by the weighted sum of the
      relevance.
    - For every pairwise loss with a logistic cost (`RankNet`, `LambdaRank`, `LambdaLoss`), h_i is
      exactly H_ii too, with the pair weights treated as constants.
    - For any other loss, h_i is an estimate of an upper bound on |H_ii|: the square root of the sum
      of H_ij^2 over j. (H_ii itself may be negative if the loss is not convex.) The sum equals the
      expected value of (H z)_i^2 for a vector z of random signs, and is estimated by the mean over
      `probes` such vectors. If `probes` is a power of 2, the mean is exact for lists of at most
      `probes` items.
    - For every loss, h_i is at least |g_i| / max_step. So before it is multiplied by the learning
      rate, the value of a leaf is between -max_step and max_step. With the exact Hessian alone, the
      score of the only relevant item in a list of n items with equal scores would change by n.
    - For every loss, h_i is at least 1/1000 of the mean of h over all rows. In a list without a
      loss, such as one with equal labels in a pairwise loss, h_i has this minimum.

    Then g and h are divided by the mean of h. The division itself changes neither splits nor leaf
    values, but the mean of h is now 1, as in squared error. So parameters such as LightGBM's
    `min_sum_hessian_in_leaf` and XGBoost's `min_child_weight` and `lambda` count rows. The same
    scores give the same result: the random numbers of the probes and of the loss depend only on the
    seed and the scores.

    Before the first tree, all scores are equal. If the loss has no gradient at equal scores, as
    with the operator `SoftSort`, training raises an error. Then use `SoftNDCG(SigmoidRank(1.0))`,
    or give `init_score`.

    Training with CatBoost raises an error too: CatBoost calls an objective with only some of the
    rows, and without their lists.

    With `SeveralLabels`, the labels of all training rows are given here, since the two libraries
    carry only one. The gradients and Hessians of the labels are combined as the losses are. Each
    loss is divided by its value at equal scores, which is where training starts, unless `scale` is
    None. With `how="floor"`, change the multipliers by `objective.loss.update(...)` in a callback.

    Args:
        loss: any loss that needs only scores, labels and weights, or `SeveralLabels` of such losses
            (scale="start" or None).
        max_step: the bound on a leaf's absolute value, > 0, in units of the scores. A larger
            bound allows larger steps if the loss is nearly flat. 1e9 is no bound in practice.
            Default: 1, chosen on the validation lists of OHSUMED.
        probes: the number of vectors of random signs, >= 1. Each costs one more backward pass.
        seed: the seed of these vectors and of the random numbers of the loss.
        labels: (rows, labels) for `SeveralLabels`, in the order of the training rows and of
            `loss.names`, NaN where a label is not known. Default: None, for any other loss.

    Cost: that of the loss, forward and backward. The exact Hessian of a pairwise loss takes O(n^2)
    time for a list of n items. Lists of similar lengths are processed together, about 65,000 rows
    at a time. So a long list does not increase the memory that shorter lists need.

    Raises:
        ValueError: an argument is invalid. In training: a score, a label or a weight is not finite,
            a weight is negative, the lists are missing or do not fit the rows, a gradient is not
            finite, or the loss has no gradient (at equal scores, or at all).

    Reference: Dauphin, de Vries and Bengio, "Equilibrated adaptive learning rates for non-convex
    optimization", NeurIPS 2015, for the bound on |H_ii|. They found it better than |H_ii|.

    >>> from ltr.losses import SoftmaxLoss
    >>> gradient, hessian = objective(SoftmaxLoss())([1, 0, 0, 1], [0, 0, 0, 0], None, [2, 2])
    >>> gradient, hessian
    (array([-1.,  1.,  1., -1.]), array([1., 1., 1., 1.]))
    """
    return Objective(loss, max_step, probes, seed, labels=labels)


def metric(metric: "RankingMetric", name: str | None = None) -> "Metric":
    """Turn a metric of `ltr.metrics` into an evaluation function of LightGBM and XGBoost.

    `LGBMRanker(metric="None").fit(..., eval_metric=metric(NDCG(top_k=10)))` evaluates all data sets
    of `eval_set` by this metric, and early stopping uses it. Without `metric="None"`, LightGBM also
    evaluates its own NDCG. Otherwise use `lightgbm.train(..., feval=metric(NDCG(top_k=10)))` or
    `xgboost.train(..., custom_metric=metric(NDCG(top_k=10)))`. XGBoost's early stopping recognizes
    NDCG, MAP and Precision, by their names, as metrics for which higher is better. For other such
    metrics, pass `maximize=True` to `xgboost.train`.

    The result is the mean over the lists for which the metric is defined, for `GMAP` the geometric
    mean. Each list is weighted by the mean weight of its rows. The result is NaN if no list counts,
    as with weights of 0. If weights differ within a list, the metric must support item weights. A
    list without a relevant row counts as 0 in NDCG; in LightGBM's own NDCG, it counts as 1.

    Args:
        metric: a metric of `ltr.metrics`. Its options that concern several updates, such as
            `deduplicate`, have no effect.
        name: the name of the metric in the output of LightGBM or XGBoost. Default: the name of its
            class in lower case, with the cutoff, such as `ndcg@10`.

    Raises:
        ValueError: an argument is invalid. In training: the data are invalid (see `objective`), or
            weights differ within a list and the metric does not support item weights.

    >>> from ltr.metrics import NDCG
    >>> metric(NDCG(top_k=10))([1, 0, 0, 1], [2.0, 1.0, 2.0, 1.0], None, [2, 2])
    ('ndcg@10', 0.8154648767857288, True)
    """
    return Metric(metric, name)


class Objective:
    """The objective of a loss, made by `objective`."""

    def __init__(
        self,
        loss: Loss,
        max_step: float = 1.0,
        probes: int = 2,
        seed: int = 0,
        *,
        labels: Any = None,
    ) -> None:
        if not isinstance(loss, Loss):
            raise ValueError(f"loss must be a RankingLoss or SeveralLabels, got {loss!r}")
        if loss.side_inputs:
            raise ValueError(
                f"loss must need only labels and weights, got {type(loss).__name__}, which "
                f"needs {', '.join(loss.side_inputs)}"
            )
        self.loss = copy.deepcopy(loss)
        self.labels = several_labels(loss, labels)
        for part in self.loss.parts if isinstance(self.loss, SeveralLabels) else [self.loss]:
            part.reduction = "none"
        self.max_step = check_number("max_step", max_step, minimum=0.0, strict=True)
        self.probes = check_at_least("probes", probes, 1)
        self.seed = check_at_least("seed", seed, 0)

    def __repr__(self) -> str:
        return f"objective({one_line(self.loss)})"

    # LGBMRanker counts the parameters of this method, and passes `group` only if there are four.
    def __call__(self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None) -> Arrays:
        """Return the gradient and the Hessian, float64 (rows,).

        `LGBMRanker` passes labels, scores, weights and group. `lightgbm.train` and `xgboost.train`
        pass the scores first and then their data set, which has the labels, weights and lists.

        Args:
            y_true: (rows,), the labels; or the scores if `y_pred` is a data set.
            y_pred: (rows,), the scores; or a `lightgbm.Dataset` or an `xgboost.DMatrix`.
            weight: (rows,), the weights, or None.
            group: (lists,), the length of each list, in the order of the rows.
        """
        y_true, y_pred, weight, group = labeled_scores(y_true, y_pred, weight, group)
        scores = flat("y_pred", y_pred)
        labels, weights, lengths = checked_lists(scores, y_true, weight, group)
        if not len(scores):
            return scores.numpy(), scores.numpy()
        if self.labels is not None:
            if len(self.labels) != len(scores):
                raise ValueError(
                    f"labels must have the {len(scores)} rows of the training data, got "
                    f"{len(self.labels)}"
                )
            labels = self.labels
        with GENERATORS, torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(zlib.crc32(scores.numpy().tobytes(), self.seed))
            if isinstance(self.loss, SeveralLabels):
                gradient, hessian = self._several(self.loss, scores, labels, weights, lengths)
            else:
                _, gradient, hessian = self._all(self.loss, scores, labels, weights, lengths)
        if not bool(gradient.isfinite().all()):
            raise ValueError(f"loss must have finite gradients, got NaN or inf from {self!r}")
        if scores.min() == scores.max():
            for own in labels.nan_to_num().unbind(-1) if labels.dim() > 1 else [labels]:
                self._check_start(gradient, own, lengths)
        mean = hessian.mean()
        if not mean > 0:
            return gradient.numpy(), np.ones(len(scores))
        return (gradient / mean).numpy(), (hessian / mean).clamp(min=FLOOR).numpy()

    def xgboost(self, predt: Any, dtrain: Any) -> Arrays:
        """Return `self(predt, dtrain)`; `xgboost.train` takes the objective itself too.

        Args:
            predt: (rows,), the scores.
            dtrain: a `DMatrix` with `qid` or `group`.
        """
        return self(predt, dtrain)

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> Any:
        """Raise `ValueError`: CatBoost calls this method, and passes no lists."""
        raise ValueError(
            "objective must be used with LightGBM or XGBoost, got a call from CatBoost: it "
            "passes rows without their lists"
        )

    def _check_start(self, gradient: Tensor, labels: Tensor, lengths: Tensor) -> None:
        ends = labels.new_zeros(2, len(lengths))
        both, ids = torch.stack((labels, -labels)), list_ids(labels, lengths)
        high, low = ends.scatter_reduce(1, ids.expand(2, -1), both, "amax", include_self=False)
        differ = bool(((high + low) > 0).any())
        if differ and gradient.abs().max() <= 1e-12 * (high.abs().max() + 1):
            raise ValueError(
                "loss must have a gradient if all scores are equal, as before the first "
                f"tree, got {one_line(self.loss)}: use an operator such as "
                "SigmoidRank(1.0), or give init_score"
            )

    def _several(
        self,
        losses: SeveralLabels,
        scores: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        lengths: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return g and h of `objective` for all rows and labels (N, labels), (N,) each."""
        ids = list_ids(scores, lengths)
        parts, starts = [], []
        for k, loss in enumerate(losses.parts):
            known = ~labels[:, k].isnan()
            own = torch.bincount(ids[known], minlength=len(lengths))
            own = own[own > 0]
            weight = None if weights is None else weights[known]
            rows = scores[known], labels[known, k], weight, own
            total, *derivatives = self._all(loss, *rows)
            placed = [torch.zeros_like(scores).masked_scatter(known, x) for x in derivatives]
            parts.append((total, *placed))
            starts.append(1.0)
            if losses.scale is not None:
                starts[-1] = self._value(loss, torch.zeros_like(rows[0]), *rows[1:]) or 1.0
        factors = losses.weights / torch.tensor(starts, dtype=torch.float64)
        if losses.how == "chebyshev":
            largest = (factors * torch.tensor([total for total, *_ in parts])).argmax()
            factors = torch.where(torch.arange(len(parts)) == largest, factors, 0.0)
        gradient = sum(factor * g for factor, (_, g, _) in zip(factors, parts, strict=True))
        hessian = sum(factor * h for factor, (_, _, h) in zip(factors, parts, strict=True))
        return torch.as_tensor(gradient), torch.as_tensor(hessian)

    def _value(
        self,
        loss: nn.Module,
        scores: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        lengths: Tensor,
    ) -> float:
        """Return the mean of a loss over ragged lists, weighted as the objective is."""
        factors, weights = list_factors(weights, lengths)
        with torch.no_grad():
            each = loss(scores, labels, lengths=lengths, weights=weights)
        return float((factors * each).sum() / max(1, len(lengths)))

    def _all(
        self,
        loss: nn.Module,
        scores: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        lengths: Tensor,
    ) -> tuple[float, Tensor, Tensor]:
        """Return the mean of a loss over ragged lists, and its g and h, (N,) each."""
        factors, weights = list_factors(weights, lengths)
        gradient, hessian = torch.zeros_like(scores), torch.zeros_like(scores)
        total = 0.0
        for lists, rows in tiles(lengths):
            own = None if weights is None else weights[rows]
            found = self._derivatives(loss, scores[rows], labels[rows], lengths[lists], own)
            each = factors[lists].repeat_interleave(lengths[lists])
            gradient[rows], hessian[rows] = each * found.gradient, each * found.hessian
            total += float((factors[lists] * found.values).sum())
        return total / max(1, len(lengths)), gradient, hessian

    def _derivatives(
        self,
        loss: nn.Module,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
    ) -> "Derivatives":
        """Return a loss of ragged lists with its derivatives, before `FLOOR` limits h."""
        scores = scores.requires_grad_()
        values = loss(scores, labels, lengths=lengths, weights=weights)
        if not values.requires_grad:
            raise ValueError(
                f"loss must have a gradient, got {one_line(loss)}: use an operator such as "
                "SigmoidRank(1.0)"
            )
        known = exact_hessian(loss, scores.detach(), labels, lengths, weights)
        (gradient,) = torch.autograd.grad(values.sum(), scores, create_graph=known is None)
        if known is not None:
            hessian = torch.maximum(known, gradient.abs() / self.max_step)
            return Derivatives(values.detach(), gradient, hessian)
        squares = torch.zeros_like(scores)
        if gradient.requires_grad:  # otherwise the loss is linear and its Hessian is 0
            for signs in probe_signs(lengths, self.probes):
                (product,) = torch.autograd.grad(gradient, scores, signs, retain_graph=True)
                squares += product.square()
        gradient = gradient.detach()
        hessian = (squares / self.probes).sqrt().nan_to_num(0.0, 0.0, 0.0)
        hessian = torch.maximum(hessian, gradient.abs() / self.max_step)
        return Derivatives(values.detach(), gradient, hessian)


class Derivatives(NamedTuple):
    """A loss of ragged lists: its values (R,), and for each row g and h of `objective`, (N,)."""

    values: Tensor
    gradient: Tensor
    hessian: Tensor


class Metric:
    """The evaluation function of a metric, made by `metric`."""

    def __init__(self, metric: "RankingMetric", name: str | None = None) -> None:
        from ltr.metrics.base import RankingMetric

        if not isinstance(metric, RankingMetric):
            raise ValueError(f"metric must be a metric of ltr.metrics, got {metric!r}")
        self.metric = copy.deepcopy(metric)
        cutoff = getattr(metric, "top_k", None)
        plain = type(metric).__name__.lower() + ("" if cutoff is None else f"@{cutoff}")
        self.name = plain if name is None else name
        if not isinstance(self.name, str):
            raise ValueError(f"name must be text or None, got {name!r}")

    def __repr__(self) -> str:
        return f"metric({self.metric!r})"

    def __call__(
        self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None
    ) -> tuple[Any, ...]:
        """Return the name, the value and whether higher is better; for XGBoost the first two.

        The arguments are those of `Objective.__call__`.
        """
        from ltr.metrics.batches import Batch

        of_xgboost = is_xgboosts(y_pred)
        y_true, y_pred, weight, group = labeled_scores(y_true, y_pred, weight, group)
        scores = flat("y_pred", y_pred)
        labels, weights, lengths = checked_lists(scores, y_true, weight, group)
        factors, weights = list_factors(weights, lengths)
        if weights is not None and not self.metric.takes_weights:
            raise ValueError(
                f"weight must be equal within each list, since {self.name} has no item weights, "
                f"got weights that differ"
            )
        batch = Batch(scores, labels, lengths=lengths, weights=weights)
        values = batch.values([self.metric])[0].values.double()
        factors = torch.where(values.isnan(), 0.0, factors)
        values = (values.log() if self.metric.is_geometric else values).nan_to_num()
        value = (values * factors).sum() / factors.sum()
        value = value.exp() if self.metric.is_geometric else value
        if of_xgboost:
            return self.name, value.item()
        return self.name, value.item(), bool(self.metric.higher_is_better)

    def xgboost(self, predt: Any, dtrain: Any) -> tuple[Any, ...]:
        """Return the name and the value; `xgboost.train` takes the metric itself too."""
        return self(predt, dtrain)


def one_line(loss: nn.Module) -> str:
    """Return the name of the loss and the names of its parts, such as operators.

    >>> from ltr.losses import SoftNDCG
    >>> one_line(SoftNDCG())
    'SoftNDCG with SoftplusRank'
    """
    first, *others = (type(module).__name__ for module in loss.modules())
    return f"{first} with {', '.join(others)}" if others else first


def several_labels(loss: nn.Module, labels: Any) -> Tensor | None:
    """Return the labels (rows, labels) of `SeveralLabels`, float64; None for any other loss.

    >>> from ltr.losses import SoftmaxLoss
    >>> several_labels(SoftmaxLoss(), [[1, 0]])
    Traceback (most recent call last):
    ValueError: labels must be None with SoftmaxLoss, which takes those of the training data
    """
    if not isinstance(loss, SeveralLabels):
        if labels is not None:
            name = type(loss).__name__
            raise ValueError(
                f"labels must be None with {name}, which takes those of the training data"
            )
        return None
    if loss.scale == "running":
        raise ValueError("scale must be 'start' or None in an objective, got 'running'")
    array = np.array(np.nan if labels is None else labels, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != len(loss.names):
        raise ValueError(
            f"labels must be (rows, {len(loss.names)}), a column for each of "
            f"{', '.join(loss.names)}, got {None if labels is None else array.shape}"
        )
    if np.isinf(array).any():
        raise ValueError("labels must be finite, or NaN where not known, got inf")
    return torch.from_numpy(array)


def flat(name: str, values: Any) -> Tensor:
    """Return a float64 copy of values (N,), or raise an error if a value is not finite.

    >>> flat("y_pred", [1, float("nan")])
    Traceback (most recent call last):
    ValueError: y_pred must be finite, got nan in row 1
    """
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be flat (rows,), got shape {array.shape}")
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        raise ValueError(f"{name} must be finite, got {array[wrong[0]]} in row {wrong[0]}")
    return torch.from_numpy(array)


def checked_lists(
    scores: Tensor, y_true: Any, weight: Any, group: Any
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the labels (N,), the weights (N,) or None, and the lengths of lists that have rows."""
    labels = flat("y_true", y_true)
    weights = None if weight is None else flat("weight", weight)
    for name, values in (("y_true", labels), ("weight", weights)):
        if values is not None and len(values) != len(scores):
            raise ValueError(f"{name} must have {len(scores)} rows, got {len(values)}")
    if weights is not None and bool((weights < 0).any()):
        raise ValueError(f"weight must be >= 0, got {weights.min().item():g}")
    if group is None:
        raise ValueError("group must be the lengths of the lists, got None")
    lengths = torch.from_numpy(np.array(group, dtype=np.int64).reshape(-1))
    if bool((lengths < 0).any()) or lengths.sum() != len(scores):
        raise ValueError(
            f"group must be list lengths that sum to {len(scores)} rows, got {len(lengths)} "
            f"that sum to {int(lengths.sum())}"
        )
    return labels, weights, lengths[lengths > 0]


def list_factors(weights: Tensor | None, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the mean weight of each list, (lists,), and the weights divided by these means (N,).

    The second result is None if it would be 1 everywhere. It is 1 in a list with only weights of 0.

    >>> list_factors(torch.tensor([1.0, 3.0, 0.0]), torch.tensor([2, 1]))
    (tensor([2., 0.]), tensor([0.5000, 1.5000, 1.0000]))
    >>> list_factors(torch.tensor([3.0, 3.0, 1.0]), torch.tensor([2, 1]))
    (tensor([3., 1.]), None)
    """
    if weights is None:
        return torch.ones(len(lengths), dtype=torch.float64), None
    ids = list_ids(weights, lengths)
    means = sum_lists(weights, lengths) / lengths
    first = weights[lengths.cumsum(0) - lengths]
    if bool((weights == first[ids]).all()):
        return first, None
    return means, torch.where(means[ids] > 0, weights / means.clamp(min=1e-300)[ids], 1.0)


def is_xgboosts(data: Any) -> bool:
    """Return whether an object is a data set of XGBoost."""
    return hasattr(data, "get_uint_info")


def labeled_scores(y_true: Any, y_pred: Any, weight: Any, group: Any) -> tuple[Any, Any, Any, Any]:
    """Return labels, scores, weights and group, whichever library passes the arguments.

    See `Objective.__call__` for the arguments.

    Raises:
        ValueError: the data set has no lists.
    """
    data = y_pred
    if not hasattr(data, "get_label"):
        return y_true, y_pred, weight, group
    if is_xgboosts(data):
        return data.get_label(), y_true, *xgboost_lists(data)
    return data.get_label(), y_true, data.get_weight(), data.get_group()


def xgboost_lists(data: Any) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the weights (rows,) of a `DMatrix`, or None, and the lengths of its lists."""
    bounds = np.asarray(data.get_uint_info("group_ptr"), dtype=np.int64)
    if len(bounds) < 2:
        raise ValueError("dtrain must have lists, got none: give qid or group to the DMatrix")
    lengths, weight = np.diff(bounds), np.asarray(data.get_weight())
    if not len(weight):
        return None, lengths
    # For a `DMatrix` with lists, XGBoost accepts one weight per list.
    return (np.repeat(weight, lengths) if len(weight) == len(lengths) else weight), lengths


def tiles(lengths: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tiles of lists of similar lengths, each as the indices of its lists and of their rows.

    In a tile, no list is more than 1.5 times as long as another. A tile has at most `TILE_ROWS`
    rows, or a single list.

    >>> [(lists.tolist(), rows.tolist()) for lists, rows in tiles(torch.tensor([5, 1, 1]))]
    [([1, 2], [5, 6]), ([0], [0, 1, 2, 3, 4])]
    """
    starts = lengths.cumsum(0) - lengths
    by_length, order = lengths.sort(stable=True)
    ends = by_length.cumsum(0)
    first = 0
    while first < len(order):
        before = int(ends[first] - by_length[first])
        similar = int(torch.searchsorted(by_length, int(1.5 * by_length[first]), right=True))
        full = int(torch.searchsorted(ends, before + TILE_ROWS, right=True))
        last = max(first + 1, min(similar, full))
        lists = order[first:last]
        sizes = by_length[first:last]
        offsets = (starts[lists] - (sizes.cumsum(0) - sizes)).repeat_interleave(sizes)
        yield lists, offsets + torch.arange(len(offsets))
        first = last


def probe_signs(lengths: Tensor, probes: int) -> Iterator[Tensor]:
    """Yield `probes` vectors (N,) of random signs, for lists of the given lengths.

    Each probe is the first probe times a Walsh function of an item's index in its list. So in a
    list of at most 2^k items, the signs of any two items are uncorrelated over 2^k probes. Then,
    for any matrix H of the list, the mean of (H z)_i^2 over the probes z equals the sum of H_ij^2
    over j.

    >>> torch.stack([*probe_signs(torch.tensor([2, 2]), 2)]).prod(0)
    tensor([ 1., -1.,  1., -1.], dtype=torch.float64)
    """
    signs = 2.0 * torch.randint(0, 2, (int(lengths.sum()),)).double() - 1
    position = torch.arange(len(signs)) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    for probe in range(probes):
        common, parity = position & probe, torch.zeros_like(position)
        for bit in range(probe.bit_length()):
            parity ^= (common >> bit) & 1
        yield torch.where(parity > 0, -signs, signs)


def exact_hessian(
    loss: nn.Module, scores: Tensor, labels: Tensor, lengths: Tensor, weights: Tensor | None
) -> Tensor | None:
    """Return the diagonal of the Hessian (N,) of ragged lists, or None if no formula is known."""
    mask = real_places(lengths)
    scores, labels = pad_documents(scores, mask), pad_documents(labels, mask)
    weights = None if weights is None else pad_documents(weights, mask)
    if isinstance(loss, SoftmaxLoss) and type(loss) in (SoftmaxLoss, ListNet, XENDCG):
        shares = loss.relevance(labels, mask) * (labels > 0).any(-1, keepdim=True) * mask
        total = (shares if weights is None else shares * weights).sum(-1, keepdim=True)
        q = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        factor = (total > 0).double() if loss.normalize else total
        return (factor * q * (1 - q))[mask]
    if not isinstance(loss, PairwiseLoss) or type(loss).per_list is not PairwiseLoss.per_list:
        return None
    temperature = logistic_temperature(loss.cost)
    if temperature is None:
        return None
    found, weight = pair_curvature(temperature, loss.pair_weights, scores, labels, mask, weights)
    if loss.normalize:
        found = found / torch.where(weight > 0, weight, 1.0).unsqueeze(-1)
    return found[mask]
