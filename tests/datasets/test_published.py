"""The readers on small files in the form of each public set that the page names."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from ltr.datasets import TableDataModule
from ltr.datasets.splits import find_splits


class Published(NamedTuple):
    """A set: its files, by their paths in its folder, and what they hold."""

    name: str
    layout: tuple[str, ...]
    features: int
    labels: tuple[int, int]
    folds: int
    sets: int


PUBLISHED = [
    Published(
        "MSLR-WEB10K", ("Fold1/train.txt", "Fold1/vali.txt", "Fold1/test.txt"), 136, (0, 4), 5, 1
    ),
    Published(
        "MSLR-WEB30K", ("Fold1/train.txt", "Fold1/vali.txt", "Fold1/test.txt"), 136, (0, 4), 5, 1
    ),
    Published(
        "Yahoo-LTRC",
        ("set1.train.txt", "set1.valid.txt", "set1.test.txt", "set2.train.txt and so on"),
        700,
        (0, 4),
        1,
        2,
    ),
    Published("Istella", ("train.txt", "test.txt"), 220, (0, 4), 1, 1),
    Published("Istella-S", ("train.txt", "vali.txt", "test.txt"), 220, (0, 4), 1, 1),
    Published("Istella-X", ("train.txt", "vali.txt", "test.txt"), 220, (0, 4), 1, 1),
    Published("MQ2007", ("Fold1/train.txt", "Fold1/vali.txt", "Fold1/test.txt"), 46, (0, 2), 5, 1),
    Published("MQ2008", ("Fold1/train.txt", "Fold1/vali.txt", "Fold1/test.txt"), 46, (0, 2), 5, 1),
    Published(
        "OHSUMED",
        ("Fold1/trainingset.txt", "Fold1/validationset.txt", "Fold1/testset.txt"),
        25,
        (0, 2),
        5,
        1,
    ),
]
BY_NAME = {one.name: one for one in PUBLISHED}
DOCUMENTS = 4  # of a query


def lines(one: Published, queries: range, seed: int) -> list[str]:
    """Lines as the publisher writes them."""
    draw = random.Random(seed)
    found = []
    for query in queries:
        for position in range(DOCUMENTS):
            label = one.labels[position % 2]  # the smallest and the largest grade
            pairs = [f"{i}:{draw.random():.6f}" for i in range(1, one.features + 1)]
            end = ""
            if one.name.startswith("MSLR"):
                end = " "
            elif one.name == "Yahoo-LTRC":  # sparse, and a set lacks features throughout
                pairs = [pairs[i] for i in sorted(draw.sample(range(one.features - 1), 20))]
            elif one.name == "MQ2007":  # the version NULL
                pairs[39] = "40:NULL"
                end = " #docid = GX029-35-5894638 inc = 0.0119881192468859 prob = 0.139842"
            elif one.name == "MQ2008":
                end = " #docid = GX004-93-7097963 inc = 0.0428115405134536 prob = 0.860366"
            elif one.name == "OHSUMED":
                end = " #docid = 40626\r"
            found.append(f"{label} qid:{query} {' '.join(pairs)}{end}\n")
    return found


def fill(one: Published, root: Path) -> Path:
    """Write a folder with the layout of a set: each split of each fold has other queries."""
    files = [file for file in one.layout if " " not in file]
    for fold in range(1, max(one.folds, one.sets) + 1):
        for number, file in enumerate(files):
            name = file.replace("Fold1", f"Fold{fold}").replace("set1", f"set{fold}")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            first = 100 * fold + 10 * number
            text = "".join(lines(one, range(first, first + 3), first))
            path.write_bytes(text.encode())
    return root


@pytest.mark.parametrize("name", BY_NAME)
def test_small_files_of_the_same_form(name, tmp_path):
    one = BY_NAME[name]
    root = fill(one, tmp_path / name)
    without_val = name == "Istella"
    for fold in {1, max(one.folds, one.sets)}:
        data = TableDataModule(root, fold=fold, validation=0.5 if without_val else None)
        data.setup("fit")
        data.dataset("test")
        queries = [query for split in data.splits.values() for query in split.qids]
        assert len(set(queries)) == 3 * len(find_splits(root, fold))
        assert all(query.startswith(str(fold)) for query in queries)
        # a set may lack features throughout
        assert data.num_features <= one.features
        assert data.num_features == one.features or name == "Yahoo-LTRC"
        labels = {label for split in data.splits.values() for label in split.labels.tolist()}
        assert labels == set(one.labels)
        for batch in (*data.train_dataloader(), *data.val_dataloader(), *data.test_dataloader()):
            assert data.feature_transform(batch["features"]).isfinite().all()


def test_a_set_or_fold_that_is_not_there(tmp_path):
    yahoo = fill(BY_NAME["Yahoo-LTRC"], tmp_path / "yahoo")
    assert find_splits(yahoo, 2)["val"].name == "set2.valid.txt"
    assert find_splits(str(yahoo)) == find_splits(yahoo, 1)
    with pytest.raises(ValueError, match="path must be a path, got 3"):
        find_splits(3)
    with pytest.raises(ValueError, match=r"fold must be one of .*, got '1'"):
        find_splits(yahoo, "1")
    with pytest.raises(ValueError, match=r"fold.*3"):
        find_splits(yahoo, 3)
    for file in yahoo.glob("set2.*"):
        file.unlink()
    assert find_splits(yahoo, 1)["test"].name == "set1.test.txt"
    with pytest.raises(ValueError, match=r"fold.*2"):
        find_splits(yahoo, 2)


def test_the_real_folders_are_as_they_are_described(data_root):
    for name, (first, second, third) in {
        "MQ2008": ("train", "vali", "test"),
        "OHSUMED": ("trainingset", "validationset", "testset"),
    }.items():
        one = BY_NAME[name]
        files = {f"Fold1/{file}.txt" for file in (first, second, third)}
        assert set(one.layout) == files
        assert all((data_root / name / f"{file}.gz").is_file() for file in files)
        folds = [path for path in (data_root / name).iterdir() if path.name.startswith("Fold")]
        assert len(folds) == one.folds


def test_the_page_names_every_set():
    page = (Path(__file__).parents[2] / "docs" / "public-data.md").read_text("utf-8")
    for one in PUBLISHED:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| [{one.name}](")]
        assert f"| {one.features} | {one.labels[0]} to {one.labels[1]} | {one.folds} |" in line
        assert all(file in page for file in one.layout)
