"""Dates in `NeuralRanker` and `Blend`, in their exports and in what serves them."""

import datetime as dt
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from lightgbm import LGBMRanker
from sklearn.ensemble import HistGradientBoostingRegressor

from ltr.cli import main
from ltr.estimators import Blend, NeuralRanker
from ltr.models import MLPScorer
from ltr.serving import OnnxRanker

ROWS = 1200


def quick(**given):
    small = {"members": 1, "max_epochs": 8, "random_state": 0, "verbose": 0}
    return NeuralRanker(**{**small, "scorer": MLPScorer(hidden=(32, 32)), **given})


def frame():
    """Return dates alone, which tell the labels: late days, and hours around noon."""
    rng = np.random.default_rng(0)
    days, seconds = rng.integers(19_000, 20_000, ROWS), rng.integers(0, 86_400, ROWS)
    day = pd.Series(pd.to_datetime(days, unit="D")).dt.as_unit("us")
    at = day + pd.to_timedelta(seconds, unit="s")
    X = pd.DataFrame({"day": day.dt.date, "at": at.dt.tz_localize("UTC")})
    X["text"] = at.dt.strftime("%Y-%m-%dT%H:%M:%S")
    y = (days > 19_700).astype(int) + (abs(seconds / 3600 - 12) < 4)
    X.loc[::9, "day"], X.loc[::11, "at"], X.loc[::13, "text"] = None, pd.NaT, None
    return X, y, np.arange(ROWS) // 10


@pytest.fixture(scope="module")
def trained():
    X, y, qid = frame()
    with pytest.warns(UserWarning, match="dates, by their text: text") as caught:
        ranker = quick(max_epochs=25).fit(X[:1000], y[:1000], qid=qid[:1000])
    assert len(caught) == 1
    return ranker


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    assert trained.export(path).difference < 1e-5
    return path


def test_a_table_of_dates_alone_trains(trained):
    X, y, qid = frame()
    assert trained.schema_.feature_names == ["day", "at", "at (hour)", "text", "text (hour)"]
    assert trained.score(X[1000:], y[1000:], qid=qid[1000:]) > 0.9


def test_scores_are_those_of_the_numbers(trained):
    X, y, qid = frame()
    seconds = pd.to_datetime(X["text"]).to_numpy("datetime64[s]").astype(float)
    seconds[pd.isna(X["text"])] = np.nan
    numbers = pd.DataFrame(
        {
            "day": [
                np.nan if d is None else d.toordinal() - 719_163
                for d in X["day"].where(X["day"].notna(), None)
            ]
        }
    )
    for name in ("at", "text"):
        values = (
            pd.to_datetime(X[name]).dt.tz_localize(None)
            if name == "at"
            else pd.to_datetime(X[name])
        )
        there = values.to_numpy("datetime64[s]").astype(np.int64)
        numbers[name] = np.where(values.isna(), np.nan, there // 86_400)
        numbers[f"{name} (hour)"] = np.where(values.isna(), np.nan, there % 86_400 / 3600)
    plain = quick(max_epochs=25).fit(numbers[:1000], y[:1000], qid=qid[:1000])
    np.testing.assert_array_equal(plain.predict(numbers), trained.predict(X))


def test_other_forms_of_the_same_dates_get_the_same_scores(trained):
    X, _, _ = frame()
    expected = trained.predict(X)
    assert np.array_equal(trained.predict(pl.from_pandas(X)), expected)
    moved = X.assign(
        day=pd.to_datetime(X["day"]),
        at=X["at"].dt.tz_convert("Asia/Kolkata").dt.as_unit("ns"),
        text=pd.to_datetime(X["text"]),
    )
    assert np.array_equal(trained.predict(moved), expected)
    with pytest.raises(ValueError, match=r"'at' must be dates with a time zone.*timestamp"):
        trained.predict(X.assign(at=X["at"].dt.tz_localize(None)))
    with pytest.raises(ValueError, match=r"row 1, column 'text'.*ISO 8601.*'soon'"):
        trained.predict(X.assign(text=[None, "soon"] * (ROWS // 2)))


def documents(X):
    """Return the rows as Python's values, and as those of JSON."""
    rows = [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for row in X.to_dict("records")
    ]
    for row in rows:
        row["at"] = None if row["at"] is None else row["at"].to_pydatetime()
    return rows, json.loads(json.dumps(rows, default=lambda x: x.isoformat()))


def test_exports_score_raw_dates(trained, exported: Path, tmp_path: Path):
    X, _, _ = frame()
    expected = trained.predict(X)
    served = OnnxRanker(exported)
    assert served.about["dates"] == {"day": "naive", "at": "utc", "text": "naive"}
    for given in (X, pl.from_pandas(X), *documents(X)):
        np.testing.assert_allclose(served.score(given), expected, atol=2e-6)
    arrays = {name: X[name].to_numpy() for name in X}
    arrays["day"] = pd.to_datetime(X["day"]).to_numpy("datetime64[ns]")
    np.testing.assert_allclose(served.score(arrays), expected, atol=2e-6)
    folder = tmp_path / "folder"
    trained.export(folder, to="torch")
    assert (
        "date: days since 1970-01-01, and the hour of the day (UTC)"
        in (folder / "README.md").read_text()
    )
    assert np.array_equal(NeuralRanker.load(folder).predict(X), expected)
    program = torch.export.load(next(folder.glob("*.pt2"))).module()
    from ltr.datasets import read_table

    table = X.assign(**{trained.schema_.qid: 0})
    features = read_table(table, trained.schema_, needs_label=False).features
    found = program(torch.from_numpy(features)[None])
    np.testing.assert_allclose(found.detach().numpy().ravel(), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2024-02-29T10:00", "time zone"),
        (dt.date(2024, 2, 29), "time zone"),
        (dt.datetime(2024, 2, 29), "time zone"),
        (17, "neither a date"),
        ("20240229T10Z", "neither a date"),
        ("2024-02-30T10:00Z", "day is out of range|day must be"),
        ("0001-01-01T00:00+05:00", "out of range"),
    ],
)
def test_documents_without_a_date_are_refused(exported: Path, value, message):
    served = OnnxRanker(exported)
    with pytest.raises(ValueError, match=f"column 'at' must hold dates, got .*{message}"):
        served.score([{"day": None, "at": value, "text": None}])


def test_commands_score_raw_dates(trained, exported: Path, tmp_path: Path):
    X, _, qid = frame()
    table = X.assign(query=qid)
    table.to_csv(tmp_path / "new.csv", index=False)
    table.to_parquet(tmp_path / "new.parquet")
    trained.save(tmp_path / "saved")
    for file, model in (("new.csv", exported), ("new.parquet", tmp_path / "saved")):
        out = tmp_path / "scores.parquet"
        command = ["predict", model, tmp_path / file, "--qid", "query", "--output", out]
        assert main([str(one) for one in command]) in (0, None)
        np.testing.assert_allclose(pd.read_parquet(out)["score"], trained.predict(X), atol=2e-6)


def test_the_name_of_an_hour_may_be_the_name_of_a_column():
    """Trees know columns by their place, not by their name."""
    X, y, qid = frame()
    X = X[["at"]].assign(**{"at (hour)": np.random.default_rng(0).normal(size=ROWS)})
    trees = LGBMRanker(n_estimators=5, num_leaves=7, n_jobs=1, verbose=-1)
    blend = Blend([trees], verbose=0).fit(X, y, qid=qid)
    plain = Blend([trees], verbose=0).fit(X.rename(columns={"at (hour)": "noise"}), y, qid=qid)
    assert np.array_equal(blend.predict(X), plain.predict(X.rename(columns={"at (hour)": "noise"})))


def test_a_blend_gives_each_ranker_its_dates(tmp_path: Path):
    X, y, qid = frame()
    X["price"] = np.random.default_rng(1).normal(size=ROWS)
    trees = LGBMRanker(n_estimators=20, num_leaves=7, verbose=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blend = Blend([quick(), trees], verbose=0).fit(X[:1000], y[:1000], qid=qid[:1000])
        more = Blend([HistGradientBoostingRegressor(), trees], verbose=0)
        more.fit(X[:1000], y[:1000], qid=qid[:1000])
    assert more.score(X[1000:], y[1000:], qid=qid[1000:]) > 0.9
    expected = blend.predict(X)
    assert blend.score(X[1000:], y[1000:], qid=qid[1000:]) > 0.9
    blend.save(tmp_path / "blend")
    assert np.array_equal(Blend.load(tmp_path / "blend").predict(X), expected)
    X.assign(query=qid).to_parquet(tmp_path / "new.parquet")
    command = ["predict", tmp_path / "blend", tmp_path / "new.parquet", "--qid", "query"]
    command += ["--output", tmp_path / "scores.parquet"]
    assert main([str(one) for one in command]) in (0, None)
    found = pd.read_parquet(tmp_path / "scores.parquet")["score"]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(
    "networks",
    # an export of a network takes seconds, and gets the dates as the trees do
    [[], pytest.param([quick()], marks=pytest.mark.slow)],
    ids=["trees", "both"],
)
def test_an_exported_blend_scores_raw_dates(networks, single, tmp_path: Path):
    X, y, qid = frame()
    X["price"] = np.random.default_rng(1).normal(size=ROWS)
    trees = LGBMRanker(n_estimators=20, num_leaves=7, verbose=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blend = Blend([*networks, trees], verbose=0).fit(X[:1000], y[:1000], qid=qid[:1000])
    written = blend.export(tmp_path / "blend.onnx", single=single)
    assert written.differing <= (written.rows // 100 if single else 0)
    served = OnnxRanker(tmp_path / "blend.onnx")
    for given in (X, *documents(X)):
        np.testing.assert_allclose(served.score(given), blend.predict(X), atol=1e-5)
