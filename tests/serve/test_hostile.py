"""`ltr serve` under 2,000 requests of an attacker, from a seed."""

import json
import random
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pytest

from tests.serve.test_serve import ROWS, folder, ranker, server  # noqa: F401

REQUESTS = 2000
ODD = [None, True, "1_000", "", "é\ud800", [], {}, [[1]], 1e39, 10**30, float("nan"), float("inf")]


def request(body: bytes, *headers: str, method: str = "POST", path: str = "/rank") -> bytes:
    """Return the bytes of a request that ends its connection."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
    if not any(one.startswith(("Content-Length", "Transfer")) for one in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def to_json(body: Any) -> bytes:
    return json.dumps(body).encode()


def odd_document(rng: random.Random) -> dict[str, Any]:
    found = dict(rng.choice(ROWS))
    for _ in range(rng.randint(1, 3)):
        found[rng.choice(["price", "stock", "shop", "other"])] = rng.choice(ODD)
    if rng.random() < 0.2:
        del found[rng.choice(list(found))]
    return found


def wrong_values(rng: random.Random) -> bytes:
    documents = [odd_document(rng) for _ in range(rng.randint(1, 5))]
    return request(to_json(rng.choice([{"documents": documents}, {"lists": [documents, ROWS]}])))


def wrong_form(rng: random.Random) -> bytes:
    return request(
        to_json({rng.choice(["documents", "lists", "x" * 999]): rng.choice([*ODD, ROWS])})
    )


def malformed(rng: random.Random) -> bytes:
    body = bytearray(to_json({"documents": ROWS}))
    for _ in range(rng.randint(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return request(bytes(body[: rng.randint(0, len(body))]))


def random_bytes(rng: random.Random) -> bytes:
    return request(rng.randbytes(rng.randint(0, 300)))


def nested(rng: random.Random) -> bytes:
    depth, (start, end) = rng.randint(50, 50_000), rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inner = start * depth + b"1" + end * depth
    return request(b'{"documents": [{"price": ' + inner + b', "stock": 1, "shop": "a"}]}')


def too_many(rng: random.Random) -> bytes:
    bodies = [
        b'{"documents": [' + b",".join([to_json(ROWS[0])] * 1001) + b"]}",
        b'{"lists": [' + b",".join([b"[]"] * 101) + b"]}",
        b'{"documents": [' + b"{}," * rng.randint(1000, 300_000) + b"{}]}",
        b"{" + b",".join(b'"%d": 0' % i for i in range(20_000)) + b"}",
        b'{"documents": [{"price": ' + b"9" * rng.randint(300, 9999) + b"}]}",
    ]
    return request(rng.choice(bodies))


def too_large(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return request(b" " * 16_000_001)
    return request(b"{}", "Content-Length: 1") + rng.randbytes(rng.randint(0, 99_999))


def other_content(rng: random.Random) -> bytes:
    kinds = ["text/xml", "application/x-www-form-urlencoded", "multipart/form-data", "", "é"]
    headers = [f"Content-Type: {rng.choice(kinds)}"]
    headers += rng.sample(["Content-Encoding: gzip", "Accept: x/y", "Origin: null"], 2)
    return request(to_json({"documents": ROWS}), *headers)


def other_path(rng: random.Random) -> bytes:
    method = rng.choice(["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW", "POST"])
    path = rng.choice(["/rank", "/", "/rank/../schema", "/metrics", "/%00", "//", "/rank?x=%ff"])
    return request(b"{", method=method, path=path)


def no_http(rng: random.Random) -> bytes:
    lines = [
        rng.randbytes(200) + b"\r\n\r\n",
        b"POST /rank HTTP/9.9\r\n\r\n",
        b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        b"GET /" + b"a" * 99_999 + b" HTTP/1.1\r\n\r\n",
        request(b"zz\r\n{}\r\n", "Transfer-Encoding: chunked"),
        request(b"2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
    ]
    return rng.choice(lines)


ATTACKS: list[Callable[[random.Random], bytes]] = [
    *(wrong_values, wrong_form, malformed, random_bytes, nested, too_many, too_large),
    *(other_content, other_path, no_http),
]


def attacks(rng: random.Random) -> Iterator[tuple[bytes, bool]]:
    """Yield what a client sends, and whether it goes away without an answer."""
    for _ in range(REQUESTS):
        sent = rng.choice(ATTACKS)(rng)
        leaves = rng.random() < 0.2
        yield (sent[: rng.randint(0, len(sent))] if leaves else sent), leaves


def send(port: int, sent: bytes, leaves: bool) -> str:
    """Return the status of the answer, or why there is none."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        try:
            connection.sendall(sent)
            if leaves:
                return "left"
            return connection.recv(65536)[9:12].decode() or "closed"
        except ConnectionError:  # the server refuses the rest of a body
            return "closed"


@pytest.mark.slow  # 2,000 requests one after the other, some of a megabyte: half a minute
def test_no_request_is_an_error_of_the_server(server, ranker):  # noqa: F811
    url, process = server
    port = urlsplit(url).port
    found = Counter(send(port, *attack) for attack in attacks(random.Random(0)))
    assert set(found) <= {"200", "400", "404", "405", "413", "422", "left", "closed"}
    assert min(found["200"], found["413"], found["422"], found["left"]) >= 20

    with build_opener(ProxyHandler({})).open(f"{url}/metrics", timeout=60) as answer:
        assert 'status="5' not in answer.read().decode()
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(request(to_json({"documents": ROWS})))
        answer = b""
        while part := connection.recv(65536):
            answer += part
    right = ranker.score(ROWS)
    content = json.loads(answer.rpartition(b"\r\n\r\n")[2])
    assert content["scores"] == right.tolist()
    assert content["order"] == np.argsort(-right, kind="stable").tolist()

    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(request(b"{", "Content-Length: 100"))
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)  # the graceful limit is 5 seconds
    log = process.stderr.read().decode()
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
