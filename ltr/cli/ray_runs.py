"""`ltr fit` on a Ray cluster, by Ray Train."""

import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any

from ltr.cli.errors import CommandError
from ltr.cli.lightning_cli import RankingCLI, train
from ltr.cli.on_ray import connect, on_worker
from ltr.cli.options import given_options
from ltr.cli.quiet import quiet_lightning
from ltr.files import made_folder

_SAID = "CommandError: "


def fit(args: list[str], name: str, workers: int) -> None:
    """Train in `workers` processes of a cluster; the first one writes the run's folder.

    Raises:
        CommandError: the options, the configuration or the data have a mistake.
    """
    workers = connect(workers)
    import ray
    from ray.train import RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    options = given_options(args)
    accelerator = options.get("trainer.accelerator")
    wanted = accelerator is None or str(accelerator.value) != "cpu"
    on_gpu = wanted and ray.cluster_resources().get("GPU", 0) > 0
    where = options.get("trainer.default_root_dir")
    root = Path(where.value if where and where.value else f"runs/{name}").absolute()
    own = f"ray-{secrets.token_hex(4)}"  # the folder holds only Ray's own files, during the run
    trainer = TorchTrainer(
        _train,
        train_loop_config={"folder": os.getcwd(), "path": [*sys.path], "args": args, "name": name},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=on_gpu),
        run_config=RunConfig(name=own, storage_path=str(root)),
    )
    with made_folder(root):
        try:
            trainer.fit()
        except TrainingFailedError as error:
            lines = [line for line in str(error).splitlines() if _SAID in line]
            if not lines:
                raise
            raise CommandError(lines[-1].partition(_SAID)[2]) from None
        finally:
            shutil.rmtree(root / own, ignore_errors=True)


def _train(config: dict[str, Any]) -> None:
    """Run `fit` in a worker."""
    import ray.train
    from lightning.pytorch.utilities import rank_zero_only
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer

    rank = ray.train.get_context().get_world_rank()
    # Lightning sets the rank with the Trainer, but the run's folder is made before the Trainer.
    rank_zero_only.rank = rank  # pyright: ignore[reportFunctionMemberAccess]
    options: dict[str, Any] = {"strategy": RayDDPStrategy(), "devices": "auto", "num_nodes": 1}
    with on_worker(config["folder"], config["path"]), quiet_lightning():
        options["plugins"] = [RayLightningEnvironment()]
        cli = RankingCLI("fit", config["args"], config["name"], trainer=options)
        prepare_trainer(cli.trainer)
        train(cli)
