"""NDCG@10 of one network by its loss: soft NDCG beside softmax and XENDCG, with paired tests.

    LTR_DATA=... python benchmarks/soft_ndcg_goal.py --cells runs/soft_ndcg_goal

One network of `NeuralRanker`'s defaults, with the seeds 0, 1 and 2. They draw the generated tables
of 10,000, 100,000 and 300,000 rows, too; the other sets are those of `quality.py`. No choice was
made on these seeds: see `soft_ndcg_trials.py`. The NDCG@10 of all test lists is kept in the folder
`--cells`, one file for each set, loss and seed, where an interrupted run resumes.

Soft NDCG is compared with softmax and with XENDCG by a randomization test over lists. On the
generated sets each seed has lists of its own; on the others a list has its mean over the seeds. The
p-values are corrected by Holm for the sets and both losses.
"""

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, environment, rounded, write
from quality_sets import SETS
from soft_ndcg_trials import SIZES, trial

from ltr.files import atomic_write
from ltr.metrics import compare, holm

SEEDS = (0, 1, 2)
OURS = "SoftNDCG(gain='linear', dequantize=True, softmax=1.0, mean='harmonic')"
OTHERS = ("SoftmaxLoss()", "XENDCG('random')")
REST = (
    "SoftNDCG(gain='linear', dequantize=True, mean='harmonic')",
    "SoftNDCG(mean='harmonic')",
    "ApproxNDCG(0.1)",
)
"""For the table alone, without a test."""

LOSSES = (*OTHERS, OURS, *REST)
DATA = (*SIZES, *SETS)


def cell(out: Path, data: str, name: str, seed: int) -> Path:
    """Return the file of a set, a loss and a seed."""
    words = ("".join(c if c.isalnum() else "-" for c in text) for text in (data, name))
    return out / "_".join((*words, f"{seed}.npz"))


def run(out: Path, data: str, name: str, seed: int) -> None:
    """Train, and keep NDCG@10 of the test lists."""
    path = cell(out, data, name, seed)
    if path.exists():
        return
    lists: list[np.ndarray] = []
    found = trial(name, data, seed, test_lists=lists)
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part, open(part, "wb") as file:
        np.savez(file, ndcg=np.concatenate(lists), train=found["train"], seconds=found["seconds"])
    print(data, name, seed, found["test"], found["train"], found["seconds"], flush=True)


def summarize(out: Path) -> dict[str, Any]:
    """Return means, differences and tests of the sets whose files are all there."""
    rows: dict[str, Any] = {}
    tests: list[dict[str, Any]] = []
    for data in DATA:
        done = [x for x in LOSSES if all(cell(out, data, x, seed).exists() for seed in SEEDS)]
        if not {OURS, *OTHERS} <= {*done}:
            continue
        cells = {x: [np.load(cell(out, data, x, seed)) for seed in SEEDS] for x in done}
        join = np.concatenate if data in SIZES else lambda parts: np.mean(parts, axis=0)
        values = {name: join([one["ndcg"] for one in found]) for name, found in cells.items()}
        row: dict[str, Any] = {"lists": len(values[OURS]), "losses": {}, "differences": {}}
        for name, found in cells.items():
            row["losses"][name] = {
                "test": rounded(float(values[name].mean())),
                "train": rounded(float(np.mean([one["train"] for one in found]))),
                "seconds": rounded(float(np.mean([one["seconds"] for one in found]))),
            }
        for other in OTHERS:
            result = compare(values[other], values[OURS], names=(other, OURS)).models[1]
            assert result.difference is not None
            interval = [rounded(x) for x in result.difference]
            row["differences"][other] = {"interval": interval, "p": result.p}
            tests.append(row["differences"][other])
        rows[data] = row
    for test, p in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = rounded(p)
    return rows


def main() -> None:
    """Train what is missing, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=Path, required=True)
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for data, seed, name in itertools.product(arguments.data, SEEDS, arguments.losses):
        run(arguments.cells, data, name, seed)
    write(RESULTS / "soft_ndcg_goal.json", {**environment(), "sets": summarize(arguments.cells)})


if __name__ == "__main__":
    main()
