"""The Ranker: it learns, logs, and writes its model."""

from functools import partial, partialmethod
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningCLI, ReduceLROnPlateau
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from ltr.datasets import (
    DigitsDataModule,
    FeatureTransform,
    ListDataset,
    NoTransform,
    SignedLog1pStandardize,
    Standardize,
    TableDataModule,
    collate_lists,
)
from ltr.losses import XENDCG, ListMLE, Penalized, PointwiseMSE, SoftmaxLoss, SoftNDCG
from ltr.metrics import MRR, NDCG
from ltr.models import LinearScorer, MLPScorer, RankingModel, Scorer
from ltr.modules import Ranker, SeedSteps
from ltr.operators import HardRank, SoftSort, Stochastic

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*`isinstance.treespec, LeafSpec.*",
)


def digits(**options) -> DigitsDataModule:
    return DigitsDataModule(
        **{
            "list_size": 5,
            "train_lists": 40,
            "val_lists": 10,
            "test_lists": 10,
            "batch_size": 8,
            **options,
        }
    )


def trainer(tmp_path: Path, **options) -> Trainer:
    return Trainer(
        **{
            "accelerator": "cpu",
            "max_epochs": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
            **options,
        }
    )


class Halve(FeatureTransform):
    """A user's own, with a state that is not a buffer."""

    def __init__(self, by: float = 2.0):
        super().__init__()
        self.by = by

    def transform(self, features, mask):
        return features / self.by


class Own(Scorer):
    """A user's own scorer, with a fixed width."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 64))

    def score(self, features, mask):
        return features @ self.weight


class OwnVector(SoftNDCG):
    """A user's loss that returns one value for each list, whatever its reduction says."""

    def forward(self, *lists, **more):
        return SoftNDCG(reduction="none")(*lists, **more)


class OwnLoss(SoftNDCG):
    """A user's own loss, with a parameter."""

    def __init__(self):
        super().__init__(SoftSort(0.3))
        self.scale = nn.Parameter(torch.ones(()))

    def per_list(self, scores, labels, mask, weights):
        return super().per_list(self.scale * scores, labels, mask, weights)


def assert_same_state(one: nn.Module, other: nn.Module) -> None:
    one_state, other_state = one.state_dict(), other.state_dict()
    assert list(one_state) == list(other_state)
    assert all(torch.equal(one_state[key], other_state[key]) for key in one_state)


def test_twenty_steps_reduce_the_loss(tmp_path: Path):
    seed_everything(0)
    ranker = Ranker(
        MLPScorer(hidden=(32,), dropout=0.0), optimizer=partial(torch.optim.Adam, lr=1e-2)
    )
    data = digits(transform=Standardize())
    fit = trainer(tmp_path, max_epochs=4)
    [before] = fit.validate(ranker, data, verbose=False)
    fit.fit(ranker, data)
    assert fit.global_step == 20
    [after] = fit.validate(ranker, data, verbose=False)
    assert after["val_loss"] < 0.8 * before["val_loss"]
    assert after["val_ndcg_5"] > before["val_ndcg_5"]


def test_logged_names(tmp_path: Path):
    fit = trainer(tmp_path, logger=CSVLogger(tmp_path), log_every_n_steps=1)
    ranker = Ranker()
    fit.fit(ranker, digits())
    metrics = {"ndcg_1", "ndcg_5", "ndcg_10", "mrr"}
    expected = {"train_loss", "val_loss", *(f"val_{name}" for name in metrics)}
    assert set(fit.callback_metrics) == expected
    [result] = fit.test(ranker, digits(), verbose=False)
    assert set(result) == {f"test_{name}" for name in metrics}
    own = Ranker(metrics={"quality": NDCG(top_k=3, empty=1)})
    [result] = fit.validate(own, digits(), verbose=False)
    assert set(result) == {"val_loss", "val_quality"}


@pytest.mark.parametrize(
    "loss",
    [
        SoftNDCG(mean="harmonic", gain="linear", dequantize=True, softmax=1.0),
        SoftNDCG(Stochastic(SoftSort(0.5))),
        XENDCG("random"),
        ListMLE(ties="random"),
    ],
    ids=["labels", "scores", "gammas", "ties"],
)
def test_a_loss_draws_noise_in_training_only(tmp_path: Path, loss):
    """With the same lists and the same weights, the two losses differ by the noise alone."""
    data = digits(train_lists=600, val_lists=600, batch_size=100)
    ranker = Ranker(LinearScorer(), loss, optimizer=partial(torch.optim.SGD, lr=0.0))
    data.setup("fit")
    data.splits["val"] = data.splits["train"]
    fit = trainer(tmp_path)
    fit.fit(ranker, data)
    logged = fit.callback_metrics
    ranker.loss.eval()
    without = [
        ranker.mean_loss(ranker.score_batch(batch), ranker.val_loss)
        for batch in data.val_dataloader()
    ]
    torch.testing.assert_close(logged["val_loss"], torch.stack(without).mean())
    assert logged["train_loss"] != logged["val_loss"]


def test_values_are_those_of_the_lists_one_by_one(tmp_path: Path):
    ranker = Ranker(Own(), SoftNDCG(), metrics={"ndcg_3": NDCG(top_k=3), "mrr": MRR()})
    data = digits(val_lists=11, batch_size=4)  # the last batch is smaller
    [result] = trainer(tmp_path).validate(ranker, data, verbose=False)
    loss, ndcg, mrr = [], NDCG(top_k=3), MRR()
    for i in range(11):
        item = data.splits["val"][i]
        scores = ranker(item["features"]).detach()
        loss.append(SoftNDCG()(scores, item["labels"]))
        ndcg.update(scores, item["labels"])
        mrr.update(scores, item["labels"])
    expected = [torch.stack(loss).mean(), ndcg.compute(), mrr.compute()]
    got = [result["val_loss"], result["val_ndcg_3"], result["val_mrr"]]
    torch.testing.assert_close(torch.tensor(got), torch.stack(expected), rtol=1e-5, atol=1e-6)


def test_the_transform_is_the_models(tmp_path: Path):
    data = digits(transform=Standardize())
    ranker = Ranker(LinearScorer())
    trainer(tmp_path).fit(ranker, data)
    assert isinstance(ranker.transform, Standardize)
    assert ranker.transform is not data.feature_transform
    mean = data.feature_transform.mean
    assert torch.equal(ranker.state_dict()["transform.mean"], mean)
    # other data do not replace it, nor do they without any
    trainer(tmp_path).validate(ranker, digits(transform=NoTransform()), verbose=False)
    assert torch.equal(ranker.transform.mean, mean)
    trainer(tmp_path).fit(ranker, digits(transform=Standardize(), seed=5))
    assert torch.equal(ranker.transform.mean, mean)


def test_plain_loaders_after_a_fit_with_a_data_module(tmp_path: Path):
    # the Trainer goes on calling `setup` of the data module, which has no test split
    for name in ("train.txt", "vali.txt"):
        (tmp_path / name).write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:0.1 2:3\n2 qid:2 1:1 2:1\n")
    data, ranker = TableDataModule(tmp_path), Ranker(MLPScorer(hidden=(4,)))
    fit = trainer(tmp_path)
    fit.fit(ranker, data)
    lists = ListDataset.from_arrays(torch.randn(6, 2).numpy(), [0, 1, 2, 0, 1, 0], qid=[1] * 6)
    loader = DataLoader(lists, collate_fn=collate_lists)
    [result] = fit.test(ranker, loader, verbose=False)
    assert 0 < result["test_ndcg_5"] <= 1
    assert len(fit.validate(ranker, loader, verbose=False)) == 1
    with pytest.raises(ValueError, match="test_path must"):
        fit.test(ranker, data)


def test_plain_loaders_without_a_data_module(tmp_path: Path):
    lists = ListDataset.from_arrays(torch.randn(6, 3).numpy(), [0, 1, 2, 0, 1, 0], qid=[1] * 6)
    loader = DataLoader(lists, collate_fn=collate_lists)
    ranker = Ranker(MLPScorer(num_features=3, hidden=(4,)))
    fit = trainer(tmp_path)
    fit.fit(ranker, loader, loader)
    assert ranker.transform is None
    with pytest.raises(ValueError, match=r"scorer.*give it num_features"):
        trainer(tmp_path).fit(Ranker(), loader, loader)


PYTHON_ROUTES = [
    lambda: Ranker(),
    lambda: Ranker(
        MLPScorer(hidden=(8,), activation=nn.GELU),
        SoftNDCG(SoftSort(0.2), top_k=3, mean="arithmetic"),
        {"ndcg_3": NDCG(top_k=3)},
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        partial(torch.optim.lr_scheduler.StepLR, step_size=1),
    ),
    lambda: Ranker(Own(), OwnLoss()),
]


@pytest.mark.parametrize(
    ("make", "transform"), [*zip(PYTHON_ROUTES, [None, Standardize(), Halve(4.0)], strict=True)]
)
def test_a_checkpoint_and_a_model(tmp_path: Path, make, transform):
    ranker, data = make(), digits(transform=transform)
    fit = trainer(tmp_path, max_epochs=2)
    fit.fit(ranker, data)
    file = tmp_path / "ranker.ckpt"
    fit.save_checkpoint(file)

    torch.load(file, weights_only=True)  # as the Trainer and LightningCLI read it
    [one] = trainer(tmp_path).test(ranker, data, verbose=False)
    tested, other = make(), digits(transform=transform)
    read = {"ckpt_path": file, "weights_only": True}
    assert [one] == trainer(tmp_path).test(tested, other, verbose=False, **read)
    assert_same_state(ranker, tested)
    # and it can be trained on
    again = trainer(tmp_path, max_epochs=3)
    again.fit(tested, other, **read)
    assert again.global_step == 15

    # the model alone has what gives scores
    ranker.model.save(tmp_path / "model")
    loaded = RankingModel.load(tmp_path / "model", trust=[__name__])
    features = data.splits["test"][0]["features"]
    assert torch.equal(loaded(features), ranker.eval()(features))
    assert type(loaded.scorer) is type(ranker.scorer)
    assert type(loaded.transform) is type(ranker.transform)


@pytest.mark.parametrize("monitor", ["val_loss", "val_mrr"])
def test_schedulers(tmp_path: Path, monitor: str):
    def rates(scheduler) -> list[float]:
        ranker = Ranker(LinearScorer(), optimizer=torch.optim.Adam, scheduler=scheduler)
        fit = trainer(tmp_path, max_epochs=2)
        fit.fit(ranker, digits())
        return [group["lr"] for group in fit.optimizers[0].param_groups]

    step = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    torch.testing.assert_close(rates(step), [1e-3 * 0.25])
    never_good = partial(ReduceLROnPlateau, monitor=monitor, patience=0, threshold=1e9, factor=0.1)
    torch.testing.assert_close(rates(partial(never_good, threshold_mode="abs")), [1e-4])


def test_seed_steps_is_the_users_if_there_is_one(tmp_path: Path):
    fit = trainer(tmp_path, callbacks=[SeedSteps(seed=7)])
    fit.validate(Ranker(), digits(), verbose=False)
    assert [c.seed for c in fit.callbacks if isinstance(c, SeedSteps)] == [7]
    with pytest.raises(ValueError, match=r"seed.*-1"):
        SeedSteps(-1)


def test_a_nan_score_stops_the_validation(tmp_path: Path):
    ranker = Ranker(Own())
    with torch.no_grad():
        ranker.scorer.weight[0] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        trainer(tmp_path).validate(ranker, digits(), verbose=False)


def test_weights_reach_the_loss():
    batch = {
        "features": torch.tensor([[[1.0], [2.0]]]),
        "labels": torch.zeros(1, 2),
        "mask": torch.ones(1, 2, dtype=torch.bool),
    }
    ranker = Ranker(LinearScorer(1), PointwiseMSE())
    with torch.no_grad():
        ranker.scorer.layers.weight.fill_(1.0)
        ranker.scorer.layers.bias.zero_()
    ranker.log = lambda *args, **kwargs: None
    plain = ranker.training_step(batch, 0)
    first = ranker.training_step({**batch, "weight": torch.tensor([[1.0, 0.0]])}, 0)
    assert plain.item() > first.item()


def write_letor(folder: Path) -> Path:
    """A small LETOR folder: 12 train, 5 vali and 5 test lists of 1 to 6 documents."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for name, lists in {"train": 12, "vali": 5, "test": 5}.items():
        lines = []
        for qid in range(lists):
            for _ in range(qid % 6 + 1):
                x = torch.randn(4, generator=generator)
                label = int((x[0] > 0).int() + (x[0] > 1).int())
                features = " ".join(f"{i + 1}:{v:.4f}" for i, v in enumerate(x.tolist()))
                lines.append(f"{label} qid:{qid} {features}\n")
        (folder / f"{name}.txt").write_text("".join(lines))
    return folder


CONFIG = """
model:
  scorer:
    class_path: ltr.models.MLPScorer
    init_args: {hidden: [8], activation: torch.nn.GELU}
  loss:
    class_path: ltr.losses.SoftNDCG
    init_args:
      operator: {class_path: ltr.operators.SoftSort, init_args: {temperature: 0.5}}
  metrics:
    ndcg_2: {class_path: ltr.metrics.NDCG, init_args: {top_k: 2, empty: skip}}
  optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.05}}
  scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 1}}
"""


@pytest.mark.parametrize("config", [CONFIG, ""])
def test_under_lightning_cli(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "config.yaml").write_text(config or "{}")
    monkeypatch.setattr("sys.argv", ["ltr"])
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning's, not ours
    letor = write_letor(tmp_path / "letor")

    def run(command: str, *args: str) -> LightningCLI:
        return LightningCLI(
            Ranker,
            LightningDataModule,
            subclass_mode_data=True,
            auto_configure_optimizers=False,
            save_config_callback=None,
            seed_everything_default=0,
            trainer_defaults={
                "accelerator": "cpu",
                "max_epochs": 2,
                "logger": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "callbacks": [ModelCheckpoint(tmp_path / "fit", filename="x")],
            },
            args=[
                command,
                f"--config={tmp_path / 'config.yaml'}",
                "--data=ltr.datasets.TableDataModule",
                f"--data.path={letor}",
                *args,
            ],
        )

    transform = "--data.transform=ltr.datasets.SignedLog1pStandardize"
    fitted = run("fit", transform)
    file = tmp_path / "fit" / "x.ckpt"
    ranker = fitted.model
    assert ranker.scorer.num_features == 4
    [result] = fitted.trainer.test(ranker, fitted.datamodule, verbose=False)
    if config:
        assert ranker.scorer.hidden == (8,)
        assert ranker.scorer.activation is nn.GELU
        assert ranker.loss.operator.temperature == 0.5
        assert set(result) == {"test_ndcg_2"}
    torch.load(file, weights_only=True)
    tested = run("test", f"--ckpt_path={file}", transform)
    assert_same_state(ranker, tested.model)
    assert type(tested.model.transform) is SignedLog1pStandardize
    assert tested.trainer.callback_metrics == {k: pytest.approx(v) for k, v in result.items()}


# "eager" compiles nothing after the trace: fast, and the names of the weights are the same
@pytest.mark.parametrize(
    "backend",
    ["eager", pytest.param("inductor", marks=pytest.mark.slow)],  # which calls a C++ compiler
)
# torch looks at `.grad` of what it compiles, with its warning hidden in a way that "error" undoes
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf.*")
def test_compiled_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str):
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend=backend))
    step = partial(torch.optim.SGD, lr=0.1)
    plain, compiled = (
        Ranker(LinearScorer(64), SoftNDCG(), optimizer=step, compile=compiled)
        for compiled in (False, True)
    )
    compiled.load_state_dict(plain.state_dict())
    for ranker in (plain, compiled):
        trainer(tmp_path, max_steps=2, limit_val_batches=0).fit(ranker, digits())
    assert list(plain.state_dict()) == list(compiled.state_dict())
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scorer": MLPScorer}, "scorer must"),
        ({"loss": SoftNDCG}, "loss must"),
        ({"loss": SoftmaxLoss(reduction="none")}, "loss.reduction must be 'mean' or .*'none'"),
        ({"loss": Penalized(SoftNDCG(), reduction="none")}, "loss.reduction must .*'none'"),
        ({"metrics": [MRR()]}, "metrics must"),
        ({"metrics": {"loss": MRR()}}, "metrics.*'loss'"),
        ({"metrics": {"ndcg/10": MRR()}}, "metrics.*'ndcg/10'"),
        ({"metrics": {10: MRR()}}, "metrics.*10"),
    ],
)
def test_bad_parts(arguments, message):
    with pytest.raises(ValueError, match=message):
        Ranker(**arguments)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (SoftNDCG(HardRank()), "loss must"),
        (OwnVector(), r"loss.*shape \(8,\)"),
    ],
)
def test_losses_to_train_by_nothing(tmp_path: Path, loss, message):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, num_sanity_val_steps=0).fit(Ranker(loss=loss), digits())
