"""`ltr train`, and the commands that take its model: one walk, then the mistakes."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from model_folders import file_in
from sklearn.utils import check_random_state

from ltr.datasets.loaders import VALIDATION
from ltr.estimators import Blend, NeuralRanker
from ltr.models import RankingModel
from ltr.reports import evaluate

COLUMNS = ("--qid", "query", "--label", "grade", "--doc-id", "sku")
QUICK = ("--effort", "fast", "--quiet", "--output", "model")


@pytest.fixture
def table(ltr, write_table) -> pd.DataFrame:
    return write_table(Path("train.parquet"), 300)


def test_the_walk(ltr, table, write_table):
    test = write_table(Path("test.csv"), 120, seed=1)
    answer = ltr("train", "train.parquet", *COLUMNS, *QUICK, "--seed", 3)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("wrote model: trained on ")
    schema = NeuralRanker.load("model").schema_
    assert (schema.qid, schema.label, schema.doc_id) == ("query", "grade", "sku")
    assert {*schema.steps} == {"price", "stock", "shop"}

    assert ltr("predict", "model", "test.csv", "--output", "scores.parquet").code == 0
    scored = pd.read_parquet("scores.parquet")
    assert [*scored.columns] == ["query", "sku", "grade", "score", "rank"]
    expected = NeuralRanker.load("model").predict(test[["price", "stock", "shop"]])
    np.testing.assert_allclose(scored["score"], expected, rtol=1e-5)
    value = evaluate(test["grade"], scored["score"], test["query"], ["ndcg@10"])["ndcg@10"].mean
    assert value > 0.8  # the grades are the sign of the price and a shop

    told = ltr("test", "model", "test.csv").out
    assert f"{value:.4f}" in told
    answer = ltr("evaluate", "scores.parquet", *COLUMNS, "--html", "report.html")
    assert f"{value:.4f}" in answer.out
    assert Path("report.html").is_file()

    pytest.importorskip("shap")
    top = scored.loc[(scored["query"] == "q9") & (scored["rank"] == 1), "sku"].item()
    answer = ltr("explain", "model", "test.csv", "--query", "q9")
    assert answer.code == 0, answer.err
    assert f"Why {top} is above " in answer.out


def test_the_same_seed_gives_the_same_model(ltr, table):
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert (
            ltr("train", "train.parquet", *COLUMNS, *QUICK, "--output", out, "--seed", seed).code
            == 0
        )
    weights = [file_in(Path(one), "model.safetensors").read_bytes() for one in "abc"]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.slow  # two trainings, one of them by Lightning
def test_the_recipe_is_one_network_of_ltr_train(ltr, table, write_table):
    """The same metric after each epoch up to the same early stop, for the same random numbers."""
    write_table(Path("val.csv"), 120, seed=1)
    given = ("--val", "val.csv", "--relative", "false", "--seed", 0)
    answer = ltr("train", "train.parquet", *COLUMNS, *QUICK, *given)
    assert answer.code == 0, answer.err
    ranker = NeuralRanker.load("model")
    assert ranker.settings_["members"] == 1
    assert ranker.n_iter_ < ranker.settings_["max_epochs"]  # it stops early
    seed = check_random_state(0).randint(np.iinfo(np.int32).max)
    data = ("--data.path", "train.parquet", "--data.val_path", "val.csv")
    data += ("--data.qid", "query", "--data.label", "grade", "--data.doc_id", "sku")
    answer = ltr("fit", "--config", "table", *data, "--seed_everything", seed)
    assert answer.code == 0, answer.err
    [log] = Path("runs/table/1/logs").rglob("metrics.csv")
    curve = pd.read_csv(log)["val_ndcg_10"].dropna()
    np.testing.assert_allclose(curve, [row[0] for row in ranker.history_], rtol=0, atol=1e-5)
    new = write_table(Path("new.csv"), 60, seed=2)
    ranker.scorer_.scales.fill_(1)
    scores = [one.predict(new) for one in (ranker.model_, RankingModel.load("runs/table/1/model"))]
    # the loss does not depend on the level of the scores
    np.testing.assert_allclose(*(one - one.mean() for one in scores), rtol=0, atol=1e-4)


def test_the_recipe_holds_out_the_same_queries(ltr, table):
    """Both hold out by a hash of the qid with the seed 0."""
    found = ltr("fit", "--config", "table", "--data.path", "t.csv", "--print_config").out
    assert yaml.safe_load(found)["seed_everything"] == 0
    assert NeuralRanker().validation == VALIDATION


def test_with_trees(ltr, table, write_table):
    pytest.importorskip("lightgbm")
    test = write_table(Path("test.parquet"), 120, seed=1)
    answer = ltr("train", "train.parquet", *COLUMNS, *QUICK, "--with", "lightgbm")
    assert answer.code == 0, answer.err
    blend = Blend.load("model")
    assert [type(one).__name__ for one in blend.rankers_] == ["NeuralRanker", "Booster"]
    assert ltr("predict", "model", "test.parquet", "--output", "scores.csv").code == 0
    scored = pd.read_csv("scores.csv")
    own = blend.predict(test[["price", "stock", "shop"]])
    np.testing.assert_allclose(scored["score"], own, rtol=1e-4, atol=1e-5)


def test_a_boolean_that_is_only_true_or_missing_in_training(ltr, table):
    """The folder and the command give the same scores, also where it is false."""
    pytest.importorskip("lightgbm")
    seen = np.arange(len(table)) % 2 == 0
    flags = np.where(seen, True, None)
    table["grade"] = (seen & (np.arange(len(table)) % 3 > 0)).astype(int)
    table.assign(new=pd.array(flags, dtype="boolean")).to_parquet("train.parquet")
    assert ltr("train", "train.parquet", *COLUMNS, *QUICK, "--with", "lightgbm").code == 0
    for value in (None, False):
        test = table.assign(new=pd.array(np.where(seen, True, value), dtype="boolean"))
        test.to_parquet("test.parquet")
        assert ltr("predict", "model", "test.parquet", "--output", "scores.parquet").code == 0
        scores = pd.read_parquet("scores.parquet")["score"]
        np.testing.assert_allclose(scores, Blend.load("model").predict(test), rtol=1e-5, atol=1e-6)
        assert scores[seen].mean() > scores[~seen].mean() + 0.5


@pytest.mark.parametrize(("given", "threads"), [((), 0), (("--threads", 1), 1)])
def test_the_trees_take_as_many_threads_as_openmp_or_the_user_says(ltr, table, given, threads):
    """LightGBM's own default is a thread for each core, whatever `OMP_NUM_THREADS` says."""
    pytest.importorskip("lightgbm")
    answer = ltr("train", "train.parquet", *COLUMNS, *QUICK, "--with", "lightgbm", *given)
    assert answer.code == 0, answer.err
    assert f"[num_threads: {threads}]" in file_in(Path("model"), "ranker-1.txt").read_text()
    assert Blend.load("model").n_jobs == (threads or None)
    assert ltr("train", "train.parquet", *COLUMNS, *QUICK, "--threads", "0").code == 2


def test_lists_and_letor_text_need_no_names(ltr, table, letor_root):
    assert ltr("convert", "train.parquet", "--output", "lists", *COLUMNS, "--quiet").code == 0
    assert ltr("train", "lists", *QUICK).code == 0
    fold = letor_root / "Fold1"
    answer = ltr("train", fold / "train.txt", "--val", fold / "vali.txt", *QUICK)
    assert answer.out.startswith("wrote model: trained on 40 queries, 120 documents; 8 held out")
    assert ltr("predict", "model", fold / "test.txt", "--output", "scores.run").code == 0
    pytest.importorskip("shap")
    lines = (fold / "test.txt").read_text().splitlines(keepends=True)
    Path("scattered.txt").write_text("".join(lines[::2] + lines[1::2]))
    answer = ltr("explain", "model", "scattered.txt", "--query", "3")
    first, second = (line.split() for line in Path("scores.run").read_text().splitlines()[9:11])
    assert f"Why {first[2]} is above {second[2]}:" in answer.out
    shown = [line.split()[:3] for line in answer.out.splitlines()[3:5]]
    assert shown == [[x[3], x[2], f"{float(x[4]):.3f}"] for x in (first, second)]


def test_lists_on_disk_are_explained_if_they_hold_numbers(ltr, table):
    """They give what their table gives; the values of categories and dates are not in them."""
    pytest.importorskip("shap")
    ordered = pd.read_parquet("train.parquet").sort_values("query", kind="stable")
    ordered.to_parquet("all.parquet", index=False)
    ordered.drop(columns="shop").to_parquet("numbers.parquet", index=False)
    for name in ("all", "numbers"):
        given = (f"{name}.parquet", *COLUMNS)
        assert ltr("convert", *given, "--output", f"{name}.lists", "--quiet").code == 0
        assert ltr("train", *given, *QUICK, "--output", f"{name}.model").code == 0
    files = "numbers.parquet", "numbers.lists"
    answers = [ltr("explain", "numbers.model", name, "--query", "q9") for name in files]
    expected, found = (x.out.replace(y, "") for x, y in zip(answers, files, strict=True))
    assert found == expected != ""
    answer = ltr("explain", "all.model", "all.lists", "--query", "q9")
    assert answer.code == 2
    assert "all.lists must hold numbers alone, got column 'shop': " in answer.err


@pytest.mark.parametrize("more", [(), ("--with", "lightgbm")])
def test_columns_relative_to_the_list_are_explained(ltr, table, more):
    pytest.importorskip("shap")
    given = ("train.parquet", *COLUMNS, *QUICK, "--relative", "true", *more)
    assert ltr("train", *given).code == 0
    assert ltr("predict", "model", "train.parquet", "--output", "scores.parquet").code == 0
    scored = pd.read_parquet("scores.parquet")
    best = scored.loc[(scored["query"] == "q9") & (scored["rank"] == 1)].iloc[0]
    answer = ltr("explain", "model", "train.parquet", "--query", "q9", "--top", 1)
    assert answer.code == 0, answer.err
    shown = answer.out.splitlines()[3].split()
    assert shown[:3] == ["1", best["sku"], f"{best['score']:.3f}"]


def test_a_blend_relative_to_the_list_is_explained_without_the_columns_that_it_ignores(ltr, table):
    pytest.importorskip("shap")
    trees = pytest.importorskip("lightgbm").LGBMRanker(n_estimators=3, verbose=-1)
    network = NeuralRanker(relative=True, members=1, max_epochs=1, random_state=0, verbose=0)
    X, y, qid = table[["price", "sku", "stock"]], table["grade"], table["query"]
    with pytest.warns(UserWarning, match="sku is left out"):
        blend = Blend([network, trees], verbose=0).fit(X, y, qid=qid)
    blend.save("model")
    table.drop(columns="sku").to_csv("unnamed.csv", index=False)
    answer = ltr("explain", "model", "unnamed.csv", "--query", "q9", "--top", 1)
    assert answer.code == 0, answer.err
    best = blend.predict(X, qid=qid)[qid == "q9"].max()
    assert answer.out.splitlines()[3].split()[2] == f"{best:.3f}"


def test_positions_and_a_protected_group_change_the_model(ltr, table):
    """Clicks are on the first positions, whatever the price: only with positions it is learned."""
    rng = np.random.default_rng(0)
    rows, length = 4000, 5
    price = rng.normal(size=rows)
    shelf = np.tile(np.arange(length), rows // length)  # a column that tells the position
    looked = rng.random(rows) < 1 / (1 + shelf)
    clicks = ((price > 0) & looked).astype(int)
    frame = pd.DataFrame({"q": np.arange(rows) // length, "price": price, "shelf": shelf})
    frame = frame.assign(click=clicks, spot=shelf + 1, new=(price > 0).astype(int))
    frame.to_parquet("clicks.parquet")
    given = ("--qid", "q", "--label", "click", "--features", "price", "shelf", *QUICK)
    given += ("--relative", "false")  # rows are scored one by one below
    probe = pd.DataFrame({"price": [0.0, 0.0], "shelf": [0, 4]})
    gaps = {}
    for name, more in (("no", ()), ("position", ("--position", "spot"))):
        answer = ltr("train", "clicks.parquet", *given, *more)
        assert answer.code == 0, answer.err
        first, last = NeuralRanker.load("model").predict(probe)
        gaps[name] = first - last
    assert gaps["position"] < 0.7 * gaps["no"]
    scores = {}
    for name, more in (("no", ()), ("protected", ("--protected", "new"))):
        few = frame[:500].assign(click=(price[:500] > 0).astype(int))
        few.to_parquet("clicks.parquet")
        assert ltr("train", "clicks.parquet", *given, *more).code == 0
        scores[name] = NeuralRanker.load("model").predict(frame[["price", "shelf"]])
    inside = frame["new"] == 1
    spread = {name: x[inside].mean() - x[~inside].mean() for name, x in scores.items()}
    assert spread["protected"] < spread["no"]


def test_columns_that_look_like_mistakes_are_named(ltr, table):
    pytest.importorskip("lightgbm")
    table.assign(user=[f"u{i}" for i in range(300)]).to_parquet("train.parquet")
    with pytest.warns(UserWarning, match="user is left out, with 300 different texts"):
        assert ltr("train", "train.parquet", *COLUMNS, *QUICK, "--with", "lightgbm").code == 0


@pytest.mark.parametrize(
    "more",
    [
        # two trainings more; the other case has a network in its blend
        pytest.param([], marks=pytest.mark.slow),
        ["--with", "lightgbm"],
    ],
)
def test_directions_bind_every_ranker(ltr, table, more):
    """The labels rise with the price; a model that may only fall with it ignores that."""
    if more:
        pytest.importorskip("lightgbm")
    frame = pd.DataFrame({"price": np.linspace(-2, 2, 50), "stock": 3.0, "shop": "a"})
    for direction in (1, -1):
        options = (*COLUMNS, *QUICK, "--monotone", f"price={direction}", "stock=1", *more)
        assert ltr("train", "train.parquet", *options).code == 0
        model = (Blend if more else NeuralRanker).load("model")
        steps = np.diff(model.predict(frame)) * direction
        assert steps.min() >= -1e-6
        assert (steps.max() > 0.01) == (direction == 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([*COLUMNS, "--qid", "quer"], ["train.parquet", "'quer'", "mean 'query'?"]),
        (["--qid", "query", "--doc-id", "sku"], ["label", "train.parquet"]),
        ([*COLUMNS, "--loss", "SoftNCDG"], ["ltr.losses.SoftNCDG", "did you mean 'SoftNDCG'?"]),
        ([*COLUMNS, "--loss", "LogisticCost"], ["LogisticCost is not a RankingLoss"]),
        ([*COLUMNS, "--loss", "RankingLoss"], ["--loss", "base class"]),
        ([*COLUMNS, "--effort", "quick"], ["--effort", "'quick'"]),
        ([*COLUMNS, "--metric", "ndgc@10"], ["ndgc", "ndcg"]),
        ([*COLUMNS, "--with", "xgboost"], ["--with", "'xgboost'"]),
        ([*COLUMNS, "--with", "lightgbm", "--position", "stock"], ["--position", "lightgbm"]),
        ([*COLUMNS, "--with", "lightgbm", "--metric", "mrr"], ["--metric", "lightgbm"]),
        ([*COLUMNS, "--val", "no.csv"], ["no.csv"]),
        ([*COLUMNS, "--monotone", "price"], ["--monotone", "COLUMN=1", "'price'"]),
        ([*COLUMNS, "--monotone", "price=2"], ["--monotone", "COLUMN=-1", "'price=2'"]),
        ([*COLUMNS, "--monotone", "prize=1"], ["monotone", "'prize'", "did you mean price?"]),
        ([*COLUMNS, "--monotone", "shop=-1"], ["monotone", "columns of numbers", "'shop'"]),
        ([*COLUMNS, "--features", "prize"], ["'prize'", "'price'"]),
        ([*COLUMNS, "--position", "stock"], ["'stock'", "position", "row"]),
        ([*COLUMNS, "--weight", "shop"], ["'shop'", "row 0", "number"]),
        ([*COLUMNS, "--label", "constant"], ["equal", "nothing to learn"]),
        ([*COLUMNS, "--output", "train.parquet"], ["--output", "folder", "train.parquet"]),
        ([*COLUMNS, "--monotone", "price=1", "price=-1"], ["--monotone", "each column once"]),
        ([*COLUMNS, "--seed", "x"], ["--seed", "'x'"]),
        ([*COLUMNS, "--seed", "-1"], ["--seed", "0 to 4294967295", "'-1'"]),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(ltr, table, options, words):
    table.assign(constant=1).to_parquet("train.parquet")
    before = {path.name for path in Path().iterdir()}
    answer = ltr("train", "train.parquet", *QUICK, *options)
    assert answer.code == 2
    assert answer.err.startswith("ltr train: ")
    assert answer.err.count("\n") == 1
    assert [word for word in words if word not in answer.err] == []
    assert {path.name for path in Path().iterdir()} == before


@pytest.mark.parametrize("command", ["train", "test", "predict", "explain", "evaluate"])
@pytest.mark.parametrize("name", ["none.csv", "folder", "empty.csv", "other.csv"])
def test_a_bad_table(ltr, trained, command, name):
    """A missing file, a folder for a file, an empty table, and a table of another model."""
    Path("folder").mkdir()
    Path("empty.csv").write_text("")
    Path("other.csv").write_text("a,b\n1,2\n3,4\n")
    before = {path.name for path in Path().iterdir()}
    arguments = {
        "train": (name, *COLUMNS, "--output", "new"),
        "test": ("model", name),
        "predict": ("model", name, "--output", "out.csv"),
        "explain": ("model", name, "--query", "q1"),
        "evaluate": (name, *COLUMNS),
    }
    answer = ltr(command, *arguments[command])
    assert answer.code == 2
    assert answer.err.startswith(f"ltr {command}: ")
    assert answer.err.count("\n") == 1
    assert name in answer.err or name == "other.csv"
    assert {path.name for path in Path().iterdir()} == before


@pytest.mark.parametrize("command", ["test", "predict", "explain", "export", "serve"])
def test_a_bad_model(ltr, trained, command):
    Path("folder").mkdir()
    more = {"predict": ["t.csv", "--output", "o.csv"], "explain": ["t.csv", "--query", "q1"]}
    more |= {"test": ["t.csv"], "export": ["m.onnx"], "serve": []}
    for name in ("nowhere", "folder", "model/config.json"):
        answer = ltr(command, name, *more[command])
        assert answer.code == 2
        assert answer.err.count("\n") == 1
        assert name.partition("/")[0] in answer.err


def test_what_a_table_may_lack(ltr, trained):
    """The names of the documents, in an explanation; the labels, beside judgements."""
    test = pd.read_parquet("train.parquet")
    lines = [f"{q} 0 {d} {y}\n" for q, d, y in test[["query", "sku", "grade"]].to_numpy()]
    Path("qrels").write_text("".join(lines))
    test.drop(columns="grade").to_parquet("unlabeled.parquet")
    answer = ltr("test", "model", "unlabeled.parquet", "--qrels", "qrels", "--metrics", "mrr")
    assert answer.code == 0, answer.err
    expected = ltr("test", "model", "train.parquet", "--metrics", "mrr").out
    assert answer.out.splitlines()[3] == expected.splitlines()[3]
    pytest.importorskip("shap")
    test.drop(columns=["grade", "sku"]).to_parquet("unnamed.parquet")
    answer = ltr("explain", "model", "unnamed.parquet", "--query", "q1", "--top", 1)
    assert answer.code == 0, answer.err


def test_an_onnx_file_needs_onnxruntime(ltr, trained, monkeypatch):
    Path("m.onnx").touch()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    more = {"predict": ["train.parquet", "--output", "o.csv"], "test": ["train.parquet"]}
    more |= {"explain": ["train.parquet", "--query", "q1"], "serve": []}
    for command, options in more.items():
        answer = ltr(command, "m.onnx", *options)
        assert answer.code == 2
        told = "an ONNX file needs onnxruntime: pip install onnxruntime"
        assert answer.err == f"ltr {command}: {told}\n"


def test_a_query_that_there_is_not(ltr, trained):
    answer = ltr("explain", "model", "train.parquet", "--query", "q1000")
    assert answer.code == 2
    assert answer.err.startswith("ltr explain: --query q1000: the table has no such query: did you")


@pytest.fixture(scope="session")
def one_model(tmp_path_factory) -> Path:
    """A folder with a table and the model of it."""
    from ltr.cli import main
    from tests.cli.conftest import make_table

    folder = tmp_path_factory.mktemp("one")
    make_table(folder / "train.parquet", 300)
    out = str(folder / "model")
    assert main(["train", str(folder / "train.parquet"), *COLUMNS, *QUICK, "--output", out]) == 0
    return folder


@pytest.fixture
def trained(ltr, one_model) -> None:
    """`model` and its `train.parquet` in the working folder."""
    Path("model").symlink_to(one_model / "model")
    Path("train.parquet").symlink_to(one_model / "train.parquet")


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("train", (), "train.parquet: --qid COLUMN is required: the columns are 'query', "),
        (
            "train",
            ("--qid", "query"),
            "train.parquet: --label COLUMN is required: the columns are ",
        ),
        ("convert", ("--label", "grade"), "train.parquet: --qid COLUMN is required: the columns"),
    ],
)
def test_a_missing_name_names_its_option(ltr, table, command, given, message):
    answer = ltr(command, "train.parquet", *given, "--quiet", "--output", "new")
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not Path("new").exists()
