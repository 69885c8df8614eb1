"""Handwritten numbers: how they are composed, what they depend on, and resuming."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from ltr.losses import PermutationCrossEntropy
from ltr.metrics import ElementwiseAccuracy
from ltr.modules import Ranker
from ltr.operators import SoftSort, Stochastic
from recipes.images import MNIST, DigitImages, Images
from recipes.networks import ImageCNN
from recipes.numbers import NewListSampler, NumberLists, NumbersDataModule
from recipes.sort.matrix_sorter import MatrixSorter

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*`isinstance.treespec, LeafSpec.*",
    "ignore:.*exists and is not empty.*",
    "ignore:The dirpath has changed.*",
)


def marked_images(count: int = 40) -> Images:
    """Images that show their own number in one pixel and their digit in the other."""
    labels = torch.arange(count) % 10
    pixels = torch.stack([torch.arange(count), labels], -1).view(count, 1, 1, 2)
    return Images(pixels.to(torch.uint8), labels)


def module(**options: Any) -> NumbersDataModule:
    data = NumbersDataModule(**{"n": 3, "batch_size": 4, "train_batches": 5, **options})
    data.setup()
    return data


def test_an_image_shows_the_digits_of_its_number():
    lists = NumberLists(marked_images(), n=5, digits=4, count=50)
    batch = lists[list(range(50))]
    assert batch["features"].shape == (50, 5, 1, 4, 2)
    shown = (batch["features"] * 255).round().long()[:, :, 0]
    numbers = (shown[..., 1] * torch.tensor([1000, 100, 10, 1])).sum(-1)
    assert torch.equal(numbers.float(), batch["labels"])
    assert torch.equal(shown[..., 0] % 10, shown[..., 1])
    assert batch["mask"].all()
    assert batch["qid"][7] == "numbers-test-7"


def test_colours_and_heights_stay_what_they_are():
    pixels = torch.arange(10 * 3 * 2 * 4).remainder(251).view(10, 3, 2, 4).to(torch.uint8)
    lists = NumberLists(Images(pixels, torch.arange(10)), n=2, digits=2, count=1)
    batch = lists[[0]]
    assert batch["features"].shape == (1, 2, 3, 4, 4)
    for features, number in zip(batch["features"][0], batch["labels"][0], strict=True):
        first, second = divmod(int(number), 10)
        expected = torch.cat([pixels[first], pixels[second]], dim=1) / 255
        assert torch.equal(features, expected)


def test_numbers_and_images_are_drawn_evenly():
    lists = NumberLists(marked_images(), n=10, digits=3, count=2000)
    numbers, positions = lists.draw(range(2000))
    assert numbers.min() == 0
    assert numbers.max() == 999
    # 20,000 draws: six standard deviations of a binomial count
    for counts in (np.bincount(numbers.ravel() // 100), np.bincount(positions.ravel())):
        p = 1 / len(counts)
        total = counts.sum()
        assert np.abs(counts - total * p).max() < 6 * (total * p * (1 - p)) ** 0.5
    assert len(np.unique(positions)) == 40


def test_a_list_depends_on_seed_split_and_number_alone():
    images = marked_images()
    make = partial(NumberLists, images, n=4)
    alone = make(count=1)[9]
    batch = make(count=100)[[3, 9]]
    for key in ("features", "labels", "mask"):
        assert torch.equal(alone[key], batch[key][1])
    assert alone["qid"] == "numbers-test-9"
    for other in (make(seed=1), make(name="val")):
        assert not torch.equal(other[9]["labels"], alone["labels"])


def test_the_filler_has_no_items():
    batch = NumberLists(marked_images(), n=2)[[-1, 0]]
    assert batch["mask"].tolist() == [[False, False], [True, True]]


def labels_of(loader: Any) -> list[list[float]]:
    return [row for batch in loader for row in batch["labels"].tolist()]


def test_training_lists_are_new_in_each_epoch_and_others_are_not():
    data = module(val_batches=2, test_batches=2)
    train, val = data.train_dataloader(), data.val_dataloader()
    epochs = []
    for epoch in range(3):
        train.sampler.set_epoch(epoch)  # type: ignore
        epochs.append(labels_of(train))
    lists = data.splits["train"]
    assert epochs == [
        [lists[20 * epoch + i]["labels"].tolist() for i in range(20)] for epoch in range(3)
    ]
    assert len({tuple(row) for epoch in epochs for row in epoch}) == 60
    assert labels_of(val) == labels_of(data.val_dataloader())
    assert labels_of(data.test_dataloader()) != labels_of(val)
    assert labels_of(data.predict_dataloader()) == labels_of(data.test_dataloader())


def test_processes_share_an_epoch():
    lists = range(5)
    parts = [NewListSampler(lists, num_replicas=2, rank=rank) for rank in (0, 1)]
    for part in parts:
        part.set_epoch(3)
    assert [list(part) for part in parts] == [[15, 17, 19], [16, 18, -1]]


def test_an_epoch_is_the_published_share_of_the_images():
    data = NumbersDataModule(batch_size=5)  # 1,258, 180 and 359 images
    data.setup("fit")
    batches = {"train": 1258 // 20, "val": 180 // 20, "test": 359 // 20}
    assert {name: len(lists) // 5 for name, lists in data.splits.items()} == batches
    assert len(data.train_dataloader()) == batches["train"]
    assert data.num_features == (1, 32, 8)


@pytest.fixture(scope="module")
def mnist(data_root: Path) -> NumbersDataModule:
    data = NumbersDataModule(MNIST(), str(data_root / "mnist"))
    data.setup("fit")
    return data


def test_mnist_has_the_published_sizes(mnist: NumbersDataModule):
    assert [len(mnist.splits[name].images) for name in mnist.splits] == [55_000, 5_000, 10_000]
    assert [len(lists) // 20 for lists in mnist.splits.values()] == [687, 62, 125]
    assert mnist.num_features == (1, 112, 28)


def parts(data: NumbersDataModule) -> Iterator[set[bytes]]:
    for lists in data.splits.values():
        yield {image.numpy().tobytes() for image in lists.images.pixels}


def test_no_image_is_in_two_splits(mnist: NumbersDataModule):
    for data in (mnist, module()):
        train, val, test = parts(data)
        assert len(train) == len(data.splits["train"].images)  # no two images are the same
        assert not train & val
        assert not (train | val) & test
        # and the lists have no other images than their split's
        for name, images in zip(data.splits, (train, val, test), strict=True):
            lists = data.splits[name]
            digits = (lists[range(20)]["features"] * 255).round().to(torch.uint8)
            height = lists.images.pixels.shape[-2]
            for number in digits.flatten(0, 1):
                for digit in number.split(height, dim=1):
                    assert digit.contiguous().numpy().tobytes() in images


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n.*0"),
        ({"digits": 0}, "digits.*0"),
        ({"batch_size": 0}, "batch_size.*0"),
        ({"val_batches": 0}, "val_batches.*0"),
        ({"num_workers": -1}, "num_workers.*-1"),
        ({"num_workers": None}, "num_workers.*None"),
        ({"seed": -1}, "seed.*-1"),
        ({"seed": float("nan")}, "seed.*nan"),
        ({"digits": 8}, "digits.*8"),
        ({"images": MNIST()}, "root.*None"),
        ({"batch_size": 50}, "val_batches must"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        module(**options)


def test_images_that_are_not_of_digits():
    images = marked_images(5)
    with pytest.raises(ValueError, match=r"images.*no 5"):
        NumberLists(images, n=2)
    with pytest.raises(ValueError, match=r"images.*a label 11"):
        NumberLists(Images(images.pixels, images.labels + 7), n=2)
    with pytest.raises(ValueError, match=r"name.*'dev'"):
        NumberLists(marked_images(), n=2, name="dev")
    with pytest.raises(ValueError, match="setup must"):
        NumbersDataModule().train_dataloader()


EPOCHS, STEPS = 2, 5


def fit(folder: Path, kind: str, **options: Any) -> dict[str, Any]:
    """Train on new lists with noise; what the last checkpoint holds."""
    torch.set_num_threads(1)
    seed_everything(options.pop("seed", 3))
    scorer = ImageCNN(channels=(2, 3), hidden=4, outputs=3)
    metrics = {"elements_in_place": ElementwiseAccuracy()}
    optimizer = partial(torch.optim.Adam, lr=0.01, fused=True)
    if kind == "matrix":
        model = MatrixSorter(scorer, metrics=metrics, optimizer=optimizer)
    else:
        loss = PermutationCrossEntropy(Stochastic(SoftSort(0.1), samples=2))
        model = Ranker(scorer, loss, metrics, optimizer)
    saver = ModelCheckpoint(folder, save_on_train_epoch_end=True, save_top_k=-1)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        callbacks=saver,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = NumbersDataModule(DigitImages(), None, 3, 2, 4, STEPS, 2, 2)
    trainer.fit(model, data, **options)
    trainer.save_checkpoint(folder / "end.ckpt")
    return torch.load(folder / "end.ckpt", weights_only=True)


@pytest.mark.parametrize("kind", ["scores", "matrix"])
def test_resumed_after_an_epoch(tmp_path: Path, kind: str):
    end = fit(tmp_path / "whole", kind)
    assert end["global_step"] == EPOCHS * STEPS
    [file] = (tmp_path / "whole").glob(f"*step={STEPS}.ckpt")
    again = fit(tmp_path / "again", kind, ckpt_path=file, seed=99)
    for name, value in end["state_dict"].items():
        assert torch.equal(again["state_dict"][name], value), name
    cls, scorer = (MatrixSorter if kind == "matrix" else Ranker), ImageCNN(None, (2, 3), 4, 3)
    path = tmp_path / "whole" / "end.ckpt"
    model = cls.load_from_checkpoint(path, weights_only=True, scorer=scorer)
    for name, value in model.state_dict().items():
        assert torch.equal(value, end["state_dict"][name])
    assert model.scorer.num_features == (1, 16, 8)


def test_a_class_is_no_source_of_images():
    with pytest.raises(ValueError, match="images must"):
        NumbersDataModule(images=DigitImages)  # pyright: ignore[reportArgumentType]
