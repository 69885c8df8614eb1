"""The values that a run logged in each epoch, read from its CSV logs for its results."""

from pathlib import Path
from typing import Any

import pandas as pd

Curves = dict[str, list[Any]]
"""`epoch`, counted from 1, and the logged values by name; None where an epoch has none."""


def read_curves(folder: Path) -> Curves:
    """Return the curves of a run. The parts of a resumed run are joined.

    An epoch's value is the last one that was logged in it, to six digits. Tests are left out.

    Args:
        folder: the run's folder; its logs are in `logs/version_0` and so on.
    """
    files = [path for path in folder.glob("logs/version_*/metrics.csv") if path.stat().st_size]
    files.sort(key=lambda path: int(path.parent.name.partition("_")[2]))
    if not files:
        return {}
    rows = pd.concat(pd.read_csv(path) for path in files)
    rows = rows.drop(columns=rows.filter(regex="^(step$|test_)").columns)
    epochs = rows.groupby("epoch").last().dropna(how="all").dropna(how="all", axis=1)
    curves = {
        str(name): [None if pd.isna(x) else float(f"{x:.6g}") for x in values]
        for name, values in epochs.items()
    }
    return {"epoch": [int(number) + 1 for number in epochs.index], **curves} if curves else {}
