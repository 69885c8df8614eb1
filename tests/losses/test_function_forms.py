"""The function form of each loss gives the result of its class, for padded and ragged lists."""

import inspect

import pytest
import torch

import ltr.losses
from ltr.losses import PairCost, PairWeights
from ltr.operators import RankOperator, SoftSort

# named otherwise than its class
NAMED_OTHERWISE = {
    "least_quantile_loss": "LeastQuantileRegression",
    "least_trimmed_loss": "LeastTrimmedSquares",
}


def plain(name: str) -> str:
    return name.lower().replace("_", "").removesuffix("loss")


KINDS = {
    name: kind
    for name, kind in vars(ltr.losses).items()
    if inspect.isclass(kind) and issubclass(kind, ltr.losses.RankingLoss)
}
BY_PLAIN_NAME = {plain(name): kind for name, kind in KINDS.items() if name != "RankingLoss"}


def class_of(name: str) -> type[ltr.losses.RankingLoss]:
    """The class that a function is the other form of, by their names."""
    if name in NAMED_OTHERWISE:
        return KINDS[NAMED_OTHERWISE[name]]
    return BY_PLAIN_NAME[plain(name)]


def losses() -> dict[str, object]:
    """Return the functions of `ltr.losses` that have a `reduction`, by name."""
    found = {name: getattr(ltr.losses, name) for name in ltr.losses.__all__}
    found = {name: f for name, f in found.items() if inspect.isfunction(f)}
    return {n: f for n, f in found.items() if "reduction" in inspect.signature(f).parameters}


def test_every_loss_is_a_class_and_a_function():
    assert {class_of(name) for name in losses()} == {*BY_PLAIN_NAME.values()}


@pytest.mark.parametrize("name", losses())
def test_a_function_is_its_class_called(name):
    function, loss = losses()[name], class_of(name)(reduction="none")
    generator = torch.Generator().manual_seed(0)
    scores, weights = torch.randn(2, 12, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (12,), generator=generator).double()
    lengths = torch.tensor([3, 0, 5, 4])
    given = {"weights": weights.abs(), "lengths": lengths}
    expected = loss(scores, labels, **given)
    assert expected.shape == (4,)
    assert torch.equal(function(scores, labels, **given, reduction="none"), expected)
    total = function(scores, labels, **given, reduction="sum")
    torch.testing.assert_close(total, expected.sum())

    mask = torch.arange(6) < torch.tensor([[6], [4]])
    scores, labels = scores.view(2, 6), labels.view(2, 6)
    expected = loss(scores, labels, mask)
    assert torch.equal(function(scores, labels, mask, reduction="none"), expected)
    with pytest.raises(ValueError, match="mask must be None if lengths are given"):
        function(scores, labels, mask, lengths=lengths)


def test_arguments_of_single_losses():
    scores, labels = torch.tensor([0.3, 0.1, 0.2, 0.9]), torch.tensor([1.0, 0.0, 0.0, 2.0])
    lengths, groups = torch.tensor([2, 2]), torch.tensor([0, 1, 1, 0])
    given = {"lengths": lengths, "groups": groups}
    expected = ltr.losses.Penalized(strength=0.5)(scores, labels, **given)
    assert ltr.losses.penalized_loss(scores, labels, **given, strength=0.5) == expected
    expected = ltr.losses.QuantileLoss()(scores, labels, lengths=lengths, values=labels)
    found = ltr.losses.quantile_loss(scores, labels, lengths=lengths, values=labels)
    assert found == expected
    shown = torch.tensor([2, 1, 1, 2])
    expected = ltr.losses.Unbiased()(scores, labels, lengths=lengths, shown=shown)
    assert ltr.losses.unbiased_loss(scores, labels, lengths=lengths, shown=shown) == expected


# the modules that a function may build: operators, costs of pairs and weights of pairs
PARTS = (RankOperator, PairCost, PairWeights)
GIVEN = {
    "penalized_loss": {
        "loss": ltr.losses.SoftNDCG(SoftSort()),
        "penalty": ltr.losses.ExposureParity(SoftSort()),
    },
    "unbiased_loss": {"loss": ltr.losses.SoftNDCG(SoftSort()), "bias": ltr.losses.PositionBias()},
}


@pytest.mark.parametrize("name", losses())
def test_a_function_makes_no_loss_module(monkeypatch, name):
    scores, labels = torch.randn(3, 5), torch.randint(0, 3, (3, 5)).float()
    function, lengths = losses()[name], [7, 8]
    options = GIVEN.get(name, {})
    if "operator" in inspect.signature(function).parameters:
        options = {"operator": SoftSort()}
    expected = function(scores, labels, **options)
    make = torch.nn.Module.__init__

    def refuse(self, *args, **kwargs):
        assert isinstance(self, PARTS), f"a {type(self).__name__} was made"
        assert not options, f"a {type(self).__name__} was made, and objects were given"
        make(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    assert function(scores, labels, **options) == expected
    assert function(scores.view(-1), labels.view(-1), lengths=lengths, **options).isfinite()
    with pytest.raises(ValueError, match="reduction must be 'mean', 'sum' or 'none', got 'max'"):
        function(scores, labels, reduction="max", **options)
