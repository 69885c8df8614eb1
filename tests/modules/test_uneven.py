"""Two processes train as one does whose batches are twice as large, uneven last ones too."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from ltr.datasets import DigitsDataModule, Standardize
from ltr.losses import SoftNDCG
from ltr.models import MLPScorer
from ltr.modules import Ranker

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*`isinstance.treespec, LeafSpec.*"
)

OPTIONS = [("mean", 1), ("sum", 1), ("mean", 2)]  # reduction, accumulated batches


def run(folder: Path, batch_size: int, **options: Any) -> None:
    """Train on 21 lists: of a last batch of 5, one process has 3 and the other 2 and a filler."""
    torch.set_num_threads(1)
    for reduction, accumulated in OPTIONS:
        seed_everything(5)
        ranker = Ranker(
            MLPScorer(hidden=(8,), dropout=0.0),
            SoftNDCG(reduction=reduction),  # type: ignore[arg-type]
        )
        data = DigitsDataModule(
            list_size=4,
            train_lists=21,
            val_lists=2,
            test_lists=1,
            batch_size=batch_size,
            transform=Standardize(),
        )
        trainer = Trainer(
            accelerator="cpu",
            precision="64-true",
            max_epochs=2,
            accumulate_grad_batches=accumulated,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            **options,
        )
        trainer.fit(ranker, data)
        if trainer.is_global_zero:
            name = f"{reduction}-{accumulated}-{trainer.world_size}.pt"
            loss = trainer.callback_metrics["train_loss"]
            torch.save({**ranker.state_dict(), "train_loss": loss}, folder / name)


def test_the_last_uneven_batch(tmp_path: Path, free_port: int):
    command = [sys.executable, __file__, tmp_path]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    run(tmp_path, batch_size=8)
    for reduction, accumulated in OPTIONS:
        one, two = (torch.load(tmp_path / f"{reduction}-{accumulated}-{n}.pt") for n in (1, 2))
        if reduction == "sum":
            del one["train_loss"]  # of sums over half of the lists
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, rtol=1e-6, atol=1e-9, msg=name)


if __name__ == "__main__":
    # A copy of this process is the second one, as if a launcher had started both: it imports
    # nothing again, which takes longer than the training.
    second = os.fork()
    os.environ["LOCAL_RANK"] = "0" if second else "1"
    run(Path(sys.argv[1]), batch_size=4, strategy="ddp", devices=2)
    # Otherwise a thread of Gloo may release a tensor while Python exits, which aborts the process.
    torch.distributed.destroy_process_group()
    if second:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
