"""Measure how long compiled code takes to import and to compile, beside another checkout.

    python benchmarks/compiled.py [OTHER]

A first call of SigmoidRank and of RankNet, forward and backward, in new processes: with an empty
cache of numba, which compiles, and with a full one, which loads. And the import of
`ltr.operators`, which loads no numba. Seconds of CPU time, in one thread; of the warm ones the
least of three. OTHER is a checkout of an earlier commit. Takes three minutes a checkout; writes
benchmarks/results/compiled.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import RESULTS, environment, rounded, write

HERE = Path(__file__).resolve().parent.parent
CALLS = {
    "import ltr.operators": "import ltr.operators",
    "SigmoidRank, first call": """
from ltr.operators import SigmoidRank
x = torch.randn(2, 700, requires_grad=True)
begin = time.process_time()
SigmoidRank()(x).sum().backward()
""",
    "RankNet, first call": """
from ltr.losses import RankNet
x = torch.randn(2, 700, requires_grad=True)
y = torch.randint(0, 4, (2, 700))
begin = time.process_time()
RankNet()(x, y).backward()
""",
}
PROGRAM = """
import time, torch
torch.set_num_threads(1)
begin = time.process_time()
{call}
print(time.process_time() - begin)
"""


def seconds(folder: Path, call: str, cache: str) -> float:
    """Return the CPU time of a call in a new process with this cache folder."""
    clean = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": cache}
    clean["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-c", PROGRAM.format(call=call)]
    done = subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True)
    return float(done.stdout)


def measured(folder: Path) -> dict[str, dict[str, float]]:
    """Return the seconds of each call with an empty cache and with a full one."""
    found = {}
    for name, call in CALLS.items():
        with tempfile.TemporaryDirectory() as cache:
            cold = seconds(folder, call, cache)
            warm = min(seconds(folder, call, cache) for _ in range(3))
        found[name] = {"cold": rounded(cold), "warm": rounded(warm)}
        print(f"{name:26} cold {cold:8.3f} s, warm {warm:8.3f} s  ({folder.name})", flush=True)
    return found


def main() -> None:
    """Measure this checkout and the other, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--output", type=Path, default=RESULTS / "compiled.json")
    options = parser.parse_args()
    before = None if options.other is None else measured(options.other.resolve())
    write(
        options.output,
        {"environment": environment(), "before": before, "after": measured(HERE)},
    )


if __name__ == "__main__":
    main()
