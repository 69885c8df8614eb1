"""Learning curves: read from logs of several parts, drawn from results alone."""

import pytest

from recipes.figures import curves
from recipes.results import Result, read_curves


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


def run(variant: str, val_x: list[float | None], **point: int) -> Result:
    curves = {"epoch": list(range(1, len(val_x) + 1)), "val_loss": val_x, "val_x": val_x}
    return {"variant": variant, "point": point, "monitor": "val_x", "curves": curves}


def lines_of(axes) -> dict[str, list[tuple[float, float]]]:
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def test_a_panel_for_each_value_and_a_line_a_variant():
    figure = curves(
        [
            run("A", [0.1, 0.2, 0.9], n=3, seed=1),
            run("A", [0.3, 0.6], n=3, seed=2),
            run("B", [0.5], n=3, seed=1),
            run("B", [None, 0.75], n=7, seed=1),
            {"variant": "D", "point": {"n": 3}},  # not trained
        ],
        by="n",
    )
    assert figure is not None
    three, seven = figure.axes
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


def test_panels_without_a_value_are_empty():
    figure = curves([run("A", [0.1, 0.2], n=n) for n in (3, 5, 7, 9)], by="n")
    assert figure is not None
    assert [panel.axison for panel in figure.axes] == [True] * 4 + [False] * 2


def test_results_without_curves():
    assert curves([{"variant": "A", "point": {"n": 3}}], by="n") is None
