"""The picture of the recipe `regression`, and what its neighbors say of a wrong folder."""

import json
from pathlib import Path
from typing import Any

from matplotlib.image import imread

from ltr.papers.regression.figure import errors_by_share


def write(folder: Path, runs: list[dict[str, Any]]) -> None:
    (folder / "results.json").write_text(json.dumps({"runs": runs}))


def test_the_picture_is_drawn_of_what_is_finished(tmp_path: Path):
    runs: list[dict[str, Any]] = [{"variant": "later", "point": {"data.outliers": 0.1}}]
    write(tmp_path, runs)
    assert errors_by_share(tmp_path) is None
    for share in (0.0, 0.2):
        for seed in (1, 2):
            metrics = {"test_mae": 40 + share * seed, "test_median_absolute_error": 30 + seed}
            point = {"data.outliers": share, "data.seed": seed}
            runs.append({"variant": "least squares", "point": point, "metrics": metrics})
    write(tmp_path, runs)
    path = errors_by_share(tmp_path)
    assert path == tmp_path / "regression.png"
    assert imread(path).std() > 0  # not blank


def test_a_wrong_root_is_said_in_one_line(ltr):
    answer = ltr("fit", "--config", "topk", "--data.root", "nowhere")
    assert answer.code == 2
    assert answer.err == "ltr fit: root must be a folder, got nowhere\n"
