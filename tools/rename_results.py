"""Apply renames of classes and arguments to the committed results of the recipes.

Each `results.json` holds a digest of the configuration. A rename in a recipe's YAML changes the
digest, although every measured number stays true. This script renames the same names in the
results and computes the digest again. It changes no measured value. It refuses results whose
configuration differs from the recipe's in more than these names.

    python tools/rename_results.py
"""

import json
from typing import Any

from ltr.cli.bench import write_json
from ltr.cli.layers import differences
from ltr.cli.plan import make_plan
from ltr.cli.recipes import find_recipes

CLASSES = {
    "AutoencoderNeighbours": "AutoencoderNeighbors",
    "ElementsInPlace": "ElementwiseAccuracy",
    "PerfectOrder": "ExactMatch",
    "PixelNeighbours": "PixelNeighbors",
    "SignedLog1pStandardise": "SignedLog1pStandardize",
    "SoftNearestNeighbours": "SoftNearestNeighbors",
    "Standardise": "Standardize",
}
ARGUMENTS = {"normalise": "normalize", "short": "short_list_value"}


def main() -> None:
    """Rewrite the results that hold an old name or an old digest."""
    for recipe in find_recipes().values():
        for path in sorted(recipe.folder.glob("results*.json")):
            before = json.loads(path.read_text(encoding="utf-8"))
            if (after := renamed_results(before)) != before:
                write_json(path, after)
                print(f"rewrote {path}")


def renamed_results(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results with new names in their configurations, and with their new digest.

    Raises:
        ValueError: the renamed configuration is not the recipe's.
    """
    runs = [
        {**run, "overrides": renamed(run["overrides"])} if "overrides" in run else run
        for run in results["runs"]
    ]
    after = {**results, "config": renamed(results["config"]), "runs": runs}
    # a part of the grid may have been run, with values of the command line
    values = {**results["grid"], **results.get("search", {})}
    args = [f"--{key}={json.dumps(value)}" for key, value in values.items()]
    plan = make_plan(results["recipe"].replace("-", "/", 1), [*results["overrides"], *args])
    found = {run["name"]: run.get("overrides") for run in runs}
    planned = {run.name: run.config if found.get(run.name) else None for run in plan.runs}
    if names := differences({**after["config"], **found}, {**plan.config, **planned}):
        raise ValueError(f"results of {plan.recipe} are of another configuration: {names[:3]}")
    return {**after, "digest": plan.digest}


def renamed(config: Any) -> Any:
    """Return a configuration with the new names of arguments and of classes.

    >>> renamed({"class_path": "PerfectOrder", "init_args": {"short": 0}})
    {'class_path': 'ExactMatch', 'init_args': {'short_list_value': 0}}
    """
    if isinstance(config, dict):
        return {ARGUMENTS.get(key, key): renamed(value) for key, value in config.items()}
    if isinstance(config, list):
        return [renamed(value) for value in config]
    if isinstance(config, str):
        module, dot, name = config.rpartition(".")
        return f"{module}{dot}{CLASSES.get(name, name)}"
    return config


if __name__ == "__main__":
    main()
