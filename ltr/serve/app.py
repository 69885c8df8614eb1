"""The HTTP service for an `ltr.serving.OnnxRanker`, made with FastAPI."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram
from prometheus_client import generate_latest as metrics_text
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import from_json
from starlette.requests import ClientDisconnect
from typing_extensions import TypedDict

from ltr.errors import is_mistake
from ltr.serving import OnnxRanker

_ROOM = 100_000
"""How many brackets a body may have in text and under ignored keys, besides those that it needs."""

_IN_JSON = {
    "model_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "list_type": "Input should be an array",
}
"""Messages in the words of JSON, for pydantic's errors that name Python's types."""


@dataclass(frozen=True)
class Limits:
    """The limits of one request; larger requests are refused.

    Attributes:
        documents: the most documents of a list, >= 1.
        lists: the most lists of a request, >= 1.
        bytes: the most bytes of a request's body, >= 1.
        seconds: the most seconds until the whole body has arrived, >= 1.

    Raises:
        ValueError: a limit is not a whole number >= 1.
    """

    documents: int = 1000
    lists: int = 100
    bytes: int = 16_000_000
    seconds: int = 10

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
            object.__setattr__(self, name, int(value))  # JSON has no numbers of numpy


class Ranking(BaseModel):
    """The answer for one list: each document's score, and the documents' indices, best first."""

    scores: list[float]
    order: list[int]


class Rankings(BaseModel):
    """The answers for several lists, in the order of the lists."""

    results: list[Ranking]


def _refused(status: int, where: Sequence[str | int], why: str) -> HTTPException:
    """Return the error of a refused request.

    Args:
        status: the HTTP status, 4xx.
        where: the path of the wrong field in the body.
        why: the message.
    """
    return HTTPException(status, [{"loc": ["body", *where], "msg": why}])


def make_app(ranker: OnnxRanker, limits: Limits | None = None) -> FastAPI:
    """Return the service.

    `POST /rank` takes `{"documents": [...]}`, or `{"lists": [[...], ...]}`, and answers with scores
    and the order of the documents. `GET /schema` lists the columns that a document must have,
    `/health` reports that the service runs, `/metrics` has the metrics for Prometheus, and `/docs`
    is a page to try the service.

    Each list is scored by itself. An error in a request gets a 4xx answer, `{"detail": [{"loc":
    [...], "msg": "..."}]}`, in which `loc` is the path of the field. A bug of ltr gets status 500,
    and the log of the server has its traceback.

    Args:
        ranker: the model, which must have column names.
        limits: the limits of one request. Default: `Limits()`.

    Raises:
        ValueError: the model has no column names.
    """
    limits = limits or Limits()
    columns = _columns(ranker)
    body_type = _body_type(columns, limits)
    most = _brackets(columns, limits)
    registry = CollectorRegistry()
    requests = Counter("ltr_requests", "Answers of /rank", ["status"], registry=registry)
    documents = Counter("ltr_documents", "Documents scored", registry=registry)
    seconds = Histogram("ltr_rank_seconds", "Seconds of an answer of /rank", registry=registry)
    app = FastAPI(title="ltr", description="Rank lists of documents.", openapi_url="/openapi.json")

    def rank(content: bytes) -> bytes:
        """Return the answer to the body of a request, as JSON."""
        body = _read(body_type, content, most)
        lists = [body.documents] if body.lists is None else body.lists
        results = []
        for position, document_list in enumerate(lists):
            where = ["documents"] if body.lists is None else ["lists", position]
            try:
                scores = ranker.score(document_list)
            except ValueError as error:
                if not is_mistake(error):
                    raise
                raise _refused(422, where, str(error)) from None
            if not np.isfinite(scores).all():
                raise _refused(422, where, "the scores are not finite: the numbers are too large")
            order = np.argsort(-scores, kind="stable")
            results.append({"scores": scores.tolist(), "order": order.tolist()})
            documents.inc(len(document_list))
        answer = results[0] if body.lists is None else {"results": results}
        return json.dumps(answer, allow_nan=False).encode()

    example = {"documents": [{name: column["example"] for name, column in columns.items()}] * 2}
    extra = {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": body_type.model_json_schema(), "example": example}
            },
        }
    }

    @app.post("/rank", response_model=Ranking | Rankings, openapi_extra=extra)
    async def post_rank(request: Request) -> Response:
        """Score documents, and return their order."""
        start, status = time.perf_counter(), 500
        try:
            content = await _body(request, limits)
            answer = await run_in_threadpool(rank, content)
            status = 200
            return Response(answer, media_type="application/json")
        except ClientDisconnect:
            status = 499  # in nginx, 499 means that the client has closed the connection
            return Response(status_code=status)
        except asyncio.CancelledError:  # uvicorn stops: the time for a graceful stop is over
            status = 503
            return Response(status_code=status)
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            requests.labels(status).inc()
            seconds.observe(time.perf_counter() - start)

    @app.get("/schema")
    async def schema() -> dict[str, Any]:
        """Return the columns that a document must have, and the limits of a request."""
        of_list = ranker.about["looks_at_list"]
        return {"columns": columns, "limits": asdict(limits), "score_depends_on_list": of_list}

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Report that the service runs."""
        return {"status": "ok"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(metrics_text(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _columns(ranker: OnnxRanker) -> dict[str, dict[str, Any]]:
    """Return the type of each column, with an example."""
    if ranker.about["features"] is None:
        raise ValueError("model must know its columns: train it on a table, not on arrays")
    return {name: step.describe() for name, step in ranker.steps.items()}


def _value_type(column: Mapping[str, Any]) -> Any:
    """Return the type of a column's values in JSON; null is a missing value."""
    if column["type"] == "numbers":
        size = column["size"]
        vector: Any = Annotated[list[float | None], Field(min_length=size, max_length=size)]
        return vector | None
    if column["type"] == "date":
        return str | None
    if column["type"] == "number":  # int keeps all digits of a large category
        return int | float | None if "levels" in column else float | None
    # The expected type comes first: if no type fits, pydantic's first error names the first type.
    return (bool | str if column["type"] == "boolean" else str | bool) | int | float | None


def _body_type(columns: Mapping[str, Mapping[str, Any]], limits: Limits) -> type[BaseModel]:
    """Return the type of a request's body."""
    typed_dict: Any = TypedDict
    document = typed_dict(
        "Document", {name: _value_type(column) for name, column in columns.items()}
    )
    document.__pydantic_config__ = ConfigDict(extra="ignore", strict=True)
    documents: Any = Annotated[list[document], Field(max_length=limits.documents, fail_fast=True)]
    lists: Any = Annotated[list[documents], Field(max_length=limits.lists, fail_fast=True)]
    fields: Any = {"documents": (documents | None, None), "lists": (lists | None, None)}
    config = ConfigDict(extra="forbid", strict=True)
    return create_model("Request", __config__=config, **fields)


def _brackets(columns: Mapping[str, Mapping[str, Any]], limits: Limits) -> int:
    """Return the most opening brackets that a body may have."""
    of_document = 1 + sum(column["type"] == "numbers" for column in columns.values())
    return _ROOM + limits.lists * (1 + limits.documents * of_document)


async def _body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request; refuse the request as soon as the body exceeds a limit."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.bytes:
                    raise _refused(413, [], f"the body must have at most {limits.bytes} bytes")
                parts.append(part)
    except TimeoutError:
        why = f"the body must arrive within {limits.seconds} seconds, got {size} bytes"
        raise _refused(408, [], why) from None
    return b"".join(parts)


def _read(body_type: type[BaseModel], content: bytes, most: int) -> Any:
    """Return the body of a request as a `body_type`."""
    # Count the brackets first: while the parser makes objects, no other request is answered.
    brackets = content.count(b"{") + content.count(b"[")
    if brackets > most:
        why = f"the body must have at most {most} objects and arrays, got {brackets} brackets"
        raise _refused(413, [], why)
    try:
        values = from_json(content)
    except ValueError as error:
        raise _refused(422, [], f"Invalid JSON: {error}") from None
    # Report one unknown key here: pydantic would report all of them.
    for key in values if isinstance(values, dict) else ():
        if key not in body_type.model_fields:
            why = "keys other than documents and lists are not permitted"
            raise _refused(422, [key[:200]], why)
    try:
        body: Any = body_type.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # Keep the path only up to the column: pydantic appends the types of a union to the path.
        where = first["loc"][: 4 if first["loc"][:1] == ("lists",) else 3]
        raise _refused(422, where, _IN_JSON.get(first["type"], first["msg"])) from None
    if (body.documents is None) == (body.lists is None):
        got = "neither" if body.documents is None else "both"
        raise _refused(422, ["documents"], f"documents or lists must be given, got {got}")
    return body
