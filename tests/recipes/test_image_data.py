"""Batches of images: their order, their normalization, the crops, and several processes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from recipes.images import (
    DigitImages,
    ImageDataModule,
    Images,
    ImageSource,
    channel_moments,
    crop_and_flip,
)


class Numbered(ImageSource):
    """Image i has the grey level i throughout, in three channels, and the label i modulo 10."""

    classes = 10
    shape = (3, 6, 5)
    val_count = 8

    def load(self, root: Any) -> dict[str, Images]:
        numbers = torch.arange(60)
        pixels = numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(60, *self.shape)
        images = Images(pixels.clone(), numbers % 10)
        return {"train": images[:40], "test": images[40:]}


def module(**options: Any) -> ImageDataModule:
    data = ImageDataModule(Numbered(), **{"batch_size": 5, "normalize": False, **options})
    data.setup("fit")
    return data


def numbers(batches: Any) -> list[int]:
    found = []
    for batch in batches:
        values = (batch["images"] * 255).round().long()
        assert (values == values[:, :1, :1, :1]).all()
        assert torch.equal(values[:, 0, 0, 0] % 10, batch["targets"])
        found += values[:, 0, 0, 0].tolist()
    return found


def test_the_splits_are_apart():
    data = module()
    train, val = numbers(data.train_dataloader()), numbers(data.val_dataloader())
    assert len(val) == 8
    assert sorted(train + val) == list(range(40))
    assert numbers(data.test_dataloader()) == list(range(40, 60))
    assert val == sorted(val)
    assert (data.shape, data.classes) == ((3, 6, 5), 10)
    batch = next(iter(data.train_dataloader()))
    assert batch["images"].dtype == torch.float32
    assert batch["targets"].dtype == torch.int64
    assert data.splits["train"].pixels.dtype == torch.uint8


def test_the_order_is_by_seed_and_epoch():
    def order(epoch: int, **options: Any) -> list[int]:
        loader = module(**options).train_dataloader()
        loader.sampler.set_epoch(epoch)  # pyright: ignore[reportAttributeAccessIssue]
        return numbers(loader)

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert sorted(order(0)) == sorted(order(1))
    assert set(order(0)) != set(order(0, seed=1))  # others are held out
    assert order(0) != sorted(order(0))


def test_numbers_of_the_source_or_of_the_training_images():
    data = module(normalize=True)
    images = torch.cat([batch["images"] for batch in data.train_dataloader()]).double()
    assert images.mean((0, 2, 3)).abs().max() < 1e-6
    assert (images.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6

    class Known(Numbered):
        mean = (0.0, 0.1, 0.2)
        sd = (1.0, 2.0, 4.0)

    data = ImageDataModule(Known())
    with pytest.raises(ValueError, match="setup must"):
        data.to_float(torch.zeros(1))
    data.setup()
    pixels = torch.full((2, 3, 6, 5), 51, dtype=torch.uint8)
    expected = torch.tensor([(0.2 - 0.0) / 1, (0.2 - 0.1) / 2, (0.2 - 0.2) / 4])
    torch.testing.assert_close(data.to_float(pixels)[1, :, 3, 2], expected)


def test_channel_moments():
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (9, 2, 4, 3))).byte()
    mean, sd = channel_moments(pixels)
    exact = pixels.double() / 255
    np.testing.assert_allclose(mean, exact.mean((0, 2, 3)))
    np.testing.assert_allclose(sd, exact.std((0, 2, 3), correction=0))


def test_an_image_without_contrast():
    class Black(Numbered):
        def load(self, root: Any) -> dict[str, Images]:
            images = Images(torch.zeros(20, *self.shape).byte(), torch.zeros(20).long())
            return {"train": images, "test": images}

    data = ImageDataModule(Black())
    data.setup()
    assert (data.to_float(data.splits["train"].pixels) == 0).all()


def test_crops_are_windows_of_the_padded_image():
    rng = np.random.default_rng(1)
    images = torch.from_numpy(rng.integers(1, 256, (30, 2, 6, 5)).astype(np.uint8))
    rows = torch.arange(30)
    found = crop_and_flip(images, rows, count=30, seed=3, epoch=2)
    positions, flips = set(), 0
    for image, one in zip(images, found, strict=True):
        framed = pad(image, (4, 4, 4, 4))
        windows = {
            (y, x, flip): window.flip(-1) if flip else window
            for y in range(9)
            for x in range(9)
            for flip in (False, True)
            for window in [framed[:, y : y + 6, x : x + 5]]
        }
        matches = [key for key, window in windows.items() if torch.equal(window, one)]
        assert matches
        if len(matches) == 1:
            positions.add(matches[0][:2])
            flips += matches[0][2]
    assert len(positions) > 15
    assert 5 < flips < 25
    # an image's draw does not depend on the batch that it is in
    some = torch.tensor([17, 3])
    assert torch.equal(crop_and_flip(images[some], some, 30, seed=3, epoch=2), found[some])
    for other in ({"seed": 4, "epoch": 2}, {"seed": 3, "epoch": 3}):
        assert not torch.equal(crop_and_flip(images, rows, count=30, **other), found)


def test_augmented_batches():
    data = ImageDataModule(DigitImages(), batch_size=50, augment=True, normalize=False)
    data.setup("fit")
    plain = ImageDataModule(DigitImages(), batch_size=50, normalize=False)
    plain.setup("fit")
    one, other = (next(iter(each.train_dataloader())) for each in (data, plain))
    assert torch.equal(one["targets"], other["targets"])
    assert not torch.equal(one["images"], other["images"])
    again = next(iter(data.train_dataloader()))
    assert torch.equal(one["images"], again["images"])
    val, plain_val = (next(iter(each.val_dataloader())) for each in (data, plain))
    assert torch.equal(val["images"], plain_val["images"])


def test_the_last_images_of_several_processes():
    found = []
    for rank in range(3):
        data = module()

        class Trainer:
            distributed_sampler_kwargs = {"num_replicas": 3, "rank": rank}  # noqa: RUF012

        data.trainer = Trainer()  # pyright: ignore[reportAttributeAccessIssue]
        batches = list(data.test_dataloader())
        targets = torch.cat([batch["targets"] for batch in batches])
        images = torch.cat([batch["images"] for batch in batches])
        assert len(targets) == 7
        assert (images[targets < 0] == 0).all()
        found += (images[targets >= 0][:, 0, 0, 0] * 255).round().int().tolist()
    assert sorted(found) == list(range(40, 60))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size.*0"),
        ({"batch_size": 2.5}, "batch_size.*2.5"),
        ({"val_count": 0}, "val_count.*0"),
        ({"val_count": 1.5}, "val_count.*1.5"),
        ({"seed": -1}, "seed.*-1"),
        ({"seed": "a"}, "seed.*'a'"),
        ({"images": DigitImages}, "images must"),
        ({"images": Numbered(), "val_count": 40}, "val_count must"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        ImageDataModule(**options).setup()


def test_loaders_before_setup():
    with pytest.raises(ValueError, match="setup must"):
        ImageDataModule().train_dataloader()
