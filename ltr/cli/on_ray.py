"""`--ray` and `--ray-workers`: work on a Ray cluster with Ray Data.

All machines must see the working folder under the same path, and have the same Python packages.
"""

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ltr.cli.arguments import LineParser
from ltr.cli.errors import CommandError, as_user_error

_NUMBER = "--ray-workers"


def add_workers(parser: LineParser) -> None:
    """Add `--ray` and `--ray-workers N`, whose result is `workers`.

    It is None without either option. It is 0 with `--ray`: one worker for each CPU of the cluster.
    """
    parser.add_argument(
        "--ray", dest="workers", action="store_const", const=0, help="use all CPUs of a Ray cluster"
    )
    parser.add_argument(
        _NUMBER, dest="workers", type=_at_least_one, metavar="N", help="use N of them"
    )


def _at_least_one(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise CommandError(f"{_NUMBER} must be a whole number >= 1, got {text!r}")
    return int(text)


def connect(workers: int) -> int:
    """Connect to the cluster that `RAY_ADDRESS` names, or start one on this machine.

    Args:
        workers: the number of workers; 0: one for each CPU.

    Returns:
        The number of workers.

    Raises:
        CommandError: Ray is not installed, or the cluster has fewer CPUs.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise CommandError("Ray is not installed: pip install 'ltr-torch[ray]'") from error
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    if not ray.is_initialized():
        ray.init(logging_level=logging.WARNING)
    cpus = int(ray.cluster_resources().get("CPU", 1))
    if workers > cpus:
        raise CommandError(f"{_NUMBER} must be <= {cpus}, the CPUs of the cluster, got {workers}")
    return workers or cpus


def map_items(
    work: Callable[..., dict[str, Any]],
    items: list[dict[str, Any]],
    given: dict[str, Any],
    *,
    on_gpu: bool = False,
) -> list[dict[str, Any]]:
    """Map items by Ray Data, and return the workers' results, by the items' numbers.

    A worker keeps its process, and so its imports, from one map to the next.

    Args:
        work: takes an item and `given`, and returns the item with results.
        items: each has a `number`.
        given: arguments of `work`, the same for all items.
        on_gpu: whether each worker has a GPU.

    Raises:
        CommandError: a mistake that a worker found.
    """
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    mapped = ray.data.from_items(items, override_num_blocks=len(items)).map(
        partial(_with_error, work=work, folder=os.getcwd(), path=[*sys.path], given=given),
        compute=ray.data.TaskPoolStrategy(size=len(items)),
        num_cpus=1,
        num_gpus=1 if on_gpu else None,
    )
    found = sorted(mapped.take_all(), key=lambda one: one["number"])
    for one in found:
        if one["error"]:
            raise CommandError(one["error"])
    return found


def _with_error(
    item: dict[str, Any],
    work: Callable[..., dict[str, Any]],
    folder: str,
    path: list[str],
    given: dict[str, Any],
) -> dict[str, Any]:
    """Do the work for one item in a worker; `error` is "", or the user's mistake."""
    enter(folder, path)
    try:
        return {**work(item, **given), "error": ""}
    except Exception as error:
        told = as_user_error(error)
        if told is None:
            raise
        return {**item, "error": told}


def enter(folder: str, path: list[str]) -> None:
    """Change to the user's folder, and import modules from it if the driver does."""
    os.chdir(folder)
    if folder in path and folder not in sys.path:
        sys.path.append(folder)
