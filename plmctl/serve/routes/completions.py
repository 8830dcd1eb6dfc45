"""The form of OpenAI for texts that a model writes: /v1/completions
(https://platform.openai.com/docs/api-reference/completions).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from plmctl.core.errors import DataError
from plmctl.serve.errors import Refusal, as_refusal, spell_error
from plmctl.serve.prompts import AnswerEngine, Settings, order_settings
from plmctl.serve.queue import QueuedItem
from plmctl.serve.routes.fields import Body, Text, list_texts
from plmctl.serve.routes.texts import find_prompts
from plmctl.serve.server import Server
from plmctl.serve.streams import Growing

PATH = "/v1/completions"
STOPS = 4  # texts that end an answer, at most


class StreamOptions(Body):
    """Events of a stream that have no text."""

    include_usage: bool = Field(False, description="Whether its last event has the tokens.")


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
    stream: bool | None = Field(None, description="Whether texts are sent while they grow.")
    stream_options: StreamOptions | None = None
    echo: bool | None = Field(None, description="Whether a text begins with its prompt.")
    logprobs: None = None
    suffix: None = None
    user: str | None = None


def make_router(server: Server) -> APIRouter:
    """The addresses for the models of a server."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/completions", summary="Texts that a model writes")
    async def complete(body: CompletionsRequest, request: Request) -> Any:
        texts, stops = list_texts(body.prompt), list_texts(body.stop or [])
        server.check_count(texts)
        if len(stops) > STOPS:
            raise Refusal(400, f"stop: {len(stops)} texts, at most {STOPS}")
        settings = _choose_settings(body, server.limits.max_new)
        served, prompts = server.models.find(
            body.model, "write texts", partial(find_prompts, False)
        )
        engine = await run_in_threadpool(prompts.engine, settings)
        spelling = Completion(served.name, texts if body.echo else [""] * len(texts), stops)
        answer = partial(server.answer, request, engine, texts, partial(_read_all, engine))
        count = prompts.reader.tokenizer.encode
        if body.stream:
            growing = await Growing(lambda watch: answer(watch=watch)).begin()
            with_usage = bool(body.stream_options and body.stream_options.include_usage)
            events = _send(growing, spelling, count if with_usage else None)
            return StreamingResponse(events, media_type="text/event-stream")
        found, read = await answer()
        choices = spelling.choose(found)
        return spelling.spell(choices, usage=_count(found, read, stops, count))

    return router


@dataclass
class Completion:
    """The form of an answer.

    Args:
        model: The name of the model.
        openings: The beginning of the texts of each prompt: the prompt itself, or nothing.
        stops: Texts that end an answer.
    """

    model: str
    openings: Sequence[str]
    stops: Sequence[str]

    def __post_init__(self) -> None:
        self._same = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.model,
        }

    def spell(self, choices: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        """An answer, or an event of a stream, with these texts."""
        return {**self._same, "choices": choices, **more}

    def choose(self, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The whole texts of all prompts."""
        written = [
            (opening, each)
            for opening, answer in zip(self.openings, found, strict=True)
            for each in answer["texts"]
        ]
        return [self._end(number, *each) for number, each in enumerate(written)]

    def _end(self, number: int, opening: str, written: Mapping[str, Any]) -> dict[str, Any]:
        text = cut(written["text"], self.stops)
        ended = len(text) < len(written["text"]) or written["finished"]
        return describe(number, opening + text, "stop" if ended else "length")


def describe(number: int, text: str, reason: str | None = None) -> dict[str, Any]:
    """A choice: a text, or the part of it that is new."""
    return {"text": text, "index": number, "logprobs": None, "finish_reason": reason}


def cut(text: str, stops: Sequence[str], *, grows: bool = False) -> str:
    """A text up to the first of `stops` in it; one that grows, without an end that may become one
    of them.
    """
    found = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    if found or not grows:
        return text[: min(found, default=len(text))]
    begun = (size for stop in stops for size in range(len(stop)) if text.endswith(stop[:size]))
    return text[: len(text) - max(begun, default=0)]


async def _send(
    growing: Growing[tuple[list[Any], int]],
    spelling: Completion,
    count: Callable[[str], Sequence[int]] | None,
) -> AsyncIterator[bytes]:
    """The events of a stream: each has what is new in a text; the last one of a text, how it ended.

    Args:
        growing: The answer.
        spelling: Its form.
        count: The tokens of a text, for an event with their number; None: there is no such event.
    """
    sent = [""] * len(spelling.openings)
    try:
        async for number, text in growing:
            text = spelling.openings[number] + cut(text, spelling.stops, grows=True)
            if text.startswith(sent[number]) and (new := text[len(sent[number]) :]):
                sent[number] = text
                yield _event(spelling.spell([describe(number, new)]))
        found, read = await growing.whole()
        for before, choice in zip(sent, spelling.choose(found), strict=True):
            choice["text"] = choice["text"][len(before) :]
            yield _event(spelling.spell([choice]))
        if count is not None:
            yield _event(spelling.spell([], usage=_count(found, read, spelling.stops, count)))
        yield b"data: [DONE]\n\n"
    except Exception as error:  # the status of the answer is sent already
        refusal = as_refusal(error, PATH)
        yield b"data: %s\n\n" % spell_error(refusal.status, refusal.message, path=PATH)[0]
    finally:
        growing.leave()


def _event(content: Mapping[str, Any]) -> bytes:
    """An event of `text/event-stream` (https://html.spec.whatwg.org, sec. 9.2.6)."""
    return b"data: %s\n\n" % json.dumps(content, ensure_ascii=False).encode()


def _count(
    found: Sequence[Mapping[str, Any]],
    read: int,
    stops: Sequence[str],
    count: Callable[[str], Sequence[int]],
) -> dict[str, int]:
    """The tokens that were read and written."""
    texts = (cut(each["text"], stops) for answer in found for each in answer["texts"])
    wrote = sum(len(count(text)) for text in texts)
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _choose_settings(body: CompletionsRequest, longest: int) -> Settings:
    """The settings of `plmctl generate` for a request.

    Raises:
        Refusal: It wants longer texts than the server writes, or several of one kind.
    """
    if body.max_tokens > longest:
        raise Refusal(400, f"max_tokens={body.max_tokens}, at most {longest}")
    if body.stream and body.n > 1:
        raise Refusal(400, f"n={body.n}: a stream has one text of each prompt")
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
