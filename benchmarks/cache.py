"""The cost of comparing a cache's checksums, beside the first epoch over its lists.

    python benchmarks/cache.py

For each shape a store of one shard of random lists is written, and timed are: the checksum of the
shard's file, CRC-32 of it (zlib) for comparison, a pass of a `DataLoader` over all lists in batches
of 64, and an epoch of training (that loader, a linear scorer, softmax loss, SGD: about the least
that training can be). The shapes are those of MQ2008, of MSLR-WEB10K, of long lists and of wide
features.
"""

import argparse
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, environment, rounded, times, write
from torch.utils.data import DataLoader

from ltr.datasets import ListDataset, collate_lists, open_store, write_store
from ltr.datasets.checksums import file_checksum
from ltr.losses import ListNet
from ltr.models import LinearScorer

SHAPES = {
    "24 documents of 46 features": (2000, 24, 46),
    "120 documents of 136 features": (2000, 120, 136),
    "1000 documents of 136 features": (300, 1000, 136),
    "120 documents of 700 features": (600, 120, 700),
}


def random_lists(lists: int, documents: int, features: int) -> ListDataset:
    """Return lists of half to one and a half times `documents`."""
    draw = np.random.default_rng(0)
    offsets = np.r_[0, np.cumsum(draw.integers(documents // 2, documents * 3 // 2 + 1, lists))]
    return ListDataset(
        draw.random((offsets[-1], features), dtype=np.float32),
        draw.integers(0, 5, offsets[-1]).astype(np.float32),
        offsets,
        [str(i) for i in range(lists)],
    )


def measured(lists: int, documents: int, features: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of each, and the share of the checksums."""
    with tempfile.TemporaryDirectory() as folder:
        write_store(random_lists(lists, documents, features), folder, shard_bytes=1 << 40)
        [path] = Path(folder).glob("*-000000.arrow")
        raw = np.memmap(path, np.uint8, "r")
        data = open_store(folder)
        scorer, loss = LinearScorer(num_features=features), ListNet()
        optimizer = torch.optim.SGD(scorer.parameters(), lr=1e-3)

        def epoch(train: bool) -> None:
            for batch in DataLoader(data, 64, collate_fn=collate_lists):
                if train:
                    optimizer.zero_grad()
                    scores = scorer(batch["features"], batch["mask"])
                    loss(scores, batch["labels"], batch["mask"]).backward()
                    optimizer.step()

        seconds = times(
            {
                "checksums": lambda: file_checksum(path),
                "crc32": lambda: zlib.crc32(raw),
                "loader": lambda: epoch(train=False),
                "training": lambda: epoch(train=True),
            },
            rounds,
        )
        return {
            "lists": lists,
            "megabytes": rounded(len(raw) / 1e6),
            "seconds": {name: rounded(value) for name, value in seconds.items()},
            "gigabytes_per_second": {
                name: rounded(len(raw) / 1e9 / seconds[name]) for name in ("checksums", "crc32")
            },
            "checksums_of_loader": rounded(seconds["checksums"] / seconds["loader"]),
            "checksums_of_training": rounded(seconds["checksums"] / seconds["training"]),
        }


def main() -> None:
    """Measure all shapes and write the results."""
    parser = argparse.ArgumentParser(description="Time the checksums of a cache.")
    parser.add_argument("--lists", type=int, help="in each shape; default: 300 to 2000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=RESULTS / "cache.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name, (lists, *size) in SHAPES.items():
        found[name] = measured(options.lists or lists, *size, rounds=options.rounds)
        ratios = [found[name][f"checksums_of_{part}"] for part in ("loader", "training")]
        print(f"{name}: {ratios[0]:.1%} of the loader's pass, {ratios[1]:.1%} of training")
    write(options.output, {"environment": environment(), "shapes": found})


if __name__ == "__main__":
    main()
