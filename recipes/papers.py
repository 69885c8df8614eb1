"""Train the papers' tables at their published length, cell by cell, on idle cores.

    python -m recipes.papers --data data --output runs/papers
    python -m recipes.papers --data data --output runs/papers --status

Each cell runs with the lowest priority in one thread, one cell at a time. It keeps a checkpoint of
each epoch in `--output`; the same command resumes there, also after a kill. A finished cell is
added to the recipe's `results-paper.json` at once, with its seconds, commit and processor.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

CELLS: list[tuple[str, list[str]]] = [
    ("sort", [f"softsort-n-{n}-seed-1" for n in (5, 7, 9, 15)]),
    ("sort", ["neuralsort-n-5-seed-1"]),
    ("quantile", ["softsort-n-5-seed-1"]),
    ("knn", ["softsort-images-mnist-seed-1"]),
    ("sort", ["SoftSort", "NeuralSort", "SoftSort, stochastic", "NeuralSort, stochastic"]),
    ("sort", ["SinkhornSort", "Gumbel-Sinkhorn"]),
    ("quantile", ["SoftSort", "NeuralSort", "SoftSort, stochastic", "NeuralSort, stochastic"]),
    ("knn", ["SoftSort", "NeuralSort", "SoftSort, stochastic", "NeuralSort, stochastic", "CNN"]),
]
"""The cells in the order in which they are trained: a recipe, and runs or variants of its sweep."""

FOLDERS = {"sort": "mnist", "quantile": "mnist", "knn": "."}
"""The folder of each recipe's images, below `--data`."""

OPTIONS = {"sort": ["--trainer.precision", "bf16-mixed"]}
"""Options of `ltr fit` for all cells of a recipe, beside those of its overlay `paper`."""


def command(recipe: str, runs: Sequence[str], data: Path, out: Path) -> list[str]:
    """Return the command that trains some runs of a recipe and adds them to its results.

    >>> command("sort", ["SoftSort"], Path("data"), Path("out"))[3:7]
    ['--overlay', 'paper', '--data.root', 'data/mnist']
    """
    results = Path(__file__).parent / recipe / "results-paper.json"
    return [
        *(sys.executable, "-m", f"recipes.{recipe}.run", "--overlay", "paper"),
        *("--data.root", str(data / FOLDERS[recipe]), *OPTIONS.get(recipe, [])),
        *("--output", str(out / recipe), "--results", str(results)),
        *(word for run in runs for word in ("--only", run)),
    ]


def main() -> int:
    """Train all cells that are not finished, or tell what is left; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of mnist, cifar-10, ...")
    parser.add_argument("--output", type=Path, default=Path("runs/papers"), help="of checkpoints")
    parser.add_argument("--status", action="store_true", help="tell what is left; train nothing")
    args = parser.parse_args()
    if args.status:
        for recipe in FOLDERS:
            runs = [run for name, runs in CELLS if name == recipe for run in runs]
            print(f"{recipe}:", flush=True)
            subprocess.run([*command(recipe, runs, args.data, args.output), "--status"], check=True)
        return 0
    os.nice(19)
    args.output.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(args.output / "lock", timeout=0):
            for recipe, runs in CELLS:
                words = command(recipe, runs, args.data, args.output)
                if code := subprocess.run(
                    words, env=os.environ | {"OMP_NUM_THREADS": "1"}
                ).returncode:
                    return code
    except Timeout:
        parser.error(f"--output is in use by another process: {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
