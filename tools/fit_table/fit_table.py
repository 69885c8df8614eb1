"""Fit the table of exponential sums: `python tools/fit_table/fit_table.py`.

It writes ltr/kernels/table.json, in a few minutes, and needs SciPy and mpmath. The table is part of
the repository. The tests measure its errors again, and `pytest -m slow` fits it again.
"""

import json
import re
from typing import Any

from fit_sums import fit_sums

from ltr.kernels.table import PATH


def text(table: Any) -> str:
    """JSON, the innermost lists on one line.

    >>> print(text({"a": [[1.0, 0.5], [2.0, 0.0]]}))
    {
     "a": [
      [1.0, 0.5],
      [2.0, 0.0]
     ]
    }
    """
    flat = json.dumps(table, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", _one_line, flat)


def _one_line(found: re.Match[str]) -> str:
    return " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]")


if __name__ == "__main__":
    PATH.write_text(text(fit_sums()) + "\n")
