"""`ltr evaluate` knows the columns of what `ltr predict` wrote."""

from pathlib import Path

import pandas as pd
import pytest

from ltr.arrays import rank
from ltr.metrics.trec import write_qrels
from ltr.reports.scored_tables import predicted_roles


def scored(path: str, keys: list[str]) -> pd.DataFrame:
    """Write a table as `ltr predict` does: keys, score and rank."""
    frame = pd.DataFrame(
        {
            "session": ["a", "b", "a", "b", "a"],
            "sku": [7, 7, 8, 8, 9],
            "clicks": [1, 0, 0, 1, 0],
            "score": [0.2, 0.2, 0.3, 0.1, 0.1],
        }
    )
    frame = pd.DataFrame(frame, columns=[*keys, "score"])
    lists = frame["session"].factorize()[0]
    frame["rank"] = rank(frame["score"].to_numpy(), lists)
    if path.endswith(".csv"):
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return frame


@pytest.mark.parametrize("path", ["s.csv", "s.parquet"])
@pytest.mark.parametrize("keys", [["session", "clicks"], ["session", "sku", "clicks"]])
def test_the_columns_need_no_options(ltr, path, keys):
    scored(path, keys)
    known, told = (
        ltr("evaluate", path, "--metrics", "mrr", *options)
        for options in ((), ("--qid", "session", "--label", "clicks"))
    )
    assert known.code == 0, known.err
    assert known.out == told.out


def test_names_match_judgements(ltr):
    scored("s.csv", ["session", "sku"])
    write_qrels("qrels.txt", {"a": {"7": 1, "8": 0, "9": 0}, "b": {"7": 0, "8": 1}})
    answer = ltr("evaluate", "s.csv", "--qrels", "qrels.txt", "--metrics", "mrr")
    assert answer.code == 0, answer.err
    assert "0.5000" in answer.out


def test_a_name_is_no_label(ltr):
    scored("s.csv", ["session", "sku"])
    answer = ltr("evaluate", "s.csv")
    assert answer.code == 2
    assert "no column 'label'" in answer.err


def test_another_table_is_not_guessed(tmp_path: Path):
    path = str(tmp_path / "s.csv")
    frame = scored(path, ["session", "clicks"])
    assert predicted_roles(path) == {"qid": "session", "label": "clicks"}
    frame.assign(rank=frame["rank"].to_numpy()[::-1]).to_csv(path, index=False)
    assert predicted_roles(path) == {}
    frame.assign(other=1).to_csv(path, index=False)
    assert predicted_roles(path) == {}
