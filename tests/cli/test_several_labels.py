"""`ltr train --label A B`, and what the other commands do with such a model."""

import json

import numpy as np
import pandas as pd
import pytest

from ltr.cli import main
from ltr.datasets import convert
from ltr.estimators import NeuralRanker
from ltr.losses import SeveralLabels
from ltr.reports import evaluate_labels

ROLES = ["--qid", "qid", "--label", "click", "buy"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The folder of shop.csv, whose purchases are not all known, its lists, and a model."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(800, 3)), columns=list("abc"))
    table["qid"] = np.arange(800) // 8
    table["click"] = (table["a"] > 1) * 1.0
    table["buy"] = (table["b"] > 1) * 1.0
    table.loc[::5, "buy"] = np.nan
    table.to_csv(folder / "shop.csv", index=False)
    convert(folder / "shop.csv", folder / "lists", qid="qid", label=["click", "buy"])
    words = ["--trade-off", "click=1", "buy=0", "--effort", "fast", "--quiet"]
    assert train(folder, "model", *ROLES, *words) == 0
    return folder


def train(folder, model, *words):
    return main(["train", f"{folder}/shop.csv", "--output", f"{folder}/{model}", *words])


def test_a_trade_off_has_an_effect(shop):
    table = pd.read_csv(shop / "shop.csv")
    clicks = NeuralRanker.load(shop / "model")
    assert isinstance(clicks.loss, SeveralLabels)
    assert clicks.loss.first_weights == (1.0, 0.0)
    assert train(shop, "buys", *ROLES, "--trade-off", "click=0", "buy=1", "--quiet") == 0
    buys = NeuralRanker.load(shop / "buys")
    values = []
    for ranker in (clicks, buys):
        scores = ranker.model_.predict(table)
        found = evaluate_labels(table[["click", "buy"]], scores, table["qid"], ["ndcg@10"])
        values.append([x["ndcg@10"].mean for x in found.values()])
    assert values[0][0] > values[1][0]
    assert values[0][1] < values[1][1]


@pytest.mark.parametrize("table", ["shop.csv", "lists"])
def test_test_prints_a_column_for_each_label(shop, table, capsys):
    assert main(["test", f"{shop}/model", f"{shop}/{table}", "--metrics", "ndcg@10"]) == 0
    head, values, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["click", "buy"]
    frame = pd.read_csv(shop / "shop.csv")
    scores = NeuralRanker.load(shop / "model").model_.predict(frame)
    found = evaluate_labels(frame[["click", "buy"]], scores, frame["qid"], ["ndcg@10"])
    assert values.split()[1] == f"{found['click']['ndcg@10'].mean:.4f}"
    assert main(["test", f"{shop}/model", f"{shop}/{table}", "--label", "buy"]) == 0
    assert capsys.readouterr().out.split()[0] == "buy"
    names = ["--metrics", "ndcg@10", "kendall_tau", "map", "--at", "3", "--empty", "skip"]
    assert main(["test", f"{shop}/model", f"{shop}/{table}", *names]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "click",
        "ndcg@10",
        "kendall_tau",
        "map@3",
        "lists",
    ]
    found = evaluate_labels(frame[["click", "buy"]], scores, frame["qid"], ["map@3"], empty="skip")
    assert lines[3].split()[1] == f"{found['click']['map@3'].mean:.4f}"


@pytest.mark.parametrize("table", ["shop.csv", "lists"])
def test_predict_keeps_all_labels(shop, table):
    assert main(["predict", f"{shop}/model", f"{shop}/{table}", "--output", f"{shop}/s.csv"]) == 0
    scored = pd.read_csv(shop / "s.csv")
    assert [*scored] == ["qid", "click", "buy", "score", "rank"]
    assert int(np.isnan(scored["buy"].to_numpy()).sum()) == 160
    assert "nan" not in (shop / "s.csv").read_text()


def test_a_table_after_one_label_is_no_label(shop):
    words = ["train", "--qid", "qid", "--features", "a", "--label", "click", f"{shop}/shop.csv"]
    assert main([*words, "--effort", "fast", "--quiet", "--output", f"{shop}/one"]) == 0
    assert NeuralRanker.load(shop / "one").schema_.label == "click"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*ROLES, "--trade-off", "click=1"], "--trade-off must name each label once, click, buy"),
        ([*ROLES, "--trade-off", "click=1", "buy=-1"], "weight >= 0, got 'buy=-1'"),
        ([*ROLES, "--trade-off", "click=0", "buy=0"], "losses must have a weight above 0"),
        (["--qid", "qid", "--label", "click", "--trade-off", "click=1"], "needs several labels"),
        ([*ROLES, "--with", "lightgbm"], "--with lightgbm takes one label, got click, buy"),
        (
            ["--qid", "qid", "--label", "click", "view"],
            "label must name a column of the table, got 'view'",
        ),
        (["--qid", "qid", "--label", "click", "click"], "a column must have one use"),
    ],
)
def test_wrong_words_are_one_line(shop, words, message, capsys):
    assert train(shop, "none", *words) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "\n" not in told
    assert not (shop / "none").exists()


def test_a_file_of_several_labels_is_refused(shop, capsys):
    assert main(["test", f"{shop}/model", f"{shop}/shop.csv", "--html", f"{shop}/x.html"]) == 2
    assert "--html needs one label: name it by --label" in capsys.readouterr().err
    words = ["--metrics", "map", "--resamples", "20", "--html", f"{shop}/x.html"]
    words += ["--output", f"{shop}/x.json", "--label", "click"]
    assert main(["test", f"{shop}/model", f"{shop}/shop.csv", *words]) == 0
    frame = pd.read_csv(shop / "shop.csv")
    scores = NeuralRanker.load(shop / "model").model_.predict(frame)
    found = evaluate_labels(frame[["click"]], scores, frame["qid"], ["map"])["click"]
    content = json.loads((shop / "x.json").read_text())
    assert content["metrics"]["map"]["mean"]["mean"] == found["map"].mean
    capsys.readouterr()
    assert main(["test", f"{shop}/model", f"{shop}/shop.csv", *words[:-1], "buy"]) == 2
    assert "column 'buy' must have a value in every row" in capsys.readouterr().err
