"""Bad input: each works, or is one clear `ValueError`."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from ltr.datasets import NoTransform
from ltr.estimators import Blend, NeuralRanker
from ltr.losses import SoftNDCG, Unbiased
from ltr.models import LinearScorer

ROWS = 60
QID = np.arange(ROWS) // 5


def table(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS)}).assign(**columns)


LABELS = (table()["a"] > 0.3).astype(int).to_numpy()


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"scorer": LinearScorer(), "members": 1, "max_epochs": 2, "verbose": 0}
    return NeuralRanker(**{**small, "random_state": 0, **parameters})


class Refuses(RegressorMixin, BaseEstimator):
    """A ranker that fails on a later fit, after others were fitted."""

    def fit(self, X: Any, y: Any) -> "Refuses":
        if max(y) > 1:
            raise ValueError("labels of 2 are refused")
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.arange(len(X)) % 7.0


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (table(c=7.0), LABELS),
        (table(c=np.nan), LABELS),
        (table(c=None), LABELS),
        (table(c="same"), LABELS),
        (table(c=np.where(np.arange(ROWS) % 2, "x", None)), LABELS),
        (table(c=pd.array([1, None] * 30, dtype="Int64")), LABELS),
        (table(), np.where(QID == 0, 1, LABELS)),
        (table(), LABELS.astype(bool)),
        (table(), LABELS * 0.5),
        (table(), LABELS * 100),
        (table(), pd.Series(LABELS, index=np.arange(ROWS)[::-1])),
        (table(c=1e30), LABELS),
    ],
    ids=[
        *("constant", "all missing", "all null", "one level", "text and null", "nullable"),
        *("a list of equal labels", "labels are booleans", "labels are fractions"),
        *("high labels", "labels with another index", "huge"),
    ],
)
def test_works(X, y):
    ranker = quick().fit(X, y, qid=QID)
    assert np.isfinite(ranker.predict(X)).all()
    assert 0 <= ranker.score(X, y, qid=QID) <= 1


def test_lists_of_one_row():
    qid = np.where(QID < 6, np.arange(ROWS) + 100, QID)  # half of the rows alone
    assert np.isfinite(quick().fit(table(), LABELS, qid=qid).predict(table())).all()
    with pytest.raises(ValueError, match="there is nothing to learn"):
        quick().fit(table(), LABELS, qid=np.arange(ROWS))


def test_ten_rows():
    X, y = table().iloc[:10], np.array([0, 1] * 5)
    ranker = quick().fit(X, y, qid=QID[:10])
    assert ranker.predict(X).shape == (10,)
    assert ranker.predict(X.iloc[:1]).shape == (1,)


def test_an_unseen_category_is_as_a_missing_one():
    X = table(c=np.array(["x", "y", "z"] * 20))
    ranker = quick().fit(X, LABELS, qid=QID)
    unseen, missing = X.assign(c="new"), X.assign(c=pd.Series([None] * ROWS, dtype=str))
    assert np.array_equal(ranker.predict(unseen), ranker.predict(missing))
    assert not np.array_equal(ranker.predict(unseen), ranker.predict(X))


def test_a_value_that_is_missing_for_the_first_time():
    ranker = quick().fit(table(), LABELS, qid=QID)
    assert np.isfinite(ranker.predict(table(a=np.nan))).all()


INFINITE = table()
INFINITE.loc[3, "b"] = np.inf
BEYOND = table().to_numpy().copy()
BEYOND[2, 1] = 1e300
NULL = pd.Series(QID, dtype="Int64").mask(np.arange(ROWS) == 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.ones(ROWS)}, r"labels \(y\) must differ"),
        ({"y": QID}, r"labels \(y\) must differ"),
        ({"y": LABELS - 1}, r"y.*-1 in row"),
        (
            {"y": LABELS[1:]},
            "inconsistent numbers of samples|y must have one label for each of the 60",
        ),
        ({"y": np.where(LABELS, np.nan, 0.0)}, "y must be finite and >= 0, got nan in row"),
        ({"y": np.where(np.arange(ROWS) == 7, np.inf, LABELS)}, "y must .* got inf in row 7"),
        ({"y": [0] * 59 + ["good"]}, "y must be an array of numbers, got 'good' in row 59"),
        ({"y": pd.Series(["good"] * ROWS)}, "y must be an array of numbers, got 'good' in row 0"),
        ({"y": LABELS * 1j}, "y must be an array of numbers, got complex numbers"),
        ({"y": pd.Series(LABELS, dtype="Int64").mask(QID == 1)}, "y must .* nan in row 5"),
        ({"X": table(c=1j)}, "row 0, column 'c': values of type complex cannot be read, got 1j"),
        ({"X": table()["a"]}, r"X must have the shape \(rows, columns\), got \(60,\)\. Reshape"),
        ({"y": None}, "requires y to be passed"),
        ({"X": INFINITE}, "row 3, column 'b': must be finite in float32, got inf"),
        ({"X": INFINITE.to_numpy()}, "contains infinity|row 3, column 'x1'"),
        ({"X": table(c=1e39)}, "row 0, column 'c': must be finite in float32, got 1e\\+39"),
        ({"X": BEYOND}, r"row 2, column 'x1': .* 1e\+300"),
        ({"X": BEYOND.astype(np.longdouble)}, r"row 2, column 'x1': .* 1e\+300"),
        ({"X": [[1, 10**400]] * ROWS}, "X .*int too large"),
        ({"X": table(c=[1] * 59 + [10**400])}, "row 59, column 'c': values of type int cannot"),
        ({"X": table(c=[None] * 59 + [10**400])}, "row 59, column 'c': values of type int cannot"),
        ({"y": np.where(LABELS, 1e300, 0)}, r"column 'y': .* 1e\+300"),
        ({"y": [0, 10**400] * 30}, "y .*int too large"),
        ({"sample_weight": [10**400] * ROWS}, "sample_weight .*int too large"),
        ({"sample_weight": np.full(ROWS, 1e300)}, "sample_weight must"),
        ({"X": sparse.csr_array(table())}, "X .*csr_array"),
        ({"X": sparse.csr_matrix(table())}, "X .*csr_matrix"),
        ({"X": table().astype(pd.SparseDtype(float))}, "X .*sparse DataFrame"),
        ({"X": table(c=[1, "a"] * 30)}, "row 1, column 'c': values of mixed types"),
        (
            {"X": table().iloc[:0], "y": [], "qid": []},
            "^the table must have at least one row, got none",
        ),
        (
            {"X": table(c=pd.Timedelta("1h"))[["c"]]},
            "must have a feature or a category besides the columns",
        ),
        ({"X": pd.concat([table(), table()], axis=1)}, "^duplicate column 'a'$"),
        (
            {"qid": QID[1:]},
            r"qid.*shape \(59,\)",
        ),
        ({"qid": NULL}, "qid.*(<NA>|nan) in row 7"),
        ({"qid": [None, *QID[1:]]}, "qid.*None in row 0"),
        ({"qid": np.where(QID == 2, np.nan, QID)}, "qid.*nan in"),
        ({"qid": 3}, "qid.*3"),
        ({"qid": None}, r"qid \(the query of each row\) or group .* must be given, got neither"),
        ({"group": [5] * 12}, "qid .* or group .* must be given, got both"),
        ({"qid": None, "group": [5] * 11}, "group.*55"),
        ({"qid": None, "group": [70, -10]}, "group must"),
        ({"qid": None, "group": [30.5, 29.5]}, "group must be whole numbers >= 1.* got 30.5"),
        ({"qid": None, "group": [30.0, np.nan]}, "group must be whole numbers >= 1.* got nan"),
        ({"qid": None, "group": [30.0, np.inf]}, "group must"),
        ({"qid": None, "group": [True] * ROWS}, "group must"),
        ({"qid": None, "group": 60}, "group must"),
        ({"sample_weight": [1, 2]}, r"shape \(60,\), a weight for each row, or \(12,\)"),
        ({"sample_weight": -np.ones(ROWS)}, "sample_weight must"),
        ({"sample_weight": np.zeros(12)}, "sample_weight must"),
        ({"eval_qid": [QID]}, "eval_set must"),
        ({"eval_set": [(table(), LABELS)]}, "eval_qid .* must be given, got neither"),
        (
            {"eval_set": [(table(), LABELS)] * 2, "eval_qid": [QID] * 2},
            "a list of one value, got 2",
        ),
        (
            {"eval_set": [(table(), LABELS)], "eval_qid": QID},
            "eval_qid must",
        ),
        ({"eval_set": [table()], "eval_qid": [QID]}, r"eval_set must"),
        (
            {"eval_set": [(table(b="text"), LABELS)], "eval_qid": [QID]},
            "row 0, column 'b': a feature must be a number, got 'text'|column 'b' must be numbers",
        ),
    ],
)
def test_one_clear_error(change, message):
    arguments = {"X": table(), "y": LABELS, "qid": QID, **change}
    with pytest.raises(ValueError, match=message) as caught:
        quick().fit(arguments.pop("X"), arguments.pop("y"), **arguments)
    assert len(str(caught.value)) < 400


def test_sizes_of_lists_as_numpy_reads_them_from_text():
    by_size = quick().fit(table(), LABELS, group=[5.0] * 12)
    assert np.array_equal(
        by_size.predict(table()), quick().fit(table(), LABELS, qid=QID).predict(table())
    )


def test_advice_names_nothing_that_a_ranker_does_not_have():
    X = table(name=[f"item {i}" for i in range(ROWS)], day=["2024-01-01"] * ROWS, again=QID)
    with pytest.warns(UserWarning, match="columns of the table") as caught:
        quick().fit(X, LABELS, qid=QID)
    assert str(caught[0].message) == (
        "columns of the table: dates, by their text: day (make them categorical, to keep the "
        "text); name is left out, with 60 different texts in 60 rows: a name, not a category "
        "(to use its words, add columns of TF-IDF or embeddings); "
        "again equals the qid (leave it out)"
    )


@pytest.mark.parametrize("blended", [False, True])
def test_one_row_without_its_dimension(blended: bool):
    X = table().to_numpy()
    ranker: Any = Blend([quick()], verbose=0) if blended else quick()
    ranker.fit(X, LABELS, qid=QID)
    for row, shape in ((X[0], r"\(2,\)"), (X[None], r"\(1, 60, 2\)"), (1.0, r"\(\)")):
        with pytest.raises(ValueError, match=f"X must have the shape .* got {shape}"):
            ranker.predict(row)


@pytest.mark.parametrize("kind", ["network", "warm", "partial", "blend"])
def test_a_fit_that_fails_changes_nothing(kind: str):
    X, y = table(c=["x", "y"] * 30), LABELS
    ranker: Any = quick(warm_start=kind == "warm")
    if kind == "blend":
        ranker = Blend([quick(), Refuses()], verbose=0)
    ranker.fit(X, y, qid=QID)
    before, attributes = ranker.predict(X), {**vars(ranker)}
    others = [X.assign(more=1.0)[["more", "c", "b", "a"]]]
    if kind in ("network", "blend"):  # which start from scratch, with other columns
        others += [table().to_numpy(), X.assign(c=1.0)]
    for rows in others:
        fit = getattr(ranker, "partial_fit" if kind == "partial" else "fit")
        with pytest.raises(ValueError, match=r"labels \(y\) must differ|labels of 2"):
            fit(rows, y + 2 if kind == "blend" else y * 0, qid=QID)
        assert {**vars(ranker)} == attributes
        assert np.array_equal(ranker.predict(X), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "ndcg"}, "loss.*'ndcg'"),
        ({"loss": SoftNDCG}, "loss.*<class"),
        ({"loss": SoftNDCG(reduction="none")}, "loss.reduction must be .*'none'"),
        ({"scorer": "mlp"}, "scorer must"),
        ({"transform": 3}, "transform must"),
        ({"members": 0}, "members.*0"),
        ({"members": True}, "members.*True"),
        ({"batch_size": 1.5}, "batch_size.*1.5"),
        ({"max_epochs": 0}, "max_epochs.*0"),
        ({"patience": -1}, "patience must"),
        ({"learning_rate": 0.0}, "learning_rate.*0.0"),
        ({"random_state": -1}, r"random_state must be .* got -1"),
        ({"random_state": "a"}, r"random_state must be .* got 'a'"),
        ({"learning_rate": float("nan")}, "learning_rate.*nan"),
        ({"learning_rate": "a"}, "learning_rate.*'a'"),
        ({"weight_decay": -1.0}, "weight_decay must"),
        ({"weight_decay": None}, "weight_decay.*None"),
        ({"validation": "a"}, "validation.*'a'"),
        ({"verbose": "a"}, "verbose.*'a'"),
        ({"device": "cuda:99"}, "device.*'cuda:99'"),
        ({"validation": 1.0}, r"validation.*1.0"),
        ({"device": "gpu"}, "device.*'gpu'"),
        ({"scorer": LinearScorer(2), "members": 2}, "scorer must"),
        ({"transform": NoTransform()}, "features must"),
    ],
)
def test_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(table(b=np.nan), LABELS, qid=QID)


@pytest.mark.skipif(torch.mps.is_available(), reason="this machine has the device")
def test_a_missing_device_of_apple():
    with pytest.raises(ValueError, match="device 'mps' does not exist"):
        quick(device="mps").fit(table(), LABELS, qid=QID)


@pytest.mark.parametrize("callbacks", [print, [print, 3], "print"])
def test_callbacks_are_functions(callbacks):
    with pytest.raises(ValueError, match="callbacks must be a list of functions"):
        quick().fit(table(), LABELS, qid=QID, callbacks=callbacks)


def test_columns_are_those_of_training():
    ranker = quick().fit(table(c=["x", "y"] * 30), LABELS, qid=QID)
    good = table(c=["x", "y"] * 30)
    for wrong in (good.rename(columns={"a": "other"}), good.drop(columns="a")):
        with pytest.raises(ValueError, match=r"X .* a$"):
            ranker.predict(wrong)
    with pytest.raises(ValueError, match=r"X .* a, c$"):
        ranker.predict(good[["b"]])
    with pytest.raises(ValueError, match=r"column 'c'.*type double"):
        ranker.predict(good.assign(c=1.5))
    with pytest.raises(ValueError, match=r"'a'.* must be a number"):
        ranker.predict(good.assign(a="text"))
    with (
        pytest.raises(ValueError, match="2 features, but NeuralRanker is expecting 3"),
        pytest.warns(UserWarning, match="does not have valid feature names"),
    ):
        ranker.predict(np.zeros((3, 2)))
    table_of_arrow = pa.table({"a": [1.0], "b": [2.0], "c": ["x"]})
    assert ranker.predict(table_of_arrow).shape == (1,)


def frames(X: pd.DataFrame) -> list[Any]:
    return [X, pl.from_pandas(X), pa.Table.from_pandas(X, preserve_index=False)]


@pytest.mark.parametrize("blended", [False, True])
@pytest.mark.parametrize("kind", range(3), ids=["pandas", "polars", "arrow"])
def test_columns_are_found_by_name(blended: bool, kind: int):
    X = table(c=np.arange(ROWS) % 7)
    other = X[["c", "a", "b"]].assign(more="text", day=pd.Timestamp("2026-01-01"))
    X, other = frames(X)[kind], frames(other)[kind]
    ranker: Any = Blend([quick(), quick(members=2)], verbose=0) if blended else quick()
    evaluation = {"eval_set": [(other, LABELS)], "eval_qid": [QID]}
    ranker.fit(X, LABELS, qid=QID, **evaluation)
    expected = ranker.predict(X)
    assert np.array_equal(ranker.predict(other), expected)
    assert ranker.score(other, LABELS, qid=QID) == ranker.score(X, LABELS, qid=QID)
    missing = other.drop(["b", "a"]) if kind else other.drop(columns=["b", "a"])
    with pytest.raises(ValueError, match=r"X .* a, b$"):
        ranker.predict(missing)


def test_more_training_takes_columns_by_name():
    X, other = table(c=1.0), table(c=1.0)[["c", "b", "a"]].assign(more=2.0)
    found = []
    for new in (X, other):
        ranker = quick(warm_start=True).fit(X, LABELS, qid=QID)
        found.append(ranker.fit(new, LABELS, qid=QID).partial_fit(new, LABELS, qid=QID).predict(X))
    assert np.array_equal(*found)


@pytest.mark.parametrize("blended", [False, True])
def test_a_prediction_refuses_what_training_refuses(blended: bool):
    ranker: Any = Blend([quick()], verbose=0) if blended else quick()
    ranker.fit(table(), LABELS, qid=QID)
    for X, message in (
        (sparse.csr_array(table()), "X .*csr_array"),
        (table(b=1e300), r"row 0, column 'b': .* 1e\+300"),
        (table(b=[10**400] * ROWS), "row 0, column 'b': values of type int cannot"),
    ):
        with pytest.raises(ValueError, match=message):
            ranker.predict(X)


def as_kind(frame: pd.DataFrame, kind: str):
    """Return a frame as a table of another library, or its numbers as an array."""
    if kind == "polars":
        return pytest.importorskip("polars").from_pandas(frame)
    if kind == "arrow":
        return pa.Table.from_pandas(frame)
    return frame.to_numpy() if kind == "array" else frame


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "array"])
@pytest.mark.parametrize("blended", [False, True])
def test_whole_numbers_that_are_one_in_float32_are_refused(kind: str, blended: bool):
    frame = pd.DataFrame({"stock": np.arange(80), "user": 10**18 + np.arange(80)})
    ranker = Blend([Ridge()], verbose=0) if blended else quick()
    name = "x1" if kind == "array" else "user"
    message = f"column '{name}': {10**18} and {10**18 + 1} are one number in float32, .* make them"
    with pytest.raises(ValueError, match=message):
        ranker.fit(as_kind(frame, kind), np.arange(80) % 3, qid=np.arange(80) // 4)


@pytest.mark.parametrize("blended", [False, True])
def test_a_prediction_takes_whole_numbers_that_training_took(blended: bool):
    """Two neighboring moments are one number in float32, also among those of training."""
    day = 24 * 3600 * 10**9
    frame = pd.DataFrame({"at": 1_700_000_000 * 10**9 + day * np.arange(80)})
    ranker = Blend([Ridge()], verbose=0) if blended else quick()
    ranker.fit(frame, np.arange(80) % 3, qid=np.arange(80) // 4)
    same = ranker.predict(pd.DataFrame({"at": frame["at"][0] + np.arange(2)}))
    assert same[0] == pytest.approx(same[1], rel=1e-6)


@pytest.mark.parametrize("blended", [False, True])
def test_a_column_that_is_infinite_throughout_is_refused_as_such(blended: bool):
    ranker = Blend([quick()], verbose=0) if blended else quick()
    with pytest.raises(ValueError, match="column 'c': must be finite in float32, got inf"):
        ranker.fit(table(c=np.inf), LABELS, qid=QID)


def test_a_copy_of_the_label_and_an_identifier_are_told():
    rows = 1200
    grade = np.arange(rows) % 3
    rng = np.random.default_rng(0)
    numbers = rng.permutation(10**6)[:rows]
    frame = pd.DataFrame({"x": rng.normal(size=rows), "user": numbers, "again": grade})
    with pytest.warns(UserWarning, match="columns of the table") as caught:
        quick().fit(frame, grade, qid=np.arange(rows) // 4)
    [said] = [str(one.message) for one in caught if "columns of" in str(one.message)]
    assert said == (
        "columns of the table: again equals the label (leave it out); user has a different whole "
        "number in each of the 1200 rows: leave it out if it is an identifier"
    )


def test_text_with_a_value_per_row_is_left_out():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "title": [f"title {i}" for i in range(80)]})
    grade, qid = np.arange(80) % 3, np.arange(80) // 4
    ranker = quick()
    with pytest.warns(UserWarning, match="title is left out, with 80 different texts in 80 rows"):
        ranker.fit(frame, grade, qid=qid)
    assert [*ranker.schema_.features], [*ranker.schema_.categories] == (["x"], [])
    without = quick().fit(frame[["x"]], grade, qid=qid)
    assert (ranker.predict(frame) == without.predict(frame[["x"]])).all()
    categorical = frame.astype({"title": "category"})
    assert "title" in ranker.fit(categorical, grade, qid=qid).schema_.categories


def test_a_blend_refuses_labels_that_are_all_equal():
    rows = np.arange(40)
    with pytest.raises(ValueError, match="y must not be the same everywhere, got 2 in all rows"):
        Blend([Ridge()], verbose=0).fit(rows[:, None], rows * 0 + 2, qid=rows // 4)


@pytest.mark.parametrize("frame", [False, True])
def test_numbers_in_the_byte_order_of_another_machine(frame: bool):
    def given(values: np.ndarray, dtype: str) -> Any:
        return pd.DataFrame(values.astype(dtype)) if frame else values.astype(dtype)

    X, position = table().to_numpy(), np.tile(np.arange(1, 6), ROWS // 5)
    first, swapped = (
        quick(loss=Unbiased()).fit(
            given(X, f"{order}f8"),
            LABELS.astype(f"{order}i2"),
            qid=QID.astype(f"{order}i4"),
            sample_weight=(1 + QID % 3).astype(f"{order}f4"),
            position=position.astype(f"{order}i8"),
        )
        for order in "<>"
    )
    np.testing.assert_array_equal(first.predict(X), swapped.predict(given(X, ">f8")))
    assert first.history_ == swapped.history_


def test_numbers_of_torch_that_numpy_does_not_have():
    X = torch.tensor(table().to_numpy()).bfloat16()
    ranker = quick().fit(X, LABELS, qid=QID)
    np.testing.assert_array_equal(ranker.predict(X), ranker.predict(X.double().requires_grad_()))
