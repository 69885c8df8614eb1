"""`ltr bench`: each run once, broken-off ones gone on with, nothing mixed."""

import json
from pathlib import Path

import pytest

BENCH = """\
# Two variants, two seeds.
variants:
  before: {fit: false}
  NDCG: {}
  MSE:
    config: {model: {init_args: {loss: {class_path: PointwiseMSE}}}}
grid: {seed_everything: [1, 2]}
metrics: {test_ndcg_10: NDCG@10, test_mrr: MRR, seconds: seconds}
figure: own_figure.draw
"""

FIGURE = """\
def draw(folder):
    path = folder / "picture.txt"
    path.write_text("a picture")
    return path
"""


@pytest.fixture
def bench(ltr):
    """`ltr bench` of a tiny recipe in `own`."""
    Path("own").mkdir()
    # so many lists that a short training changes the order of some
    config = Path("tiny.yaml").read_text().replace("test_lists: 5", "test_lists: 40")
    config += "  callbacks: [{class_path: stopper.Stopper}]\n"
    config += "last_checkpoint: {every_n_train_steps: 1}\n"
    Path("own/config.yaml").write_text(config)
    Path("own/bench.yaml").write_text(BENCH)
    Path("own_figure.py").write_text(FIGURE)

    def run(out, *more):
        return ltr("bench", "own", "--out", out, *more)

    return run


def read(path: str) -> dict:
    return json.loads(Path(path).read_text())


def metrics_of(out: str) -> dict[str, dict[str, float]]:
    return {run["name"]: run.get("metrics") for run in read(f"{out}/results.json")["runs"]}


def test_a_whole_bench(bench):
    answer = bench("out")
    assert answer.code == 0, answer.err
    results = read("out/results.json")
    assert [run["name"] for run in results["runs"]] == [
        *("before-seed-1", "before-seed-2", "ndcg-seed-1", "ndcg-seed-2"),
        *("mse-seed-1", "mse-seed-2"),
    ]
    first, trained = results["runs"][0], results["runs"][2]
    assert not first["fit"]
    assert "seconds" not in first
    assert trained["seed"] == 1
    assert trained["epochs"] == 2
    assert trained["steps"] == 10
    assert trained["seconds"] > 0
    assert not trained["resumed"]
    assert 0 < trained["val_ndcg_10"] <= 1
    assert set(trained["metrics"]) == {"test_ndcg_10", "test_mrr"}
    curves = trained["curves"]
    assert curves["epoch"] == [1, 2]
    assert max(curves["val_ndcg_10"]) == pytest.approx(trained["val_ndcg_10"], rel=1e-5)
    assert {"val_loss", "val_mrr", "train_loss"} < set(curves)
    assert "curves" not in first
    (environment,) = results["environments"]
    assert {"python", "torch", "lightning", "ltr", "device"} <= set(environment)
    assert results["config"]["trainer"]["max_epochs"] == 2
    mean = next(s for s in results["summaries"] if s["variant"] == "NDCG")
    values = [run["metrics"]["test_ndcg_10"] for run in results["runs"][2:4]]
    assert mean["values"] == values
    assert mean["mean"] == pytest.approx(sum(values) / 2)
    table = Path("out/table.md").read_text()
    assert table.startswith("|  | NDCG@10 | MRR | seconds |")
    for heading in ("NDCG@10", "before", "MSE", "not run"):
        assert (heading in answer.out) == (heading != "not run")
    assert Path("out/picture.txt").is_file()
    assert "drew out/picture.txt" in answer.out
    # the seeds make a difference, and so does the training
    metrics = metrics_of("out")
    assert len({json.dumps(value) for value in metrics.values()}) == 6


def test_a_broken_bench_goes_on_to_the_same_results(bench, monkeypatch):
    monkeypatch.setenv("STOP_AT", "ndcg-seed-2:7")
    broken = bench("out")
    assert broken.code == 130
    assert broken.err == ("ltr: interrupted; resume it with: ltr bench own --out out\n")
    assert "| NDCG | " in Path("out/table.md").read_text()
    assert "(1 of 2)" in Path("out/table.md").read_text()
    assert metrics_of("out")["ndcg-seed-2"] is None
    finished = {path: path.stat().st_mtime_ns for path in Path("out").glob("runs/*/result.json")}
    assert len(finished) == 3
    monkeypatch.delenv("STOP_AT")
    answer = bench("out")
    assert answer.code == 0, answer.err
    assert "run 4 of 6: NDCG, seed 2" in answer.out
    assert "run 3 of 6" not in answer.out
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    resumed = read("out/runs/ndcg-seed-2/result.json")
    assert resumed["resumed"]
    assert resumed["steps"] == 10
    assert bench("whole").code == 0
    assert metrics_of("out") == metrics_of("whole")
    curves = [read(f"{out}/runs/ndcg-seed-2/result.json")["curves"] for out in ("out", "whole")]
    assert curves[0] == curves[1]


def test_a_bench_killed_between_training_and_testing(bench):
    assert bench("out", "--only", "NDCG").code == 0
    before = read("out/runs/ndcg-seed-1/result.json")
    Path("out/runs/ndcg-seed-1/result.json").unlink()
    checkpoint = Path("out/runs/ndcg-seed-1/checkpoints/last.ckpt")
    saved = checkpoint.stat().st_mtime_ns
    assert bench("out", "--only", "NDCG").code == 0
    assert read("out/runs/ndcg-seed-1/result.json") == before
    assert checkpoint.stat().st_mtime_ns == saved


def test_only_some_variants(bench):
    answer = bench("out", "--only", "before", "--only", "MSE")
    assert answer.code == 0, answer.err
    ran = {name for name, metrics in metrics_of("out").items() if metrics}
    assert ran == {"before-seed-1", "before-seed-2", "mse-seed-1", "mse-seed-2"}
    table = Path("out/table.md").read_text()
    assert "| MSE | 0." in table
    assert "| NDCG |" not in table
    assert "4 of 6 runs finished" in table.replace("\n", " ")
    # the others can be run later
    assert bench("out").code == 0
    assert None not in metrics_of("out").values()


def test_only_some_runs(bench):
    answer = bench("out", "--only", "mse-seed-2", "--only", "before")
    assert answer.code == 0, answer.err
    ran = {name for name, metrics in metrics_of("out").items() if metrics}
    assert ran == {"before-seed-1", "before-seed-2", "mse-seed-2"}
    assert "3 of 6 runs finished" in Path("out/table.md").read_text()


def test_results_of_different_configurations_are_not_mixed(bench):
    quick = ["--only", "before", "--seed_everything", "1"]
    assert bench("out", *quick).code == 0
    for more, named in [
        (["--model.scorer.hidden", "[5]"], "model.scorer.hidden"),
        (["--data.list_size=3"], "data.list_size"),
    ]:
        answer = bench("out", *quick, *more)
        assert answer.code == 2
        assert answer.err.count("\n") == 1
        assert f"out has results of another configuration, with other {named}" in answer.err
        assert "give another --out, or delete out" in answer.err
    config = Path("own/config.yaml")
    config.write_text(config.read_text().replace("max_epochs: 2", "max_epochs: 3"))
    answer = bench("out", *quick)
    assert answer.code == 2
    assert "with other trainer.max_epochs" in answer.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--only", "NDGC"], "no variant or run 'NDGC': did you mean NDCG?"),
        (["--only", "mse-seed-3"], "no variant or run 'mse-seed-3': did you mean mse-seed-"),
        (["--outt", "x"], "unknown option --outt: did you mean --out?"),
        (["--model.lss", "x"], "unknown option --model.lss: did you mean --model.loss?"),
        (["--model.scorer.dropout", "2"], "dropout must be in [0, 1), got 2"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_trace(bench, args, message):
    answer = bench("out", *args)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert not Path("out/bench.json").exists()
    assert bench("out", "--only", "before").code == 0


def test_the_recipe_comes_first(ltr):
    answer = ltr("bench", "--out", "x")
    assert answer.code == 2
    assert "RECIPE is required, first" in answer.err
    assert "did you mean digits?" in ltr("bench", "digts").err


def test_a_figure_without_matplotlib(bench):
    Path("own_figure.py").write_text("raise ModuleNotFoundError('no', name='matplotlib')\n")
    answer = bench("out", "--only", "before")
    assert answer.code == 0
    assert "no picture: matplotlib is not installed" in answer.out


def test_a_figure_of_nothing(bench):
    Path("own_figure.py").write_text("def draw(folder):\n    return None\n")
    answer = bench("out", "--only", "before-seed-1")
    assert answer.code == 0
    assert "no picture: no run has anything to draw" in answer.out


def test_the_letor_table(ltr, letor_root):
    answer = ltr(
        *("bench", "letor/smoke", "--out", "out", "--data.root", letor_root),
        *("--data.fold", "[1, 2]", "--seed_everything", 1, "--trainer.limit_train_batches", 2),
    )
    assert answer.code == 0, answer.err
    lines = Path("out/table.md").read_text().splitlines()
    assert "|  | fold 1 | fold 2 | mean |" in lines
    for name in ("NDCG@1", "NDCG@5", "NDCG@10"):
        for convention in ("empty 0", "empty 1", "empty left out", "LETOR 4"):
            row = next(line for line in lines if line.startswith(f"| {name}, {convention} | 0."))
            assert " ± " in row
    assert any(line.startswith("| MAP | 0.") for line in lines)
    assert any(line.startswith("| MRR | ") for line in lines)
