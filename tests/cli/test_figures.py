"""Learning curves: read from logs of several parts, drawn from `results.json` alone."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ltr.cli.curves import read_curves
from ltr.papers import figures


def test_the_curves_of_a_resumed_run(tmp_path):
    first, second, third = (tmp_path / "logs" / f"version_{n}" for n in (2, 10, 11))
    for folder in (first, second, third):
        folder.mkdir(parents=True)
    (first / "metrics.csv").write_text(
        "epoch,step,train_loss,val_x\n0,4,,0.123456789\n0,4,2.0,\n1,9,,0.5\n1,9,1.5,\n"
    )
    # broken off in the second epoch, which is gone on with; then tested
    (second / "metrics.csv").write_text(
        "epoch,step,train_loss,val_x,test_x\n1,9,,0.75,\n1,9,1.25,,\n3,19,,1234567.8,\n3,20,,,1.0\n"
    )
    assert read_curves(tmp_path) == {
        "epoch": [1, 2, 4],
        "val_x": [0.123457, 0.75, 1234570.0],
        "train_loss": [2.0, 1.25, None],
    }
    assert read_curves(tmp_path / "nothing") == {}


def write_results(
    out: Path,
    runs: list[dict],
    grid: dict | None = None,
    table: dict | None = None,
    config: dict | None = None,
) -> None:
    content = {"recipe": "own", "config": config or {}, "grid": grid or {}, "runs": runs}
    if table is not None:
        content["table"] = table
    (out / "results.json").write_text(json.dumps(content))


def run(variant: str, val_x: list[float | None], **point: int) -> dict:
    curves = {"epoch": list(range(1, len(val_x) + 1)), "val_loss": val_x, "val_x": val_x}
    name = f"{variant}-{len(val_x)}"
    return {"name": name, "variant": variant, "point": point, "metrics": {}, "curves": curves}


def lines_of(axes) -> dict[str, list[tuple[float, float]]]:
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


GRID = {"seed_everything": [1, 2], "n": [3, 5, 7], "m": [1]}


def test_a_panel_for_each_value_and_a_line_a_variant(tmp_path, drawn):
    runs = [
        run("A", [0.1, 0.2, 0.9], n=3, seed_everything=1),
        run("A", [0.3, 0.6], n=3, seed_everything=2),
        run("B", [0.5], n=3, seed_everything=1),
        run("B", [None, 0.75], n=7, seed_everything=1),
        {"name": "C", "status": "not run"},
        {"name": "D", "variant": "D", "point": {"n": 3}, "metrics": {}},  # not trained
    ]
    write_results(tmp_path, runs, GRID)
    assert figures.curves(tmp_path) == tmp_path / "own.png"
    assert (tmp_path / "own.png").stat().st_size > 0
    three, seven = drawn[0].axes
    assert [axes.get_title() for axes in (three, seven)] == ["n 3", "n 7"]
    # the mean over the seeds, as far as both went: epoch 3 is of one alone
    assert lines_of(three) == {
        "A": [[1, pytest.approx(0.2)], [2, pytest.approx(0.4)]],
        "B": [[1, 0.5]],
    }
    assert lines_of(seven) == {"B": [[2, 0.75]]}
    # the band: (0.1, 0.3) and (0.2, 0.6) are 0.1 sqrt 2 and 0.2 sqrt 2 about their means
    (band,) = three.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.2 - 0.1 * 2**0.5)
    assert heights.max() == pytest.approx(0.4 + 0.2 * 2**0.5)
    # a variant has one colour in all panels
    assert three.lines[1].get_color() == seven.lines[0].get_color()
    assert three.get_ylabel() == "val_x"


def test_panels_are_the_columns_of_the_table(tmp_path, drawn):
    runs = [run("A", [0.1], n=n, m=1, seed_everything=1) for n in (3, 5)]
    write_results(tmp_path, runs, GRID, {"rows": "variant", "columns": "m"})
    figures.curves(tmp_path)
    assert [axes.get_title() for axes in drawn[0].axes] == ["m 1"]


def test_places_without_a_value_are_empty(tmp_path, drawn):
    runs = [run("A", [0.1, 0.2], n=n) for n in (3, 5, 7, 9)]
    write_results(tmp_path, runs, {"n": [3, 5, 7, 9]})
    figures.curves(tmp_path)
    assert [panel.axison for panel in drawn[0].axes] == [True] * 4 + [False] * 2


def test_which_metric_is_drawn(tmp_path, drawn):
    write_results(tmp_path, [run("A", [0.1])], config={"best_checkpoint": {"monitor": "val_loss"}})
    figures.curves(tmp_path)
    figures.draw_panels(tmp_path, "val_x", "share")
    assert [figure.axes[0].get_ylabel() for figure in drawn] == ["val_loss", "share"]
    assert drawn[0].axes[0].get_title() == ""
    assert figures.draw_panels(tmp_path, "val_y") is None


def test_results_without_curves(tmp_path):
    runs = [{"name": "A", "variant": "A", "point": {}, "fit": True, "metrics": {}}]
    write_results(tmp_path, runs)
    assert figures.curves(tmp_path) is None
    axes = Figure().subplots()
    figures.learning_curves(axes, tmp_path, "val_x")
    assert not axes.lines
    write_results(tmp_path, [*runs, run("A", [0.5, 0.25])])
    figures.learning_curves(axes, tmp_path, "val_x")
    assert lines_of(axes) == {"A-2": [[1, 0.5], [2, 0.25]]}
