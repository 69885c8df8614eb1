"""`ltr fit` and `test`: configurations in layers, checkpoints, logs, resuming."""

import csv
import re
from pathlib import Path

import pytest
import torch
import yaml

from ltr.models import RankingModel


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open() as lines:
        return list(csv.DictReader(lines))


def printed(ltr, *args) -> dict:
    answer = ltr("fit", *args, "--print_config")
    assert answer.code == 0, answer.err
    return yaml.safe_load(answer.out)


@pytest.mark.parametrize("name", ["table", "tiny.yaml"])
def test_print_config_can_be_read_back(ltr, name):
    first = ltr("fit", "--config", name, "--print_config")
    assert first.code == 0, first.err
    Path("printed.yaml").write_text(first.out)
    assert ltr("fit", "--config", "printed.yaml", "--print_config").out == first.out


def test_print_config_with_overrides_can_be_read_back(ltr):
    overrides = ["--model.loss.operator.temperature", "0.2", "--model.optimizer", "SGD"]
    overrides += ["--model.optimizer.lr", "0.5", "--model.metrics.mrr.top_k", "3"]
    first = printed(ltr, "--config", "digits", "--config", "tiny.yaml", *overrides)
    model = first["model"]["init_args"]
    assert model["loss"]["init_args"]["operator"]["init_args"]["temperature"] == 0.2
    assert model["optimizer"]["class_path"] == "torch.optim.SGD"
    assert model["optimizer"]["init_args"]["lr"] == 0.5
    assert model["metrics"]["mrr"]["init_args"]["top_k"] == 3
    Path("printed.yaml").write_text(yaml.safe_dump(first))
    assert printed(ltr, "--config", "printed.yaml") == first


def test_a_layer_changes_what_it_names(ltr):
    Path("layer.yaml").write_text(
        "model: {init_args: {loss: {init_args: {operator: {class_path: SigmoidRank}}}}}\n"
        "data: {init_args: {list_size: 3}}\n"
    )
    below = printed(ltr, "--config", "tiny.yaml")
    both = printed(ltr, "--config", "tiny.yaml", "--config", "layer.yaml")
    assert both["data"]["init_args"].pop("list_size") == 3
    below["data"]["init_args"].pop("list_size")
    operator = both["model"]["init_args"]["loss"]["init_args"].pop("operator")
    below["model"]["init_args"]["loss"]["init_args"].pop("operator")
    assert operator["class_path"] == "ltr.operators.SigmoidRank"
    assert both == below


def test_defaults(ltr):
    config = printed(ltr, "--data", "DigitsDataModule")
    assert config["model"]["class_path"] == "ltr.modules.Ranker"
    assert config["seed_everything"] == 42
    assert config["trainer"]["default_root_dir"] == "runs/ltr"
    assert config["best_checkpoint"] == {"monitor": "val_ndcg_10", "mode": "max"}
    assert config["early_stopping"]["patience"] == 10
    assert printed(ltr, "--config", "digits/smoke")["trainer"]["default_root_dir"] == (
        "runs/digits-smoke"
    )


@pytest.mark.filterwarnings("ignore:.*could not find the monitored key.*")  # no whole epoch
@pytest.mark.parametrize("name", ["digits", "letor"])  # test_smoke.py trains the overlays
def test_every_configuration_of_feature_lists_trains_2_steps(ltr, letor_root, name):
    few = {"digits": ["--data.train_lists", 200], "letor": ["--data.path", letor_root]}
    answer = ltr(
        *("fit", "--config", name, *few[name], "--trainer.max_steps", 2),
        *("--early_stopping.patience", "null"),
        *("--trainer.limit_val_batches", 1, "--trainer.default_root_dir", "run"),
    )
    assert answer.code == 0, answer.err
    assert torch.load("run/1/checkpoints/last.ckpt")["global_step"] == 2


def test_a_run_leaves_checkpoints_a_log_and_its_configuration(ltr):
    answer = ltr("fit", "--config", "tiny.yaml")
    assert answer.code == 0, answer.err
    root = Path("runs/tiny/1")
    assert sorted(p.name for p in (root / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    best = torch.load(root / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    model = RankingModel.load(root / "model").state_dict()
    assert all(torch.equal(value, best[name]) for name, value in model.items())
    log = root / "logs" / "version_0"
    rows = read_csv(log / "metrics.csv")
    assert {"train_loss", "val_loss", "val_ndcg_10", "val_mrr"} <= set(rows[0])
    saved = yaml.safe_load((log / "config.yaml").read_text())
    assert saved == printed(ltr, "--config", "tiny.yaml", "--data.seed", 42)
    lines = [line for line in answer.out.splitlines() if " lists, " not in line]
    assert [line.partition("  ")[0] for line in lines[:3]] == [
        *("run: runs/tiny/1", "epoch 1", "epoch 2")
    ]
    assert re.fullmatch(r"best val_ndcg_10: 0\.\d{4}, in runs/tiny/1/model", lines[3])
    assert (len(lines), answer.err) == (4, "")


def test_what_lightning_says_comes_on_demand(ltr):
    tiny = Path("tiny.yaml").read_text().replace("  enable_model_summary: false\n", "")
    Path("tiny.yaml").write_text(tiny)
    given = ("fit", "--config", "tiny.yaml", "--trainer.max_epochs", 1)
    assert "Params" not in ltr(*given).out
    answer = ltr(*given, "--trainer.enable_model_summary", "true")
    assert "Params" in answer.out
    assert "GPU available" not in answer.out


def test_the_same_run_twice_is_the_same(ltr, fit_once):
    fit_once("--config", "tiny.yaml")
    assert ltr("fit", "--config", "tiny.yaml").code == 0
    one, two = (torch.load(f"runs/tiny/{run}/checkpoints/last.ckpt") for run in (1, 2))
    assert_same_weights(one, two)


def assert_same_weights(one: dict, two: dict) -> None:
    assert one["state_dict"].keys() == two["state_dict"].keys()
    for name, value in one["state_dict"].items():
        assert torch.equal(value, two["state_dict"][name]), name


def test_the_best_weights(ltr, fit_once):
    fit_once("--config", "tiny.yaml")
    answer = ltr("test", "--config", "tiny.yaml", "--ckpt_path", "best")
    assert answer.code == 0, answer.err
    assert "test_ndcg_10" in answer.out
    # and from the configuration that the run saved, a checkpoint named by its file
    saved = "runs/tiny/1/logs/version_0/config.yaml"
    file = "runs/tiny/1/checkpoints/best.ckpt"
    assert ltr("test", "--config", saved, "--ckpt_path", file).code == 0


@pytest.mark.parametrize(
    "scorer",
    [
        "{class_path: AttentionScorer, init_args: {hidden: [8], heads: 2, points: 3}}",
        pytest.param(  # a training more, through the same parser
            "{class_path: AdditiveScorer, init_args: {hidden: [4]}}", marks=pytest.mark.slow
        ),
    ],
)
def test_other_scorers(ltr, scorer):
    tiny = yaml.safe_load(Path("tiny.yaml").read_text())
    tiny["model"]["init_args"]["scorer"] = yaml.safe_load(scorer)
    Path("own.yaml").write_text(yaml.safe_dump(tiny))
    assert ltr("fit", "--config", "own.yaml", "--trainer.max_epochs", 1).code == 0
    answer = ltr("test", "--config", "own.yaml", "--ckpt_path", "best")
    assert answer.code == 0, answer.err
    assert "test_ndcg_10" in answer.out


def test_a_checkpoint_of_another_model(ltr, fit_once):
    fit_once("--config", "tiny.yaml")
    answer = ltr(
        *("test", "--config", "tiny.yaml", "--ckpt_path", "best"),
        *("--model.scorer.hidden", "[7]"),
    )
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "best.ckpt does not fit the configured model" in answer.err


def test_going_on_with_another_optimizer(ltr, fit_once):
    fit_once("--config", "tiny.yaml")
    again = ["fit", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.max_epochs", 3]
    answer = ltr(*again, "--model.optimizer", "SGD")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "optimizer must be AdamW, as in the checkpoint to resume from, got SGD" in answer.err


def test_a_progress_bar_of_ones_own(ltr):
    answer = ltr("fit", "--config", "tiny.yaml", "--trainer.callbacks", "TQDMProgressBar")
    assert answer.code == 0, answer.err


def test_a_run_killed_in_an_epoch_goes_on_to_the_same_weights(ltr, monkeypatch):
    """In the second epoch, of 5 steps; test_stops.py has the first epoch."""
    options = ["--trainer.callbacks", "stopper.Stopper", "--trainer.max_epochs", 3]

    def fit(root, *more):
        return ltr(
            *("fit", "--config", "tiny.yaml", *options, "--trainer.default_root_dir", root, *more)
        )

    assert fit("whole").code == 0
    monkeypatch.setenv("STOP_AT", "broken:7")
    killed = fit("broken")
    assert killed.code == 130
    assert killed.err.startswith("ltr: interrupted; resume it with: ltr fit ")
    assert killed.err.endswith(" --ckpt_path last\n")
    assert torch.load("broken/1/checkpoints/last.ckpt")["global_step"] == 5
    monkeypatch.delenv("STOP_AT")
    assert fit("broken", "--ckpt_path", "last").code == 0
    for name in ("last", "best"):
        whole, broken = (torch.load(f"{r}/1/checkpoints/{name}.ckpt") for r in ("whole", "broken"))
        assert whole["global_step"] == broken["global_step"]
        assert_same_weights(whole, broken)
    # the log of the first part is kept
    assert sorted(p.name for p in Path("broken/1/logs").iterdir()) == ["version_0", "version_1"]
    assert Path("broken/1/logs/version_0/config.yaml").is_file()


def test_last_starts_anew_where_there_is_none(ltr):
    answer = ltr("fit", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.max_epochs", 1)
    assert answer.code == 0
    assert "training from the start" in answer.out


@pytest.mark.filterwarnings("ignore:.*could not find the monitored key.*")  # no whole epoch
def test_max_steps_before_the_first_validation_is_no_mistake(ltr):
    options = ["--trainer.max_steps", 1, "--early_stopping.patience", "null"]
    answer = ltr("fit", "--config", "tiny.yaml", *options)
    assert answer.code == 0, answer.err


def test_early_stopping(ltr):
    options = ["--early_stopping.patience", 1, "--early_stopping.min_delta", 2]
    options += ["--trainer.max_epochs", 9]
    assert ltr("fit", "--config", "tiny.yaml", *options).code == 0
    steps = torch.load("runs/tiny/1/checkpoints/last.ckpt")["global_step"]
    assert steps == 2 * 5  # the first epoch is the best so far, the second stops it


def test_a_moved_run_goes_on_with_its_best(ltr, fit_once):
    fit_once("--config", "tiny.yaml")
    Path("runs/tiny").rename("there")
    before = torch.load("there/1/checkpoints/best.ckpt")["global_step"]
    # a value that no later epoch can reach
    last = torch.load("there/1/checkpoints/last.ckpt")
    for key, state in last["callbacks"].items():
        if "BestCheckpoint" in key:
            state["best"] = 2.0
    torch.save(last, "there/1/checkpoints/last.ckpt")
    options = ["--trainer.max_epochs", 3, "--ckpt_path", "last"]
    answer = ltr("fit", "--config", "tiny.yaml", "--trainer.default_root_dir", "there", *options)
    assert answer.code == 0, answer.err
    assert "best val_ndcg_10: 2.0" in answer.out
    assert torch.load("there/1/checkpoints/best.ckpt")["global_step"] == before
    assert not Path("runs/tiny").exists()


@pytest.mark.filterwarnings("ignore:.*could not find the monitored key.*")
@pytest.mark.parametrize(
    "options",
    [
        ["--trainer.fast_dev_run", "true"],
        ["--trainer.enable_checkpointing", "false", "--trainer.logger", "false"],
        ["--trainer.limit_val_batches", 0, "--early_stopping.patience", "null"],
        ["--trainer.check_val_every_n_epoch", 2, "--trainer.val_check_interval", 0.5],
    ],
    ids=lambda options: options[0],
)
def test_the_trainers_own_options(ltr, options):
    answer = ltr("fit", "--config", "tiny.yaml", *options)
    assert answer.code == 0, answer.err


def test_a_class_of_ones_own(ltr):
    Path("own_loss.py").write_text(
        "from ltr.losses import RankingLoss\n"
        "class OwnLoss(RankingLoss):\n"
        "    def __init__(self, margin: float = 1.0):\n"
        "        super().__init__()\n"
        "        self.margin = margin\n"
        "    def per_list(self, scores, labels, mask, weights):\n"
        "        return ((scores - labels * self.margin) ** 2).mean(-1)\n"
    )
    own = ["--model.loss", "own_loss.OwnLoss", "--model.loss.margin", 2]
    config = printed(ltr, "--config", "tiny.yaml", *own)
    assert config["model"]["init_args"]["loss"]["init_args"] == {"margin": 2.0}
    answer = ltr("fit", "--config", "tiny.yaml", *own, "--trainer.max_epochs", 1)
    assert answer.code == 0, answer.err
