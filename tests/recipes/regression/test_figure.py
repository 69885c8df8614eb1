"""The picture of the recipe `regression`."""

from typing import Any

import pytest

from recipes.regression.figure import errors_by_share


def test_the_picture_is_drawn_of_what_is_finished():
    assert errors_by_share([]) is None
    runs: list[dict[str, Any]] = []
    for share in (0.0, 0.2):
        for seed in (1, 2):
            metrics = {"test_mae": 40 + share * seed, "test_median_absolute_error": 30 + seed}
            point = {"outliers": share, "seed": seed}
            runs.append({"variant": "least squares", "point": point, "metrics": metrics})
    figure = errors_by_share(runs)
    assert figure is not None
    mean, median = figure.axes
    assert list(mean.lines[0].get_xdata()) == [0.0, 0.2]
    assert list(mean.lines[0].get_ydata()) == pytest.approx([40, 40.3])
    assert list(median.lines[0].get_ydata()) == [31.5, 31.5]
