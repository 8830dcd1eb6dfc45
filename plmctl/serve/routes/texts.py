"""Tags of words, masks that are filled, texts that are written: /tag, /fill, /generate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from plmctl.serve.errors import Refusal
from plmctl.serve.labels import LabelEngine
from plmctl.serve.models import Served
from plmctl.serve.prompts import PromptEngines, Settings, order_settings
from plmctl.serve.routes.fields import Body, Text, list_texts
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

    inputs: Text | list[Text] = Field(
        description="A text, or several, whose answers come in their order. A text without an"
        " answer has an `error` there, with its number from 1: inputs:2."
    )
    max_new: int | None = Field(None, ge=1)
    search: str | dict[str, bool | int | float | str | None] = Field(
        default_factory=dict,
        description='A name, "sample", or with settings of plmctl generate:'
        ' {"name": "sample", "top_p": 0.9}',
    )
    model: str | None = None


def make_router(server: Server) -> APIRouter:
    """The addresses for the models of a server."""
    router = APIRouter(tags=["plmctl"])

    @router.post("/tag", summary="The tags of the words of each text, and its entities")
    async def tag(body: TagRequest, request: Request) -> Any:
        texts = list_texts(body.inputs)
        _, found = await server.label(request, texts, body.model, "tag words", _tag)
        answers = [_mark(text, answer) for text, answer in zip(texts, found, strict=True)]
        return answers[0] if isinstance(body.inputs, str) else answers

    @router.post("/fill", summary="The likeliest tokens at each mask")
    async def fill(body: FillRequest, request: Request) -> Any:
        _, prompts = server.models.find(body.model, "fill masks", partial(find_prompts, True))
        size = prompts.reader.vocab.size
        if body.top_k > size:
            raise Refusal(422, f"top_k={body.top_k}, at most {size}, the size of the vocabulary")
        return await _answer(server, request, body, prompts, order_settings({}, top=body.top_k))

    @router.post("/generate", summary="Texts that a model writes")
    async def write(body: GenerateRequest, request: Request) -> Any:
        longest = server.limits.max_new
        if body.max_new is not None and body.max_new > longest:
            raise Refusal(422, f"max_new={body.max_new}, at most {longest}")
        settings = order_settings(body.search, max_new=body.max_new)
        _, prompts = server.models.find(body.model, "write texts", partial(find_prompts, False))
        return await _answer(server, request, body, prompts, settings)

    return router


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


def _tag(served: Served) -> LabelEngine | None:
    """The engine of a model whose answers are tags of words."""
    tags = served.task is not None and served.task.facts.answer == "tags"
    return served.labels if tags else None


def find_prompts(fills: bool, served: Served) -> PromptEngines | None:
    """The engines of a model that fills masks, or of one that writes."""
    own = served.prompts
    return own if own is not None and own.fills is fills else None


async def _answer(
    server: Server,
    request: Request,
    body: FillRequest | GenerateRequest,
    prompts: PromptEngines,
    settings: Settings,
) -> Any:
    """The records of the texts of a request, one alone for one text. A text that the model cannot
    read has its error in its record; where it can read none, the request is refused.
    """
    texts, blank = list_texts(body.inputs), dict[int, dict[str, Any]]()
    server.check_count(texts)
    engine = await run_in_threadpool(prompts.engine, settings)  # a new one composes a config
    found, _ = await server.answer(request, engine, texts, partial(engine.read, blank=blank))
    if isinstance(body.inputs, str):
        return found[0]
    read = iter(found)
    return [blank.get(number) or next(read) for number in range(len(texts))]
