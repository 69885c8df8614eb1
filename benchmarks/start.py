"""The time in which a command answers, beside the imports that training needs.

    python benchmarks/start.py

Each round starts `python -c "import lightning, torchmetrics, jsonargparse"` and then each command,
and divides its CPU time by that of the imports; printed is the median over the rounds, which the
first round, with the files not yet in memory, does not move. Processes are started in an empty
folder.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import RESULTS, environment, rounded, write

IMPORTS = ["-c", "import lightning, torchmetrics, jsonargparse"]
LTR = ["-c", "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))"]
COMMANDS = {
    "ltr --help": ["--help"],
    "ltr recipes": ["recipes"],
    "ltr train --help": ["train", "--help"],
    "ltr fit --help": ["fit", "--help"],
    "ltr predict --help": ["predict", "--help"],
    "ltr fit --help-all": ["fit", "--help-all"],
    "ltr fit --config digits --print_config": ["fit", "--config", "digits", "--print_config"],
}


def seconds(args: list[str], folder: str) -> float:
    """Return the CPU time of a Python process that ends well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time the start of the commands.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "start.json")
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            imports = seconds(IMPORTS, folder)
            for name, args in COMMANDS.items():
                found[name].append((imports, seconds([*LTR, *args], folder)))
    rows: list[dict[str, Any]] = []
    for name, pairs in found.items():
        own = rounded(statistics.median(own for _, own in pairs))
        ratio = rounded(statistics.median(own / base for base, own in pairs))
        rows.append({"command": name, "seconds": own, "of_imports": ratio})
        print(f"{name:40s} {own:6.2f} s, {ratio:5.2f} of the imports")
    write(options.output, {"environment": environment(), "rows": rows})


if __name__ == "__main__":
    main()
