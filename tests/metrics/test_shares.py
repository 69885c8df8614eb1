"""The lists of a share of a file, against those of the whole file."""

import numpy as np
import pandas as pd
import pytest

from ltr.metrics import ranked_files
from ltr.metrics.ranked_files import Columns, Measure, evaluate_table, read_scored
from ltr.metrics.shares import in_share


def write(path, frame):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return str(path)


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    made = pd.DataFrame({"qid": [f"q{i}" for i in rng.integers(0, 13, 90)]})
    made["label"] = rng.integers(0, 3, 90)
    made["score"] = rng.normal(size=90)
    return made


@pytest.mark.parametrize("parts", [1, 2, 5, 40])
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_each_list_is_in_one_share(tmp_path, frame, parts, name):
    path = write(tmp_path / name, frame)
    whole = read_scored(path, Columns())
    measures = [Measure("ndcg", 5), Measure("mrr")]
    (expected,) = evaluate_table(whole, ["s"], measures, {}, 2.0)
    found: dict[str, tuple[int, list[float]]] = {}
    rows = 0
    for part in range(parts):
        share = read_scored(path, Columns(), (part, parts))
        (model,) = evaluate_table(share, ["s"], measures, {}, 2.0)
        assert not set(model.qids) & set(found)
        rows += len(share.labels)
        for i, qid in enumerate(model.qids):
            found[qid] = (int(share.first[i]), [x[i] for x in model.values.values()])
    assert rows == len(frame)
    order = sorted(found, key=lambda qid: found[qid][0])
    assert order == expected.qids == list(dict.fromkeys(frame["qid"]))
    for i, qid in enumerate(order):
        assert found[qid][1] == [x[i] for x in expected.values.values()]
        assert frame["qid"][found[qid][0] - 1] == qid


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("t.csv", "label", -1),
        ("t.csv", "score", None),
        ("t.parquet", "label", -1),
        ("t.parquet", "score", None),
        ("t.parquet", "qid", None),
    ],
)
def test_errors_name_the_row_of_the_file(tmp_path, frame, name, column, value):
    frame[column] = frame[column].astype(object if column == "qid" else float)
    frame.loc[57, column] = value
    path = write(tmp_path / name, frame)
    said = []
    for share in (None, *((part, 3) for part in range(3))):
        try:
            read_scored(path, Columns(), share)
        except ValueError as error:
            said.append(str(error))
    whole, shared = said  # one share alone has the row
    assert f"{path}, row 58: " in whole
    assert shared == whole


def test_a_table_without_rows(tmp_path, frame):
    path = write(tmp_path / "t.parquet", frame[:0])
    for share in (None, (1, 2)):
        with pytest.raises(ValueError, match=r"the table.*none"):
            read_scored(path, Columns(), share)


def test_shares_are_of_like_size():
    names = [f"query {i}" for i in range(4000)]
    counts = [in_share(names, (part, 4)).sum() for part in range(4)]
    assert sum(counts) == 4000
    assert max(counts) - min(counts) < 200
    assert not in_share([], (0, 2)).size


def test_runs_by_share(tmp_path):
    run = tmp_path / "a.run"
    run.write_text("".join(f"q{i} Q0 d{j} {j} {-j}.5 t\n" for i in range(9) for j in range(4)))
    qrels = {f"q{i}": {"d1": 1, "d3": 2} for i in range(3, 14)}
    measures, options = [Measure("ndcg", 5), Measure("err", 3)], {"gain": "exp2"}

    def values(share):
        return ranked_files.evaluate_run(
            str(run), "a", qrels, measures, options, skip_missing=False, columns=Columns(),
            share=share,
        )  # fmt: skip

    whole, shares = values(None), [values((part, 6)) for part in range(6)]
    assert (whole.missing, whole.unjudged) == (5, 3)
    for name in ("missing", "unjudged", "empty"):
        assert sum(getattr(one, name) for one in shares) == getattr(whole, name)
    for one in shares:
        for i, (qid, place) in enumerate(zip(one.qids, one.places, strict=True)):
            assert whole.qids[place] == qid
            for title, x in one.values.items():
                assert x[i] == whole.values[title][place]
    assert sum(len(one.qids) for one in shares) == len(qrels)
