"""The recipe `table`: from a table to a model, and to scores of another table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr.datasets import TableDataModule
from ltr.export.card import Difference
from ltr.serving import OnnxRanker


@pytest.fixture
def fitted(ltr, fit_once, tmp_path, write_table):
    """`ltr`, with a run of the recipe in runs/table-smoke, and a table to score."""
    write_table(tmp_path / "train.parquet", 300)
    write_table(tmp_path / "new.csv", 60, seed=1)
    fit_once(
        *("--config", "table/smoke", "--data.path", "train.parquet"),
        *("--data.qid", "query", "--data.label", "grade", "--data.validation", 0.2),
        *("--data.features", "[price, stock]", "--data.categories", "[shop]"),
    )
    return ltr


@pytest.mark.filterwarnings("ignore:SigmoidRank has the temperature")
def test_a_loss_gets_its_side_inputs_by_their_columns(ltr, tmp_path, write_table):
    write_table(tmp_path / "train.parquet", 300)
    table = pd.read_parquet("train.parquet")
    table = table.assign(shown=table.groupby("query").cumcount() + 1, kind=table["shop"] == "a")
    table.to_csv("clicks.csv", index=False)
    command = [
        *("fit", "--config", "table/smoke", "--data.path", "clicks.csv", "--data.qid", "query"),
        *("--data.label", "grade", "--data.validation", 0.2, "--data.doc_id", "sku"),
        *(
            "--data.features",
            "[price, stock]",
            "--model.loss",
            "Unbiased",
            "--model.loss.loss",
            "Penalized",
        ),
    ]
    answer = ltr(*command, "--data.position", "shown")
    assert answer.code == 2
    assert "Unbiased needs the side input 'protected'" in answer.err
    assert "--data.protected" in answer.err
    assert "Traceback" not in answer.err
    answer = ltr(*command, "--data.position", "shown", "--data.protected", "kind")
    assert answer.code == 0, answer.err
    test = ("test", "--config", "table/smoke", "--ckpt_path", "best")
    answer = ltr(*test, "--data.path", "train.parquet")
    assert answer.code == 0, answer.err


def predict(ltr, path, output, *more):
    return ltr("predict", "runs/table-smoke", path, "--output", output, *more)


def test_scores_of_each_row_in_the_tables_order(fitted):
    new = pd.read_csv("new.csv").drop(columns="grade")
    new.to_parquet("new.parquet")
    answer = predict(fitted, "new.parquet", "scores.parquet")
    assert answer.code == 0, answer.err
    assert "wrote scores.parquet: 60 rows" in answer.out
    scores = pd.read_parquet("scores.parquet")
    assert list(scores.columns) == ["query", "score", "rank"]
    assert scores["query"].tolist() == new["query"].tolist()
    assert scores["score"].dtype == np.float32
    # another order of rows and columns, another format: the same scores
    order = np.random.default_rng(0).permutation(60)
    new.iloc[order][new.columns[::-1]].to_csv("shuffled.csv", index=False)
    answer = predict(fitted, "shuffled.csv", "again.csv", "--doc-id", "sku")
    assert answer.code == 0, answer.err
    again = pd.read_csv("again.csv")
    assert list(again.columns) == ["query", "sku", "score", "rank"]
    assert again["sku"].tolist() == new["sku"].iloc[order].tolist()
    np.testing.assert_allclose(again["score"], scores["score"].iloc[order], rtol=1e-5, atol=1e-6)


def test_a_model_that_looks_at_lists_gets_whole_lists(fitted):
    answer = fitted(
        *("fit", "--config", "table/smoke", "--data.path", "train.parquet"),
        *("--data.qid", "query", "--data.label", "grade", "--data.doc_id", "sku"),
        *("--data.validation", 0.2, "--data.transform.class_path", "TableTransform"),
        *("--data.transform.init_args.features", "RankPerList"),
    )
    assert answer.code == 0, answer.err
    new = pd.read_csv("new.csv")
    order = np.random.default_rng(0).permutation(60)
    new.iloc[order].to_csv("shuffled.csv", index=False)
    for name in ("new", "shuffled"):
        answer = predict(fitted, f"{name}.csv", f"{name}-scores.csv")
        assert answer.code == 0, answer.err
    scores, shuffled = (pd.read_csv(f"{name}-scores.csv") for name in ("new", "shuffled"))
    np.testing.assert_allclose(shuffled["score"], scores["score"].iloc[order], rtol=1e-4, atol=1e-5)


def test_a_resumed_fit_needs_the_same_levels(fitted):
    train = pd.read_parquet("train.parquet")
    train.assign(shop=train["shop"].replace("a", "z")).to_parquet("other.parquet")
    for path, code in (("other.parquet", 2), ("train.parquet", 0)):
        answer = fitted(
            *("fit", "--config", "table/smoke", "--data.path", path, "--ckpt_path", "last"),
            *("--data.qid", "query", "--data.label", "grade", "--data.validation", 0.2),
            *("--data.features", "[price, stock]", "--data.categories", "[shop]"),
            *("--trainer.max_epochs", 3),
        )
        assert answer.code == code, answer.err
        if code:
            assert answer.err.count("\n") == 1
            assert (
                "the data must have the schema of the model, got a difference: column 'shop'"
                in answer.err
            )
            assert "train a new model" in answer.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # each is a command; what is said is also tested where tables are read
        pytest.param(
            lambda t: t.drop(columns="price"),
            "bad.csv: the table must have the column 'price'",
            marks=pytest.mark.slow,
        ),
        (
            lambda t: t.assign(price=t["price"].astype(str).where(t.index != 7, "cheap")),
            "bad.csv: cannot be read: In CSV column #1: Row #9: CSV conversion error",
        ),
    ],
)
def test_a_bad_table_is_one_line(fitted, change, message):
    change(pd.read_csv("new.csv")).to_csv("bad.csv", index=False)
    answer = predict(fitted, "bad.csv", "scores.csv")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert message in answer.err


def test_what_fit_needs(ltr, tmp_path, write_table):
    write_table(tmp_path / "train.csv", 60)
    answer = ltr("fit", "--config", "table/smoke", "--data.path", "train.csv")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    said = "train.csv: qid must name a column of the table, got None: the columns are 'query', "
    assert said in answer.err
    for names, message in (
        ({"qid": "query"}, "label must name a column of the table, got None: the columns"),
        ({"qid": "quer", "label": "grade"}, "qid must name a column of the table, got 'quer'"),
    ):
        with pytest.raises(ValueError, match=message):
            TableDataModule("train.csv", validation=0.2, **names).setup("fit")


def test_letor_text_needs_no_names(ltr, tmp_path):
    rows = [f"{i % 3} qid:{i // 6} 1:{i % 3}.5 3:{i % 7} # docid = D{i}" for i in range(120)]
    (tmp_path / "train.txt").write_text("\n".join(rows))
    answer = ltr(
        *("fit", "--config", "table/smoke", "--data.path", "train.txt"),
        *("--data.validation", 0.2),
    )
    assert answer.code == 0, answer.err
    assert "queries are held out for validation, by a hash of the qid" in answer.out
    (tmp_path / "new.txt").write_text("\n".join(rows[:12]))
    answer = predict(ltr, "new.txt", "scores.csv")
    assert answer.code == 0, answer.err
    scores = pd.read_csv("scores.csv")
    assert list(scores.columns) == ["qid", "doc_id", "label", "score", "rank"]
    assert scores["doc_id"].tolist() == [f"D{i}" for i in range(12)]
    assert predict(ltr, "new.txt", "scores.run").code == 0
    (tmp_path / "new.txt").write_text("\n".join([*rows[:12], "1 qid:x 2:one"]))
    answer = predict(ltr, "new.txt", "scores.csv")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "new.txt, line 13" in answer.err


def test_comments_that_are_no_ids(ltr, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{i % 3} qid:{i // 4} 1:{rng.random():.3f} # " for i in range(80)]
    for number, comment in enumerate(["checked", "page {i}", "docid = X"]):
        comments = [comment.format(i=i) for i in range(80)]
        lines = [row + comment for row, comment in zip(rows, comments, strict=True)]
        (tmp_path / "train.txt").write_text("\n".join(lines))
        if number == 0:  # the model has no comments
            data = ("--data.path", "train.txt", "--data.validation", 0.2)
            assert ltr("fit", "--config", "table/smoke", *data).code == 0
        answer = predict(ltr, "train.txt", "scores.run")
        assert answer.code == 0, answer.err
        assert "comments of the table are not used as ids of documents" in answer.out
        names = [line.split()[2] for line in Path("scores.run").read_text().splitlines()]
        assert sorted(names[:4]) == ["0", "1", "2", "3"]
        assert predict(ltr, "train.txt", "scores.csv").code == 0
        expected = [text.removeprefix("docid = ") for text in comments]
        assert pd.read_csv("scores.csv")["doc_id"].tolist() == expected


def test_lists_on_disk_in_the_place_of_a_table(ltr, tmp_path, write_table):
    write_table(tmp_path / "train.parquet", 300)
    uses = ("--qid", "query", "--label", "grade", "--features", "price", "stock")
    command = ("convert", "train.parquet", "--output", "train.lists", *uses, "--categories", "shop")
    answer = ltr(*command)
    assert answer.code == 0, answer.err
    assert "wrote train.lists: " in answer.out
    assert " documents a second" in answer.out
    fit = ("fit", "--config", "table/smoke", "--data.path", "train.lists", "--data.validation", 0.2)
    answer = ltr(*fit)
    assert answer.code == 0, answer.err
    for name in ("train.lists", "train.parquet"):
        answer = predict(ltr, name, f"{name}.csv")
        assert answer.code == 0, answer.err
    one, two = (
        pd.read_csv(f"train.{kind}.csv").sort_values([qid, "score"], kind="stable")
        for kind, qid in (("lists", "qid"), ("parquet", "query"))
    )
    assert one["qid"].tolist() == two["query"].tolist()
    np.testing.assert_allclose(one["score"], two["score"], rtol=1e-5, atol=1e-6)
    for wrong, message in (
        (("--qid", "q"), "train.parquet: qid must name a column of the table, got 'q'"),
        (("--max-levels", 0), "max_levels must be >= 1, got 0"),
    ):
        answer = ltr(*command[:3], "other.lists", *uses, "--categories", "shop", *wrong)
        assert answer.code == 2
        assert message in answer.err
        assert answer.err.count("\n") == 1


def metrics_of(answer) -> list[str]:
    """The lines of the metrics that `ltr test` prints."""
    assert answer.code == 0, answer.err
    found = [line for line in answer.out.splitlines() if "test_" in line]
    assert found
    return found


def test_only_training_needs_weights_and_positions(ltr, tmp_path, write_table, monkeypatch):
    frame = write_table(tmp_path / "plain.parquet", 300)
    frame.assign(w=np.arange(300) % 3, shown=1).to_parquet("weighted.parquet")
    fit = ("fit", "--config", "table/smoke", "--data.path", "weighted.parquet")
    names = ("--data.qid", "query", "--data.label", "grade", "--data.weight", "w")
    names += ("--data.position", "shown", "--data.doc_id", "sku", "--data.validation", 0.2)
    assert ltr(*fit, *names).code == 0
    test = ("test", "--config", "table/smoke", "--ckpt_path", "best", "--data.path")
    weighted = metrics_of(ltr(*test, "weighted.parquet"))
    assert metrics_of(ltr(*test, "plain.parquet", "--data.weight", "w")) == weighted
    assert predict(ltr, "weighted.parquet", "one.csv").code == 0
    assert predict(ltr, "plain.parquet", "two.csv").code == 0
    assert Path("one.csv").read_text() == Path("two.csv").read_text()
    # the model card alone reads the table; test_export.py exports with one
    monkeypatch.setattr("ltr.export.write._checked", lambda *_: (b"", Difference(0, 1, 0)))
    assert ltr("export", "runs/table-smoke", "out.pt2", "--test", "plain.parquet").code == 0
    assert "On 50 test lists" in Path("out.md").read_text()
    answer = ltr(*fit, *names[:-2], "--data.val_path", "plain.parquet")
    assert answer.code == 2
    assert "must have the column 'w'" in answer.err


@pytest.mark.slow  # four commands and an export; the estimator's file is tested in test_saving.py
def test_a_table_with_categories_alone(ltr):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"query": np.arange(240) // 6, "shop": rng.choice([*"abc"], 240)})
    frame["kind"] = rng.choice(["x", "y", None], 240)
    frame["grade"] = (frame["shop"] == "b").astype(int) + (frame["kind"] == "x")
    frame.to_parquet("train.parquet")
    names = ("--qid", "query", "--label", "grade")
    assert ltr("convert", "train.parquet", "--output", "train.lists", *names).code == 0
    fit = ("fit", "--config", "table/smoke", "--data.validation", 0.2, "--data.path")
    answer = ltr(*fit, "train.lists")
    assert answer.code == 0, answer.err
    for source in ("train.parquet", "train.lists"):
        assert predict(ltr, source, f"{source}.csv").code == 0
        assert len(pd.read_csv(f"{source}.csv")) == 240
    answer = ltr("export", "runs/table-smoke", "out", "--test", "train.parquet")
    assert answer.code == 0, answer.err
    scores = pd.read_csv("train.lists.csv")["score"]
    exported = OnnxRanker("out/model.onnx").score(frame)
    np.testing.assert_allclose(exported, scores, rtol=1e-4, atol=1e-5)


FIT = ("fit", "--config", "table/smoke", "--data.qid", "query", "--data.label", "grade")


def test_columns_that_train_nothing_are_one_line(ltr, tmp_path, write_table):
    write_table(tmp_path / "train.parquet", 60)
    table = pd.read_parquet("train.parquet").drop(columns="sku")
    for change, message in (
        ({"user": 10**18 + np.arange(60)}, "column 'user': 1000000000000000000 and "),
        ({"grade": 1}, "column 'grade': labels must not all be equal, got 1 in all "),
    ):
        name = "bad.csv" if "user" in change else "bad.parquet"
        made = table.assign(**change)
        made.to_csv(name, index=False) if name == "bad.csv" else made.to_parquet(name)
        answer = ltr(*FIT, "--data.validation", 0.2, "--data.path", name)
        assert answer.code == 2
        [last] = [x for x in answer.err.splitlines() if x.startswith("ltr fit: ")]
        assert last.startswith(f"ltr fit: {name}: {message}")
        assert "Traceback" not in answer.err


@pytest.mark.parametrize("command", ["fit", "convert", "evaluate", "predict"])
def test_damaged_parquet_is_one_line(fitted, command):
    table = pd.read_csv("new.csv").assign(score=0.5)
    table.to_parquet("bad.parquet")
    content = bytearray(Path("bad.parquet").read_bytes())
    size = int.from_bytes(content[-8:-4], "little")  # of the description of the columns
    content[-8 - size : -8] = bytes([255]) * size
    Path("bad.parquet").write_bytes(content)
    if command == "fit":
        answer = fitted(*FIT, "--data.validation", 0.2, "--data.path", "bad.parquet")
    elif command == "predict":
        answer = predict(fitted, "bad.parquet", "scores.csv")
    elif command == "convert":
        answer = fitted("convert", "bad.parquet", "--output", "lists", "--qid", "query")
    else:
        names = ("--qid", "query", "--label", "grade")
        answer = fitted("evaluate", "bad.parquet", *names)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert answer.err.startswith(f"ltr {command}: ")
    assert "bad.parquet: " in answer.err
    assert "Traceback" not in answer.err
