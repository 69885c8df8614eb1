"""What every image network keeps to; the vanilla CNN's layers."""

from typing import Any

import pytest
import torch
from torch import nn

from recipes.networks import MNISTCNN, ImageCNN, ImageNetwork, VanillaCNN

SHAPE = (3, 12, 9)


class Means(ImageNetwork):
    """Means of quarters: a body without weights."""

    def make_body(self, shape):
        return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())


def network(**options) -> VanillaCNN:
    torch.manual_seed(0)
    return VanillaCNN((4, 6), 7, **{"out": 5, "shape": SHAPE, **options})


def images(*axes: int) -> torch.Tensor:
    return torch.randn(*axes, *SHAPE, generator=torch.Generator().manual_seed(1))


def test_any_batch_axes():
    model, x = network().eval(), images(2, 3)
    found = model(x)
    assert found.shape == (2, 3, 5)
    torch.testing.assert_close(found[1, 2], model(x[1, 2]))
    assert model(images(0)).shape == (0, 5)


@pytest.mark.parametrize(("height", "width"), [(28, 28), (32, 32), (13, 7), (4, 4)])
def test_layers_of_the_vanilla_cnn(height: int, width: int):
    model = VanillaCNN(out=10, shape=(3, height, width))
    convolutions = [one for one in model.modules() if isinstance(one, nn.Conv2d)]
    sizes = [(one.in_channels, one.out_channels, one.kernel_size) for one in convolutions]
    three = (3, 3)
    assert sizes == [(3, 32, three), (32, 32, three), (32, 64, three), (64, 64, three)]
    assert sum(isinstance(one, nn.MaxPool2d) for one in model.modules()) == 2
    dense = [one for one in model.modules() if isinstance(one, nn.Linear)]
    inputs = 64 * (height // 4) * (width // 4)
    assert [(one.in_features, one.out_features) for one in dense] == [(inputs, 512), (512, 10)]
    weights = sum(9 * a * b + b for a, b, _ in sizes) + inputs * 512 + 2 * 512 + 512 * 10 + 10
    assert sum(p.numel() for p in model.parameters()) == weights
    assert model.features == 512


def test_a_pool_before_its_relu_is_one_behind_it():
    model, x = network().eval(), images(4)
    assert model.body is not None
    layers = list(model.body)  # pyright: ignore[reportArgumentType]
    for position in (3, 8):
        assert isinstance(layers[position], nn.MaxPool2d)
        layers[position], layers[position + 1] = layers[position + 1], layers[position]
    assert model.head is not None
    torch.testing.assert_close(model.head(nn.Sequential(*layers)(x)), model(x))


def test_half_precision_is_of_the_body_alone():
    model, x = network().eval(), images(6)
    exact = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=0.05, atol=0.05)
    assert not torch.equal(found, exact)
    assert model.double()(x.double()).dtype == torch.float64


def test_without_a_number_of_outputs_the_features_are_the_output():
    model = Means()
    model.build(SHAPE)
    x = images(2)
    torch.testing.assert_close(model(x), nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))
    assert (model.features, model.out, model.head) == (12, None, None)


def test_build_makes_new_layers_only_for_another_shape():
    model = VanillaCNN((4, 6), 7)
    with pytest.raises(ValueError, match="shape must"):
        model(images(1))
    model.build(SHAPE, out=5)
    body, head = model.body, model.head
    model.build(list(SHAPE), out=5)  # pyright: ignore[reportArgumentType]
    assert model.body is body
    assert model.head is head
    model.build(SHAPE)
    assert model.head is head
    model.build((3, 16, 16), out=4)
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 4)


def test_convolutions_are_channels_last():
    model = network()
    for one in model.modules():
        if isinstance(one, nn.Conv2d):
            assert one.weight.is_contiguous(memory_format=torch.channels_last)


def test_training_mode_stays():
    assert all(one.training for one in network().modules())
    model = VanillaCNN((4, 6), 7).eval()
    model.build(SHAPE, out=2)
    assert not any(one.training for one in model.body.modules())  # pyright: ignore


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out": 0}, "out.*0"),
        ({"channels": (0, 3)}, "channels must"),
        ({"hidden": 0}, "hidden must"),
        ({"shape": (3, 3, 9)}, "shape must"),
        ({"shape": (3, 0, 9)}, "sizes >= 1"),
        ({"shape": (3, 9)}, r"shape must"),
    ],
)
def test_arguments_are_checked(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        VanillaCNN(**options)


def test_what_is_fixed_stays():
    with pytest.raises(ValueError, match=r"out.*6"):
        network().build(SHAPE, out=6)
    with pytest.raises(ValueError, match="shape must"):
        network().build((1, 28, 28))
    with pytest.raises(ValueError, match=r"images must"):
        network()(torch.zeros(2, 3, 12, 10))
    with pytest.raises(NotImplementedError, match="ImageNetwork must"):
        ImageNetwork(shape=SHAPE)

    class Deep(ImageNetwork):
        def make_body(self, shape):
            return nn.Sequential(nn.Conv2d(3, 1, 20), nn.Flatten())

    with pytest.raises(ValueError, match="shape must"):
        Deep(shape=SHAPE)


@pytest.mark.parametrize("channels", [(8,), (8, 8, 8), 8])
@pytest.mark.parametrize("network", [ImageCNN, MNISTCNN, VanillaCNN])
def test_channels_are_two(network: Any, channels: Any):
    with pytest.raises(ValueError, match="channels must"):
        network(channels=channels)
