"""The pre-activation ResNet against its formula."""

import pytest
import torch
from torch.nn.functional import adaptive_avg_pool2d, batch_norm, conv2d

from recipes.networks import PreActivationBlock, ResNet18


def parameters(channels: int, widths, blocks, out: int | None) -> int:
    """Convolutions without biases, and two numbers a channel of each batch norm."""
    total, before = channels * widths[0] * 9, widths[0]
    for group, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        for number in range(count):
            total += 2 * before + before * width * 9 + 2 * width + width * width * 9
            if before != width or (group > 0 and number == 0):
                total += before * width  # the shortcut
            before = width
    return total + (0 if out is None else (before + 1) * out)


@pytest.mark.parametrize("out", [None, 10])
@pytest.mark.parametrize("channels", [1, 3])
def test_resnet18(channels: int, out: int | None):
    network = ResNet18(out=out, shape=(channels, 32, 32))
    expected = parameters(channels, (64, 128, 256, 512), (2, 2, 2, 2), out)
    assert sum(p.numel() for p in network.parameters()) == expected
    assert network.features == 512
    with torch.no_grad():
        assert network.eval()(torch.zeros(1, channels, 32, 32)).shape == (1, out or 512)


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 6, 1), (4, 4, 2)])
def test_a_block_is_norm_relu_convolution_twice(inputs: int, outputs: int, stride: int):
    torch.manual_seed(0)
    block = PreActivationBlock(inputs, outputs, stride).double()
    for norm in (block.norm1, block.norm2):
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    x = torch.randn(3, inputs, 6, 6, dtype=torch.float64)

    def active(x, norm):
        return batch_norm(x, None, None, norm.weight, norm.bias, training=True).clamp(min=0)

    inner = active(x, block.norm1)
    expected = conv2d(inner, block.conv1.weight, stride=stride, padding=1)
    expected = conv2d(active(expected, block.norm2), block.conv2.weight, padding=1)
    if (inputs, stride) == (outputs, 1):
        assert block.shortcut is None
        expected = expected + x  # not after the norm
    else:
        expected = expected + conv2d(inner, block.shortcut.weight, stride=stride)
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-10)


def test_the_blocks_halve_the_size_from_the_second_group_on():
    network = ResNet18(widths=(2, 3, 4), blocks=(1, 2, 1), shape=(1, 28, 28))
    sizes = []
    for layer in network.body:
        if isinstance(layer, PreActivationBlock):
            layer.register_forward_hook(lambda *args: sizes.append(tuple(args[-1].shape[1:])))
    network(torch.zeros(2, 1, 28, 28))
    assert sizes == [(2, 28, 28), (3, 14, 14), (3, 14, 14), (4, 7, 7)]


def test_the_features_are_means_of_the_last_sum():
    network = ResNet18(widths=(2, 3), blocks=(1, 1), shape=(1, 8, 8)).eval()
    x = torch.randn(2, 1, 8, 8)
    last = network.body[:-2](x)
    torch.testing.assert_close(network(x), adaptive_avg_pool2d(last, 1).flatten(1))


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"blocks.*\(1,\)"):
        ResNet18(widths=(4, 8), blocks=(1,))
    with pytest.raises(ValueError, match=r"widths.*0"):
        ResNet18(widths=(4, 0), blocks=(1, 1))
