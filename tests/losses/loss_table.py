"""Every loss of `ltr.losses.__all__`, which the tests here share. A new loss needs no line."""

import inspect

import torch

import ltr.losses
from ltr.losses import RankingLoss

LOSSES: dict[str, type[RankingLoss]] = {
    name: kind
    for name in ltr.losses.__all__
    if inspect.isclass(kind := getattr(ltr.losses, name))
    and issubclass(kind, RankingLoss)
    and kind is not RankingLoss
}


def draw(*shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores and grades from 0 to 3 in float64."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 4, shape, generator=generator).double()
