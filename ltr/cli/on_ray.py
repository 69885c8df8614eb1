"""`--ray` and `--ray-workers`: work on a Ray cluster.

All machines must see the working folder under the same path, and have the same Python packages.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ltr.cli.arguments import LineParser, at_least_one
from ltr.cli.errors import CommandError, as_user_error

_NUMBER = "--ray-workers"


def add_workers(parser: LineParser) -> None:
    """Add `--ray` and `--ray-workers N`, which both set `workers`.

    `workers` is None without either option, and 0 with `--ray`: one worker for each CPU of the
    cluster.
    """
    add = parser.add_argument
    about = "use all CPUs of a Ray cluster"
    add("--ray", dest="workers", action="store_const", const=0, help=about)
    add(_NUMBER, dest="workers", type=at_least_one, metavar="N", help="use N of them")


def connect(workers: int) -> int:
    """Connect to the cluster that `RAY_ADDRESS` names, or start one on this machine.

    Args:
        workers: the number of workers; 0: one for each CPU.

    Returns:
        The number of workers.

    Raises:
        CommandError: Ray is not installed, or the cluster has fewer CPUs than `workers`.
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


@contextmanager
def on_worker(folder: str, path: list[str]) -> Iterator[None]:
    """Work in the user's folder, and import from it if it is in the driver's `path`.

    A mistake of the user becomes a `CommandError`: an error loses its traceback on the way to the
    driver, which tells whether it is a mistake.
    """
    os.chdir(folder)
    if folder in path and folder not in sys.path:
        sys.path.append(folder)
    try:
        yield
    except Exception as error:
        if (message := as_user_error(error)) is None:
            raise
        raise CommandError(message) from None
