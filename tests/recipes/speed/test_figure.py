"""The picture of the recipe `speed`: which runs and operators its panels show."""

from typing import Any

from recipes.speed.figure import speed

STEPS = 4


def run_of(n: int, steps: dict[str, int]) -> dict[str, Any]:
    """A run of lists of n in which operators took so many of the four steps."""
    metrics: dict[str, float] = {}
    curves: dict[str, list[Any]] = {"epoch": list(range(1, STEPS + 1))}
    for position, (name, taken) in enumerate(steps.items(), start=1):
        metrics |= {
            f"test_cpu_ms_{name}": float(position * n),
            f"test_mb_{name}": float(position + n),
            f"test_steps_{name}": float(taken),
        }
        there = [epoch <= taken for epoch in range(1, STEPS + 1)]
        curves[f"val_spearman_{name}"] = [0.1 * position if one else None for one in there]
        curves[f"train_loss_{name}"] = [1.0 * position if one else None for one in there]
    name = f"speed-n-{n}"
    return {
        "name": name,
        "point": {"n": n},
        "metrics": metrics,
        "curves": curves,
        "epochs": STEPS,
    }


def test_nothing_is_drawn_of_nothing():
    assert speed([]) is None


def test_what_the_panels_show():
    longest = run_of(300, {"dense": 1, "fast": STEPS})
    middle = run_of(100, {"dense": STEPS, "fast": STEPS})
    figure = speed([longest, run_of(30, {"dense": STEPS, "fast": STEPS}), middle])
    assert figure is not None
    time, memory, spearman, loss = figure.axes
    for panel, values in ((time, [30, 100, 300]), (memory, [31, 101, 301])):
        dense, fast = panel.lines
        assert [line.get_label() for line in (dense, fast)] == ["dense", "fast"]
        assert list(dense.get_xdata()) == [30, 100, 300]
        assert list(dense.get_ydata()) == values
    assert list(time.lines[1].get_ydata()) == [60, 200, 600]
    # whole curves of the longest lists that all took every step; and of the longest of all
    for panel in (spearman, loss):
        assert [line.get_label() for line in panel.lines] == [
            "dense, n = 100",
            "fast, n = 100",
            "fast, n = 300",
        ]
        assert [line.get_linestyle() for line in panel.lines] == ["-", "-", "--"]
    assert list(loss.lines[1].get_ydata()) == [2.0] * STEPS


def test_no_length_at_which_all_took_every_step():
    figure = speed([run_of(100, {"dense": 1, "fast": STEPS})])
    assert figure is not None
    (line,) = figure.axes[2].lines
    assert (line.get_label(), line.get_linestyle()) == ("fast, n = 100", "--")
