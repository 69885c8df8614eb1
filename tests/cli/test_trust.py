"""A model's folder names its classes; only those of trusted packages are imported."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from ltr.config.folder import with_digest
from ltr.models import LinearScorer, RankingModel

OWN = """\
open("hit", "w").close()
from ltr.models import LinearScorer

class OwnScorer(LinearScorer):
    pass
"""


def test_a_folder_imports_only_packages_that_are_trusted(ltr):
    Path("own_loss.py").write_text(OWN)
    RankingModel(LinearScorer(2)).save("model")
    config = Path("model/config.json")
    content = json.loads(config.read_text())
    content["scorer"]["class_path"] = "own_loss.OwnScorer"
    config.write_text(json.dumps(with_digest(content)))
    Path("t.txt").write_text("1 qid:7 1:0.5 2:2\n0 qid:7 2:1\n")
    for trust in ((), ("--trust", "own_los")):
        answer = ltr("predict", "model", "t.txt", "--output", "p.csv", *trust)
        assert answer.code == 2
        assert answer.err.count("\n") == 1
        assert "own_loss.OwnScorer is in the package own_loss" in answer.err
        assert not Path("hit").exists()
    answer = ltr("predict", "model", "t.txt", "--output", "p.csv", "--trust", "own_loss")
    assert answer.code == 0, answer.err
    assert np.isfinite(pd.read_csv("p.csv")["score"]).all()
    answer = ltr("predict", "model", "t.txt", "--output", "p.csv", "--trust", "a b")
    assert "trust must be a list of packages" in answer.err
