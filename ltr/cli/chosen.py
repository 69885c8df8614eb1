"""The runs of a bench that its table shows: of a search, only the best in validation."""

import json
import math
from pathlib import Path
from typing import Any

from ltr.cli.errors import CommandError
from ltr.cli.plan import Plan, Run
from ltr.names import one_line

Result = dict[str, Any]
"""The content of a run's result.json: `variant`, `point`, `metrics`, `seconds` and more."""


FIT: dict[str, Any] = {
    "seconds": (int, float),
    "epochs": int,
    "steps": int,
    "parameters": int,
    "monitor": str,
    "mode": str,
}
"""The keys that a run's fit.json must have, and their types."""

_RESULT: dict[str, Any] = {"name": str, "metrics": dict, "environment": dict, "seed": int}


def read_json(path: Path, types: dict[str, Any]) -> dict[str, Any]:
    """Read a file that a bench wrote, and check the types of its values.

    Raises:
        CommandError: the file is damaged; the message says that it may be deleted.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for key, kind in types.items():
            if not isinstance(content, dict) or not isinstance(content.get(key), kind):
                raise ValueError(f"{key} is missing or of another type")
        return content
    except (ValueError, RecursionError) as error:
        raise CommandError(
            one_line(f"{path} is damaged ({error}): delete it, and what it stands for is run again")
        ) from None


def read_result(path: Path, run: Run) -> Result:
    """Read a run's result.json; raise `CommandError` if it is damaged or another run's."""
    result = read_json(path, {**_RESULT, **({"curves": dict, **FIT} if run.fit else {})})
    numbers = [*result["metrics"].values(), *([result.get(result["monitor"])] if run.fit else [])]
    curves = list(result.get("curves", {}).values())
    if (
        result["name"] != run.name
        or not all(value is None or isinstance(value, (int, float)) for value in numbers)
        or not all(isinstance(value, str) for value in result["environment"].values())
        or not all(isinstance(curve, list) for curve in curves)
    ):
        raise CommandError(f"{path} is not a result of {run.name}: delete it, and it is run again")
    return result


def chosen_runs(plan: Plan, results: dict[str, Result]) -> list[tuple[Run, Result | None]]:
    """Return a run for each variant at each point of the grid, with its result if it is finished.

    Of a search it is the run with the best epoch, by the value that chooses the epoch; of equal
    runs, the first. A search has no result until all its runs are finished. A run without a value,
    or with NaN, is never the better one.

    Args:
        plan: the plan of the bench.
        results: the results of the finished runs, by name.
    """
    return [_best(runs, results) for runs in _cells(plan)]


def tried_runs(plan: Plan, results: dict[str, Result]) -> list[list[tuple[Run, Result]]]:
    """Return the finished runs of each search, one list a cell, the best in validation first.

    Args:
        plan: the plan of the bench.
        results: the results of the finished runs, by name.
    """
    found = [
        [(run, results[run.name]) for run in runs if run.search and run.name in results]
        for runs in _cells(plan)
    ]
    return [sorted(one, key=lambda pair: -_goodness(pair[1])) for one in found if one]


def _cells(plan: Plan) -> list[list[Run]]:
    cells: dict[str, list[Run]] = {}
    for run in plan.runs:
        cells.setdefault(str(run.place), []).append(run)
    return list(cells.values())


def _best(runs: list[Run], results: dict[str, Result]) -> tuple[Run, Result | None]:
    if runs[0].search is None:
        return runs[0], results.get(runs[0].name)
    if any(run.name not in results for run in runs):
        return runs[0], None
    best = max(runs, key=lambda run: _goodness(results[run.name]))
    return best, results[best.name]


def _goodness(result: Result) -> float:
    value = result[result["monitor"]]
    if value is None or math.isnan(value):
        return -math.inf
    return value if result["mode"] == "max" else -value
