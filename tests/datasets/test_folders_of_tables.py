"""Folders and patterns of tables: hidden files, our own output, Hive's partitions, lakes."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ltr.cli import main
from ltr.datasets import ListDataset, convert, load_table, read_table
from ltr.datasets.conversion import table_chunks
from ltr.datasets.list_files import open_lists
from ltr.datasets.prepare import prepare
from ltr.datasets.table_files import find_files
from ltr.estimators import NeuralRanker

ROLES: dict[str, Any] = {"qid": "query", "label": "grade"}


def frame(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "query": np.arange(rows) // 3,
            "grade": rng.integers(0, 3, rows),
            "price": rng.normal(size=rows),
            "year": rng.choice([2023, 2024], rows),
            "shop": np.array(["a b", "NA", "ü/%", None])[rng.integers(0, 4, rows)],
        }
    )


def write(made: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made.to_parquet(path) if path.suffix == ".parquet" else made.to_csv(path, index=False)


def in_rows(data: ListDataset) -> np.ndarray:
    """Return the features in the order of the table's rows."""
    assert data.rows is not None
    return data.features[np.argsort(data.rows)]


def write_partitions(made: pd.DataFrame, root: Path, ending: str, *columns: str) -> None:
    """Write a folder as Arrow (and Hive, Spark and pandas) do."""
    names = pa.schema([(name, pa.Table.from_pandas(made).field(name).type) for name in columns])
    form: Any = ending
    options = {"include_header": True} if ending == "csv" else {}
    written = (ds.CsvFileFormat() if ending == "csv" else ds.ParquetFileFormat()).make_write_options
    ds.write_dataset(
        pa.Table.from_pandas(made, preserve_index=False),
        root,
        format=form,
        partitioning=ds.partitioning(names, flavor="hive"),
        file_options=written(**options),
    )


HIDDEN = [
    ".ipynb_checkpoints/a-checkpoint.{}",
    ".hidden.{}",
    "__MACOSX/._a.{}",
    "_temporary/0/a.{}",
    "_metadata.{}",
    "sub/.ipynb_checkpoints/a.{}",
    ".Trash-0/files/deep/a.{}",
]


@pytest.mark.parametrize("ending", ["csv", "parquet", "csv.gz", "txt"])
@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_files_are_no_data(tmp_path: Path, ending: str, name: str):
    kind = ending.removesuffix(".gz")
    paths = [tmp_path / f"a.{kind}", tmp_path / "sub" / f"b.{kind}"]
    if kind == "txt":
        paths[1].parent.mkdir()
        paths[0].write_text("1 qid:1 1:2\n")
        paths[1].write_text("2 qid:2 1:2\n")
    else:
        for path in paths:
            write(frame(), path)
    hidden = tmp_path / name.format(kind)
    hidden.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(paths[0], hidden)
    assert find_files(tmp_path) == paths
    assert find_files(tmp_path / "**" / f"*.{kind}") == paths
    if kind == "txt":
        assert len(prepare(tmp_path, {}).train.features) == 2
    else:
        assert load_table(tmp_path).num_rows == 120
    # A file or a folder that is named is read, whatever its name is.
    assert find_files(hidden) == [hidden]


def test_a_hidden_folder_that_is_named_is_read(tmp_path: Path):
    write(frame(), tmp_path / "_data" / "a.csv")
    write(frame(), tmp_path / ".cache" / "year=1" / "a.csv")
    assert load_table(tmp_path / "_data").num_rows == 60
    assert load_table(tmp_path / "_data" / "*.csv").num_rows == 60
    assert load_table(tmp_path / ".cache").num_rows == 60
    assert load_table(tmp_path / "_d*" / "a.csv").num_rows == 60


@pytest.mark.filterwarnings("ignore:columns of the table")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("form", ["folder", "pattern", "pattern of folders"])
def test_folders_give_columns(tmp_path: Path, ending: str, form: str):
    made, root = frame(), tmp_path / "root"
    write_partitions(made, root, ending, "year", "shop")
    path = {"folder": root, "pattern": root / "year=*" / "*" / f"*.{ending}"}.get(
        form, root / "year=*"
    )
    found = load_table(path, text={"shop"}).to_pandas().sort_values(["query", "price"])
    expected = made.sort_values(["query", "price"])
    assert found["year"].tolist() == expected["year"].tolist()
    assert found["shop"].fillna("").tolist() == expected["shop"].fillna("").tolist()
    prepared = prepare(path, ROLES)
    assert [*prepared.schema.steps] == ["price", "year", "shop"]
    assert prepared.schema.categories["shop"].levels == ("NA", "a b", "ü/%")
    # The model reads one part with the types of the training, and in chunks as at once.
    whole = read_table(path, prepared.schema)
    chunks = [*table_chunks(path, prepared.schema)]
    features = np.concatenate([in_rows(one) for one in chunks])
    np.testing.assert_array_equal(features, in_rows(whole))
    stored = convert(path, tmp_path / "lists", **ROLES)
    np.testing.assert_array_equal(stored.features, whole.features)
    np.testing.assert_array_equal(stored.categories, whole.categories)


@pytest.mark.filterwarnings("ignore:columns of the table")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_part_is_read_with_the_types_of_the_training(tmp_path: Path, ending: str):
    made = frame().assign(year=np.where(np.arange(60) % 2, "all", "2024"), price=frame()["grade"])
    write_partitions(made, tmp_path / "train", ending, "year")
    schema = prepare(tmp_path / "train", ROLES).schema
    assert schema.categories["year"].levels == ("2024", "all")
    write_partitions(made.query("year == '2024'"), tmp_path / "new", ending, "year")
    codes = read_table(tmp_path / "new", schema).categories
    assert codes is not None
    assert {*codes[:, [*schema.categories].index("year")].tolist()} == {1}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_qid_of_a_folder_is_text_as_it_is_written(tmp_path: Path, ending: str):
    for qid in ("007", "7", "08"):
        made = pd.DataFrame({"grade": [0, 1], "x": [1.0, 2.0]})
        write(made, tmp_path / f"query={qid}" / f"a.{ending}")
    prepared = prepare(tmp_path, ROLES)
    assert prepared.train.qids == ["007", "08", "7"]
    assert read_table(tmp_path, prepared.schema).qids == ["007", "08", "7"]
    assert [*convert(tmp_path, tmp_path / "s", **ROLES).qids] == ["007", "08", "7"]


def test_folders_of_one_kind_are_a_need(tmp_path: Path):
    made = frame().drop(columns="year")
    write(made, tmp_path / "year=2024" / "a.parquet")
    assert load_table(tmp_path)["year"].to_pylist() == [2024] * 60
    # The file's own column wins over the name of its folder, which says the same.
    write(made.assign(year=2023), tmp_path / "year=2023" / "a.parquet")
    assert sorted({*load_table(tmp_path)["year"].to_pylist()}) == [2023, 2024]
    # A file of its own, and a folder that is named itself, have no more columns than their files.
    assert "year" not in load_table(tmp_path / "year=2024" / "a.parquet").column_names
    assert "year" not in load_table(tmp_path / "year=2024").column_names
    write(made, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"the files of a table must have the same columns.*year"):
        load_table(tmp_path)


def test_numbers_that_have_no_common_type_are_one_error_of_every_reader(tmp_path: Path):
    """A file of floats makes the column float64, which does not hold 2^53 + 1."""
    (tmp_path / "root").mkdir()
    for name, price in (("a", 2**53 + 1), ("b", 0.5)):
        table = pa.table({"query": ["q"], "grade": [1], "price": [price]})
        pq.write_table(table, tmp_path / "root" / f"{name}.parquet")
    roles = {"qid": "query", "label": "grade"}
    for read in (
        lambda: load_table(tmp_path / "root"),
        lambda: convert(tmp_path / "root", tmp_path / "lists", **roles),
    ):
        with pytest.raises(ValueError, match=r"a\.parquet: cannot be read: .*9007199254740993"):
            read()


def test_files_may_write_labels_as_numbers_and_as_booleans(tmp_path: Path):
    (tmp_path / "a.csv").write_text("query,grade,x\n1,0,1.5\n1,1,2\n")
    (tmp_path / "b.csv").write_text("query,grade,x\n2,True,1\n2,false,3\n")
    for table in (tmp_path, tmp_path / "b.csv"):
        prepared = prepare(table, ROLES)
        expected = [0, 1, 1, 0][-len(prepared.train.labels) :]
        assert prepared.train.labels.tolist() == expected
        assert read_table(table, prepared.schema).labels.tolist() == expected
        convert(table, tmp_path / "lists", **ROLES)
        assert open_lists(tmp_path / "lists").labels.tolist() == expected
        shutil.rmtree(tmp_path / "lists")


def test_a_folder_may_begin_with_an_underscore_if_it_is_a_column(tmp_path: Path):
    write(frame().drop(columns="year"), tmp_path / "_year=2024" / "a.parquet")
    assert load_table(tmp_path)["_year"].to_pylist() == [2024] * 60


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("_delta_log/00000000000000000000.json", "a Delta table"),
        (".hoodie/hoodie.properties", "a Hudi table"),
        ("metadata/v1.metadata.json", "an Iceberg table"),
    ],
)
def test_tables_with_a_log_are_refused_by_name(tmp_path: Path, log: str, name: str):
    for folder in (tmp_path / "table", tmp_path / "all" / "table"):
        write(frame(), folder / "part-0.parquet")
        (folder / log).parent.mkdir()
        (folder / log).write_text("{}")
    for path in (tmp_path / "table", tmp_path / "all", tmp_path / "table" / "*.parquet"):
        with pytest.raises(ValueError, match=f"must not be or hold {name}, whose log .* package"):
            load_table(path)
        with pytest.raises(ValueError, match=name):
            convert(path, tmp_path / "s", **ROLES)


def test_a_folder_may_hold_what_the_commands_write(tmp_path: Path, monkeypatch):
    """The second fit in the folder of the data reads the same data as the first."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("train", "vali", "test"):
        lines = [
            f"{rng.integers(3)} qid:{row // 4} 1:{rng.random():.3f} 2:{rng.random():.3f}"
            for row in range(80)
        ]
        Path(f"{name}.txt").write_text("\n".join(lines) + "\n")
    options = ["--data.path", ".", "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu"]
    for run in ("1", "2"):
        assert main(["fit", "--config", "letor/smoke", *options]) == 0
        assert [path.parent.name for path in Path("runs").rglob(f"{run}/checkpoints")] == [run]
        model = next(Path("runs").rglob("model"))
        assert main(["predict", str(model), "test.txt", "--output", "scores.csv"]) == 0


def test_a_folder_of_csv_may_hold_runs_and_models(tmp_path: Path):
    write(frame(), tmp_path / "a.csv")
    for name, beside in (("metrics.csv", "hparams.yaml"), ("ranker-1.txt", "config.json")):
        folder = tmp_path / "runs" / "table" / "1" / name
        folder.mkdir(parents=True)
        (folder / name).write_text("epoch,loss\n1,2\n")
        (folder / beside).write_text("{}")
    assert find_files(tmp_path) == [tmp_path / "a.csv"]
    write(frame(), tmp_path / "metrics.csv")  # by itself, it is a table like any other
    assert load_table(tmp_path).num_rows == 120


def test_a_model_scores_a_folder_with_partitions(tmp_path: Path):
    made = frame().drop(columns="shop")
    write_partitions(made, tmp_path / "root", "parquet", "year")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker = NeuralRanker(members=1, max_epochs=1, random_state=0, verbose=0)
        ranker.fit(prepare(tmp_path / "root", ROLES)).save(tmp_path / "model")
    output = tmp_path / "scores.parquet"
    command = ["predict", str(tmp_path / "model"), str(tmp_path / "root"), f"--output={output}"]
    assert main(command) == 0
    expected = ranker.predict(load_table(tmp_path / "root").to_pandas())
    np.testing.assert_allclose(pq.read_table(output)["score"].to_numpy(), expected, rtol=1e-5)
