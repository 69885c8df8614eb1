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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRanker

from ltr.export import ExportedRanker, export_model
from ltr.models import LinearScorer
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

    async def send(self, method: str, path: str, content: bytes) -> httpx.Response:
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
        assert "'stock'" in error.read().decode()
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


def test_what_it_tells(ranker):
    client = Client(make_app(ranker, Limits(documents=5, lists=3, bytes=4000)))
    schema = client.get("/schema").json()
    assert schema["columns"]["price"] == {"type": "number", "example": 0.5}
    assert schema["columns"]["shop"] == {"type": "string", "levels": ["a", "b"], "example": "a"}
    assert schema["limits"] == {"documents": 5, "lists": 3, "bytes": 4000}
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
        (b'{"documents": [{}]}', 422, ["documents"], "'shop'"),
        (b'{"lists": [[], [{}]]}', 422, ["lists", 1], "'shop'"),
        (b'{"lists": [[], [], [], []]}', 422, ["lists"], "at most 3"),
        (b'{"documents": [{}, {}, {}, {}, {}, {}]}', 422, ["documents"], "at most 5"),
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


@pytest.mark.parametrize("bad", ["1e999", "Infinity", "-1e39", '"cheap"', "[1]", "{}", "9" * 400])
def test_values_that_are_no_numbers(client, bad):
    body = f'{{"documents": [{{"price": {bad}, "stock": 1, "shop": "a"}}]}}'
    answer = client.post("/rank", content=body.encode())
    assert answer.status_code == 422
    assert "price" in answer.json()["detail"][0]["msg"]


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


def test_what_cannot_be_served(tmp_path, capsys):
    from ltr.cli import main

    assert main(["serve", str(tmp_path)]) == 2
    found = capsys.readouterr().err
    assert "model must be an ONNX file or a folder with a model.onnx" in found
    assert f"got the folder '{tmp_path}'" in found
    assert main(["serve", str(tmp_path / "model.onnx")]) == 2
    assert "path must be an ONNX file" in capsys.readouterr().err
    written = export_model(ExportedRanker(None, LinearScorer(2), None), tmp_path / "m.onnx")
    assert main(["serve", str(written.model)]) == 2
    assert "model must know its columns" in capsys.readouterr().err
    assert main(["serve", str(written.model), "--max-lists", "0"]) == 2
    assert "lists must be a whole number >= 1, got 0" in capsys.readouterr().err
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match=f"bytes must.*{bad}"):
            Limits(bytes=bad)  # pyright: ignore[reportArgumentType]
