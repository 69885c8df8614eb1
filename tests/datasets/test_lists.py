import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from ltr.datasets import ListDataset, collate_lists, open_lists, write_lists

FEATURES = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
LABELS = [0, 2, 0, 0]
QID = ["a", "a", "b", "c"]
DOC_IDS = ["d1", "d2", "d3", "d4"]


def data(**options) -> ListDataset:
    return ListDataset.from_arrays(FEATURES, LABELS, QID, DOC_IDS, **options)


def test_items():
    dataset = data()
    assert len(dataset) == 3
    item = dataset[0]
    assert item["features"].tolist() == FEATURES[:2]
    assert item["features"].dtype == item["labels"].dtype == torch.float32
    assert item["labels"].tolist() == [0, 2]
    assert item["mask"].tolist() == [True, True]
    assert item["mask"].dtype == torch.bool
    assert item["qid"] == "a"
    assert item["doc_id"] == ["d1", "d2"]
    assert "doc_id" not in ListDataset.from_arrays(FEATURES, LABELS, QID)[0]
    assert [item["qid"] for item in dataset] == ["a", "b", "c"]
    for index in (3, -2):
        with pytest.raises(IndexError, match=rf"index.*{index}"):
            dataset[index]


def test_an_item_is_a_copy():
    dataset = data()
    dataset[0]["features"].zero_()
    assert dataset[0]["features"].tolist() == FEATURES[:2]


def test_filler():
    item = data()[-1]
    assert item["mask"].tolist() == [False]
    assert item["features"].tolist() == [[0, 0]]
    assert item["labels"].tolist() == [0]
    assert item["qid"] == ""
    assert item["doc_id"] == []


def test_batch():
    dataset = data()
    batch = collate_lists([dataset[1], dataset[0], dataset[-1]])
    assert batch["features"].tolist() == [
        [FEATURES[2], [0, 0]],
        FEATURES[:2],
        [[0, 0], [0, 0]],
    ]
    assert batch["labels"].tolist() == [[0, 0], [0, 2], [0, 0]]
    assert batch["mask"].tolist() == [[True, False], [True, True], [False, False]]
    assert batch["qid"] == ["b", "a", ""]
    assert batch["doc_id"] == [["d3"], ["d1", "d2"], []]
    assert batch["features"].dtype == batch["labels"].dtype == torch.float32
    assert set(collate_lists([dataset[-1]])) == set(batch)


def test_batch_pads_what_else_the_items_have():
    items = [dict(data()[i], weight=torch.ones(n)) for i, n in ((0, 2), (1, 1))]
    assert collate_lists(items)["weight"].tolist() == [[1, 1], [1, 0]]


def test_summary():
    summary = data().summary()
    assert (summary.lists, summary.documents, summary.features) == (3, 4, 2)
    assert (summary.longest, summary.without_relevant, summary.of_one) == (2, 2, 2)
    assert str(summary) == (
        "3 lists, 4 documents, 2 features; the longest list has 2 documents, "
        "2 have no relevant document, 2 have one document (all are kept)"
    )
    one = ListDataset.from_arrays([[1.0]], labels=[0], qid=[7]).summary()
    assert str(one) == (
        "1 list, 1 document, 1 feature; the longest list has 1 document, "
        "1 has no relevant document, 1 has one document (all are kept)"
    )


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (1, " and 1 category"), (2, " and 2 categories")]
)
def test_the_summary_tells_the_categories(count, told, tmp_path):
    one = data()
    codes = np.zeros((4, count), dtype=np.int64) if count else None
    lists = ListDataset(one.features, one.labels, one.offsets, one.qids, categories=codes)
    assert f"4 documents, 2 features{told}; the longest" in str(lists.summary())
    write_lists(lists, tmp_path)
    assert open_lists(tmp_path).summary() == lists.summary()


def test_select_and_widen():
    chosen = data().select([2, 0])
    assert chosen.qids == ["c", "a"]
    assert chosen.features.tolist() == [FEATURES[3], *FEATURES[:2]]
    assert chosen[1]["doc_id"] == ["d1", "d2"]
    wide = data().widen(3)
    assert wide[0]["features"].tolist() == [[1, 2, 0], [3, 4, 0]]
    with pytest.raises(ValueError, match=r"num_features.*1"):
        data().widen(1)


def test_lists_without_features_are_widened(tmp_path):
    """A document may have categories alone."""
    codes, offsets = np.array([[1], [2], [1]]), np.array([0, 2, 3])
    bare = ListDataset(np.empty((3, 0), np.float32), None, offsets, ["a", "b"], categories=codes)
    write_lists(bare, tmp_path / "lists")
    for lists in (bare, open_lists(tmp_path / "lists")):
        wide = lists.widen(2)
        assert wide.features.tolist() == [[0, 0]] * 3
        assert wide.select([1]).in_memory().features.tolist() == [[0, 0]]
        assert wide[0]["features"].tolist() == [[0, 0]] * 2
        assert wide.take_features(np.array([1, -1, 0])).features.shape == (3, 3)


@pytest.mark.parametrize("wrong", [[-1], [3], [True, False, True], [0.5]])
def test_numbers_of_lists_to_select(wrong, tmp_path):
    write_lists(data(), tmp_path)
    for lists in (data(), open_lists(tmp_path)):
        with pytest.raises(ValueError, match=r"lists must be numbers in \[0, 3\)"):
            lists.select(wrong)


def test_names_are_compared_and_kept_as_text():
    days = np.array(["2024-01-01", "2024-01-02"], "datetime64[ns]")
    got = ListDataset.from_arrays([[1.0], [2.0]], [0, 1], [7, "7"], days)
    assert got.qids == ["7"]
    assert ListDataset.from_arrays([[1.0]], [0], ["NaT"], ["<NA>"]).qids == ["NaT"]
    assert [name[:10] for name in got[0]["doc_id"]] == ["2024-01-01", "2024-01-02"]


def test_from_every_kind_of_array(tmp_path):
    table = pd.DataFrame(FEATURES, columns=["f1", "f2"]).assign(y=LABELS, q=QID, d=DOC_IDS)
    pa.parquet.write_table(pa.Table.from_pandas(table), tmp_path / "t.parquet")
    read = pd.read_parquet(tmp_path / "t.parquet")
    for frame in (table, read):
        got = ListDataset.from_arrays(frame[["f1", "f2"]], frame["y"], frame["q"], frame["d"])
        assert got.features.tolist() == FEATURES
        assert got.qids == ["a", "b", "c"]
        assert got[0]["doc_id"] == ["d1", "d2"]
    got = ListDataset.from_arrays(
        torch.tensor(FEATURES), torch.tensor(LABELS), np.array([7, 7, 8, 9]), np.arange(4)
    )
    assert got.qids == ["7", "8", "9"]
    assert got[0]["doc_id"] == ["0", "1"]


def test_a_split_list():
    got = ListDataset.from_arrays(FEATURES, LABELS, ["b", "a", "b", "a"], DOC_IDS)
    assert got.rows.tolist() == [0, 2, 1, 3]
    assert got.qids == ["b", "a"]
    assert got.doc_id.to_pylist() == ["d1", "d3", "d2", "d4"]
    assert got.features[:, 0].tolist() == [1, 5, 3, 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": [1.0, 2.0]}, r"features.*\(2,\)"),
        ({"features": np.zeros((0, 2))}, r"features.*\(0, 2\)"),
        (
            {"features": [*FEATURES[:3], [1, np.nan]]},
            "features.*nan at row 3, c",
        ),
        ({"features": [*FEATURES[:3], [1e300, 1]]}, r"features .* got 1e\+300 at row 3, column 0"),
        ({"labels": [0, 1]}, r"labels.*\(2,\)"),
        ({"labels": [0, 1, -1, 0]}, "and >= 0, got -1 at row 2: .* give padding=-1$"),
        ({"labels": [0, np.nan, 1, 0]}, r"labels.*nan at row 1"),
        ({"qid": ["a"]}, r"qid.*\(1,\)"),
        ({"qid": ["a", None, "b", "c"]}, "qid.*None at row 1"),
        ({"qid": ["a", "a", "", "c"]}, "qid.*'' at row 2"),
        ({"qid": [1.0, np.nan, 2.0, 3.0]}, "qid.*nan at row 1"),
        (
            {"qid": pd.array([1, None, 2, 3], dtype="Int64")},
            "qid.*nan at row 1",
        ),
        ({"qid": ["a", "a", "b", np.nan]}, "qid.*nan at row 3"),
        ({"doc_id": ["x"]}, "doc_id.*1"),
        ({"doc_id": ["x", None, "y", "z"]}, "doc_id.*None at row 1"),
        ({"doc_id": ["x", "y", "z", np.nan]}, "doc_id.*nan at row 3"),
        ({"labels": ["low", 0, 1, 0]}, "labels.*'low' in row 0"),
        ({"features": [[1, 2], [3], [4, 5], [6, 7]]}, "features must"),
        ({"features": np.array(FEATURES) * 1j}, "features.*complex numbers"),
    ],
)
def test_bad_arrays(change, message):
    good = {"features": FEATURES, "labels": LABELS, "qid": QID}
    with pytest.raises(ValueError, match=message):
        ListDataset.from_arrays(**{**good, **change})


def test_tensors_with_a_graph_and_of_half_precision():
    features = torch.tensor(FEATURES, dtype=torch.bfloat16, requires_grad=True)
    got = ListDataset.from_arrays(features, torch.tensor(LABELS), QID)
    assert got.features.tolist() == np.array(FEATURES, np.float32).tolist()


def test_items_of_different_width():
    one = ListDataset.from_arrays([[1.0, 2.0]], [1], ["a"])[0]
    other = ListDataset.from_arrays([[1.0]], [1], ["a"])[0]
    with pytest.raises(ValueError, match=r"items must"):
        collate_lists([one, other])


def test_bad_offsets():
    rows = np.zeros((2, 1), np.float32)
    with pytest.raises(ValueError, match=r"offsets.*2 from 0 to 1"):
        ListDataset(rows, rows[:, 0], np.array([0, 1]), ["a"])
    with pytest.raises(ValueError, match=r"features.*shape \(2,\)"):
        ListDataset(rows[:, 0], rows[:, 0], np.array([0, 2]), ["a"])


def test_rows_of_padding_are_left_out():
    features = [[1.0], [np.nan], [3.0], [4.0], [5.0]]
    labels, qid, ids = [0, -1, 2, -1, 1], [7, 7, 7, 8, 8], ["a", None, "c", "d", "e"]
    data = ListDataset.from_arrays(features, labels, qid, ids, padding=-1)
    kept = [0, 2, 4]
    expected = ListDataset.from_arrays(
        *([column[i] for i in kept] for column in (features, labels, qid, ids))
    )
    assert data.qids == expected.qids == ["7", "8"]
    for name in ("features", "labels", "offsets"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))
    assert data.doc_id.to_pylist() == ["a", "c", "e"]
    torn = ListDataset.from_arrays(features, labels, [7, 7, 8, 8, 7], padding=-1)
    assert torn.rows.tolist() == [0, 4, 2]
    nothing = ListDataset.from_arrays([[1.0], [2.0]], [0, 1], [7, 7], padding=-1)
    assert len(nothing.labels) == 2


@pytest.mark.parametrize(
    ("labels", "features", "qid", "message"),
    [  # rows are counted as they were given
        ([-1, 0, -2], [1, 1, 1], [7, 7, 7], "labels.*-2 at row 2"),
        ([-1, 0, 1], [1, 1, np.inf], [7, 7, 7], "got inf at row 2, column 0"),
        ([-1, 0, 1], [1, 1, 1], [7, 7, None], "got None at row 2"),
        ([-1, -1], [1, 1], [7, 7], "labels.*padding=-1"),
    ],
)
def test_errors_beside_padding(labels, features, qid, message):
    with pytest.raises(ValueError, match=message):
        ListDataset.from_arrays([[x] for x in features], labels, qid, padding=-1)


def test_padding_is_a_label():
    with pytest.raises(ValueError, match=r"padding.*'-1'"):
        ListDataset.from_arrays([[1.0]], [0], [7], padding="-1")
