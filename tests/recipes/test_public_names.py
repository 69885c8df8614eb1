"""Recipes are programs of users: what they import of `ltr` is public, but for the names below."""

import ast
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import recipes

INNER = {
    # checks of arguments, for the same messages as ltr's own classes
    "ltr.shapes": "check_at_least check_choice check_lists check_number check_whole count "
    "masked_fill refuse_weights upcast",
    "ltr.operators.permutation": "check_axis",
    # base classes of modules that are not a `Ranker`
    "ltr.modules.base": "ListMean ScoringModule TrainableModule check_part missing_callbacks",
    "ltr.training.losses": "ScoredLists",
    "ltr.losses.permutation": "true_order",
    # base classes and readers of data
    "ltr.arrays": "rank",
    "ltr.datasets.loaders": "SplitDataModule",
    "ltr.datasets.splits": "find_splits",
    # a sweep runs `ltr fit` in its own process
    "ltr": "__version__",
    "ltr.cli.arguments": "LineParser",
    "ltr.cli.errors": "CommandError",
    "ltr.cli.lightning_cli": "RankingCLI",
    "ltr.cli.options": "given_options load_options pairs",
    "ltr.cli.quiet": "quiet",
    "ltr.cli.recipes": "find_configs",
    "ltr.files": "atomic_write",
    "ltr.modules.checkpoints": "train_steps",
    "ltr.names": "nearest one_line",
}
"""The other names, by module. The list may only become shorter."""


def test_recipes_import_public_names():
    inner = defaultdict(set)
    for path in sorted(Path(recipes.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.partition(".")[0] == "ltr":
                there = import_module(module)
                names = {each.name for each in node.names}
                assert not [name for name in names if not hasattr(there, name)], path
                inner[module] |= names - {*getattr(there, "__all__", ())}
    found = {module: names for module, names in inner.items() if names}
    assert found == {module: {*names.split()} for module, names in INNER.items()}
