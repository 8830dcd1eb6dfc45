"""Tags of words, masks that are filled, texts that are written: /tag, /fill, /generate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request

from plmctl.serve.errors import Refusal
from plmctl.serve.models import Served
from plmctl.serve.prompts import order_settings
from plmctl.serve.routes.fields import Body, Text
from plmctl.serve.server import Server
from plmctl.tasks.readers.span_rows import list_marked

ENTITY = re.compile(r"[BIESLUM]-")  # the tag of a word in an entity, in any scheme


class TagRequest(Body):
    """Texts whose words get tags."""

    inputs: Text | list[Text]
    model: str | None = None


class FillRequest(Body):
    """Texts with masks."""

    inputs: Text | list[Text]
    top_k: int = Field(5, ge=1)
    model: str | None = None


class GenerateRequest(Body):
    """Texts to continue or to rewrite."""

    inputs: Text | list[Text]
    max_new: int | None = Field(None, ge=1)
    search: dict[str, bool | int | float | str | None] = Field(
        default_factory=dict,
        description='Settings of plmctl generate: {"name": "sample", "top_p": 0.9}',
    )
    model: str | None = None


def make_router(server: Server) -> APIRouter:
    """The addresses for the models of a server."""
    router = APIRouter(tags=["plmctl"])

    @router.post("/tag", summary="The tags of the words of each text, and its entities")
    async def tag(body: TagRequest, request: Request) -> Any:
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        server.check_count(texts)
        served = server.models.find(body.model, "labels", "tag words", _tags)
        engine = served.labels
        assert engine is not None
        found, _ = await server.answer(request, engine, lambda: engine.read(served.name, texts))
        answers = [_mark(text, answer) for text, answer in zip(texts, found, strict=True)]
        return answers[0] if isinstance(body.inputs, str) else answers

    @router.post("/fill", summary="The likeliest tokens at each mask")
    async def fill(body: FillRequest, request: Request) -> Any:
        if (size := most_tokens(server, body.model)) and body.top_k > size:
            raise Refusal(422, f"top_k={body.top_k}, at most {size}, the size of the vocabulary")
        settings = order_settings({}, top=body.top_k)
        return await _answer(server, request, body, "fill masks", True, settings)

    @router.post("/generate", summary="Texts that a model writes")
    async def write(body: GenerateRequest, request: Request) -> Any:
        longest = server.limits.max_new
        if body.max_new is not None and body.max_new > longest:
            raise Refusal(422, f"max_new={body.max_new}, at most {longest}")
        settings = order_settings(body.search, max_new=body.max_new)
        return await _answer(server, request, body, "write texts", False, settings)

    return router


def most_tokens(server: Server, name: str | None) -> int | None:
    """The size of the vocabulary of the model that fills masks; None without such a model."""
    for each in server.models:
        if each.prompts is not None and each.prompts.fills and name in (None, each.name):
            return each.prompts.reader.tokenizer.vocab.size
    return None


def _mark(text: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a text with their tags, and entities by characters where tags spell them."""
    words, tags, places, end = answer["words"], answer["guess"], [], 0
    marked = {**{name: answer[name] for name in answer if name != "guess"}, "tags": tags}
    if "entities" in answer or not all(tag == "O" or ENTITY.match(tag) for tag in tags):
        return marked
    for word in words:
        start = text.find(word, end)
        if start < 0:  # its reader changes words
            return marked
        end = start + len(word)
        places.append((start, end))
    return {**marked, "entities": list_marked(tags, places, text)}


def _tags(served: Served) -> bool:
    """Whether the answers of a model are tags of words."""
    return served.task is not None and served.task.facts.answer == "tags"


async def _answer(
    server: Server,
    request: Request,
    body: FillRequest | GenerateRequest,
    what: str,
    fills: bool,
    settings: Any,
) -> Any:
    """The records of the texts of a request, one alone for one text."""
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    server.check_count(texts)

    def can(served: Served) -> bool:
        return served.prompts is not None and served.prompts.fills is fills

    prompts = server.models.find(body.model, "prompts", what, can).prompts
    assert prompts is not None
    engine = prompts.engine(settings)
    found, _ = await server.answer(request, engine, lambda: prompts.read(texts))
    return found[0] if isinstance(body.inputs, str) else found
