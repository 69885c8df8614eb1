"""A sweep: each run once, stopped ones resumed, nothing mixed, mistakes in one line."""

import json
import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from recipes.sweep import Run, Sweep, of

CONFIG = """\
model:
  class_path: Ranker
  init_args:
    scorer: {class_path: MLPScorer, init_args: {hidden: [4], dropout: 0.5}}
    loss:
      class_path: SoftNDCG
      init_args: {operator: {class_path: SoftSort, init_args: {temperature: 0.3}}}
    metrics: {ndcg_10: {class_path: NDCG, init_args: {top_k: 10}}, mrr: {class_path: MRR}}
data:
  class_path: DigitsDataModule
  # so many test lists that a short training changes the order of some
  init_args: {list_size: 4, train_lists: 10, val_lists: 4, test_lists: 40, batch_size: 2}
trainer:
  max_epochs: 2
  accelerator: cpu
  callbacks: [{class_path: stopper.Stopper}]
"""

# to be interrupted before a certain step: STOP_AT in the environment
STOPPER = """\
import os
from lightning.pytorch import Callback
from ltr.modules.checkpoints import train_steps


class Stopper(Callback):
    def on_train_batch_start(self, trainer, *args):
        run, _, step = os.environ.get("STOP_AT", "").partition(":")
        if run in trainer.default_root_dir.split(os.sep) and step == str(train_steps(trainer)):
            raise KeyboardInterrupt
"""

VARIANTS: dict[str, dict[str, Any]] = {
    "before": {},
    "NDCG": {},
    "MSE": {"model.loss": of("PointwiseMSE")},
}


def runs(overlays: Sequence[str], seeds: Sequence[int] = (1, 2)) -> Iterator[Run]:
    for variant, options in VARIANTS.items():
        for seed in seeds:
            given = {"seed_everything": seed, **options}
            yield Run(variant, {"seed": seed}, given, fit=variant != "before")


@pytest.fixture
def tiny(workplace, monkeypatch, capsys):
    """A sweep of six runs of no time at all."""
    monkeypatch.syspath_prepend(workplace)
    Path("stopper.py").write_text(STOPPER)
    Path("own").mkdir()
    Path("own/config.yaml").write_text(CONFIG)
    Path("own/wide.yaml").write_text("model: {init_args: {scorer: {init_args: {hidden: [5]}}}}\n")
    metrics = {"test_ndcg_10": "NDCG@10", "test_mrr": "MRR", "seconds": "seconds"}

    def run(*args: object, **fields: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        sweep = Sweep(Path("own"), runs, metrics, "seed", **fields)
        return sweep.main("own.run", [str(arg) for arg in args]), *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Where a finished sweep is kept, once one is."""
    return tmp_path_factory.mktemp("kept") / "out"


TWO = ["--output", "out", "--only", "before", "--only", "NDCG"]  # MSE is trained below


@pytest.fixture
def swept(tiny, kept) -> None:
    """Make the folder `out` of the sweep `TWO`: by a copy, if it was made before."""
    if not kept.exists():
        code, _, err = tiny(*TWO)
        assert code == 0, err
        shutil.copytree("out", kept)
    elif not Path("out").exists():
        shutil.copytree(kept, "out")


def read(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text())


def metrics_of(out: str, file: str = "results.json") -> dict[str, dict[str, float] | None]:
    return {run["name"]: run.get("metrics") for run in read(f"{out}/{file}")["runs"]}


def test_a_whole_sweep(tiny, kept):
    code, said, err = tiny(*TWO, figure=lambda results: Figure())
    assert code == 0, err
    shutil.copytree("out", kept, dirs_exist_ok=True)
    results = read("out/results.json")
    names = [f"{name}-seed-{seed}" for name in ("before", "ndcg", "mse") for seed in (1, 2)]
    assert [run["name"] for run in results["runs"]] == names
    first, trained = results["runs"][0], results["runs"][2]
    assert not first["fit"]
    assert not {"seconds", "curves"} & set(first)
    assert (trained["seed"], trained["epochs"], trained["steps"]) == (1, 2, 10)
    assert trained["seconds"] > 0
    assert not trained["resumed"]
    assert trained["options"] == {"seed_everything": 1}
    assert set(trained["metrics"]) == {"test_ndcg_10", "test_mrr"}
    curves = trained["curves"]
    assert curves["epoch"] == [1, 2]
    assert max(curves["val_ndcg_10"]) == pytest.approx(trained["val_ndcg_10"], rel=1e-5)
    assert {"val_loss", "val_mrr", "train_loss"} < set(curves)
    assert {"python", "torch", "lightning", "ltr", "device"} <= set(trained["environment"])
    assert results["config"]["trainer"]["max_epochs"] == 2
    table = Path("out/table.md").read_text()
    assert "### NDCG@10\n\n|  | seed 1 | seed 2 |\n" in table
    assert table in said
    assert "drew out/own.png" in said
    assert Path("out/own.png").stat().st_size > 0
    # the seeds make a difference, and so does the training
    found = [value for value in metrics_of("out").values() if value]
    assert len({json.dumps(value) for value in found}) == 4


def test_a_stopped_sweep_is_resumed_to_the_same_results(tiny, swept, monkeypatch):
    Path("out").rename("whole")
    only = ["--only", "before-seed-1", "--only", "NDCG"]
    monkeypatch.setenv("STOP_AT", "ndcg-seed-2:7")
    code, _, err = tiny("--output", "out", *only)
    assert code == 130
    assert err == (
        "ltr: interrupted; resume it with: "
        "python -m own.run --output out --only before-seed-1 --only NDCG\n"
    )
    assert "| NDCG | " in Path("out/table.md").read_text()
    assert metrics_of("out")["ndcg-seed-2"] is None
    finished = {path: path.stat().st_mtime_ns for path in Path("out").glob("runs/*/result.json")}
    assert len(finished) == 2
    monkeypatch.delenv("STOP_AT")
    code, said, err = tiny("--output", "out", *only)
    assert code == 0, err
    assert "run 1 of 1: ndcg-seed-2" in said
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    resumed = read("out/runs/ndcg-seed-2/result.json")
    assert resumed["resumed"]
    assert resumed["steps"] == 10
    found, whole = (metrics_of(out)["ndcg-seed-2"] for out in ("out", "whole"))
    assert found == whole is not None
    curves = [read(f"{out}/runs/ndcg-seed-2/result.json")["curves"] for out in ("out", "whole")]
    assert curves[0] == curves[1]


def test_finished_runs_are_added_to_a_file_of_earlier_ones(tiny, swept):
    earlier = read("out/results.json")
    shutil.rmtree("out")
    for result in earlier["runs"]:  # as an earlier version named them
        if "point" in result:
            result["point"] = {"seed_everything": result["point"]["seed"]}
    Path("results-kept.json").write_text(json.dumps(earlier))
    kept = metrics_of(".", "results-kept.json")
    two = ["--only", "mse-seed-2", "--only", "NDCG"]
    code, said, err = tiny("--output", "new", "--results", "results-kept.json", *two)
    assert code == 0, err
    assert "run 1 of 1: mse-seed-2" in said  # the two others are finished in the file
    now = metrics_of(".", "results-kept.json")
    assert now.pop("mse-seed-2") is not None
    kept.pop("mse-seed-2")
    assert now == kept
    assert "| MSE | not run | 0." in Path("table-kept.md").read_text()
    points = [x["point"] for x in read("results-kept.json")["runs"] if "point" in x]
    assert {tuple(point) for point in points} == {("seed",)}
    added = next(x for x in read("results-kept.json")["runs"] if x["name"] == "mse-seed-2")
    assert added["core_seconds"] > 0
    assert added["environment"]["processor"]
    # runs with other options for all runs are not mixed with them
    code, _, err = tiny("--results", "results-kept.json", "--model.scorer.hidden", "[5]")
    assert code == 2
    assert err == (
        "own.run: results-kept.json has results of other settings, with another "
        "model.scorer.hidden: give another --results\n"
    )


def test_the_order_of_only_is_the_order_of_the_runs(tiny):
    code, said, err = tiny("--output", "out", "--only", "before-seed-2", "--only", "before")
    assert code == 0, err
    assert "run 1 of 2: before-seed-2" in said
    assert "run 2 of 2: before-seed-1" in said


def test_status_tells_the_core_hours_that_are_left(tiny, monkeypatch):
    monkeypatch.setenv("STOP_AT", "ndcg-seed-2:7")  # the second of two epochs
    assert tiny("--output", "out", "--only", "NDCG")[0] == 130
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")}
    code, said, err = tiny("--output", "out", "--status", "--only", "NDCG", "--only", "MSE")
    assert code == 0, err
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")} == before
    done = [read(f"out/runs/ndcg-seed-{seed}/progress.json") for seed in (1, 2)]
    assert [one["epochs"] for one in done] == [2, 1]
    # one epoch of the stopped run at its own speed, four at the mean speed of all
    seconds = [one["core_seconds"] for one in done]
    hours = (seconds[1] + 4 * sum(seconds) / 3) / 3600
    assert said.splitlines() == [
        "ndcg-seed-1: 2 of 2 epochs",
        "ndcg-seed-2: 1 of 2 epochs",
        "mse-seed-1: 0 of 2 epochs",
        "mse-seed-2: 0 of 2 epochs",
        f"core hours left: {hours:.1f}",
    ]
    code, said, _ = tiny("--output", "none", "--status", "--only", "MSE")
    assert (code, said.splitlines()[-1]) == (
        0,
        "core hours left: unknown, as no epoch was trained here",
    )


def test_killed_between_training_and_test(tiny, swept):
    before = read("out/runs/ndcg-seed-1/result.json")
    Path("out/runs/ndcg-seed-1/result.json").unlink()
    checkpoint = Path("out/runs/ndcg-seed-1/checkpoints/last.ckpt")
    saved = checkpoint.stat().st_mtime_ns
    assert tiny("--output", "out", "--only", "ndcg-seed-1")[0] == 0
    assert read("out/runs/ndcg-seed-1/result.json") == before
    assert checkpoint.stat().st_mtime_ns == saved


def test_only_some_runs_and_other_seeds(tiny):
    assert tiny("--output", "out", "--only", "mse-seed-2", "--only", "before")[0] == 0
    ran = {name for name, metrics in metrics_of("out").items() if metrics}
    assert ran == {"before-seed-1", "before-seed-2", "mse-seed-2"}
    table = Path("out/table.md").read_text()
    assert "| MSE | not run | 0." in table
    assert "| NDCG |" not in table
    assert "3 of 6 runs finished" in table
    # more seeds may follow in the same folder
    code, said, err = tiny("--output", "out", "--only", "before", "--seeds", 1, 2, 3)
    assert code == 0, err
    assert "run 1 of 1: before-seed-3" in said


def test_results_of_other_settings_are_not_mixed(tiny, swept):
    quick = ["--output", "out", "--only", "before", "--seeds", 1]
    config = Path("own/config.yaml").read_text()
    for more, change, named in [
        (["--model.scorer.hidden", "[5]"], "2", "model.scorer.hidden"),
        (["--overlay", "wide"], "2", "model.scorer.hidden"),
        (["--data.list_size=3"], "2", "data.list_size"),
        ([], "3", "trainer.max_epochs"),
    ]:
        Path("own/config.yaml").write_text(config.replace("epochs: 2", f"epochs: {change}"))
        code, _, err = tiny(*quick, *more)
        assert code == 2
        assert err == (
            f"own.run: out has results of other settings, with another {named}: "
            "give another --output, or delete out\n"
        )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--only", "NDGC"], "--only has no variant or run 'NDGC': did you mean NDCG?"),
        (["--only", "mse-seed-3"], "no variant or run 'mse-seed-3': did you mean mse-seed-"),
        (["--overlay", "wider"], "argument --overlay: invalid choice: 'wider'"),
        (["--seed_everything", "3"], "--seed_everything is set by each run"),
        (["--model.lss", "x"], "did you mean --model.loss?"),
        (["--model.scorer.dropout", "2"], "dropout must lie in [0, 1), got 2"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_trace(tiny, args, message):
    code, _, err = tiny("--output", "out", *args)
    assert code == 2
    assert err.count("\n") == 1
    assert message in err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "program",
    ["sort.run", pytest.param("knn.search", marks=pytest.mark.slow)],  # a second, and the same code
)
def test_a_missing_folder_of_data_is_one_line(sweep, program):
    for root in ("nowhere", "neither"):  # and does not make another root an error
        answer = sweep(program, "--output", "out", "--data.root", root)
        assert answer.code == 2
        assert answer.err == f"recipes.{program}: root must be a folder, got {root}\n"


class Harm:
    def __reduce__(self):
        return (Path.touch, (Path("code-was-run"),))


def test_damaged_results_are_one_line(tiny, swept):
    quick = ["--output", "out", "--only", "before", "--seeds", 1]
    harm = pickle.dumps(Harm())
    for name in ("result.json", "settings.json"):
        path = Path("out/runs/before-seed-1") / name
        sound = path.read_bytes()
        for content in (b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, harm):
            path.write_bytes(content)
            code, _, err = tiny(*quick)
            assert code == 2
            assert err.count("\n") == 1
            assert str(path) in err
            assert len(err) < 1000
        path.write_bytes(sound)
    Path("out/results.json").write_bytes(harm)  # must not be read
    assert tiny(*quick)[0] == 0
    assert not Path("code-was-run").exists()
