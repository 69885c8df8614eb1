"""Trees on small random tables, with columns of few values and missing ones, export and verify."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRanker

from ltr.estimators import Blend
from ltr.export import export_model
from ltr.serving import OnnxRanker

xgboost = pytest.importorskip("xgboost")  # which has no wheel for every system

KINDS = ("few", "two", "constant", "gone", "numbers", "whole", "tiny", "text", "boolean", "levels")


def column(rng: np.random.Generator, kind: str, rows: int) -> Any:
    """Return a column of a kind; most have missing values."""
    missing = rng.random(rows) < rng.choice([0.0, 0.1, 0.6])
    if kind == "text":
        return pd.Series(rng.choice([*"abcdef"][: rng.integers(1, 7)], rows)).mask(missing)
    if kind == "boolean":
        return pd.array(rng.random(rows) < 0.5, dtype="boolean") if missing.any() else missing
    if kind == "levels":
        return pd.Categorical(rng.choice([1, 2, 5], rows)).set_categories([1, 2, 5, 9])
    values = {
        "few": lambda: rng.choice(rng.normal(size=rng.integers(1, 5)).round(2), rows),
        "two": lambda: rng.choice([0.0, 1.0], rows),
        "constant": lambda: np.full(rows, rng.choice([0.0, -3.5, 7.0])),
        "gone": lambda: np.full(rows, np.nan),
        "numbers": lambda: rng.normal(size=rows) * 10.0 ** rng.integers(-6, 7),
        "whole": lambda: rng.integers(-3, 4, rows) * 1.0,
        "tiny": lambda: rng.choice([-1e-35, 0.0, 1e-36, 1e-35, 2e-35, 1e-3], rows),
    }[kind]()
    return np.where(missing, np.nan, values)


def table(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return a table, labels that depend on what is missing and on values, and qids."""
    rows = int(rng.integers(30, 300))
    kinds = rng.choice(KINDS, rng.integers(1, 6))
    X = pd.DataFrame({f"{kind}{i}": column(rng, kind, rows) for i, kind in enumerate(kinds)})
    y = rng.integers(0, 2, rows)
    for name in X:
        codes, _ = pd.factorize(X[name])
        y += (rng.random(codes.max() + 2) < 0.4)[codes]  # the last one of what is missing
    return X, y, np.arange(rows) // int(rng.integers(2, 12))


def rankers(rng: np.random.Generator) -> dict[str, Any]:
    """Return what is exported, by its name."""
    size = int(rng.integers(1, 20))
    given: dict[str, Any] = {
        "n_estimators": size,
        "num_leaves": int(rng.integers(2, 16)),
        "min_child_samples": int(rng.integers(1, 10)),
        "use_missing": bool(rng.random() < 0.9),
        "zero_as_missing": bool(rng.random() < 0.05),
        "max_cat_to_onehot": int(rng.integers(1, 5)),
        "min_data_per_group": int(rng.integers(1, 10)),
        "boosting_type": str(rng.choice(["gbdt", "dart"])),
    }
    lightgbm = LGBMRanker(**given, n_jobs=1, verbose=-1)
    given = {
        "n_estimators": size,
        "max_depth": int(rng.integers(1, 6)),
        "tree_method": str(rng.choice(["hist", "approx"])),
        "base_score": float(rng.choice([0.0, 0.5])),
        "booster": "dart" if rng.random() < 0.05 else "gbtree",
        "max_cat_to_onehot": int(rng.integers(1, 5)),
    }
    boosted = xgboost.XGBRanker(**given, n_jobs=1, enable_categorical=True)
    both = Blend([LGBMRanker(**lightgbm.get_params()), boosted], validation=0, verbose=0)
    return {"lightgbm": lightgbm, "xgboost": boosted, "blend": both}


def refused(ranker: Any) -> str:
    """Return why a ranker has no form in ONNX, "" if it has one."""
    given = ranker.get_params()
    if given.get("zero_as_missing") or given.get("lgbmranker__zero_as_missing"):
        return "a ranker must not treat zeros as missing, got zero_as_missing=True"
    if "dart" in (given.get("booster"), given.get("xgbranker__booster")):
        return "a ranker of XGBoost must have booster='gbtree', got 'dart'"
    return ""


def check(seed: int, tmp_path: Any) -> list[str]:
    """Export the rankers of a seed; return why each is refused, "" if its scores are right."""
    rng = np.random.default_rng(seed)
    X, y, qid = table(rng)
    text = [name for name in X if name.startswith("text")]
    found = []
    for name, ranker in rankers(rng).items():
        own = X if name == "blend" else X.astype(dict.fromkeys(text, "category"))
        lists = {"group": np.bincount(qid)} if name == "lightgbm" else {"qid": qid}
        ranker.fit(own, y, **lists)
        path = tmp_path / f"{name}.onnx"
        export = ranker.export if name == "blend" else partial(export_model, ranker)
        reason = ""
        try:
            written = export(path)
        except ValueError as error:
            reason = str(error)
        found.append(reason)
        if reason:
            assert reason == refused(ranker)
            continue  # trees without a split are never refused
        assert written.differing == 0
        scores, expected = OnnxRanker(path).score(own), ranker.predict(own)
        np.testing.assert_allclose(scores, expected, atol=1e-5 * np.abs(expected).max())
    return found


@pytest.mark.parametrize("seed", [0, 1, 69])
def test_scores_of_the_export(seed, tmp_path):
    reasons = check(seed, tmp_path)
    assert any(reasons) == (seed in (1, 69))  # a reason of XGBoost, and one of LightGBM


@pytest.mark.slow  # ten minutes; the test above has three of these tables
def test_scores_of_200_exports(tmp_path):
    reasons = [reason for seed in range(200) for reason in check(seed, tmp_path)]
    assert reasons.count("") > 550
    assert len({*reasons}) == 3
