"""Several perceptrons of one shape as one network: their scores in one pass."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from ltr.models import LinearScorer, MLPScorer
from ltr.models.dropout import Dropout

# what they do to a number depends on it alone
_ELEMENTWISE = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Softplus, nn.Tanh,
    nn.Sigmoid, nn.Identity, Dropout,
)  # fmt: skip


def can_stack(members: Iterable[nn.Module]) -> bool:
    """Return whether `StackedMembers` can compute the scores of these scorers."""
    return all(
        type(member) in (MLPScorer, LinearScorer)
        and all(type(layer) in (nn.Linear, *_ELEMENTWISE) for layer in _layers(member))
        for member in members
    )


class StackedMembers(nn.Module):
    """Scores documents by several members at once, to train them.

    The features are the same for all members. So their first layers are one product of matrices,
    and each later layer is one batched product. The scores are those of the members up to rounding.

    Dropout drops the same units of each member, which takes a fifth of the random numbers where
    there are five members. Each member is trained as by itself, since units of the same place in
    different members have nothing else in common.

    One tensor holds a layer's weights of all members. The optimizer sees it in place of the
    members' own weights, which are views of it until `release`.

    Args:
        members: scorers of one shape, on one device, with weights; `can_stack` says which.
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        # one entry a layer; a tuple, which registers none of these modules as a part
        self._layers = tuple(zip(*(_layers(member) for member in members), strict=True))
        self.members = len(self._layers[0])
        self.stacks = nn.ParameterList()
        for same in self._layers:
            for name, _ in same[0].named_parameters():
                stack = torch.stack([getattr(one, name).detach() for one in same])
                self.stacks.append(nn.Parameter(stack))
                for one, part in zip(same, stack, strict=True):
                    setattr(one, name, nn.Parameter(part, requires_grad=False))

    def forward(self, features: Tensor, members: Sequence[int]) -> Tensor:
        """Return the scores (len(members), N) of features (N, d) by some of the members."""
        stacks: list[Tensor] = [*self.stacks]
        if len(members) < self.members:
            chosen = torch.as_tensor(members, device=features.device)
            stacks = [stack.index_select(0, chosen) for stack in stacks]
        x = features.t()  # then (members, width, N): no product has to copy its factors
        for same in self._layers:
            if isinstance(same[0], Dropout):
                if self.training and same[0].p:
                    x = x * same[0](torch.ones_like(x[:1]))
                continue
            if not isinstance(same[0], nn.Linear):
                x = same[0](x)
                continue
            weight, bias = stacks.pop(0), stacks.pop(0).unsqueeze(-1)
            if x.dim() == 2:  # the first layer
                x = torch.addmm(bias.flatten(0, 1), weight.flatten(0, 1), x)
                x = x.unflatten(0, weight.shape[:2])
            else:
                x = torch.baddbmm(bias, weight, x)
        return x.squeeze(1)

    def release(self) -> None:
        """Give each member weights of its own again, to be trained as any others."""
        for same in self._layers:
            for one in same:
                for name, part in [*one.named_parameters()]:
                    setattr(one, name, nn.Parameter(part.detach().clone()))


def _layers(member: nn.Module) -> list[nn.Module]:
    layers = member.get_submodule("layers")
    return [*layers] if isinstance(layers, nn.Sequential) else [layers]
