"""Predictions made to do harm: one line, exit code 2, and no code run."""

import gzip
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


class Harm:
    def __reduce__(self):
        return (Path.touch, (Path("code-was-run"),))


PICKLE = pickle.dumps(Harm())


def assert_refused(answer, name: str) -> None:
    assert answer.code == 2, answer.out
    assert answer.err.count("\n") == 1, answer.err
    assert "Traceback" not in answer.err
    assert name in answer.err
    assert len(answer.err) < 1000
    assert not Path("code-was-run").exists()


def extension(name: str) -> pa.Table:
    data = {"ARROW:extension:name": name, "ARROW:extension:metadata": PICKLE}
    fields = [pa.field("qid", pa.binary(), metadata=data), pa.field("label", pa.float64())]
    schema = pa.schema([*fields, pa.field("score", pa.float64())], metadata={"pandas": PICKLE})
    return pa.table([[b"\xff"], [1.0], [2.0]], schema=schema)


def table(**changed: Any) -> pa.Table:
    sound = {"qid": ["a", "b"], "label": [1.0, 0.0], "score": [0.5, 0.25]}
    return pa.table({**sound, **changed})


def as_parquet(content: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(content, sink)
    return sink.getvalue().to_pybytes()


SOUND = as_parquet(table())
PARQUET = {
    "empty": b"",
    "pickle": PICKLE,
    "magic alone": b"PAR1PAR1",
    "cut": SOUND[: len(SOUND) // 2] + SOUND[-8:],
    "a huge footer": SOUND[:-8] + b"\xff\xff\xff\x7fPAR1",
    "a negative footer": SOUND[:-8] + b"\xff\xff\xff\xffPAR1",
    "a footer of zeros": SOUND[:20] + bytes(len(SOUND) - 28) + SOUND[-8:],
    "nested": as_parquet(table(score=[{"a": 1}, {"a": 2}])),
    "lists": as_parquet(table(qid=[["a"], ["b"]])),
    "text for scores": as_parquet(table(score=["x", "y"])),
    "infinite": as_parquet(table(score=[1.0, float("inf")])),
    "nulls": as_parquet(table(qid=["a", None])),
    "a negative label": as_parquet(table(label=[1.0, -1.0])),
    "an extension type": as_parquet(extension("arrow.py_extension_type")),
    "another extension type": as_parquet(extension("unheard.of")),
}
CSV = {
    "empty": b"",
    "pickle": PICKLE,
    "zeros": bytes(1000),
    "no rows": b"qid,label,score\n",
    "two headers": b"qid,label,score,score\na,1,2,3\n",
    "not UTF-8": b"qid,label,score\n\xff\xfe,1,2\n",
    "a header that is not UTF-8": b"qid,label,\xff\na,1,2\n",
    "ragged": b"qid,label,score\na,1\n",
    "huge numbers": b"qid,label,score\na,1," + b"9" * 5000 + b"\n",
    "code": b"qid,label,score\na,1,__import__('os').system('x')\n",
    "an open quote": b'qid,label,score\n"a,1,2\n' * 3,
}
RUNS = {
    "empty": b"",
    "pickle": PICKLE,
    "zeros": bytes(1000),
    "a bad score": b"a Q0 d 1 nan t\n",
    "a huge score": b"a Q0 d 1 1e999 t\n",
    "damaged gzip": gzip.compress(b"a Q0 d 1 1 t\n" * 999)[:-9],
    "two files": b"a Q0 d 1 1 t\na Q0 d 2 1 t\n",
    "another archive": b"7z\xbc\xaf\x27\x1c" + bytes(99),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, ".parquet") for name in PARQUET),
        *((name, ".csv") for name in CSV),
        *((name, ".run") for name in RUNS),
    ],
)
def test_predictions(ltr, name: str, kind: str):
    path = Path(f"p{kind}")
    path.write_bytes({".parquet": PARQUET, ".csv": CSV, ".run": RUNS}[kind][name])
    more = []
    if kind == ".run":
        Path("qrels.txt").write_text("a 0 d 1\n")
        more = ["--qrels", "qrels.txt"]
    assert_refused(ltr("evaluate", path, *more), path.name)
