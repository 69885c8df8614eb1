"""The differentiable k-nearest-neighbor classifier of the SoftSort and NeuralSort papers."""

from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.losses import KNNLoss
from ltr.operators import SoftSort, SortOperator, Stochastic
from recipes.knn.neighbor_module import TrainedNeighbors
from recipes.networks import MNISTCNN, ImageNetwork


class SoftNearestNeighbors(TrainedNeighbors):
    """An embedding trained so that a query's soft nearest neighbors are of its class.

    A batch has queries and candidates, drawn independently (`EpisodeDataModule`). A candidate's
    score is minus the squared distance of its embedding to the query's. The operator's first k rows
    tell which candidates are nearest. The loss is `KNNLoss` with `average=False`: k minus the sum,
    over these rows, of the share of the query's class, averaged over the queries. Validation and
    test are those of `NeighborModule`, with the same k.

    With k = 1, SoftSort at temperature 2 and power 1, and embeddings of norm 1, the shares are the
    softmax of the cosines: matching networks (Prillo and Eisenschlos, Proposition 2).

    Random numbers, checkpoints and resuming are as in `Ranker`.

    Args:
        network: the embedding. Default: `MNISTCNN()`.
        operator: any `SortOperator` with a row for each item. Default: `SoftSort(16.0)`.
        top_k: k, how many neighbors count in training and vote in validation and test.
        optimizer: parameters -> optimizer. Default: SGD, without momentum.
        scheduler: optimizer -> scheduler, stepped once an epoch. Default: a constant rate.

    Raises:
        ValueError: top_k is < 1, the operator has no permutation, or the network is not an
            `ImageNetwork`; in training, a batch has no candidates.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.3; Prillo and Eisenschlos, ICML
    2020, section 5.4; Vinyals et al., "Matching Networks for One Shot Learning", NeurIPS 2016.

    >>> module = SoftNearestNeighbors(MNISTCNN(shape=(1, 28, 28)))
    >>> module(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 500])
    """

    def __init__(
        self,
        network: ImageNetwork | None = None,
        operator: SortOperator | None = None,
        top_k: int = 9,
        optimizer: OptimizerCallable = torch.optim.SGD,
        scheduler: LRSchedulerCallable | None = None,
    ):
        chosen = MNISTCNN() if network is None else network
        super().__init__(chosen, top_k, ("uniform",), optimizer, scheduler)
        self.loss = KNNLoss(SoftSort(16.0) if operator is None else operator, top_k, average=False)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        if "candidates" not in batch:
            raise ValueError(
                f"batches must have candidates, as EpisodeDataModule's have, got {', '.join(batch)}"
            )
        # one after the other, as published: batch norm sees the queries, then the candidates
        candidates = self.network(batch["candidates"])
        queries = self.network(batch["images"])
        scores = -squared_distances(queries, candidates)
        targets, others = batch["targets"].unsqueeze(-1), batch["candidate_targets"]
        labels = (targets == others).to(scores.dtype)
        mask = None
        if self.trainer.world_size > 1:  # the last batches may hold fillers
            mask = (targets >= 0) & (others >= 0)
        return self.log_loss(self.loss(scores, labels, mask), batch)


class SharedStochastic(Stochastic):
    """A `Stochastic` operator whose draws are the same for all lists of a batch.

    A draw is one Gumbel number for each position in a list, (samples, n), as in the published code
    of the nearest-neighbor experiment. Arguments are those of `Stochastic`.

    >>> operator = SharedStochastic(SoftSort(0.1), samples=2)
    >>> ranks = operator(torch.zeros(3, 4))
    >>> ranks.shape, (ranks == ranks[:, :1]).all()
    (torch.Size([2, 3, 4]), tensor(True))
    """

    def noise(self, scores: Tensor) -> Tensor:
        """Return the noise (samples, 1, ..., n) for scores (..., n)."""
        positions = scores.new_empty((*(1 for _ in scores.shape[:-1]), scores.shape[-1]))
        return super().noise(positions)


def squared_distances(queries: Tensor, candidates: Tensor) -> Tensor:
    """Return |q - c|^2 of all pairs, by one matrix product, outside of autocast.

    Half precision is computed in float32. The rounding error is the square of the norms times the
    type's precision, so a distance that is small against the norms may be a little below 0.

    Args:
        queries: (B, d).
        candidates: (n, d).

    Returns:
        (B, n).

    >>> squared_distances(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([[25.,  1.]])
    """
    with torch.autocast(queries.device.type, enabled=False):
        q, c = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (queries, candidates))
        squares = q.square().sum(-1, keepdim=True) + c.square().sum(-1)
        return torch.addmm(squares, q, c.mT, alpha=-2)
