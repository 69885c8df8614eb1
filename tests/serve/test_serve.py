"""`ltr serve`: a real server on this machine, bad input, limits, and the end of the process."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRanker
from model_folders import names_in

from ltr.datasets import Schema, Standardize, TableTransform
from ltr.datasets.column_steps import Number
from ltr.estimators import NeuralRanker
from ltr.export import export_model
from ltr.models import LinearScorer, RankingModel
from ltr.serve import Limits, make_app
from ltr.serving import OnnxRanker

# as `ltr serve`, in a process that cannot import torch
SERVE = """
import sys
for name in ("torch", "pandas", "sklearn", "lightgbm"):
    sys.modules[name] = None
from ltr.cli import main
raise SystemExit(main(["serve", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"price": rng.normal(size=300), "stock": rng.integers(0, 9, 300)})
    X["shop"] = pd.Categorical(rng.choice(["a", "b"], 300))
    y = (X["price"] > 0) * 1 + (X["shop"] == "b")
    ranker = LGBMRanker(n_estimators=5, verbose=-1).fit(X, y, group=[10] * 30)
    return export_model(ranker, tmp_path_factory.mktemp("model")).model.parent


@pytest.fixture(scope="module")
def ranker(folder) -> OnnxRanker:
    return OnnxRanker(folder / "model.onnx")


class Client:
    """Calls a service in this process, and raises what a handler raises."""

    def __init__(self, app: Any) -> None:
        self.transport = httpx.ASGITransport(app)

    def post(self, path: str, content: bytes) -> httpx.Response:
        return asyncio.run(self.send("POST", path, content))

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self.send("GET", path, b""))

    async def send(
        self, method: str, path: str, content: bytes | AsyncIterator[bytes]
    ) -> httpx.Response:
        async with httpx.AsyncClient(transport=self.transport, base_url="http://x") as client:
            return await client.request(method, path, content=content)


@pytest.fixture(scope="module")
def client(ranker) -> Client:
    return Client(make_app(ranker, Limits(documents=5, lists=3, bytes=4000)))


ROWS = [
    {"price": 0.5, "stock": 3, "shop": "b"},
    {"price": None, "stock": 1, "shop": "unseen"},
    {"price": -2.0, "stock": None, "shop": None, "other": [1]},
]


@pytest.fixture
def server(folder, free_port) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    command = [sys.executable, "-c", SERVE, str(folder), "--port", str(free_port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    url = f"http://127.0.0.1:{free_port}"
    try:
        for _ in range(600):
            try:
                with _open(f"{url}/health"):
                    break
            except urllib.error.URLError:
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.1)
        yield url, process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def _open(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(urllib.request.Request(url, data), timeout=30)


def test_a_server_without_torch(server, ranker):
    url, process = server
    with _open(f"{url}/rank", {"documents": ROWS}) as answer:
        found = json.load(answer)
    expected = ranker.score(ROWS)
    assert found["scores"] == expected.tolist()
    assert found["order"] == np.argsort(-expected, kind="stable").tolist()
    with _open(f"{url}/rank", {"lists": [ROWS, [], ROWS[:1]]}) as answer:
        several = json.load(answer)["results"]
    assert several[0] == found
    assert several[1] == {"scores": [], "order": []}
    assert several[2] == {"scores": found["scores"][:1], "order": [0]}
    with pytest.raises(urllib.error.HTTPError, match="422") as caught:
        _open(f"{url}/rank", {"documents": [{"price": 1, "shop": "a"}]})
    with caught.value as error:
        assert json.load(error)["detail"][0]["loc"] == ["body", "documents", 0, "stock"]
    process.terminate()
    process.wait(timeout=60)
    assert process.stderr is not None
    log = process.stderr.read().decode()
    assert "Application shutdown complete" in log
    assert "Traceback" not in log


def test_termination_finishes_what_runs(server, ranker):
    url, process = server
    body = json.dumps({"documents": ROWS}).encode()
    head = f"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as connection:
        connection.sendall(head + body[:20])
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        connection.sendall(body[20:])
        answer = b""
        while part := connection.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["scores"] == ranker.score(ROWS).tolist()
    process.wait(timeout=60)


def test_a_client_that_goes_away_is_no_error_of_the_server(server):
    url, process = server
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as connection:
        connection.sendall(b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
    metrics = ""
    for _ in range(300):
        with _open(f"{url}/metrics") as answer:
            metrics = answer.read().decode()
        if "status=" in metrics:
            break
        time.sleep(0.1)
    assert 'ltr_requests_total{status="499"} 1.0' in metrics
    assert 'status="500"' not in metrics
    process.terminate()
    process.wait(timeout=60)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read().decode()


def test_a_body_must_arrive_in_time(ranker):
    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    client = Client(make_app(ranker, Limits(seconds=1)))
    answer = asyncio.run(client.send("POST", "/rank", endless()))
    assert answer.status_code == 408
    (detail,) = answer.json()["detail"]
    assert detail == {"loc": ["body"], "msg": "the body must arrive within 1 seconds, got 1 bytes"}
    assert 'ltr_requests_total{status="408"} 1.0' in client.get("/metrics").text


def test_what_it_tells(ranker):
    client = Client(make_app(ranker, Limits(documents=5, lists=3, bytes=4000)))
    schema = client.get("/schema").json()
    assert schema["columns"]["price"] == {"type": "number", "example": 0.5}
    assert schema["columns"]["shop"] == {"type": "string", "levels": ["a", "b"], "example": "a"}
    assert schema["limits"] == {"documents": 5, "lists": 3, "bytes": 4000, "seconds": 10}
    assert schema["score_depends_on_list"] is False
    assert client.get("/health").json() == {"status": "ok"}
    page = client.get("/openapi.json").json()["paths"]["/rank"]["post"]
    example = page["requestBody"]["content"]["application/json"]["example"]
    assert client.post("/rank", json.dumps(example).encode()).status_code == 200
    assert client.get("/docs").status_code == 200
    assert client.post("/rank", content=b"{").status_code == 422
    metrics = client.get("/metrics").text
    assert 'ltr_requests_total{status="200"} 1.0' in metrics
    assert 'ltr_requests_total{status="422"} 1.0' in metrics
    assert "ltr_documents_total 2.0" in metrics


@pytest.mark.parametrize(
    ("body", "status", "where", "why"),
    [
        (b"", 422, [], "Invalid JSON"),
        (b"\xff\xfe", 422, [], "Invalid JSON"),
        (b"[" * 3000, 422, [], "Invalid JSON"),
        (b"[]", 422, [], "object"),
        (b"{}", 422, ["documents"], "got neither"),
        (b'{"documents": [], "lists": []}', 422, ["documents"], "got both"),
        (b'{"documents": [], "x": 1}', 422, ["x"], "not permitted"),
        (b'{"documents": {}}', 422, ["documents"], "array"),
        (b'{"documents": [3]}', 422, ["documents", 0], "object"),
        (b'{"documents": [{}]}', 422, ["documents", 0, "price"], "required"),
        (b'{"lists": [[], [{}]]}', 422, ["lists", 1, 0, "price"], "required"),
        (b'{"lists": [[], [], [], []]}', 422, ["lists"], "at most 3"),
        (json.dumps({"documents": ROWS * 2}).encode(), 422, ["documents"], "at most 5"),
        (b'{"documents": [' + b" " * 4000 + b"]}", 413, [], "at most 4000 bytes"),
    ],
)
def test_errors_name_the_field(client, body, status, where, why):
    answer = client.post("/rank", content=body)
    assert answer.status_code == status
    (detail,) = answer.json()["detail"]
    assert detail["loc"] == ["body", *where]
    assert why in detail["msg"]
    assert "Traceback" not in answer.text


def test_a_bug_is_an_error_of_the_server(folder, monkeypatch):
    """A `ValueError` of numpy, of Python or of another library is not a mistake of the caller."""
    ranker = OnnxRanker(folder / "model.onnx")
    client = Client(make_app(ranker))
    client.transport.raise_app_exceptions = False
    body = json.dumps({"documents": ROWS}).encode()
    for bug in (lambda *_: np.zeros((2, 3)) + np.zeros(4), lambda *_: int("x")):
        monkeypatch.setattr(ranker, "_encoded", bug)
        answer = client.post("/rank", content=body)
        assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert 'ltr_requests_total{status="500"} 2.0' in client.get("/metrics").text


@pytest.mark.parametrize("bad", ["1e999", "Infinity", "-1e39", '"cheap"', "[1]", "{}", "9" * 400])
def test_values_that_are_no_numbers(client, bad):
    body = f'{{"documents": [{{"price": {bad}, "stock": 1, "shop": "a"}}]}}'
    answer = client.post("/rank", content=body.encode())
    assert answer.status_code == 422
    assert "price" in answer.text


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory) -> OnnxRanker:
    """A model with a number, a date, an embedding, and categories of each kind."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"price": rng.normal(size=40)})
    X["size"] = pd.Categorical(rng.choice([1, 1000], 40))
    X["shop"] = rng.choice(["a", "b"], 40)
    X["sale"] = rng.random(40) > 0.5
    X["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(40), "D")
    small: dict[str, Any] = {"scorer": LinearScorer(), "transform": TableTransform(Standardize())}
    small |= {"random_state": 0}  # an export of unlucky weights may differ by more than 1e-5
    ranker = NeuralRanker(max_epochs=1, members=1, validation=0.0, verbose=0, **small)
    vectors = pa.FixedSizeListArray.from_arrays(rng.normal(size=80), 2)
    table = pa.Table.from_pandas(X).append_column("vector", vectors)
    ranker.fit(table, rng.integers(0, 3, 40), qid=np.repeat(np.arange(4), 10))
    return OnnxRanker(ranker.export(tmp_path_factory.mktemp("numbers") / "model.onnx").model)


GOOD = {"price": 1, "vector": [0, 1.5], "size": 1000, "shop": "a", "sale": True}
GOOD["day"] = "2024-01-02"


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("price", "1_000"),
        ("price", "1"),
        ("price", True),
        ("vector", 1),
        ("vector", [1, True]),
        ("vector", [1, 2, 3]),
        ("size", "1_000"),
        ("size", True),
        ("size", [1]),
        ("shop", ["a"]),
        ("sale", []),
        ("sale", {}),
        ("day", 1),
        ("day", ["2024-01-02"]),
    ],
)
def test_a_value_of_another_type_is_refused(of_numbers, name, bad):
    client = Client(make_app(of_numbers))
    for field, lists, where in (
        ("documents", [GOOD, {**GOOD, name: bad}], ["body", "documents", 1, name]),
        ("lists", [[GOOD], [{**GOOD, name: bad}]], ["body", "lists", 1, 0, name]),
    ):
        answer = client.post("/rank", json.dumps({field: lists}).encode())
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"] == where
    missing = [GOOD, {**GOOD, name: None}]
    answer = client.post("/rank", json.dumps({"documents": missing}).encode())
    assert answer.json()["scores"] == of_numbers.score(missing).tolist()


@pytest.mark.parametrize(
    "body",
    [
        {"documents": [{**GOOD, "price": "9" * 10**5}]},
        {"documents": [{**GOOD, "day": "9" * 10**5}]},
        {"documents": [{**GOOD, "sale": ["9" * 10**5]}]},
        {"documents": [{"9" * 10**5: 1}]},
        {"9" * 10**5: 1},
    ],
)
def test_errors_do_not_echo_a_long_value(of_numbers, body):
    answer = Client(make_app(of_numbers)).post("/rank", json.dumps(body).encode())
    assert answer.status_code == 422
    assert len(answer.text) < 600


def test_brackets_are_counted_before_the_body_is_parsed(ranker):
    body = b'{"documents": [' + b"{}," * 110_000 + b"{}]}"
    answer = Client(make_app(ranker, Limits(documents=5, lists=3))).post("/rank", body)
    assert answer.status_code == 413
    most = 100_000 + 3 * (1 + 5)
    assert f"at most {most} objects and arrays, got 110003" in answer.json()["detail"][0]["msg"]


def test_a_missing_number_is_null_or_nan(client):
    bodies = [
        b'{"documents": [{"price": %s, "stock": 1, "shop": "a"}]}' % x for x in (b"null", b"NaN")
    ]
    answers = [client.post("/rank", content=body) for body in bodies]
    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
documents = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("price", "stock", "shop", "other"), json_values)
)


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(
        json_values,
        st.fixed_dictionaries({"documents": st.lists(documents, max_size=6)}),
        st.fixed_dictionaries({"lists": st.lists(st.lists(documents, max_size=3), max_size=4)}),
        st.dictionaries(st.sampled_from(["documents", "lists", "x"]), json_values),
    )
)
def test_no_json_is_an_error_of_the_server(client, body):
    answer = client.post("/rank", content=json.dumps(body).encode())
    assert answer.status_code in (200, 413, 422), answer.text
    if answer.status_code != 200:
        assert answer.json()["detail"][0]["msg"]


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_no_bytes_are_an_error_of_the_server(client, body):
    assert client.post("/rank", content=body).status_code == 422


def test_a_folder_is_exported_before_it_is_served(tmp_path, monkeypatch):
    import uvicorn

    from ltr.cli import main

    served = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self: served.append(self.config.app))
    schema = Schema("query", steps={"price": Number(), "stock": Number()})
    RankingModel(LinearScorer(2), None, schema).save(tmp_path / "model")
    assert main(["serve", str(tmp_path / "model")]) == 0
    client = Client(served[0])
    assert [*client.get("/schema").json()["columns"]] == ["price", "stock"]
    assert client.get("/health").json() == {"status": "ok"}
    assert names_in(tmp_path / "model") == ["config.json", "model.safetensors"]


def test_a_port_in_use_is_the_mistake_of_the_user(folder, capfd):
    from ltr.cli import main

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["serve", str(folder), "--port", port]) == 2
    assert f"ltr serve: cannot listen on 127.0.0.1:{port}" in capfd.readouterr().err


def test_what_cannot_be_served(tmp_path, capsys):
    from ltr.cli import main

    assert main(["serve", str(tmp_path)]) == 2
    assert f"{tmp_path} holds no model" in capsys.readouterr().err
    for name, message in (
        ("missing", "missing is no model"),
        ("missing.onnx", "missing.onnx is no model"),
        ("m.pt2", "m.pt2 is a torch.export program, which ltr cannot run"),
        ("m.ckpt", "m.ckpt is a checkpoint"),
        ("m.txt", "path must be an ONNX file"),
    ):
        if name in ("m.pt2", "m.txt"):
            (tmp_path / name).touch()
        assert main(["serve", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    written = export_model(RankingModel(LinearScorer(2)), tmp_path / "m.onnx")
    assert main(["serve", str(written.model)]) == 2
    assert "model must know its columns" in capsys.readouterr().err
    assert main(["serve", str(written.model), "--max-lists", "0"]) == 2
    assert "lists must be a whole number >= 1, got 0" in capsys.readouterr().err
    assert main(["serve", str(written.model), "--port", "65536"]) == 2
    assert "--port must be a whole number from 0 to 65535, got '65536'" in capsys.readouterr().err
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match=f"bytes must.*{bad}"):
            Limits(bytes=bad)  # pyright: ignore[reportArgumentType]
