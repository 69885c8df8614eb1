"""`--ray-workers`: the commands on a Ray cluster, by Ray Train and Ray Data.

All machines must see the working folder under one path, and have the same Python packages.
"""

import logging
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ltr.cli.errors import CommandError, as_user_error
from ltr.cli.options import read_options
from ltr.cli.recipes import expand_configs

_FLAG, _NUMBER = "--ray", "--ray-workers"
_SAID = "CommandError: "


def take_workers(args: list[str], flag: bool) -> tuple[list[str], int | None]:
    """Return the arguments without the option `--ray-workers`, and its value; None without it.

    Args:
        args: of a command.
        flag: whether there is an option `--ray` too, for as many workers as the cluster has CPUs;
            its value is 0 here.

    Raises:
        CommandError: the value is not a whole number >= 1.

    >>> take_workers(["--config", "table", "--ray-workers", "4"], flag=False)
    (['--config', 'table'], 4)
    """
    rest: list[str] = []
    workers: int | None = None
    given = iter(args)
    for arg in given:
        name, _, value = arg.partition("=")
        if name == _NUMBER:
            value = value or next(given, "")
            if not (value.isascii() and value.isdigit() and int(value) >= 1):
                raise CommandError(f"{_NUMBER} must be a whole number >= 1, got {value!r}")
            workers = int(value)
        elif flag and arg == _FLAG:
            workers = workers or 0
        else:
            rest.append(arg)
    return rest, workers


def connect(workers: int) -> int:
    """Connect to the cluster that `RAY_ADDRESS` names, or start one on this machine.

    Args:
        workers: how many are wanted; 0 for as many as there are CPUs.

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


def fit(args: list[str], workers: int) -> int:
    """Train in `workers` processes of a cluster; the first one writes the run's folder.

    Raises:
        CommandError: a mistake in the options, the configuration or the data.
    """
    workers = connect(workers)
    from ray.train import RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    expanded, name = expand_configs(args)
    options = read_options(expanded)
    where = options.find("trainer.default_root_dir")
    root = Path(where.value if where and where.value else f"runs/{name or 'ltr'}").absolute()
    root.mkdir(parents=True, exist_ok=True)
    own = f"ray-{secrets.token_hex(4)}"  # Ray's own files, while it runs; the checkpoints are ours
    trainer = TorchTrainer(
        _train,
        train_loop_config={"folder": os.getcwd(), "path": [*sys.path], "args": args},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=_on_gpu(options)),
        run_config=RunConfig(name=own, storage_path=str(root)),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        said = [line for line in str(error).splitlines() if _SAID in line]
        if not said:
            raise
        raise CommandError(said[-1].partition(_SAID)[2]) from None
    finally:
        shutil.rmtree(root / own, ignore_errors=True)
    return 0


def predict(args: list[str], workers: int) -> int:
    """Score the lists in `workers` parts, a map of Ray Data, and join them in the data's order.

    Raises:
        CommandError: a mistake in the options, the configuration or the data.
    """
    workers = connect(workers)
    from ltr.cli.lightning_cli import make_cli
    from ltr.datasets.loaders import SplitDataModule
    from ltr.files import remove_leftovers, temporary_beside
    from ltr.modules.prediction_parts import join_parts

    cli = make_cli("predict", args)
    if not isinstance(cli.datamodule, SplitDataModule):
        name = type(cli.datamodule).__name__
        raise CommandError(f"{_NUMBER} needs a data module of ltr, which has parts, got {name}")
    path = cli.writer.path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    with ExitStack() as stack:
        parts = [stack.enter_context(temporary_beside(path)) for _ in range(workers)]
        items = [{"number": i, "part": str(part)} for i, part in enumerate(parts)]
        given = {"args": args, "parts": workers}
        on_gpu = _on_gpu(read_options(expand_configs(args)[0]))
        found = map_items(_score, items, given, on_gpu=on_gpu)
        scattered = any(one["scattered"] for one in found)
        rows = join_parts(parts, path, cli.writer.format, scattered)
    print(f"wrote {cli.writer.path}: {rows} rows")
    return 0


def run_tasks(tasks: Sequence[Callable[[], None]], workers: int) -> None:
    """Call each task once, in `workers` processes of a cluster: a map of Ray Data.

    A task whose worker dies is called again.

    Raises:
        CommandError: what the first of the failed tasks says.
    """
    workers = connect(workers)
    items = [{"number": i} for i in range(len(tasks))]
    map_items(_call, items, {"tasks": tasks}, workers=workers)


def map_items(
    work: Callable[..., dict[str, Any]],
    items: list[dict[str, Any]],
    given: dict[str, Any],
    *,
    workers: int | None = None,
    on_gpu: bool = False,
) -> list[dict[str, Any]]:
    """Map items by Ray Data, and return what the workers gave, by the items' numbers.

    A worker keeps its process, and so what it has imported, from one map to the next.

    Args:
        work: takes an item and `given`, and returns it with more.
        items: each has a `number`.
        given: arguments of `work`, the same for all items.
        workers: how many there are; by default, one an item.
        on_gpu: whether each worker has a GPU.

    Raises:
        CommandError: a mistake that a worker found.
    """
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    mapped = ray.data.from_items(items, override_num_blocks=len(items)).map(
        partial(_with_error, work=work, folder=os.getcwd(), path=[*sys.path], given=given),
        compute=ray.data.TaskPoolStrategy(size=min(workers or len(items), len(items))),
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
    """Do the work of an item in a worker; `error` is "", or the user's mistake."""
    enter(folder, path)
    try:
        return {**work(item, **given), "error": ""}
    except Exception as error:
        told = as_user_error(error)
        if told is None:
            raise
        return {**item, "error": told}


def _call(item: dict[str, Any], tasks: Sequence[Callable[[], None]]) -> dict[str, Any]:
    tasks[int(item["number"])]()
    return item


def _score(item: dict[str, Any], args: list[str], parts: int) -> dict[str, Any]:
    """Score a part of the lists into its file."""
    from ltr.cli.lightning_cli import make_cli
    from ltr.cli.quiet import quiet
    from ltr.datasets.loaders import SplitDataModule

    with quiet(brief=True):
        cli = make_cli("predict", args)
        assert isinstance(cli.datamodule, SplitDataModule)  # `predict` has looked
        cli.datamodule.share = (int(item["number"]), parts)
        cli.writer.part = Path(item["part"])
        cli.execute()
    return {**item, "scattered": cli.writer.scattered}


def _train(config: dict[str, Any]) -> None:
    """Run `fit` in a worker."""
    import ray.train
    from lightning.pytorch.utilities import rank_zero_only
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer

    from ltr.cli.lightning_cli import make_cli, say_best
    from ltr.cli.quiet import quiet

    enter(config["folder"], config["path"])
    rank = ray.train.get_context().get_world_rank()
    rank_zero_only.rank = rank  # pyright: ignore[reportFunctionMemberAccess]
    options = {"strategy": RayDDPStrategy(), "devices": "auto", "num_nodes": 1}
    try:
        with quiet():
            plugins = [RayLightningEnvironment()]
            cli = make_cli("fit", config["args"], trainer={**options, "plugins": plugins})
            prepare_trainer(cli.trainer)
            cli.execute()
            if cli.trainer.is_global_zero:
                say_best(cli)
    except Exception as error:
        told = as_user_error(error)
        if told is None:
            raise
        raise CommandError(told) from None


def enter(folder: str, path: list[str]) -> None:
    """Work in the user's folder, and import modules from there if the driver does."""
    os.chdir(folder)
    if folder in path and folder not in sys.path:
        sys.path.append(folder)


def _on_gpu(options: Any) -> bool:
    """Whether workers get a GPU each: the cluster has some, and the options do not say "cpu"."""
    import ray

    found = options.find("trainer.accelerator")
    wanted = found is None or str(found.value) != "cpu"
    return wanted and ray.cluster_resources().get("GPU", 0) > 0
