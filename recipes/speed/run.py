"""Section 5.5 of the SoftSort paper: time, memory and progress of a step by the lists' length.

    OMP_NUM_THREADS=1 python -m recipes.speed.run --n 100 1000
    OMP_NUM_THREADS=1 python -m recipes.speed.run --overlay paper --only speed-n-4000

A run takes a step with each operator in turn, so that the ratios are of steps side by side: 100
steps up to 1000 items; beyond, 100 steps with SoftSort of ltr alone (see `steps` in config.yaml).
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from recipes.speed.figure import speed
from recipes.sweep import Run, Sweep

OPERATORS = {
    "neuralsort_published": "NeuralSort as published",
    "neuralsort_fixed": "NeuralSort fixed",
    "softsort_published": "SoftSort as published",
    "neuralsort": "NeuralSort of ltr",
    "softsort": "SoftSort of ltr",
}
COSTS = ["n^3", "n^2", "n^2", "no matrix", "no matrix"]
RATIO = "test_neuralsort_published_to_softsort_published"
PUBLISHED = {"Prillo and Eisenschlos (2020), section 5.5": {("speed", RATIO): {4000: 6.0}}}


def metrics() -> dict[str, str]:
    """Return the logged names of what the table shows, and their headings."""
    found = {}
    for (name, title), cost in zip(OPERATORS.items(), COSTS, strict=True):
        found[f"test_cpu_ms_{name}"] = f"ms a step: {title}, {cost}"
    for base in ("softsort_published", "softsort"):
        for name, title in OPERATORS.items():
            if name != base and (name, base) != ("softsort", "softsort_published"):
                found[f"test_{name}_to_{base}"] = f"times {OPERATORS[base]}: {title}"
    for name, title in OPERATORS.items():
        found[f"test_mb_{name}"] = f"MB: {title}"
    # the first three take as many steps
    several = ", ".join([*OPERATORS.values()][:3])
    found["test_steps_neuralsort_published"] = f"steps: {several}"
    for name in ("neuralsort", "softsort"):
        found[f"test_steps_{name}"] = f"steps: {OPERATORS[name]}"
    for name, title in OPERATORS.items():
        found[f"test_spearman_{name}"] = f"Spearman at the end: {title}"
    return found


def runs(
    overlays: Sequence[str],
    n: Sequence[int] = (100, 150, 200, 300, 500, 1000, 1500, 2000, 3000, 4000),
) -> Iterator[Run]:
    """Yield a run for each length of list."""
    for length in n:
        yield Run("speed", {"n": length}, {"data.n": length})


SWEEP = Sweep(
    Path(__file__).parent, runs, metrics(), "n", rows="metric", published=PUBLISHED, figure=speed
)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.speed.run"))
