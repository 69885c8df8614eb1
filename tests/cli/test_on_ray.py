"""The commands on a Ray cluster of one node with two CPUs, against those in one process."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from ltr.cli.arguments import LineParser
from ltr.cli.errors import CommandError
from ltr.cli.on_ray import add_workers, connect
from ltr.datasets import Schema
from ltr.datasets.column_steps import Number
from ltr.models import LinearScorer, RankingModel

from .conftest import make_table, write_letor

BATCH = "--data.batch_size"


STORE = 100_000_000
"""The bytes of a node's object store, which are few."""


@contextmanager
def running(nodes: int) -> Iterator[None]:
    """Run a cluster of this machine with two CPUs, which belong to one node or to two."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ltr-torch[ray]'")
    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    with (
        # not below pytest's folder: the names of sockets are short
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
        ExitStack() as stack,
    ):
        for name in ("worker_register_timeout_seconds", "TRAIN_WORKER_GROUP_START_TIMEOUT_S"):
            patch.setenv(f"RAY_{name}", "300")  # of a machine that does much besides
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # a process less to start
        # Ray kills workers when other programs fill the machine's memory; 0 turns that off
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        quiet: Any = {"log_to_driver": False}  # the output is that of the command alone
        more = {"object_store_memory": STORE, "include_dashboard": False}
        try:
            if nodes == 1:
                ray.init(num_cpus=2, **more, **quiet)
                yield
            else:
                from ray.cluster_utils import Cluster

                several = Cluster(True, head_node_args={"num_cpus": 1, **more})
                stack.callback(several.shutdown)
                for _ in range(nodes - 1):
                    several.add_node(num_cpus=1, object_store_memory=STORE)
                ray.init(several.address, **quiet)
                yield
        finally:
            ray.shutdown()
            for number, handler in handlers.items():
                signal.signal(number, handler)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of one node."""
    with running(1):
        yield


@pytest.fixture
def options(ltr, tmp_path):
    write_letor(tmp_path / "letor/train.txt", 21, 5, 0)
    write_letor(tmp_path / "letor/vali.txt", 7, 5, 1)
    write_letor(tmp_path / "letor/test.txt", 5, 5, 2)
    (tmp_path / "own.yaml").write_text(
        "model:\n"
        "  class_path: Ranker\n"
        "  init_args:\n"
        "    loss: SoftNDCG\n"  # without random numbers, which two workers draw otherwise
        "    scorer: {class_path: MLPScorer, init_args: {hidden: [4], dropout: 0.0}}\n"
        "trainer: {accelerator: cpu, precision: 64-true, enable_model_summary: false}\n"
    )
    return ["--config", "own.yaml", "--data", "TableDataModule", "--data.path", "letor"]


@pytest.fixture
def stand_in(monkeypatch):
    """Modules in the place of Ray's whose workers work in this process, one after the other."""
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class TorchTrainer:
        def __init__(self, work, train_loop_config, scaling_config, run_config):
            assert scaling_config.num_workers == 1
            self.work = lambda: work(train_loop_config)
            Path(run_config.storage_path, run_config.name).mkdir(parents=True)

        def fit(self):
            try:
                self.work()
            except CommandError as error:
                raise TrainingFailedError(f"in a worker:\nCommandError: {error}") from None

    class TrainingFailedError(Exception):
        pass

    modules: dict[str, Any] = {
        "ray": {
            "is_initialized": lambda: True,
            "cluster_resources": lambda: {"CPU": 2.0},
            "remote": lambda task: SimpleNamespace(remote=task),
            "get": list,
        },
        "ray.exceptions": {"RayTaskError": type("RayTaskError", (Exception,), {})},
        "ray.train": {
            "RunConfig": SimpleNamespace,
            "ScalingConfig": SimpleNamespace,
            "TrainingFailedError": TrainingFailedError,
            "get_context": lambda: SimpleNamespace(get_world_rank=lambda: 0),
        },
        "ray.train.torch": {"TorchTrainer": TorchTrainer},
        "ray.train.lightning": {
            "RayDDPStrategy": lambda: SingleDeviceStrategy("cpu"),
            "RayLightningEnvironment": LightningEnvironment,
            "prepare_trainer": lambda trainer: trainer,
        },
    }
    made = {name: SimpleNamespace(**content) for name, content in modules.items()}
    made["ray"].train = made["ray.train"]
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_training_in_a_worker_of_a_stand_in(stand_in, ltr, options):
    fit_both(ltr, options, epochs=1, workers=1)
    answer = ltr("fit", *options, BATCH, "x", "--ray-workers", 1)
    assert answer.code == 2
    assert answer.err == ltr("fit", *options, BATCH, "x").err
    assert "--data.batch_size" in answer.err


def test_prediction_by_the_workers_of_a_stand_in(stand_in, ltr, monkeypatch):
    monkeypatch.setattr("ltr.datasets.table_files.ROWS", 7)  # so that there are chunks to share
    make_table(Path("new.csv"), 61)
    RankingModel(LinearScorer(1), schema=Schema("query", steps={"price": Number()})).save("model")
    for name, more in {"one.csv": [], "ray.csv": ["--ray"]}.items():
        answer = ltr("predict", "model", "new.csv", "--output", name, *more)
        assert answer.code == 0, answer.err
        assert answer.out == f"wrote {name}: 61 rows\n"
    assert Path("ray.csv").read_text() == Path("one.csv").read_text()
    answer = ltr("predict", "model", "none.csv", "--output", "p.csv", "--ray")
    assert answer.code == 2
    assert answer.err == ltr("predict", "model", "none.csv", "--output", "p.csv").err


@pytest.mark.slow  # a cluster's own processes take ten seconds; the stand-in above shows the same
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_an_epoch_of_training(cluster, ltr, options):
    """One worker trains a tiny model, to the weights of one process up to rounding."""
    weights = []
    for name, more in {"one": [], "ray": ["--ray-workers", 1]}.items():
        used = [f"--trainer.default_root_dir=runs/{name}", "--trainer.max_epochs=1"]
        answer = ltr("fit", *options, *used, *more)
        assert answer.code == 0, answer.err
        last = torch.load(f"runs/{name}/1/checkpoints/last.ckpt", weights_only=True)
        weights.append(last["state_dict"])
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, rtol=1e-6, atol=1e-8, msg=key)


def fit_both(ltr, options, *more_of_ray: object, epochs: int = 2, workers: int = 2) -> None:
    """Train in one process and in workers of Ray, and compare all that is written."""
    runs = {}
    ray = [8 // workers, "--ray-workers", workers, *more_of_ray]
    for name, more in {"one": [8], "two": ray}.items():
        used = [f"--trainer.default_root_dir=runs/{name}", f"--trainer.max_epochs={epochs}"]
        answer = ltr("fit", *options, *used, BATCH, *more)
        assert answer.code == 0, answer.err
        assert [path.name for path in Path("runs", name).iterdir()] == ["1"]
        run = Path("runs", name, "1")
        runs[name] = torch.load(run / "checkpoints/last.ckpt", weights_only=True)
        runs[name]["log"] = pd.read_csv(run / "logs/version_0/metrics.csv")
    assert runs["one"]["global_step"] == runs["two"]["global_step"] == epochs * 3
    for key, value in runs["one"]["state_dict"].items():
        found = runs["two"]["state_dict"][key]
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-7, msg=key)
    pd.testing.assert_frame_equal(runs["two"]["log"], runs["one"]["log"], atol=1e-6, rtol=0)


@pytest.mark.slow  # each job on the cluster starts workers, which import torch and Lightning
@pytest.mark.filterwarnings("ignore")
def test_training_and_prediction(cluster, ltr, options):
    fit_both(ltr, options)

    # a mistake that only a worker sees
    answer = ltr("fit", *options, BATCH, "x", "--ray-workers", 2)
    assert answer.code == 2
    assert answer.err.splitlines()[-1] == ltr("fit", *options, BATCH, "x").err.strip()
    assert "--data.batch_size" in answer.err.splitlines()[-1]

    predict = ["predict", "runs/one", "letor/test.txt"]
    for file in ("p.csv", "p.run"):
        assert ltr(*predict, "--output", file).code == 0
        answer = ltr(*predict, "--output", f"ray/{file}", "--ray")
        assert answer.code == 0, answer.err
        assert f"wrote ray/{file}: 15 rows" in answer.out
        assert Path("ray", file).read_bytes() == Path(file).read_bytes()
        assert [path.name for path in Path("ray").iterdir()] == [file]
        Path("ray", file).unlink()
    answer = ltr("predict", "runs/one", "none.txt", "--output", "ray/p.csv", "--ray")
    assert answer.code == 2
    assert "none.txt" in answer.err.splitlines()[-1]
    assert not [*Path("ray").iterdir()]


@pytest.mark.slow  # four predictions on the cluster, each with workers of its own
@pytest.mark.filterwarnings("ignore")
def test_prediction_of_a_table(cluster, ltr, options):
    make_table(Path("train.parquet"), 300)
    make_table(Path("new.parquet"), 61, seed=1)
    columns = ["--data.qid", "query", "--data.label", "grade", "--data.doc_id", "sku"]
    table = ["--config", "own.yaml", "--data", "TableDataModule", "--data.path", "train.parquet"]
    ranks = ["--data.transform", "TableTransform", "--data.transform.features", "RankPerList"]
    stored = ["--output", "new.lists", "--qid", "query", "--doc-id", "sku", "--label", "grade"]
    assert ltr("convert", "new.parquet", *stored).code == 0
    for name, more in {"rows": [], "lists": ranks}.items():
        used = [*table, *columns, *more, "--trainer.default_root_dir", f"runs/{name}"]
        held = ["--data.validation", 0.2, "--trainer.max_epochs", 1]
        assert ltr("fit", *used, *held).code == 0
        for source in ("new.parquet", "new.lists"):
            predict = ["predict", f"runs/{name}", source]
            assert ltr(*predict, "--output", "p.csv").code == 0
            answer = ltr(*predict, "--output", "ray.csv", "--ray-workers", 2)
            assert answer.code == 0, answer.err
            assert Path("ray.csv").read_text() == Path("p.csv").read_text()


def test_the_option(ltr):
    parser = LineParser("ltr")
    add_workers(parser)
    for args, workers in ((["--ray"], 0), (["--ray-workers=3"], 3), ([], None)):
        assert parser.parse_args(args).workers == workers
    assert "unrecognized arguments: --ray" in ltr("evaluate", "tiny.yaml", "--ray").err
    for value in ("0", "x", "-1", ""):
        answer = ltr("fit", "--config", "tiny.yaml", "--ray-workers", value)
        assert answer.code == 2
        told = f"ltr fit: --ray-workers must be a whole number >= 1, got {value!r} (see"
        assert answer.err.startswith(told)


def test_more_workers_than_cpus(monkeypatch):
    fake = SimpleNamespace(is_initialized=lambda: True, cluster_resources=lambda: {"CPU": 2.0})
    monkeypatch.setitem(sys.modules, "ray", fake)
    assert (connect(0), connect(2)) == (2, 2)
    with pytest.raises(CommandError, match="--ray-workers must"):
        connect(3)


def test_ray_is_not_installed(ltr, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    answer = ltr("fit", "--config", "tiny.yaml", "--ray-workers", 2)
    assert answer.code == 2
    assert answer.err == "ltr fit: Ray is not installed: pip install 'ltr-torch[ray]'\n"
