"""One server: its models, its queue, and how a request is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from plmctl.core.errors import DataError, UsageError, list_problems
from plmctl.serve.errors import Refusal
from plmctl.serve.labels import LabelEngine
from plmctl.serve.metrics import Metrics
from plmctl.serve.models import Models, Served
from plmctl.serve.queue import MARKS, BatchQueue, Engine, QueuedItem
from plmctl.serve.streams import Watch

SHORT = 4096  # characters


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Args:
        batch_tokens: Tokens that are computed at the same time, padding included.
        texts: Texts of a request.
        queue: Texts that wait, of all requests.
        body: Bytes of a request.
        seconds: The time until an answer.
        max_new: Tokens of a written text.
    """

    batch_tokens: int = 16384
    texts: int = 2048
    queue: int = 16384
    body: int = 8 << 20
    seconds: float = 60.0
    max_new: int = 512


class Server:
    """The models of a server, behind a queue."""

    def __init__(self, models: Models, limits: Limits) -> None:
        self.models, self.limits = models, limits
        self.metrics = Metrics(lambda: len(self.queue))
        self.queue = BatchQueue(
            batch_tokens=limits.batch_tokens, room=limits.queue, observer=self.metrics
        )

    def check_count(self, texts: Sequence[Any]) -> None:
        """Refusal of a request without texts, or with too many."""
        if not texts:
            raise Refusal(400, "there is no text in it")
        if len(texts) > self.limits.texts:
            raise Refusal(422, f"{len(texts):,} texts, at most {self.limits.texts:,} in a request")

    async def label(
        self,
        request: Request,
        texts: Sequence[Any],
        name: str | None,
        what: str,
        kind: Callable[[Served], LabelEngine | None],
    ) -> tuple[Served, list[Any]]:
        """(the model, its predictions for texts); the arguments are those of `Models.find`."""
        self.check_count(texts)
        served, engine = self.models.find(name, what, kind)
        return served, await self.label_items(request, served.name, engine, texts)

    async def label_items(
        self, request: Request, name: str, engine: LabelEngine, items: Sequence[Any]
    ) -> list[Any]:
        """The predictions of a model for items, which metrics count."""
        found, _ = await self.answer(request, engine, items, partial(engine.read, name))
        self.metrics.labelled(name, engine.list_labels(name), found, request.state.marks)
        return found

    async def answer(
        self,
        request: Request,
        engine: Engine,
        items: Sequence[Any],
        read: Callable[[Sequence[Any]], list[QueuedItem]],
        watch: Watch | None = None,
    ) -> tuple[list[Any], int]:
        """(the answers to what `read` makes of the items of a request, its tokens); `watch` gets
        them while they grow. `request.state.marks` has the `MARKS` of each item, with their values.

        Raises:
            Refusal: A text cannot be read, the queue is full, or the client has left.
        """
        gone = asyncio.ensure_future(_wait_for_end(request))
        try:
            questions = read(items) if _is_short(items) else await run_in_threadpool(read, items)
            how: Any = {"seconds": self.limits.seconds, "gone": gone, "watch": watch}
            answers = await self.queue.ask(engine, questions, **how)
        except (DataError, UsageError, ValueError) as error:
            raise Refusal(422, list_problems(error)) from error
        finally:
            gone.cancel()
        request.state.marks = [
            {**own.marks, **_find_marks(found)}
            for own, found in zip(questions, answers, strict=True)
        ]
        return answers, sum(question.tokens for question in questions)


def _find_marks(answer: Any) -> dict[str, Any]:
    found = answer if isinstance(answer, Mapping) else {}
    return {mark: found[mark] for mark in MARKS if found.get(mark)}


def _is_short(items: Sequence[Any]) -> bool:
    """Whether items are read faster than another thread would wake up to do it."""
    return all(isinstance(item, str) for item in items) and sum(map(len, items)) <= SHORT


async def _wait_for_end(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
