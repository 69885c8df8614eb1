"""The part of `docs/tuning.md` that runs `ltr fit`."""

import os
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"


@pytest.mark.slow  # each trial is a fresh process of `ltr fit`
def test_trials_by_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    grade = (X["a"] > 0.5).astype(int)
    X.assign(query=np.arange(400) // 10, grade=grade).to_csv(tmp_path / "train.csv", index=False)
    command = tmp_path / "ltr"  # of this checkout, with short trainings
    main = (
        "import sys; from ltr.cli import main; main([*sys.argv[1:], '--trainer.max_epochs', '2'])"
    )
    command.write_text(f"#!{sys.executable}\n{main}\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    part = PAGE.read_text(encoding="utf-8").partition("## With `ltr fit`")[2]
    code = re.search(r"```python\n(import.*?)```", part, re.DOTALL)
    assert code is not None
    names: dict = {}
    exec(code[1].replace("n_trials=20", "n_trials=2"), names)
    study = names["study"]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    assert 0 < study.best_value <= 1
    assert (tmp_path / "trials/1/1/checkpoints/best.ckpt").is_file()
