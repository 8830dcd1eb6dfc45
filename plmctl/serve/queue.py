"""Questions of many clients, answered together by one thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plmctl.serve.errors import Refusal


class Engine(Protocol):
    """A computation that answers several questions at the same time."""

    name: str

    def answer(self, questions: Sequence[Any]) -> list[Any]:
        """The answer to each question."""
        ...


class Observer(Protocol):
    """Learns what the queue does."""

    def answered(self, engine: str, questions: int, tokens: int, waited: float) -> None:
        """A batch is answered, whose first question waited so many seconds."""


@dataclass(frozen=True)
class QueuedItem:
    """A question, and about how many tokens it has."""

    content: Any
    tokens: int


@dataclass(eq=False)
class _Request:
    """The questions of one client, and their answers."""

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[Any]]
    answers: list[Any]
    missing: int
    started: float = field(default_factory=time.monotonic)
    left: bool = False  # whether the client has left, or has waited for too long

    def put(self, place: int, answer: Any) -> None:
        self.answers[place] = answer
        self.missing -= 1
        if not self.missing:
            self._end(lambda: self.done.set_result(self.answers))

    def fail(self, error: Exception) -> None:
        self.left = True  # its other questions need no answer
        self._end(lambda: self.done.set_exception(error))

    def _end(self, settle: Any) -> None:
        def tell() -> None:
            if not self.done.done():
                settle()

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(tell)


@dataclass(frozen=True)
class _Waiting:
    engine: Engine
    question: QueuedItem
    request: _Request
    place: int


class BatchQueue:
    """First come, first served. The thread takes the oldest question, and as many behind it for the
    same engine as `batch_tokens` allows: `questions * longest <= batch_tokens`.

    No question waits for others to come: a batch is what has come during the last one.

    Args:
        batch_tokens: The most tokens of a batch, padding included.
        room: The most questions that wait.
        observer: Learns of every batch.
    """

    def __init__(self, *, batch_tokens: int, room: int, observer: Observer) -> None:
        self.batch_tokens, self.room, self.observer = batch_tokens, room, observer
        self._waiting = deque[_Waiting]()
        self._changed = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._work, name="answers", daemon=True)

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer all that waits, and end; new questions are refused."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    async def ask(
        self, engine: Engine, questions: Sequence[QueuedItem], *, seconds: float
    ) -> list[Any]:
        """The answers to the questions of a client, in their order.

        Raises:
            Refusal: The queue is full or closed, or the answers take longer than `seconds`.
        """
        if not questions:
            return []
        loop = asyncio.get_running_loop()
        request = _Request(loop, loop.create_future(), [None] * len(questions), len(questions))
        with self._changed:
            if not self._open:
                raise Refusal(503, "the server is about to stop")
            if len(self._waiting) + len(questions) > self.room:
                raise Refusal(429, f"{len(self._waiting):,} texts wait, at most {self.room:,} may")
            self._waiting.extend(
                _Waiting(engine, question, request, place)
                for place, question in enumerate(questions)
            )
            self._changed.notify()
        try:
            return await asyncio.wait_for(request.done, seconds)
        except TimeoutError:
            raise Refusal(503, f"no answer within {seconds:g} seconds") from None
        finally:
            request.left = True

    def _work(self) -> None:
        while batch := self._take():
            waited = time.monotonic() - batch[0].request.started
            tokens = sum(each.question.tokens for each in batch)
            self._answer(batch)
            self.observer.answered(batch[0].engine.name, len(batch), tokens, waited)

    def _take(self) -> list[_Waiting]:
        """The next batch; [] at the end."""
        with self._changed:
            while True:
                batch = self._collect()
                if batch or not self._open:
                    return batch
                self._changed.wait()

    def _collect(self) -> list[_Waiting]:
        """The oldest question whose client still waits, and others that fit."""
        batch, others, longest = list[_Waiting](), list[_Waiting](), 0
        while self._waiting:
            each = self._waiting.popleft()
            if each.request.left:
                continue
            if batch and each.engine is not batch[0].engine:
                others.append(each)
                continue
            longest = max(longest, each.question.tokens)
            if batch and (len(batch) + 1) * longest > self.batch_tokens:
                others.append(each)
                break
            batch.append(each)
        self._waiting.extendleft(reversed(others))
        return batch

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        """Answer a batch; where it fails, each question alone, so that one fails alone."""
        engine = batch[0].engine
        try:
            answers = engine.answer([each.question.content for each in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0].request.fail(error)
                return
            for each in batch:
                if not each.request.left:
                    self._answer([each])
            return
        for each, answer in zip(batch, answers, strict=True):
            each.request.put(each.place, answer)
