"""Binary preference."""

from typing import Unpack

import torch
from torch import Tensor

from ltr.metrics.core import BinaryCore, ListArguments, measured_by
from ltr.metrics.ranked import Empty, ListValues, Ranked, list_values
from ltr.metrics.ties import Ties, before, run_sums, tied_runs, within
from ltr.shapes import masked_fill


class BPrefCore(BinaryCore):
    """The arithmetic of `bpref`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        if self.ties == "worst":
            lists = lists.tied_by(self._judged_hits(lists))[0]
        hits = self._judged_hits(lists)
        others = masked_fill(1 - self.hits(lists), lists.mask)
        if lists.judged is not None:
            others = others * lists.judged
        relevant = hits.sum(-1)
        most = relevant.minimum(others.sum(-1)).unsqueeze(-1)
        top_k, inside = self.top_k, within(hits, self.top_k)
        starts, ends = tied_runs(lists.scores, lists.mask)
        if self.ties == "expected":
            least, beside = before(others).gather(-1, starts), run_sums(others, starts, ends)
            above = _clipped_sum(least + beside, most) - _clipped_sum(least - 1, most)
            above = (above / (beside + 1)).to(hits.dtype)
            inside = inside if top_k is None else (ends <= top_k).to(hits.dtype)
        else:
            above = (others.cumsum(-1) - others).minimum(most)
        values = (hits * (1 - above / most.clamp(min=1)) * inside).sum(-1)
        if self.ties == "expected" and top_k is not None and top_k < hits.shape[-1]:
            values = values + _cut_run(hits, others, most, (starts, ends), top_k)
        return list_values(values / relevant.clamp(min=1), relevant > 0, lists, self.empty)

    def _judged_hits(self, lists: Ranked) -> Tensor:
        hits = self.hits(lists)
        return hits if lists.judged is None else hits * lists.judged


@measured_by(BPrefCore)
def bpref(
    scores: Tensor,
    labels: Tensor,
    *,
    judged: Tensor | None = None,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    relevant_from: float | None = None,
    **lists: Unpack[ListArguments],
) -> Tensor:
    """Binary preference: high if few items judged irrelevant are above the relevant items.

    It is the mean over the R relevant items of 1 - min(M, R) / min(N, R). Here N is the number of
    judged items that are not relevant, and M is the number of these N items that are above the
    relevant item. If N is 0, the fraction is 0. This is trec_eval's definition.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        judged: (..., n) bool, True = a judged item. An item that is not judged only takes up a
            position. Default: all are judged.
        top_k: k; relevant items below rank k count as 0. Default: the whole list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort;
        also O(k^2) time and memory per list for "expected" with `top_k`.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Buckley and Voorhees, "Retrieval evaluation with incomplete information", SIGIR 2004.

    >>> import torch
    >>> bpref(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0, 0.0]))
    tensor(0.7500)
    """
    ...


def _cut_run(
    hits: Tensor, others: Tensor, most: Tensor, ties: tuple[Tensor, Tensor], k: int
) -> Tensor:
    """Return the mean contribution (...) of the run of ties at rank k, if it extends beyond k.

    It is 0 if the run ends at k. The run has g items. Take a relevant item with t items of the run
    before it. N of the other g - 1 items are judged and not relevant. The probability
    that h of these N are among the t items is hypergeometric:
    C(N, h) C(g - 1 - N, t - h) / C(g - 1, t). Cost: O(k^2) per list.
    """
    cut = slice(k - 1, k)
    start, end = (x[..., cut] for x in ties)
    found, beside = (run_sums(x, *ties)[..., cut] for x in (hits, others))
    earlier = before(others).gather(-1, start).unsqueeze(-1)
    t = torch.arange(k, device=hits.device).double().unsqueeze(-1)
    h = t.mT
    g, n = (end - start).double().unsqueeze(-1) - 1, beside.unsqueeze(-1)
    probability = (_log_choose(n, h) + _log_choose(g - n, t - h) - _log_choose(g, t)).exp()
    each = 1 - (earlier + h).minimum(most.double().unsqueeze(-1)) / most.clamp(min=1).unsqueeze(-1)
    positions = torch.where(t < (k - start).unsqueeze(-1), probability * each, 0.0).sum((-1, -2))
    gone_on = (end > k).squeeze(-1)
    return (gone_on * positions * (found / (end - start)).squeeze(-1)).to(hits.dtype)


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    """Return log C(n, k); -inf if k is not in 0, ..., n."""
    good = (k >= 0) & (k <= n)
    n, k = torch.where(good, n, 0.0), torch.where(good, k, 0.0)
    value = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
    return torch.where(good, value, -torch.inf)


def _clipped_sum(x: Tensor, most: Tensor) -> Tensor:
    """Return the sum over i = 0, ..., x of min(i, most); 0 for x = -1."""
    inside = x.minimum(most.double())
    return inside * (inside + 1) / 2 + (x - inside) * most
