"""Several scorers with the same architecture, and the average of their scaled scores."""

import copy

import torch
from torch import Tensor, nn

from ltr.models.mlp import MLPScorer
from ltr.models.scorer import Scorer
from ltr.ragged import check_lengths, list_ids
from ltr.shapes import check_whole

SCALE_LISTS = 1000
"""Those who train rankers fit the scales on at most this many training lists."""


class Ensemble(Scorer):
    """Averages the scores of several copies of a scorer, after scaling them to the same spread.

    The members are copies of one scorer, each with its own weights. `NeuralRanker` trains each
    member on the loss of its own scores; a `Ranker` trains all on the loss of their average. The
    ensemble ranks better than one member.

    Scores of different members may have different scales. `fit_scales` chooses the factors `scales`
    from the scores of training lists. With these factors, the scores of all members have the same
    mean standard deviation within a list, so all members have the same influence. Since the factors
    are constants, scaling does not make a score depend on other documents.

    Args:
        scorer: the scorer to copy, without weights yet: `build` gives each copy its own weights.
            With members=1, the scorer may have weights. Default: `MLPScorer()`.
        members: the number of members, >= 1.

    Attributes:
        copies: the members; none until the number of features is known.
        scales: (members,), the factors of the members' scores; 1 at first.

    Raises:
        ValueError: `members` is < 1; `scorer` is not a `Scorer`, or has weights with `members` > 1.

    >>> ensemble = Ensemble(MLPScorer(hidden=(32,)), members=3)
    >>> ensemble.build(46)
    >>> features = torch.randn(8, 20, 46)
    >>> ensemble(features).shape, ensemble.copies[0](features).shape
    (torch.Size([8, 20]), torch.Size([8, 20]))
    """

    takes_codes = True
    scorer: Scorer
    scales: Tensor

    def __init__(self, scorer: Scorer | None = None, members: int = 5):
        super().__init__()
        self.members = check_whole("members", members)
        scorer = MLPScorer() if scorer is None else scorer
        if not isinstance(scorer, Scorer):
            raise ValueError(f"scorer must be a Scorer, got {scorer!r}")
        if members > 1 and any(True for _ in scorer.parameters()):
            raise ValueError(
                "scorer must have no weights yet, so that members start with different ones: make "
                f"{type(scorer).__name__} without num_features, or take members=1"
            )
        self.__dict__["scorer"] = scorer  # it is not a submodule, as only its copies are trained
        self.item_dims = scorer.item_dims
        self.per_document = scorer.per_document
        self.takes_codes = type(self).takes_codes and scorer.takes_codes
        self.copies = nn.ModuleList()
        self.num_features: int | tuple[int, ...] | None = None
        self.register_buffer("scales", torch.ones(members))

    def build(self, num_features: int | tuple[int, ...]) -> None:
        """Make the members and their weights, unless they already have this number of features."""
        if self.num_features == num_features:
            return
        copies = nn.ModuleList()
        for _ in range(self.members):
            member = copy.deepcopy(self.scorer)
            member.build(num_features)
            copies.append(member.to(self.scales.device))
        self.copies = copies
        self.num_features = num_features

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the average (..., n) of the members' scaled scores; 0 for masked items.

        Args:
            features: (..., n, *item); or `Coded`, which stands for (..., n, d).
            mask: (..., n) bool, True for a real item. Default: all are real.
        """
        if not self.copies:
            raise ValueError("num_features must be given to the Ensemble's `build` first, got None")
        scaled = [c(features, mask) * x for c, x in zip(self.copies, self.scales, strict=True)]
        # The ONNX form of a sum is the same in all opsets from 13, unlike that of a mean.
        return torch.stack(scaled).sum(0) / len(scaled)

    @torch.no_grad()
    def fit_scales(self, scores: Tensor, lengths: Tensor) -> None:
        """Set each member's factor to 1 / (mean standard deviation of its scores within a list).

        The factor is 1 for a member that gives all documents of each list the same score. Lists of
        fewer than two documents do not count.

        Args:
            scores: (members, N), the members' scores of the documents, one list after the other.
            lengths: (B,), the lengths of the lists.

        Raises:
            ValueError: the scores are not (members, N), or the lengths do not sum to N.

        >>> ensemble = Ensemble(members=2)
        >>> ensemble.fit_scales(torch.tensor([[0.0, 2.0], [4.0, 0.0]]), torch.tensor([2]))
        >>> ensemble.scales
        tensor([1.0000, 0.5000])
        """
        if scores.dim() != 2 or len(scores) != self.members:
            raise ValueError(
                f"scores must be ({self.members}, N), one row per member, got {tuple(scores.shape)}"
            )
        lengths = check_lengths(scores[0], lengths)
        lists = list_ids(scores[0], lengths)
        empty = torch.zeros(len(scores), len(lengths), dtype=torch.float64, device=scores.device)
        size = lengths.clamp(min=1)
        first = (lengths.cumsum(0) - lengths)[lists]
        centered = scores.double()
        # Subtract each list's first score, so that equal scores give exactly 0.
        centered = centered - centered[:, first]
        centered = centered - (empty.index_add(1, lists, centered) / size)[:, lists]
        variance = empty.index_add(1, lists, centered.square()) / size
        mean = variance[:, lengths > 1].sqrt().mean(1)
        usable = mean.isfinite() & (mean > 0)
        self.scales = torch.where(usable, 1 / mean, 1).to(self.scales)
