"""The values that a run logged in each epoch, read from its CSV logs for its results."""

import csv
from pathlib import Path
from typing import Any

Curves = dict[str, list[Any]]
"""`epoch`, counted from 1, and the logged values by name; None where an epoch has none."""


def read_curves(folder: Path) -> Curves:
    """Return the curves of a run. The parts of a resumed run are joined.

    An epoch's value is the last one that was logged in it, to six digits. Tests are left out.

    Args:
        folder: the run's folder; its logs are in `logs/version_0` and so on.
    """
    epochs: dict[int, dict[str, float]] = {}
    for path in sorted(folder.glob("logs/version_*/metrics.csv"), key=_part):
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                values = {name: float(text) for name, text in row.items() if text and _is_of(name)}
                if values:
                    epochs.setdefault(int(row["epoch"]), {}).update(values)
    numbers = sorted(epochs)
    names = dict.fromkeys(name for number in numbers for name in epochs[number])
    curves: Curves = {name: [_rounded(epochs[n].get(name)) for n in numbers] for name in names}
    return {"epoch": [number + 1 for number in numbers], **curves} if numbers else {}


def _part(path: Path) -> int:
    return int(path.parent.name.partition("_")[2])


def _is_of(name: str) -> bool:
    return name not in ("epoch", "step") and not name.startswith("test_")


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
