"""The form of OpenAI for texts that a model writes: /v1/completions
(https://platform.openai.com/docs/api-reference/completions).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from plmctl.core.errors import DataError
from plmctl.serve.errors import Refusal
from plmctl.serve.prompts import AnswerEngine, Settings, order_settings
from plmctl.serve.queue import QueuedItem
from plmctl.serve.routes.fields import Body, Text, list_texts
from plmctl.serve.routes.texts import find_prompts
from plmctl.serve.server import Server

STOPS = 4  # texts that end an answer, at most


class CompletionsRequest(Body):
    """Texts to continue or to rewrite."""

    prompt: Text | list[Text]
    model: str | None = None
    max_tokens: int = Field(16, ge=1)
    temperature: float = Field(1.0, ge=0, le=2, description="0: the likeliest token each time.")
    top_p: float = Field(1.0, gt=0, le=1)
    n: int = Field(1, ge=1, le=128, description="The texts for each prompt.")
    stop: Text | list[Text] | None = Field(None, description="Texts that end an answer.")
    seed: int = Field(0, ge=0, description="The same request with the same seed, the same text.")
    stream: Literal[False] | None = None
    echo: Literal[False] | None = None
    logprobs: None = None
    suffix: None = None
    user: str | None = None


def make_router(server: Server) -> APIRouter:
    """The addresses for the models of a server."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/completions", summary="Texts that a model writes")
    async def complete(body: CompletionsRequest, request: Request) -> dict[str, Any]:
        texts, stops = list_texts(body.prompt), list_texts(body.stop or [])
        server.check_count(texts)
        if len(stops) > STOPS:
            raise Refusal(400, f"stop: {len(stops)} texts, at most {STOPS}")
        settings = _choose_settings(body, server.limits.max_new)
        served, prompts = server.models.find(
            body.model, "write texts", partial(find_prompts, False)
        )
        engine = await run_in_threadpool(prompts.engine, settings)
        found, read = await server.answer(request, engine, texts, partial(_read_all, engine))
        written = [each for answer in found for each in answer["texts"]]
        choices = [_describe(number, each, stops) for number, each in enumerate(written)]
        count = prompts.reader.tokenizer.encode
        wrote = sum(len(count(choice["text"])) for choice in choices)
        return {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.name,
            "choices": choices,
            "usage": {
                "prompt_tokens": read,
                "completion_tokens": wrote,
                "total_tokens": read + wrote,
            },
        }

    return router


def _choose_settings(body: CompletionsRequest, longest: int) -> Settings:
    """The settings of `plmctl generate` for a request.

    Raises:
        Refusal: It wants longer texts than the server writes, or several of one kind.
    """
    if body.max_tokens > longest:
        raise Refusal(400, f"max_tokens={body.max_tokens}, at most {longest}")
    if body.temperature == 0:
        if body.n > 1:
            raise Refusal(400, f"n={body.n}: with temperature 0 all texts are the same")
        return order_settings("greedy", max_new=body.max_tokens)
    drawn = {name: getattr(body, name) for name in ("temperature", "top_p", "seed")}
    return order_settings({"name": "sample", "count": body.n, **drawn}, max_new=body.max_tokens)


def _read_all(engine: AnswerEngine, texts: Sequence[str]) -> list[QueuedItem]:
    """The prompts of all texts; DataError where the model cannot read one of them."""
    wrong: dict[int, dict[str, Any]] = {}
    items = engine.read(texts, blank=wrong)
    for answer in wrong.values():
        raise DataError(answer["error"])
    return items


def _describe(number: int, written: dict[str, Any], stops: Sequence[str]) -> dict[str, Any]:
    """A choice, whose text ends before the first of `stops` in it."""
    text = written["text"]
    ends = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    ended = bool(ends) or written["finished"]
    return {
        "text": text[: min(ends, default=len(text))],
        "index": number,
        "logprobs": None,
        "finish_reason": "stop" if ended else "length",
    }
