"""A run that goes wrong says where, in one line; one that is stopped goes on as if it had not."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FIT = ["fit", "--config", "tiny.yaml"]

SIGNALLER = """\
import os
from lightning.pytorch import Callback
from ltr.modules.checkpoints import train_steps


class Signaller(Callback):
    def send(self, trainer, position):
        if os.environ.get("SEND_AT") == f"{position}:{train_steps(trainer)}":
            del os.environ["SEND_AT"]
            os.kill(os.getpid(), int(os.environ["SEND"]))

    def on_before_backward(self, trainer, *args):
        self.send(trainer, "step")

    def on_validation_batch_start(self, trainer, *args):
        if not trainer.sanity_checking:
            self.send(trainer, "validation")
"""


def test_a_learning_rate_of_1e9(ltr):
    options = ["--model.optimizer", "AdamW", "--model.optimizer.lr", 1e9]
    answer = ltr(
        *(*FIT, *options, "--model.scorer.hidden", "[8, 8]", "--trainer.max_epochs", 9),
        *("--trainer.limit_train_batches", 0.2),  # one of five
    )
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    found = re.fullmatch(
        r"ltr fit: (?:loss|gradients) must be finite, got .* in epoch (\d+), batch 1 "
        r"\(qid digits-train-\d+, digits-train-\d+\): if training diverged, .*",
        answer.err.strip(),
    )
    assert found is not None, answer.err
    last = torch.load("runs/tiny/1/checkpoints/last.ckpt", weights_only=True)
    assert last["global_step"] == int(found[1]) - 1
    for value in last["state_dict"].values():
        assert value.isfinite().all()


@pytest.mark.parametrize(
    ("number", "position"),
    [
        # two trainings more; test_fit.py interrupts the same epoch by an exception
        pytest.param(signal.SIGINT, "step:7", marks=pytest.mark.slow),
        (signal.SIGTERM, "step:8"),
        (signal.SIGINT, "validation:10"),
    ],
)
def test_a_run_stopped_by_a_signal_resumes_at_its_last_epoch(
    ltr, fit_once, monkeypatch, number, position
):
    """The first epoch has 5 steps."""
    Path("signaller.py").write_text(SIGNALLER)
    options = ["--trainer.callbacks", "signaller.Signaller", "--trainer.max_epochs", 3]
    fit_once(*FIT[1:], *options, "--trainer.default_root_dir", "runs/whole")
    monkeypatch.setenv("SEND", str(int(number)))
    monkeypatch.setenv("SEND_AT", position)
    broken = [*FIT, *options, "--trainer.default_root_dir", "broken"]
    signals = (signal.SIGINT, signal.SIGTERM)
    given = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        before = [signal.getsignal(one) for one in signals]
        answer = ltr(*broken)
        assert [signal.getsignal(one) for one in signals] == before
    finally:
        signal.signal(signal.SIGINT, given)
    assert answer.code == 128 + number
    assert answer.err.endswith(" --ckpt_path last\n")
    last = torch.load("broken/1/checkpoints/last.ckpt")
    assert last["global_step"] == 5
    answer = ltr(*broken, "--ckpt_path", "last")
    assert answer.code == 0, answer.err
    for name in ("last", "best"):
        whole, mended = (
            torch.load(f"{root}/1/checkpoints/{name}.ckpt") for root in ("runs/whole", "broken")
        )
        assert whole["global_step"] == mended["global_step"]
        for key, value in whole["state_dict"].items():
            assert torch.equal(value, mended["state_dict"][key]), key


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError()",
        "torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has more')",
        'RuntimeError("DefaultCPUAllocator: can\'t allocate memory: you tried 9 bytes")',
    ],
)
def test_out_of_memory(ltr, error):
    Path("own_loss.py").write_text(
        "import torch\n"
        "from ltr.losses import RankingLoss\n"
        "class OwnLoss(RankingLoss):\n"
        "    def per_list(self, scores, labels, mask, weights):\n"
        "        if torch.is_grad_enabled():\n"
        f"            raise {error}\n"
        "        return scores.sum(-1)\n"
    )
    answer = ltr(*FIT, "--model.loss", "own_loss.OwnLoss", "--data.batch_size", 6)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("ltr fit: out of memory")
    assert "GPU 0" not in answer.err


def test_another_runtime_error_is_not_lack_of_memory(ltr):
    Path("own_loss.py").write_text(
        "from ltr.losses import RankingLoss\n"
        "class OwnLoss(RankingLoss):\n"
        "    def per_list(self, scores, labels, mask, weights):\n"
        "        raise RuntimeError('shapes differ')\n"
    )
    with pytest.raises(RuntimeError, match="shapes differ"):
        ltr(*FIT, "--model.loss", "own_loss.OwnLoss")


@pytest.mark.slow  # two fresh processes import all that `ltr fit` needs
def test_two_processes_stop_together_in_one_run(ltr):
    Path("run.py").write_text(
        "import sys\nfrom ltr.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    options = ["--model.optimizer", "AdamW", "--model.optimizer.lr", "1e30"]
    options += ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    done = subprocess.run(
        [sys.executable, "run.py", "fit", "--config", "tiny.yaml", *options],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 2, done.stderr
    assert "must be finite" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in Path("runs/tiny").iterdir()] == ["1"]
