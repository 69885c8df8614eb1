"""The metric that averages a logged loss."""

import torch
from torch import Tensor
from torchmetrics import Metric


class ListMean(Metric):
    """Mean over all lists, from the mean of each batch; NaN stays NaN.

    It is exact for batches and processes of different sizes. Lightning's own mean (2.6) rounds the
    number of lists of a process to a whole number. torchmetrics' `MeanMetric` (1.9) ignores its
    weights if it keeps NaN.

    >>> mean = ListMean()
    >>> mean.update(torch.tensor(1.0), lists=torch.tensor(3))
    >>> mean.update(torch.tensor(5.0), lists=torch.tensor(1))
    >>> mean.compute()
    tensor(2.)
    """

    full_state_update = False

    total: Tensor
    lists: Tensor

    def __init__(self):
        super().__init__()
        for name in ("total", "lists"):
            zero = torch.zeros((), dtype=torch.float64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")

    def update(self, value: Tensor, lists: Tensor) -> None:
        """Add a batch of `lists` lists with the mean `value`, a scalar."""
        self.total += value.double() * lists
        self.lists += lists

    def compute(self) -> Tensor:
        """Return the mean, float32; NaN if there was no list."""
        return (self.total / self.lists).float()

    def sums(self) -> dict[str, float]:
        """Return the sums so far over all processes, for a checkpoint; each of them calls this."""
        both = torch.stack([self.total, self.lists])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(both)
        total, lists = both.tolist()
        return {"total": total, "lists": lists}

    def go_on(self, sums: dict[str, float]) -> None:
        """Restore the sums that `sums` returned, in one of the processes.

        >>> mean, other = ListMean(), ListMean()
        >>> mean.update(torch.tensor(1.0), lists=torch.tensor(3))
        >>> other.go_on(mean.sums())
        >>> other.update(torch.tensor(5.0), lists=torch.tensor(1))
        >>> other.compute()
        tensor(2.)
        """
        self.reset()
        self.total += sums["total"]
        self.lists += sums["lists"]
