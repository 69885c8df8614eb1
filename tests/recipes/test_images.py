"""Reading the publishers' image files, and refusing others by name."""

import gzip
import io
import os
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from recipes.images import (
    CIFAR10,
    CIFAR100,
    MNIST,
    DigitImages,
    FashionMNIST,
    Images,
    ImageSource,
    split_validation,
)

COUNTS = {"train": 7, "test": 3}
PREFIX = {"train": "train", "test": "t10k"}


def idx(array: np.ndarray, magic: bytes | None = None) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) if magic is None else magic
    return head + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()


@pytest.fixture
def arrays() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {
        split: (
            rng.integers(0, 256, (count, 28, 28)).astype(np.uint8),
            rng.integers(0, 10, count).astype(np.uint8),
        )
        for split, count in COUNTS.items()
    }


@pytest.fixture
def mnist(tmp_path: Path, arrays: dict[str, tuple[np.ndarray, np.ndarray]]) -> Path:
    """A small MNIST: training files gzipped, test files plain and with a point in their names."""
    for split, (pixels, labels) in arrays.items():
        for name, array in (("images", pixels), ("labels", labels)):
            data = idx(array)
            if split == "train":
                path = tmp_path / f"train-{name}-idx{array.ndim}-ubyte.gz"
                path.write_bytes(gzip.compress(data))
            else:
                (tmp_path / f"t10k-{name}.idx{array.ndim}-ubyte").write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("source", [MNIST(), FashionMNIST()])
def test_idx_files(mnist: Path, arrays: dict[str, Any], source: ImageSource):
    splits = source.load(str(mnist))
    assert set(splits) == {"train", "test"}
    for split, (pixels, labels) in arrays.items():
        np.testing.assert_array_equal(splits[split].pixels[:, 0].numpy(), pixels)
        np.testing.assert_array_equal(splits[split].labels.numpy(), labels)


def test_the_folder_of_several_data_sets(mnist: Path, arrays: dict[str, Any], tmp_path: Path):
    among = tmp_path / "data" / "fashion-mnist"
    among.parent.mkdir()
    shutil.copytree(mnist, among, ignore=shutil.ignore_patterns("data"))
    for root in (among.parent, str(among.parent), among):
        assert len(FashionMNIST().load(root)["train"]) == len(arrays["train"][1])
    with pytest.raises(ValueError, match="root must"):
        MNIST().load(among.parent)


DAMAGE: dict[str, tuple[str, Any, str]] = {
    "truncated gzip": ("train-images-idx3-ubyte.gz", lambda d: d[:-20], "not a whole gzip file"),
    "not gzip": ("train-images-idx3-ubyte.gz", lambda d: b"no gzip", "not a whole gzip file"),
    "truncated": ("t10k-images.idx3-ubyte", lambda d: d[:-1], "2352 bytes .* got 2351"),
    "too long": ("t10k-images.idx3-ubyte", lambda d: d + b"x", "2352 bytes .* got 2353"),
    "empty": ("t10k-labels.idx1-ubyte", lambda d: b"", "not an idx file"),
    "header only": ("t10k-labels.idx1-ubyte", lambda d: d[:6], "not an idx file"),
    "wrong magic": ("t10k-labels.idx1-ubyte", lambda d: b"\0\0\x0d" + d[3:], "not an idx file"),
    "axes": ("t10k-images.idx3-ubyte", lambda d: b"\0\0\x08\x01" + d[4:], "with 3 axes"),
    "huge": (
        "t10k-images.idx3-ubyte",
        lambda d: d[:4] + b"\xff" * 12 + d[16:],
        "79228162458924105385300197375 bytes",
    ),
    "labels": ("t10k-labels.idx1-ubyte", lambda d: idx(np.array([1, 10, 2], np.uint8)), "0 to 9"),
    "count": ("t10k-labels.idx1-ubyte", lambda d: idx(np.zeros(2, np.uint8)), "3 images, but 2"),
    "size": (
        "t10k-images.idx3-ubyte",
        lambda d: idx(np.zeros((3, 8, 8), np.uint8)),
        r"images must be \(1, 28, 28\), got \(1, 8, 8\)",
    ),
}


@pytest.mark.parametrize(("file", "damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_idx_files_are_named(mnist: Path, file: str, damage: Any, message: str):
    path = mnist / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as error:
        MNIST().load(mnist)
    assert file in str(error.value)
    assert "\n" not in str(error.value)


def test_no_images_at_all(mnist: Path):
    for name, shape in (("images.idx3", (0, 28, 28)), ("labels.idx1", (0,))):
        (mnist / f"t10k-{name}-ubyte").write_bytes(idx(np.zeros(shape, np.uint8)))
    with pytest.raises(ValueError, match=r"t10k-images.idx3-ubyte: no images"):
        MNIST().load(mnist)


@pytest.mark.parametrize("source", [MNIST(), FashionMNIST(), CIFAR10(), CIFAR100()])
def test_the_root_is_needed(tmp_path: Path, source: ImageSource):
    with pytest.raises(ValueError, match=rf"root.*{type(source).__name__}.*None"):
        source.load(None)
    with pytest.raises(ValueError, match=r"root.*nowhere"):
        source.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=f"root.*{tmp_path}"):
        source.load(tmp_path)


def test_a_missing_file_is_named(mnist: Path):
    (mnist / "t10k-labels.idx1-ubyte").unlink()
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte or the same with \.gz"):
        MNIST().load(mnist)


# CIFAR


def cifar_batch(seed: int, classes: int, key: str = "labels", count: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "batch_label": f"batch {seed}",
        key: rng.integers(0, classes, count).tolist(),
        "data": rng.integers(0, 256, (count, 3072)).astype(np.uint8),
        "filenames": [f"image_{i}.png" for i in range(count)],
    }


def cifar10_files() -> dict[str, dict[str, Any]]:
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    return {name: cifar_batch(seed, 10) for seed, name in enumerate(names)}


def write_folder(folder: Path, files: dict[str, dict[str, Any]], protocol: int = 2) -> Path:
    folder.mkdir(parents=True)
    for name, batch in files.items():
        (folder / name).write_bytes(pickle.dumps(batch, protocol))
    return folder


def write_archive(path: Path, folder: str, files: dict[str, dict[str, Any]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, batch in files.items():
            data = pickle.dumps(batch, 2)
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def check_cifar10(splits: dict[str, Images]) -> None:
    files = cifar10_files()
    for split, names in (("train", list(files)[:5]), ("test", ["test_batch"])):
        pixels = np.concatenate([files[name]["data"] for name in names])
        labels = [label for name in names for label in files[name]["labels"]]
        # a row is the red, then the green, then the blue plane, each row by row
        np.testing.assert_array_equal(splits[split].pixels.reshape(-1, 3072).numpy(), pixels)
        assert splits[split].pixels[0, 2, 1, 5] == pixels[0, 2 * 1024 + 1 * 32 + 5]
        assert splits[split].labels.tolist() == labels


@pytest.mark.parametrize("inside", [True, False])
def test_cifar_10_unpacked(tmp_path: Path, inside: bool):
    folder = write_folder(tmp_path / "cifar-10-batches-py", cifar10_files())
    check_cifar10(CIFAR10().load(folder if inside else tmp_path))


@pytest.mark.parametrize("itself", [True, False])
def test_cifar_10_archive(tmp_path: Path, itself: bool):
    path = tmp_path / ("any.tar.gz" if itself else "cifar-10-python.tar.gz")
    write_archive(path, "cifar-10-batches-py", {"readme.html": {}, **cifar10_files()})
    check_cifar10(CIFAR10().load(path if itself else tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # nothing is unpacked


def test_cifar_100_has_the_fine_labels(tmp_path: Path):
    files = {
        "train": cifar_batch(1, 100, "fine_labels"),
        "test": cifar_batch(2, 100, "fine_labels"),
    }
    for batch in files.values():
        batch["coarse_labels"] = [0] * 4
    write_archive(tmp_path / "cifar-100-python.tar.gz", "cifar-100-python", files)
    splits = CIFAR100().load(tmp_path)
    for split, batch in files.items():
        assert splits[split].labels.tolist() == batch["fine_labels"]
        np.testing.assert_array_equal(splits[split].pixels.flatten(1).numpy(), batch["data"])


def _change(**values: Any) -> Any:
    def change(batch: dict[str, Any]) -> bytes:
        return pickle.dumps({**batch, **values}, 2)

    return change


class Evil:
    """Unpickling it would run a command."""

    def __reduce__(self):
        return os.system, ("exit 1",)


CIFAR_DAMAGE: dict[str, tuple[Any, str]] = {
    "truncated": (lambda b: pickle.dumps(b, 2)[:-100], "not a batch of images"),
    "no pickle": (lambda b: b"hello", "not a batch of images"),
    "empty": (lambda b: b"", "not a batch of images"),
    "no dict": (lambda b: pickle.dumps([1, 2], 2), "must have data and labels"),
    "no labels": (lambda b: pickle.dumps({"data": b["data"]}, 2), "must have data and labels"),
    "command": (_change(labels=Evil()), r"\.system is not allowed"),
    "objects": (_change(data=np.array([{}], dtype=object)), "arrays of object are not allowed"),
    "floats": (_change(data=np.zeros((4, 3072))), "arrays of float64 are not allowed"),
    "other integers": (_change(data=np.zeros((4, 3072), np.int64)), "data must be uint8"),
    "other size": (_change(data=np.zeros((4, 3071), np.uint8)), r"got \(4, 3071\)"),
    "text": (_change(data="pixels"), "data must be uint8"),
    "label text": (_change(labels=["a", "b", "c", "d"]), "labels must be a list of integers"),
    "label out of range": (_change(labels=[0, 1, 2, 10]), "labels must be 0 to 9, got 0 to 10"),
    "count": (_change(labels=[0, 1]), "4 images, but 2 labels"),
}


@pytest.mark.parametrize(("damage", "message"), CIFAR_DAMAGE.values(), ids=CIFAR_DAMAGE)
def test_damaged_cifar_batches_are_named(tmp_path: Path, damage: Any, message: str):
    files = cifar10_files()
    folder = write_folder(tmp_path / "cifar-10-batches-py", files)
    (folder / "data_batch_3").write_bytes(damage(files["data_batch_3"]))
    with pytest.raises(ValueError, match=message) as error:
        CIFAR10().load(tmp_path)
    assert str(folder / "data_batch_3") in str(error.value)


def test_a_missing_batch_is_named(tmp_path: Path):
    files = cifar10_files()
    del files["data_batch_4"]
    folder = write_folder(tmp_path / "a" / "cifar-10-batches-py", files)
    with pytest.raises(ValueError, match=f"root.*{folder}"):
        CIFAR10().load(tmp_path / "a")
    path = write_archive(tmp_path / "b.tar.gz", "cifar-10-batches-py", files)
    with pytest.raises(ValueError, match=r"b.tar.gz: no data_batch_4 in cifar-10-batches-py"):
        CIFAR10().load(path)


@pytest.mark.parametrize("damage", [lambda d: d[:-300], lambda d: b"no archive"])
def test_a_damaged_archive_is_named(tmp_path: Path, damage: Any):
    path = write_archive(
        tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", cifar10_files()
    )
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"cifar-10-python.tar.gz: not a whole .tar.gz"):
        CIFAR10().load(tmp_path)


# the rest


def test_digits_need_no_files():
    splits = DigitImages().load(None)
    assert [len(splits[split]) for split in ("train", "test")] == [1438, 359]
    pixels, labels = load_digits(return_X_y=True)
    known = {(tuple(row), label) for row, label in zip(pixels.tolist(), labels, strict=True)}
    found = set()
    for images in splits.values():
        grey = images.pixels.flatten(1).double() * 16 / 255
        assert (grey - grey.round()).abs().max() < 0.04  # 0 to 16 in steps of 255 / 16, rounded
        rows = grey.round().tolist()
        found |= {
            (tuple(row), label.item()) for row, label in zip(rows, images.labels, strict=True)
        }
    assert found == known
    assert torch.equal(DigitImages().load("any")["test"].pixels, splits["test"].pixels)


def test_validation_images_are_drawn_by_the_seed():
    train = DigitImages().load(None)["train"]
    kept, held = split_validation(train, 180, seed=3)
    assert (len(kept), len(held)) == (1438 - 180, 180)
    # each image is in one of them, in the order that it had
    rows = train.pixels.flatten(1).tolist()
    parts = [part.pixels.flatten(1).tolist() for part in (kept, held)]
    assert sorted(parts[0] + parts[1]) == sorted(rows)
    remaining = iter(rows)
    assert all(row in remaining for row in parts[1])
    assert torch.equal(split_validation(train, 180, seed=3)[1].pixels, held.pixels)
    assert not torch.equal(split_validation(train, 180, seed=4)[1].pixels, held.pixels)


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (1438, 0), (10, -1)])
def test_validation_arguments(count: int, seed: int):
    with pytest.raises(ValueError, match="must be"):
        split_validation(DigitImages().load(None)["train"], count, seed)


def test_images_are_checked():
    pixels = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="pixels must"):
        Images(pixels.float(), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"labels must"):
        Images(pixels, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(NotImplementedError, match="ImageSource must"):
        ImageSource().load(None)


@pytest.mark.parametrize(
    ("source", "folder", "counts"),
    [
        (MNIST(), "mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        (FashionMNIST(), "fashion-mnist", [6000] * 10),
        (CIFAR10(), "cifar-10", [5000] * 10),
    ],
)
def test_the_real_files(data_root: Path, source: ImageSource, folder: str, counts: list[int]):
    if not (data_root / folder).is_dir():
        pytest.skip(f"no {folder} in {data_root}")
    splits = source.load(data_root / folder)
    assert splits["train"].labels.bincount().tolist() == counts
    assert len(splits["test"]) == 10000
    assert source.mean is not None
    assert source.sd is not None
    values = torch.arange(256, dtype=torch.float64) / 255
    for channel, mean, sd in zip(
        splits["train"].pixels.unbind(1), source.mean, source.sd, strict=True
    ):
        shares = channel.flatten().bincount(minlength=256).double() / channel.numel()
        found = (shares * values).sum()
        spread = (shares * (values - found).square()).sum().sqrt()
        assert found.item() == pytest.approx(mean, abs=6e-5)
        assert spread.item() == pytest.approx(sd, abs=6e-5)
