"""Right requests do without FastAPI, and get the same bytes."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from plmctl.serve.app import make_app
from plmctl.serve.labels import LabelEngine
from plmctl.serve.models import Models
from plmctl.serve.server import SHORT, Limits, Server
from plmctl.serve.vectors import VectorEngine
from tests.serve.served import open_all

TEXTS = ["a fine film", "poor", "", "好 看"]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/predict", {"inputs": "a fine film"}),
    ("/predict", {"inputs": [[text] for text in TEXTS], "model": "films"}),
    ("/predict", {"inputs": [{"text": "a", "text2": "film"}], "model": "numbers"}),
    ("/predict", {"inputs": ["a", "b"], "model": "lora_two"}),
    ("/embed", {"inputs": TEXTS, "dimensions": 3}),
    ("/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"}),
    ("/v1/embeddings", {"input": TEXTS, "user": "a"}),
    ("/classify", {"input": TEXTS}),
    ("/rerank", {"query": "a", "texts": TEXTS, "return_text": True}),
    ("/v1/rerank", {"query": "a", "documents": TEXTS}),
    ("/tag", {"inputs": TEXTS}),
    # refusals
    ("/predict", {"inputs": 3}),
    ("/predict", {"inputs": "x", "more": 1}),
    ("/predict", {"inputs": []}),
    ("/predict", {"inputs": "x", "model": "film"}),
    ("/predict", {"inputs": [["a", "b", "c"]], "model": "pairs"}),
    ("/embed", {"inputs": "x", "dimensions": 10**6}),
    ("/v1/embeddings", {"input": [[10**6]]}),
    ("/v1/embeddings", {}),
    ("/generate", {"inputs": "x", "search": {"a=b": 1}}),
]


@pytest.fixture(scope="module")
def ways(models: Models) -> Any:
    """A client of the whole application, and one where FastAPI answers right requests, too."""
    apps = [make_app(Server(models, Limits()), token=None) for _ in range(2)]
    apps[1].direct = {}
    how: Any = {"raise_server_exceptions": False}
    with TestClient(apps[0], **how) as direct, TestClient(apps[1], **how) as whole:
        yield direct, whole


@pytest.mark.parametrize(("path", "body"), ASKED)
def test_answers_are_those_of_fastapi(ways: Any, path: str, body: dict[str, Any]) -> None:
    direct, whole = (way.post(path, json=body) for way in ways)
    assert direct.content == whole.content
    assert (direct.status_code, direct.headers) == (whole.status_code, whole.headers)


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON ; charset=utf-8", "application/x+json", "json"]
)
@pytest.mark.parametrize("content", ['{"inputs":"好"}', '{"inputs":"\\ud83d"}', "{", '"x"', ""])
@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_bodies_are_read_as_fastapi_does(ways: Any, kind: str, content: str, coding: str) -> None:
    given: Any = {"content": content.encode(coding), "headers": {"content-type": kind}}
    direct, whole = (way.post("/predict", **given) for way in ways)
    assert (direct.status_code, direct.content) == (whole.status_code, whole.content)


def test_a_right_request_needs_no_fastapi(models: Models) -> None:
    app = make_app(Server(models, Limits()), token=None)
    whole, seen = app.app, list[str]()

    async def note(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope.get("path", scope["type"]))
        await whole(scope, receive, send)

    app.app = note
    with TestClient(app) as client:
        for path, body in ASKED[:11]:
            assert client.post(path, json=body).status_code == 200
        assert seen == ["lifespan"]
        assert client.post("/predict", json={"inputs": 3}).status_code == 422
        assert client.get("/predict").status_code == 405
    assert seen == ["lifespan", "/predict", "/predict"]


def test_the_page_of_openapi_has_every_address(models: Models) -> None:
    app = make_app(Server(models, Limits()), token=None)
    with TestClient(app) as client:
        page = client.get("/openapi.json").json()
    named = {path for path, ways in page["paths"].items() if "post" in ways}
    assert named == {*app.direct} >= {path for path, _ in ASKED}
    bodies = [page["paths"][path]["post"]["requestBody"]["content"] for path in named]
    assert all("$ref" in body["application/json"]["schema"] for body in bodies)


def test_short_texts_are_read_where_they_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hop to another thread takes longer than reading them."""
    readers = Counter[str]()
    for engine in (LabelEngine, VectorEngine):
        read: Any = engine.read

        def note(self: Any, *words: Any, read: Any = read, **more: Any) -> Any:
            readers[threading.current_thread().name] += 1
            return read(self, *words, **more)

        monkeypatch.setattr(engine, "read", note)
    with TestClient(make_app(Server(open_all([folder / "films"]), Limits()), token=None)) as client:
        for path, field in (("/predict", "inputs"), ("/embed", "inputs"), ("/classify", "input")):
            assert client.post(path, json={field: TEXTS}).status_code == 200
        (own,) = readers  # the thread of the loop
        assert readers == {own: 3}
        for inputs in (["x" * SHORT, "x"], {"text": "x"}):
            content = json.dumps({"inputs": inputs})
            kind = {"content-type": "application/json"}
            assert client.post("/predict", content=content, headers=kind).status_code == 200
    assert readers.pop(own) == 3
    assert sum(readers.values()) == 2
