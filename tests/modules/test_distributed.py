"""Two processes measure and train as one does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from ltr.datasets import DigitsDataModule, Standardize
from ltr.models import MLPScorer
from ltr.modules import Ranker

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*`isinstance.treespec, LeafSpec.*"
)


def run(folder: Path, batch_size: int, **options: Any) -> dict[str, float]:
    """Validate and test a fixed scorer on 11 and 7 lists, which two processes share unevenly."""
    torch.set_num_threads(1)
    seed_everything(5)
    ranker = Ranker(MLPScorer(hidden=(8,), dropout=0.0))
    data = DigitsDataModule(
        list_size=4,
        train_lists=16,
        val_lists=11,
        test_lists=7,
        batch_size=batch_size,
        transform=Standardize(),
    )
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
    [validated] = trainer.validate(ranker, data, verbose=False)
    [tested] = trainer.test(ranker, data, verbose=False)
    trainer.fit(ranker, data)
    fitted = {f"fitted_{name}": float(value) for name, value in trainer.callback_metrics.items()}
    if trainer.is_global_zero:
        (folder / "result.json").write_text(json.dumps({**validated, **tested, **fitted}))
    return {**validated, **tested, **fitted}


def test_two_processes(tmp_path: Path):
    command = [sys.executable, __file__, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    two = json.loads((tmp_path / "result.json").read_text())
    one = run(tmp_path, batch_size=4)
    assert len(one) == 5 + 4 + 6
    assert two == pytest.approx(one, rel=1e-5, abs=1e-6)


if __name__ == "__main__":
    run(Path(sys.argv[1]), batch_size=2, strategy="ddp", devices=2)
