"""Write the numbers into docs/kernels/table.md: `python docs/kernel_table.py`.

The text between `<!-- table NAME -->` and `<!-- end -->` comes from ltr/kernels/table.json. A test
checks that the page and the file agree.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "kernels" / "table.md"
TABLE = ROOT / "ltr" / "kernels" / "table.json"
PROFILES = {
    "logistic": "1/(1 + exp(x))",
    "softplus": "log(1 + exp(-x))",
    "gaussian": "exp(-x^2)",
    "normal": "Phi(-x)",
}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the first two columns aligned left, numbers aligned right.

    >>> print(table(["a", "b", "c"], [["x", "y", "1"]]))
    | a | b | c |
    | :-- | :-- | --: |
    | x | y | 1 |
    """
    lines = [header, [":--", ":--", *["--:"] * (len(header) - 2)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def kernels(stored: Mapping[str, Any]) -> str:
    """Return the table of the kernels' profiles: nodes, errors and weights by order."""
    rows = []
    for name, profile in PROFILES.items():
        for level, entry in stored[name].items():
            first, step = (complex(*entry[key]) for key in ("first", "step"))
            line = "1, 2, ..." if step == 1 else f"{first.real:g} + {step.imag:g} i (m + 1/2)"
            sizes = [sum(abs(complex(*w)) for w in row) for row in entry["weights"]]
            errors = [f"{error:.1e}" for error in entry["errors"]]
            weights = ", ".join(f"{size:.3g}" for size in sizes)
            rows.append([profile, level, line, str(entry["count"]), *errors, weights])
    header = ["f", "level", "nodes at", "nodes", "error of f", "of f'", "of f''", "weights"]
    return table(header, rows)


KINDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "kernels": kernels,
}


def filled(page: str) -> str:
    """Return the page with its tables replaced by those of table.json."""
    stored = json.loads(TABLE.read_text())
    return re.sub(
        r"(<!-- table (.+?) -->).*?(<!-- end -->)",
        lambda match: f"{match[1]}\n\n{KINDS[match[2]](stored)}\n\n{match[3]}",
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
