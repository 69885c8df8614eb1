"""k, temperature and learning rate by validation, as published: 72 trainings for each operator.

    python -m recipes.knn.search --data.root data --only SoftSort --images MNIST --lr 0.001
    python -m recipes.knn.search --data.root data --overlay paper  # published scale, on a GPU

A training has one epoch (search.yaml); with the overlay `paper` it has the published 200.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import cast

import pandas as pd

from recipes.knn.run import ACCURACIES, IMAGES, operator, options_of
from recipes.results import Result
from recipes.sweep import Run, Sweep
from recipes.tables import length_of, markdown, number

VARIANTS = ["SoftSort", "NeuralSort", "SoftSort, stochastic", "NeuralSort, stochastic"]


def runs(
    overlays: Sequence[str],
    images: Sequence[str] = IMAGES,
    seeds: Sequence[int] = (1,),
    top_k: Sequence[int] = (1, 3, 5, 9),
    temperature: Sequence[float] = (1.0, 4.0, 16.0, 64.0, 128.0, 512.0),
    lr: Sequence[float] = (0.001, 0.0001, 0.00001),
) -> Iterator[Run]:
    """Yield a run for each operator, data set, seed, k, temperature and learning rate."""
    for variant, name, seed in product(VARIANTS, images, seeds):
        for k, t, rate in product(top_k, temperature, lr):
            options = {"data.images": f"recipes.images.{name}", "seed_everything": seed}
            options |= options_of(variant, name, overlays)
            options |= {"model.operator": operator(variant, t), "model.top_k": k}
            options["model.optimizer.lr"] = rate
            point = {"images": name, "seed": seed, "top_k": k, "temperature": t, "lr": rate}
            yield Run(variant, point, options)


def choices(planned: list[Run], results: dict[str, Result]) -> str:
    """Return a table of each search, the best in validation first, with its test accuracy."""
    rows = [
        {"position": (run.variant, run.point["images"], run.point["seed"]), **run.point}
        | {"val_accuracy": found.get("val_accuracy"), "test": found.get("metrics")}
        for run in planned
        for found in [results.get(run.name, {})]
    ]
    parts = []
    for position, tried in pd.DataFrame(rows).groupby("position", sort=False):
        variant, images, seed = cast(tuple[str, str, int], position)
        done = tried.dropna(subset=["test"]).sort_values(
            "val_accuracy", ascending=False, kind="stable"
        )
        if done.empty:
            continue
        part = "" if len(done) == len(tried) else f" ({len(done)} of {len(tried)})"
        length = length_of(SWEEP.epochs, results.values())
        parts.append(f"### {variant}, {images}, seed {seed}: tried{part} ({length})")
        columns = {name: done[name].astype(str).to_list() for name in ("temperature", "lr")}
        columns["val_accuracy"] = [number(value) for value in done["val_accuracy"]]
        grid = pd.DataFrame(columns, index=pd.Index(done["top_k"], name="top_k"))
        parts.append(markdown(grid))
        accuracy = number(done["test"].iloc[0]["test_accuracy"])
        numbers: dict[str, float] = dict(zip(IMAGES, ACCURACIES[variant][1], strict=True))
        published = numbers.get(images)
        beside = f"; published: {published}" if published else ""
        parts.append(f"Test accuracy of the first: {accuracy}{beside}.")
    return "\n\n".join(parts)


SWEEP = Sweep(Path(__file__).parent, runs, {}, "images", epochs=200, below=choices)

if __name__ == "__main__":
    argv = ["--overlay", "search", *sys.argv[1:]]
    sys.exit(SWEEP.main("recipes.knn.search", argv))
