"""The networks of the nearest-neighbor experiment: layers as the papers' appendices have them."""

import pytest
import torch
from torch import nn

from recipes.knn.autoencoder import ConvAutoencoder, DenseAutoencoder
from recipes.networks import MNISTCNN


def sizes(network: nn.Module, body: nn.Module, x: torch.Tensor) -> list[tuple[int, ...]]:
    """The shapes that convolutions, pools, upsamplings and dense layers give."""
    found: list[tuple[int, ...]] = []
    kinds = (nn.Conv2d, nn.MaxPool2d, nn.Linear, nn.Upsample)
    for layer in body.modules():
        if isinstance(layer, kinds):
            layer.register_forward_hook(lambda *args: found.append(tuple(args[-1].shape[1:])))
    network(x)
    return found


def test_the_cnns_shapes_are_the_appendixs():
    network = MNISTCNN(shape=(1, 28, 28))
    assert sizes(network, network, torch.zeros(1, 1, 28, 28)) == [
        (20, 24, 24),
        (20, 12, 12),
        (50, 8, 8),
        (50, 4, 4),
        (500,),
    ]
    weights = 20 * 26 + 50 * (20 * 25 + 1) + 500 * (50 * 16 + 1)
    assert sum(p.numel() for p in network.parameters()) == weights
    assert (network(torch.randn(3, 1, 28, 28)) >= 0).all()


def test_padding_keeps_small_images():
    network = MNISTCNN(padding=2, out=10, shape=(1, 8, 8))
    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(ValueError, match="shape must"):
        MNISTCNN(shape=(1, 8, 8))
    for padding in (-1, 0.5):
        with pytest.raises(ValueError, match=f"padding.*{padding}"):
            MNISTCNN(padding=padding)  # pyright: ignore[reportArgumentType]


def test_the_dense_layer_stays_in_float32():
    torch.manual_seed(0)
    network = MNISTCNN(shape=(1, 28, 28))
    x = torch.rand(2, 1, 28, 28)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        points = network(x)
        assert points.dtype == torch.float32
        assert not torch.equal(points, points.bfloat16().float())
    torch.testing.assert_close(points, network(x), rtol=0, atol=0.01)


def test_the_dense_autoencoder():
    network = DenseAutoencoder(shape=(1, 28, 28))
    x = torch.rand(4, 1, 28, 28)
    assert sizes(network, network, x) == [(500,), (500,), (50,)]
    codes = network(x)
    assert (codes >= 0).all()
    assert sizes_of_decoder(network, codes) == [(500,), (500,), (784,)]
    decoded = network.decode(codes)
    assert decoded.shape == x.shape
    assert ((decoded > 0) & (decoded < 1)).all()
    torch.testing.assert_close(decoded.logit(), network.logits(codes), rtol=1e-4, atol=1e-4)


def test_the_convolutional_autoencoder():
    network = ConvAutoencoder(shape=(3, 32, 32))
    x = torch.rand(2, 3, 32, 32)
    found = sizes(network, network, x)
    assert [shape for shape in found if shape[1] in (16, 8, 4)][-1] == (16, 4, 4)
    assert [shape[0] for shape in found] == [64, 64, 32, 32, 16, 16]
    codes = network(x)
    assert codes.shape == (2, 256)
    decoder = sizes_of_decoder(network, codes)
    assert [shape[0] for shape in decoder] == [16, 16, 32, 32, 64, 64, 3]
    assert [shape[1] for shape in decoder] == [4, 8, 8, 16, 16, 32, 32]
    assert network.decode(codes).shape == x.shape


def sizes_of_decoder(network, codes: torch.Tensor) -> list[tuple[int, ...]]:
    class Decode(nn.Module):
        def forward(self, x):
            return network.decode(x)

    return sizes(Decode(), network.decoder, codes)


def test_errors():
    network = DenseAutoencoder()
    with pytest.raises(ValueError, match="shape must"):
        network.decode(torch.zeros(1, 50))
    with pytest.raises(ValueError, match=r"out.*3"):
        network.build((1, 4, 4), out=3)
    with pytest.raises(ValueError, match=r"code.*0"):
        DenseAutoencoder(code=0)
    with pytest.raises(ValueError, match="shape must"):
        ConvAutoencoder(shape=(1, 28, 28))
    with pytest.raises(ValueError, match="channels must"):
        ConvAutoencoder(channels=(4, 4))
