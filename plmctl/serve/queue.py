"""Questions of many clients, answered together by one thread."""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, runtime_checkable

from plmctl.serve.errors import Refusal
from plmctl.serve.streams import Watch
from plmctl.tasks import inference
from plmctl.tasks.calibration import UNSURE

# marks of a text: its end was cut, the model knows few of its tokens, or its label is unsure
TRUNCATED, UNKNOWN, _ = MARKS = ("truncated", inference.UNKNOWN, UNSURE)
STEP = 3  # powers of two between the sizes of requests: similar ones keep their order


class Engine(Protocol):
    """A computation that answers several questions at the same time."""

    name: str

    def answer(self, questions: Sequence[Any]) -> list[Any]:
        """The answer to each question."""
        ...


class Flow(Protocol):
    """A computation that questions join while it runs; it answers each as soon as it can."""

    @property
    def joins(self) -> bool:
        """Whether questions can join now."""
        ...

    def join(self, tickets: Sequence[Hashable], engines: Sequence[Any], questions: Any) -> None:
        """Begin with questions, each by its ticket, for its engine."""

    def step(self) -> list[tuple[Any, Any]]:
        """Go on a little: (a ticket, its answer) of each question that is answered now."""
        ...

    def read(self, ticket: Any) -> Any:
        """The answer so far to a question that is not answered yet."""

    def drop(self, gone: Callable[[Any], bool]) -> None:
        """Forget the questions whose ticket is `gone`."""


@runtime_checkable
class Flowing(Protocol):
    """An engine whose questions run in a flow, perhaps with those of others."""

    flow: Flow


class Observer(Protocol):
    """Learns what the queue does."""

    def answered(self, engine: str, questions: int, tokens: int, waited: float) -> None:
        """A batch is answered, whose first question waited so many seconds."""


@dataclass(frozen=True)
class QueuedItem:
    """A question, about how many tokens it has, and the `MARKS` of its text with their values."""

    content: Any
    tokens: int
    marks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class _Request:
    """The questions of one client, and their answers."""

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[Any]]
    answers: list[Any]
    missing: int
    watch: Watch | None = None  # learns in `loop` how the answers grow
    started: float = field(default_factory=time.monotonic)
    left: bool = False  # whether the client has left, or has waited for too long

    error: Exception | None = None

    def put(self, place: int, answer: Any) -> bool:
        """Note an answer; whether it is the last."""
        self.answers[place] = answer
        self.missing -= 1
        return not self.missing

    def settle(self) -> None:
        """Let the client go on, in its loop."""
        if self.done.done():
            return
        if self.error is None:
            self.done.set_result(self.answers)
        else:
            self.done.set_exception(self.error)


def _wake(requests: Sequence[_Request]) -> None:
    """Let the clients of requests go on, with one call of their loop: each wakes it up."""
    for loop in {request.loop for request in requests}:
        own = [request for request in requests if request.loop is loop]
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, own)


def _settle(requests: Sequence[_Request]) -> None:
    for request in requests:
        request.settle()


@dataclass(frozen=True, eq=False)
class _Waiting:
    engine: Engine
    question: QueuedItem
    request: _Request
    place: int
    turn: int  # the size of its request, counted on from the clock at its arrival
    number: int  # questions that came before it

    def __lt__(self, other: _Waiting) -> bool:
        return (self.turn, self.number) < (other.turn, other.number)

    @property
    def flow(self) -> Flow | None:
        return self.engine.flow if isinstance(self.engine, Flowing) else None

    def show(self, flow: Flow) -> None:
        """Let a client that watches know the answer so far."""
        request = self.request
        if request.watch is not None and not request.loop.is_closed():
            request.loop.call_soon_threadsafe(request.watch, self.place, flow.read(self))


class BatchQueue:
    """Short requests go before long ones. The thread takes the question whose turn it is, and as
    many behind it for the same engine as `batch_tokens` allows:
    `questions * longest <= batch_tokens`.

    The turn of a request is its size plus a clock at its arrival. Its size is the next power of
    eight above its tokens. The clock counts the tokens of requests that pass others. So a text
    alone does not wait behind thousands of another client. Requests of one size keep their order.
    None waits for more tokens of later ones than its size.

    No question waits for others to come: a batch is what has come during the last one. Questions of
    a flow join it between two of its steps, and each leaves it with its answer.

    Args:
        batch_tokens: The most tokens of a batch, padding included.
        room: The most questions that wait.
        observer: Learns of every batch.
    """

    def __init__(self, *, batch_tokens: int, room: int, observer: Observer) -> None:
        self.batch_tokens, self.room, self.observer = batch_tokens, room, observer
        self._waiting = list[_Waiting]()  # a heap by turn
        self._clock = self._latest = 0  # the clock, and the latest turn in the queue
        self._numbers = count()
        self._changed = threading.Condition()
        self._open = True
        self._running: dict[Flow, list[_Waiting]] = {}
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
        self,
        engine: Engine,
        questions: Sequence[QueuedItem],
        *,
        seconds: float,
        gone: asyncio.Future[None] | None = None,
        watch: Watch | None = None,
    ) -> list[Any]:
        """The answers to the questions of a client, in their order.

        Args:
            engine: Answers them.
            questions: The questions.
            seconds: The time until the answers.
            gone: Done when the client has left; None: it stays.
            watch: Gets answers of a flow while they grow; None: nobody reads them.

        Raises:
            Refusal: The queue is full or closed, the answers take longer, or the client has left.
        """
        if not questions:
            return []
        loop = asyncio.get_running_loop()
        answers = [None] * len(questions)
        request = _Request(loop, loop.create_future(), answers, len(questions), watch)
        with self._changed:
            if not self._open:
                raise Refusal(503, "the server is about to stop")
            if len(self._waiting) + len(questions) > self.room:
                raise Refusal(429, f"{len(self._waiting):,} texts wait, at most {self.room:,} may")
            size = sum(question.tokens for question in questions)
            turn = self._clock + (1 << STEP * -(-size.bit_length() // STEP))
            self._latest = max(turn, self._latest if self._waiting else 0)
            self._clock += size if turn < self._latest else 0
            for place, question in enumerate(questions):
                each = _Waiting(engine, question, request, place, turn, next(self._numbers))
                heapq.heappush(self._waiting, each)
            self._changed.notify()
        ends: list[asyncio.Future[Any]] = [request.done, *([gone] if gone else [])]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if request.done.done():
                return request.done.result()
            if gone is not None and gone.done():
                raise Refusal(499, "the client has left")
            raise Refusal(503, f"no answer within {seconds:g} seconds")
        finally:
            request.left = True
            request.done.cancel()

    def _work(self) -> None:
        while (batch := self._take()) or self._running:
            if batch and (flow := batch[0].flow) is not None:
                self._join(flow, batch)
            elif batch:
                self._answer(batch)
                self._observe(batch)
            for flow in [*self._running]:
                self._step(flow)

    def _observe(self, batch: Sequence[_Waiting]) -> None:
        waited = time.monotonic() - batch[0].request.started
        tokens = sum(each.question.tokens for each in batch)
        self.observer.answered(batch[0].engine.name, len(batch), tokens, waited)

    def _take(self) -> list[_Waiting]:
        """The next batch; [] at the end, or where only flows go on."""
        with self._changed:
            while True:
                batch = self._collect()
                if batch or not self._open or self._running:
                    return batch
                self._changed.wait()

    def _collect(self) -> list[_Waiting]:
        """The first question whose client still waits and that may run now, and others that fit,
        by their arrival.
        """
        batch, others = list[_Waiting](), list[_Waiting]()
        full = {flow for flow in self._running if not flow.joins}
        while self._waiting:
            each = heapq.heappop(self._waiting)
            if each.request.left:
                continue
            kind: Any = each.flow or each.engine
            if kind in full or (batch and kind is not (batch[0].flow or batch[0].engine)):
                others.append(each)
                continue
            running = self._running.get(kind, [])
            if not self._fits([*running, *batch], each):
                others.append(each)
                if batch:
                    break
                full.add(kind)  # the younger ones wait behind it
                continue
            batch.append(each)
        for each in others:
            heapq.heappush(self._waiting, each)
        return sorted(batch, key=lambda each: each.number)

    def _fits(self, running: Sequence[_Waiting], each: _Waiting) -> bool:
        longest = max(other.question.tokens for other in [*running, each])
        return not running or (len(running) + 1) * longest <= self.batch_tokens

    def _join(self, flow: Flow, batch: Sequence[_Waiting]) -> None:
        """Let questions join a flow; where that fails, each is answered alone."""
        engines = [each.engine for each in batch]
        try:
            flow.join(batch, engines, [each.question.content for each in batch])
        except Exception:
            self._answer_alone(batch)
            return
        self._running.setdefault(flow, []).extend(batch)

    def _step(self, flow: Flow) -> None:
        """A step of a flow; where it fails, its questions are answered alone."""
        running = self._running[flow]
        gone = {each for each in running if each.request.left}
        try:
            if gone:
                flow.drop(lambda each: each in gone)
            answers = flow.step()
            done = {each for each, _ in answers}
            going = [each for each in running if each not in done | gone]
            for each in going:
                each.show(flow)
        except Exception:
            flow.drop(lambda each: True)
            self._answer_alone(running)
            del self._running[flow]
            return
        _wake([each.request for each, answer in answers if each.request.put(each.place, answer)])
        if done:
            self._observe([each for each in running if each in done])
        self._running[flow] = going
        if not going:
            del self._running[flow]

    def _answer_alone(self, batch: Sequence[_Waiting]) -> None:
        for each in batch:
            if not each.request.left:
                self._answer([each])

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        """Answer a batch; where it fails, each question alone, so that one fails alone."""
        engine = batch[0].engine
        try:
            answers = engine.answer([each.question.content for each in batch])
        except Exception as error:
            if len(batch) > 1:
                self._answer_alone(batch)
                return
            request = batch[0].request
            request.left, request.error = True, error  # its other questions need no answer
            _wake([request])
            return
        pairs = zip(batch, answers, strict=True)
        _wake([each.request for each, answer in pairs if each.request.put(each.place, answer)])
