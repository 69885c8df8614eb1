"""MatrixSorter: the hard matching, the cross-entropy, masks and learning."""

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from ltr.metrics.functional import elementwise_accuracy
from ltr.models import LinearScorer
from ltr.modules.base import ListMean
from ltr.operators import GumbelSinkhorn, SoftSort
from recipes.networks import ImageCNN
from recipes.sort.matrix_sorter import MatrixSorter

SHAPE = (1, 4, 4)


def sorter(outputs: int = 5, **options) -> MatrixSorter:
    torch.manual_seed(0)
    scorer = ImageCNN(SHAPE, channels=(3, 4), hidden=6, outputs=outputs)
    return MatrixSorter(scorer, **options).double()


def batch(n: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(6, n, *SHAPE, generator=generator, dtype=torch.float64)
    labels = torch.rand(6, n, generator=generator, dtype=torch.float64)
    return {"features": features, "labels": labels, "mask": torch.ones(6, n, dtype=torch.bool)}


def test_scores_are_the_positions_of_the_best_assignment():
    model, data = sorter(), batch()
    matrix = model.scorer.outputs_of(data["features"])[..., :4].mT
    scores = model(data["features"])
    for one, got in zip(matrix, scores, strict=True):
        _, columns = linear_sum_assignment(one.detach().numpy(), maximize=True)
        expected = torch.empty(4)
        for position, item in enumerate(columns):
            expected[item] = 3 - position
        assert torch.equal(got, expected)
    assert model.operator.training  # as it was


def test_masked_items_are_not_there():
    model, data = sorter(), batch()
    mask = torch.tensor([[True, False, True, True]]).expand(6, 4)
    dirty = torch.where(mask[..., None, None, None], data["features"], torch.nan)
    scores = model(dirty, mask)
    assert (scores[:, 1] == 0).all()
    kept = [0, 2, 3]
    alone = model(data["features"][:, kept])
    assert torch.equal(scores[:, kept].argsort(-1), alone.argsort(-1))
    data = {"features": dirty, "labels": data["labels"], "mask": mask}
    short = {key: value[:, kept] for key, value in data.items()}
    model.operator = GumbelSinkhorn(temperature=0.5)
    losses = [model._cross_entropy(one, ListMean()) for one in (data, short)]
    torch.testing.assert_close(losses[0], losses[1])
    losses[0].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_the_loss_is_the_cross_entropy_of_the_true_order():
    model, data = sorter(operator=GumbelSinkhorn(temperature=0.5)), batch()
    matrix = model.scorer.outputs_of(data["features"])[..., :4].mT
    P = GumbelSinkhorn(temperature=0.5)(matrix).dense()
    order = data["labels"].argsort(-1, descending=True)
    expected = -P.gather(-1, order.unsqueeze(-1)).log().mean()
    mean = ListMean()
    torch.testing.assert_close(model._cross_entropy(data, mean), expected)
    assert mean.lists == 6
    assert mean.compute().item() == pytest.approx(expected.item(), rel=1e-6)


def test_equal_labels_may_stand_either_way_round():
    model, data = sorter(operator=GumbelSinkhorn()), batch(2)
    data["labels"] = torch.ones(6, 2, dtype=torch.float64)
    matrix = model.scorer.outputs_of(data["features"])[..., :2].mT
    P = GumbelSinkhorn()(matrix).dense()
    diagonal = P.diagonal(dim1=-2, dim2=-1).mean(-1)
    crossed = P.flip(-1).diagonal(dim1=-2, dim2=-1).mean(-1)
    best = torch.maximum(diagonal, crossed)  # of 2 x 2 all entries of a diagonal are equal
    expected = -best.log().mean()
    torch.testing.assert_close(
        model._cross_entropy(data, ListMean()), expected, rtol=1e-3, atol=1e-3
    )


def test_it_learns_with_noise():
    model = sorter(operator=GumbelSinkhorn(samples=3)).float()
    generator = torch.Generator().manual_seed(2)
    grey = torch.rand(64, 4, generator=generator)
    data = {
        "features": grey[..., None, None, None].expand(-1, -1, *SHAPE),
        "labels": grey,
        "mask": torch.ones(64, 4, dtype=torch.bool),
    }
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model._cross_entropy(data, ListMean()).backward()
        optimizer.step()
    assert elementwise_accuracy(model(data["features"]), grey) > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scorer": LinearScorer(3)}, "scorer.*LinearScorer"),
        ({"operator": SoftSort()}, "operator.*SoftSort"),
    ],
)
def test_what_is_no_network_or_matching(options, message):
    with pytest.raises(ValueError, match=message):
        MatrixSorter(**options)


def test_errors():
    with pytest.raises(ValueError, match=r"scorer.*3"):
        sorter(outputs=3)(batch()["features"])
