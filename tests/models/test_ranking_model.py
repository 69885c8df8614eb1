"""`RankingModel`: scores of arrays, frames, files and lists on disk agree with its forward."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ltr.datasets import Join, ListDataset, PiecewiseLinearBins, Schema, Standardize, TableTransform
from ltr.datasets.column_steps import Number
from ltr.datasets.list_files import open_lists, write_lists
from ltr.datasets.prepare import Prepared
from ltr.datasets.reading import read_table
from ltr.datasets.transforms import fit_documents
from ltr.models import AttentionScorer, LinearScorer, MLPScorer, RankingModel
from ltr.models.predictor import score_table


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def frame(rng):
    """Forty rows of eight queries, in any order, with missing values and a category."""
    rows = 40
    table = pd.DataFrame(
        {
            "query": rng.permutation(np.repeat([f"q{i}" for i in range(8)], 5)),
            "grade": rng.integers(0, 3, rows),
            "price": rng.normal(size=rows),
            "shop": rng.choice(["a", "b", "c"], rows),
            "age": rng.normal(size=rows),
        }
    )
    table.loc[3, "price"] = np.nan
    table.loc[5, "shop"] = None
    return table


def few_rows(monkeypatch) -> None:
    """Read and score seven rows at a time, so that there are several chunks."""
    for module in ("ltr.models.ranking_model", "ltr.datasets.table_files"):
        monkeypatch.setattr(f"{module}.ROWS", 7)


def fitted(frame, scorer):
    """Return a model with random weights, whose transform is fitted on the table."""
    table = pa.Table.from_pandas(frame)
    schema = Schema.infer(table, qid="query", label="grade").fit_levels(table)
    lists = read_table(frame, schema)
    transform = TableTransform(Join([PiecewiseLinearBins(4), Standardize()]))
    fit_documents(transform, lists)
    assert transform.out_features is not None
    scorer.build(transform.out_features)
    return RankingModel(scorer, transform, schema).eval(), lists


def by_definition(model, lists):
    """Return the scores of the rows, one list after the other through `forward`."""
    found = np.empty(len(lists.features), np.float32)
    for start, end in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        features = torch.from_numpy(lists.features[start:end])[None]
        categories = torch.from_numpy(lists.categories[start:end])[None]
        with torch.no_grad():
            found[lists.rows[start:end]] = model(features, categories=categories)[0].numpy()
    return found


@pytest.mark.parametrize("scorer", [MLPScorer(hidden=[8]), AttentionScorer(hidden=[8], heads=2)])
def test_every_table_gets_the_scores_of_the_definition(frame, scorer, tmp_path, monkeypatch):
    model, lists = fitted(frame, scorer)
    expected = by_definition(model, lists)
    few_rows(monkeypatch)
    shuffled = frame[["age", "shop", "query", "price"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet", row_group_size=9)
    tables = [frame, shuffled, pl.from_pandas(frame), pa.Table.from_pandas(frame)]
    tables += [tmp_path / "t.csv", str(tmp_path / "t.parquet")]
    for table in tables:
        np.testing.assert_allclose(model.predict(table), expected, rtol=1e-5, atol=1e-6)
    renamed = frame.rename(columns={"query": "search"})
    for qid in ("search", frame["query"], frame["query"].tolist(), pa.array(frame["query"])):
        found = model.predict(renamed, qid=qid)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    without = renamed.drop(columns="search")
    if model.looks_at_list:
        with pytest.raises(ValueError, match=r"^qid must be given"):
            model.predict(without)
    else:
        np.testing.assert_allclose(model.predict(without), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scorer", [MLPScorer(hidden=[8]), AttentionScorer(hidden=[8], heads=2)])
def test_queries_that_do_not_fit_the_table(frame, tmp_path, monkeypatch, scorer):
    model, lists = fitted(frame, scorer)
    few_rows(monkeypatch)
    frame.to_csv(tmp_path / "t.csv", index=False)
    rows = len(frame)
    for table in (frame, tmp_path / "t.csv"):
        with pytest.raises(ValueError, match=rf"{rows} rows, got shape \({rows + 1},\)"):
            model.predict(table, [1] * (rows + 1))
        for qid, message in ((5, "qid must be an array, got 5"), ([[1]] * rows, "got shape")):
            with pytest.raises(ValueError, match=message):
                model.predict(table, qid)
    for qid in ("search", [1], [1] * rows):
        with pytest.raises(ValueError, match=r"^qid must be None for lists, which bring their own"):
            model.predict(lists, qid)
    assert len(model.predict(Prepared(model.schema, lists, None), "qid")) == rows


def test_rows_with_their_keys(frame, tmp_path, monkeypatch):
    model, lists = fitted(frame, MLPScorer(hidden=[8]))
    few_rows(monkeypatch)
    frame.to_csv(tmp_path / "t.csv", index=False)
    parts = [*score_table(model, tmp_path / "t.csv", keys=["query", "grade"], label="grade")]
    assert len(parts) == 6
    keys = pa.concat_tables([table for table, _ in parts]).to_pydict()
    assert keys == {"query": frame["query"].tolist(), "grade": frame["grade"].tolist()}
    found = np.concatenate([scores for _, scores in parts])
    np.testing.assert_allclose(found, by_definition(model, lists), rtol=1e-5, atol=1e-6)


def scattered_lines(path):
    """Write LETOR text in which the lines of a query are apart; return the documents' features."""
    values = np.random.default_rng(0).random((40, 3)).round(3).astype(np.float32)
    lines = [f"1 qid:{i % 7} 1:{a} 2:{b} 3:{c} # {i}\n" for i, (a, b, c) in enumerate(values)]
    path.write_text("".join(lines))
    return values


@pytest.mark.parametrize("names", ["123", "31"])
def test_scattered_lines_of_letor_text_keep_their_scores(names, tmp_path, monkeypatch):
    """A model with other columns than the text, or in another order, reads them lazily."""
    monkeypatch.setattr("ltr.models.predictor._BLOCK", 12)
    values = scattered_lines(tmp_path / "t.txt")
    model = RankingModel(
        LinearScorer(len(names)), None, Schema("qid", "label", steps=dict.fromkeys(names, Number()))
    )
    columns = torch.from_numpy(values[:, [int(name) - 1 for name in names]])
    with torch.no_grad():
        expected = model(columns[None])[0].numpy()
    np.testing.assert_allclose(model.predict(tmp_path / "t.txt"), expected, rtol=1e-5)


def test_lists_on_disk_and_letor_text(frame, tmp_path):
    model, lists = fitted(frame, AttentionScorer(hidden=[8], heads=2))
    write_lists([lists], tmp_path / "lists", schema=model.schema)
    on_disk = open_lists(tmp_path / "lists")
    np.testing.assert_allclose(model.score(on_disk), model.score(lists), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        model.predict(tmp_path / "lists"), model.score(lists), rtol=1e-5, atol=1e-6
    )
    (tmp_path / "t.txt").write_text("1 qid:7 1:0.5 3:2 # a\n0 qid:7 2:1 # b\n0 qid:8 1:3 # c\n")
    linear = RankingModel(LinearScorer(4))
    with torch.no_grad():
        linear.scorer.layers.weight.copy_(torch.tensor([[1.0, 10.0, 100.0, 1000.0]]))
        linear.scorer.layers.bias.zero_()
    ((keys, scores),) = score_table(linear, tmp_path / "t.txt", keys=["qid", "doc_id", "label"])
    assert scores.tolist() == [200.5, 10.0, 3.0]
    assert keys.to_pydict() == {
        "qid": ["7", "7", "8"],
        "doc_id": ["a", "b", "c"],
        "label": [1.0, 0.0, 0.0],
    }


def test_arrays_have_columns_by_number(rng):
    model = RankingModel(LinearScorer(3))
    rows = rng.normal(size=(6, 3))
    with torch.no_grad():
        expected = model(torch.from_numpy(rows).float()[None])[0].numpy()
    np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="the model's 3 columns, got 2"):
        model.predict(rows[:, :2])
    with pytest.raises(ValueError, match=r"must be an array.*got DataFrame"):
        model.predict(pd.DataFrame(rows))
    assert model.predict(np.zeros((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="price"), "must have the column 'price'.*as in training"),
        (lambda t: t.assign(price="cheap"), r"(row 0, column 'price'|Row #2: ).*'cheap'"),
        (lambda t: t.assign(age=[0.0] * 25 + [np.inf] + [0.0] * 14), r"row 25, column 'age'"),
    ],
)
def test_mistakes_name_file_row_and_column(frame, tmp_path, monkeypatch, change, message):
    model, _ = fitted(frame, MLPScorer(hidden=[8]))
    few_rows(monkeypatch)
    with pytest.raises(ValueError, match=message):
        model.predict(change(frame))
    change(frame).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=f"t.csv: .*{message}"):
        model.predict(tmp_path / "t.csv")


def test_a_folder_keeps_model_and_schema(frame, tmp_path):
    model, lists = fitted(frame, MLPScorer(hidden=[8]))
    model.save(tmp_path / "m")
    again = RankingModel.load(tmp_path / "m")
    assert again.schema == model.schema
    assert not again.training
    np.testing.assert_array_equal(again.score(lists), model.score(lists))


class Local(LinearScorer):
    """A scorer of a package that is not trusted."""


class Tied(LinearScorer):
    """A scorer with one weight under two names."""

    def make_layers(self, num_features):
        layers = super().make_layers(num_features)
        layers.second = layers.weight
        return layers


def test_tied_weights_are_saved(tmp_path):
    model = RankingModel(Tied(2))
    model.save(tmp_path)
    again = RankingModel.load(tmp_path, trust=[__name__])
    assert torch.equal(again.scorer.layers.second, model.scorer.layers.weight)


def test_scores_are_float32_in_double_precision_too(rng):
    values = rng.normal(size=(6, 2))
    model = RankingModel(LinearScorer(2), Standardize().fit(values)).double()
    assert model.predict(values).dtype == np.float32


def test_only_trusted_classes_are_loaded(tmp_path):
    RankingModel(Local(2)).save(tmp_path)
    with pytest.raises(ValueError, match="trust"):
        RankingModel.load(tmp_path)
    assert isinstance(RankingModel.load(tmp_path, trust=[__name__]).scorer, Local)


def test_scoring_keeps_the_mode_and_draws_no_dropout(rng):
    model = RankingModel(MLPScorer(2, hidden=[4], dropout=0.5)).train()
    lists = ListDataset.from_arrays(rng.normal(size=(6, 2)), np.zeros(6), qid=[1, 1, 2, 2, 2, 3])
    np.testing.assert_array_equal(model.score(lists), model.score(lists))
    assert model.training


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_type_than_the_features(dtype):
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    codes = np.tile([[1], [2], [0]], (2, 1))
    coded = TableTransform().fit(rows, codes)
    assert coded.out_features is not None
    for model in (
        RankingModel(LinearScorer(3)),
        RankingModel(MLPScorer(3, hidden=(4,)), Standardize().fit(rows)),
        RankingModel(MLPScorer(coded.out_features, hidden=(4,)), coded),
    ):
        given = [torch.from_numpy(rows)[None]]
        given += [None, torch.from_numpy(codes)[None]] if model.transform is coded else []
        expected = model.eval()(*given)
        found = model.to(dtype)(*given)
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), expected, atol=0.05, rtol=0.05)
