"""The sorting experiments' CNN: the appendix's layers, masks, layouts and precision."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ltr.losses import PermutationCrossEntropy
from ltr.models import LinearScorer, MLPScorer
from recipes.networks import ImageCNN

NUMBER = (1, 112, 28)
SMALL = (2, 6, 9)  # neither height nor width is a multiple of 4


def small(**options) -> ImageCNN:
    torch.manual_seed(0)
    return ImageCNN(SMALL, channels=(3, 4), hidden=5, **options).double()


def images(*batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(*batch, *SMALL, generator=generator, dtype=torch.float64)


def test_the_layers_are_the_appendixes():
    scorer = ImageCNN(NUMBER)
    shapes = [
        tuple(m.weight.shape) for m in scorer.modules() if isinstance(m, nn.Conv2d | nn.Linear)
    ]
    assert shapes == [(32, 1, 5, 5), (64, 32, 5, 5), (64, 28 * 7 * 64), (1, 64)]
    assert 28 * 7 * 64 == 12_544
    expected = (25 + 1) * 32 + (25 * 32 + 1) * 64 + (12_544 + 1) * 64 + (64 + 1)
    assert sum(p.numel() for p in scorer.parameters()) == expected
    assert scorer.convolutions is not None
    hidden = scorer.convolutions(torch.zeros(2, *NUMBER))
    assert hidden.shape == (2, 64, 28, 7)


def test_weights_are_a_cut_normal_and_biases_a_tenth():
    torch.manual_seed(0)
    weights = dict(ImageCNN(NUMBER).named_parameters())
    for name, p in weights.items():
        if name.endswith("bias"):
            assert (p == 0.1).all()
        else:
            assert p.abs().max() <= 0.2
    largest = weights["dense.0.weight"]
    # a standard normal law cut at 2 has the variance 1 - 4 phi(2) / (2 Phi(2) - 1)
    normal = torch.distributions.Normal(0.0, 1.0)
    two = torch.tensor(2.0)
    variance = 1 - 4 * normal.log_prob(two).exp() / (2 * normal.cdf(two) - 1)
    assert largest.std().item() == pytest.approx(0.1 * variance.sqrt().item(), rel=0.01)


def test_scores_are_those_of_the_layers_one_by_one():
    scorer, x = small(outputs=2), images(4)
    weights = dict(scorer.named_parameters())

    def pooled(h: torch.Tensor, layer: int) -> torch.Tensor:
        h = F.conv2d(
            h,
            weights[f"convolutions.{layer}.weight"],
            weights[f"convolutions.{layer}.bias"],
            padding=2,
        ).relu()
        # "same" pools: an odd edge has a window of its own
        h = F.pad(h, (0, h.shape[-1] % 2, 0, h.shape[-2] % 2), value=-torch.inf)
        return h.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1))

    h = pooled(pooled(x, 0), 3)
    assert h.shape == (4, 4, 2, 3)
    h = h.movedim(1, -1).flatten(1)
    h = (h @ weights["dense.0.weight"].T + weights["dense.0.bias"]).relu()
    expected = h @ weights["last.weight"].T + weights["last.bias"]
    torch.testing.assert_close(scorer.outputs_of(x), expected)
    torch.testing.assert_close(scorer(x), expected[:, 0])


def test_masks_and_batch_axes():
    scorer, x = small(), images(2, 3, 4)
    mask = torch.tensor([True, True, False, True]).expand(2, 3, 4)
    dirty = torch.where(mask[..., None, None, None], x, torch.nan)
    scores = scorer(dirty, mask)
    assert scores.shape == (2, 3, 4)
    assert (scores[..., 2] == 0).all()
    torch.testing.assert_close(scores[mask], scorer(x[mask]))
    scores.sum().backward()
    assert all(p.grad.isfinite().all() for p in scorer.parameters() if p.grad is not None)


def test_channels_last_is_the_layout_of_the_layers():
    scorer = ImageCNN(NUMBER)
    assert scorer.convolutions is not None
    hidden = scorer.convolutions(
        torch.zeros(2, *NUMBER).contiguous(memory_format=torch.channels_last)
    )
    assert hidden.is_contiguous(memory_format=torch.channels_last)


def test_autocast_is_close_and_scores_are_float32():
    torch.manual_seed(0)
    scorer, x = ImageCNN((1, 32, 8)), torch.rand(3, 5, 1, 32, 8)
    exact = scorer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = scorer(x)
        loss = PermutationCrossEntropy()(rounded, torch.rand(3, 5))
    assert rounded.dtype == loss.dtype == torch.float32
    scale = exact.abs().max().item()
    torch.testing.assert_close(rounded, exact, rtol=0, atol=0.02 * scale)
    loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in scorer.parameters())


def test_build():
    scorer = ImageCNN()
    with pytest.raises(ValueError, match="shape must"):
        scorer(torch.zeros(2, 1, 8, 8))
    scorer.build((1, 8, 8))
    first = scorer.last
    scorer.build((1, 8, 8))
    assert scorer.last is first
    scorer.build((1, 32, 8))
    assert scorer.num_features == (1, 32, 8)
    assert scorer(torch.zeros(2, 1, 32, 8)).shape == (2,)


@pytest.mark.parametrize("shape", [5, (8, 8), (1, 0, 8)])
def test_shapes_that_are_none(shape):
    with pytest.raises(ValueError, match=r"num_features must"):
        ImageCNN().build(shape)


def test_errors():
    with pytest.raises(
        ValueError, match=r"must be \(2, 6, 9\), which the scorer was made with, got"
    ):
        small().build((1, 8, 8))
    with pytest.raises(ValueError, match=r"features.*\(2, 9, 6\)"):
        small()(images(3).mT)
    with pytest.raises(ValueError, match=r"outputs.*0"):
        ImageCNN(outputs=0)
    with pytest.raises(ValueError, match="channels must"):
        ImageCNN(channels=(3, 0))


@pytest.mark.parametrize("scorer", [MLPScorer(), LinearScorer()])
def test_vector_scorers_refuse_images(scorer):
    with pytest.raises(ValueError, match="scores feature vectors, not images; got"):
        scorer.build((1, 8, 8))
