"""The queue of a server: order, sizes of batches, clients that leave, and its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest

from plmctl.serve.errors import Refusal
from plmctl.serve.queue import BatchQueue, QueuedItem


@dataclass(eq=False)
class Squares:
    """Squares numbers, once it may; notes its batches."""

    name: str = "squares"
    free: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    batches: list[list[Any]] = field(default_factory=list)

    def answer(self, questions: Sequence[Any]) -> list[Any]:
        self.batches.append(list(questions))
        self.begun.set()
        assert self.free.wait(10)
        if "bad" in questions:
            raise ValueError("not a number")
        return [number**2 for number in questions]


class Silent:
    def answered(self, engine: str, questions: int, tokens: int, waited: float) -> None:
        assert waited >= 0


def ask(*numbers: Any, tokens: int = 1) -> list[QueuedItem]:
    return [QueuedItem(number, tokens) for number in numbers]


def run(
    scene: Callable[[BatchQueue], Awaitable[Any]], *, batch_tokens: int = 100, room: int = 100
) -> Any:
    queue = BatchQueue(batch_tokens=batch_tokens, room=room, observer=Silent())
    queue.start()
    try:
        return asyncio.run(scene(queue))  # type: ignore[arg-type]
    finally:
        queue.stop()


async def block(queue: BatchQueue, engine: Squares) -> asyncio.Task[list[Any]]:
    """A question whose answer waits until the engine is free."""
    first = asyncio.ensure_future(queue.ask(engine, ask(0), seconds=10))
    await asyncio.to_thread(engine.begun.wait, 10)
    return first  # type: ignore[return-value]


def test_what_comes_during_a_batch_is_the_next_batch_in_its_order() -> None:
    engine = Squares()

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, engine)
        others = [
            asyncio.ensure_future(queue.ask(engine, ask(*own), seconds=10))
            for own in ([3, 1], [], [2], [5, 4])
        ]
        await asyncio.sleep(0.05)
        engine.free.set()
        assert await first == [0]
        assert await asyncio.gather(*others) == [[9, 1], [], [4], [25, 16]]

    run(scene)
    assert engine.batches == [[0], [3, 1, 2, 5, 4]]


def test_a_batch_has_at_most_so_many_tokens_with_padding() -> None:
    engine = Squares()
    sizes = [3, 3, 5, 1, 1, 40, 2, 7, 7]

    async def scene(queue: BatchQueue) -> Any:
        first = await block(queue, engine)
        questions = [QueuedItem(number, size) for number, size in enumerate(sizes)]
        waiting = asyncio.ensure_future(queue.ask(engine, questions, seconds=10))
        await asyncio.sleep(0.05)
        engine.free.set()
        await first
        return await waiting

    assert run(scene, batch_tokens=15) == [number**2 for number in range(len(sizes))]
    expected: list[list[int]] = []
    for number, size in enumerate(sizes):  # a slow loop: FIFO, cut where it does not fit
        own = expected[-1] if expected else []
        longest = max([size, *(sizes[each] for each in own)])
        if own and (len(own) + 1) * longest <= 15:
            own.append(number)
        else:
            expected.append([number])
    assert engine.batches[1:] == expected == [[0, 1, 2], [3, 4], [5], [6, 7], [8]]


def test_similar_requests_keep_their_order() -> None:
    engine = Squares()
    sizes = [400, 100, 511, 65, 300]

    async def scene(queue: BatchQueue) -> None:
        await follow(queue, engine, *(ask(size, tokens=size) for size in sizes))

    run(scene, batch_tokens=1)
    assert engine.batches == [[0], *([size] for size in sizes)]


async def follow(queue: BatchQueue, engine: Squares, *requests: list[QueuedItem]) -> None:
    """Requests that come one by one while a question is answered, and are answered behind it."""
    first = await block(queue, engine)
    asked = []
    for request in requests:
        asked.append(asyncio.ensure_future(queue.ask(engine, request, seconds=10)))
        await asyncio.sleep(0.01)
    engine.free.set()
    await asyncio.gather(first, *asked)


def test_a_text_alone_does_not_wait_behind_a_long_request() -> None:
    engine, long = Squares(), ask(*range(100, 140), tokens=10)
    alone, few = ask(1, tokens=10), ask(2, 3, 4, tokens=10)

    async def scene(queue: BatchQueue) -> None:
        await follow(queue, engine, long, alone, few)

    run(scene, batch_tokens=50)
    second, third = engine.batches[1:3]
    assert second == [100, 1, 2, 3, 4]  # in the order in which they came
    assert third == [101, 102, 103, 104, 105]
    assert sorted(chain(*engine.batches)) == [0, 1, 2, 3, 4, *range(100, 140)]


def test_a_text_alone_does_not_wait_behind_two_long_requests() -> None:
    """Not even when one of them is under way, and the other has waited for all of it."""
    engine = Squares()
    long = [ask(*range(at, at + 20), tokens=10) for at in (100, 200)]
    late = [ask(number, tokens=10) for number in (1, 2)]

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, engine)
        asked = [asyncio.ensure_future(queue.ask(engine, own, seconds=10)) for own in long]
        await asyncio.sleep(0.01)
        answer, count = engine.answer, 0

        def join(questions: Sequence[Any]) -> list[Any]:
            """Two texts come while the second long request is answered."""
            nonlocal count
            count += 1
            if count == 5:
                loop.call_soon_threadsafe(come)
                assert there.wait(10)
            return answer(questions)

        def come() -> None:
            asked.extend(asyncio.ensure_future(queue.ask(engine, own, seconds=10)) for own in late)
            loop.call_later(0.02, there.set)

        loop, there = asyncio.get_running_loop(), threading.Event()
        engine.answer = join  # type: ignore[method-assign]
        engine.free.set()
        await asyncio.gather(first, *asked)
        await asyncio.gather(*asked)

    run(scene, batch_tokens=50)
    assert engine.batches[5] == [200, 201, 202, 203, 204]
    assert engine.batches[6] == [205, 206, 207, 1, 2]


def test_a_long_text_waits_for_no_more_tokens_than_its_size() -> None:
    """Short texts that come again and again, ten for each batch, do not pass it for ever."""
    engine = Squares()
    engine.free.set()

    async def scene(queue: BatchQueue) -> None:
        answer = engine.answer
        long: asyncio.Future[list[Any]]

        def fill(questions: Sequence[Any]) -> list[Any]:
            """An answer once ten short texts wait again."""
            end = time.monotonic() + 5
            came = 5 in questions or [5] in engine.batches
            while not came and len(queue) < 11 and time.monotonic() < end:
                time.sleep(0.001)
            return answer(questions)

        async def insist() -> None:
            while not long.done():
                await queue.ask(engine, ask(2, tokens=10), seconds=10)

        engine.answer = fill  # type: ignore[method-assign]
        short = [asyncio.ensure_future(queue.ask(engine, ask(1, tokens=10), seconds=10))]
        await asyncio.sleep(0.01)
        long = asyncio.ensure_future(queue.ask(engine, ask(5, tokens=100), seconds=10))
        await asyncio.gather(long, *short, *(insist() for _ in range(20)))

    run(scene, batch_tokens=100)
    assert engine.batches.index([5]) == 6  # after 512 tokens, the size of its request


def test_engines_do_not_share_a_batch_and_none_starves() -> None:
    one, other = Squares(), Squares()
    other.free.set()

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, one)
        asked = [
            asyncio.ensure_future(queue.ask(engine, ask(number), seconds=10))
            for number, engine in enumerate([other, one, other, one], 1)
        ]
        await asyncio.sleep(0.05)
        one.free.set()
        await asyncio.gather(first, *asked)

    run(scene)
    assert one.batches == [[0], [2, 4]]
    assert other.batches == [[1, 3]]


def test_the_clients_of_a_batch_go_on_with_one_call_of_their_loop() -> None:
    engine = Squares()

    async def scene(queue: BatchQueue) -> int:
        first = await block(queue, engine)
        others = [
            asyncio.ensure_future(queue.ask(engine, ask(number, number), seconds=10))
            for number in range(9)
        ]
        await asyncio.sleep(0.05)
        loop, calls = asyncio.get_running_loop(), list[Any]()
        wake = loop.call_soon_threadsafe

        def note(callback: Any, *words: Any, **more: Any) -> Any:
            calls.append(threading.current_thread().name)
            return wake(callback, *words, **more)

        loop.call_soon_threadsafe = note  # type: ignore[method-assign]
        engine.free.set()
        assert await first == [0]
        assert await asyncio.gather(*others) == [[number**2] * 2 for number in range(9)]
        return len(calls)

    assert run(scene) == 2  # of the first question, and of all others
    assert len(engine.batches) == 2


def test_the_answer_is_not_awaited_once_the_client_is_gone() -> None:
    engine = Squares()

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, engine)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left = asyncio.ensure_future(queue.ask(engine, ask(1, 2), seconds=10, gone=gone))
        stays = asyncio.ensure_future(queue.ask(engine, ask(3), seconds=10))
        await asyncio.sleep(0.01)
        gone.set_result(None)
        with pytest.raises(Refusal, match="the client has left") as refused:
            await left
        assert refused.value.status == 499
        engine.free.set()
        assert [await first, await stays] == [[0], [9]]

    run(scene)
    assert engine.batches == [[0], [3]]


def test_a_question_that_fails_fails_alone() -> None:
    engine = Squares()

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, engine)
        good = asyncio.ensure_future(queue.ask(engine, ask(2, 3), seconds=10))
        bad = asyncio.ensure_future(queue.ask(engine, ask(1, "bad"), seconds=10))
        await asyncio.sleep(0.05)
        engine.free.set()
        assert await first == [0]
        assert await good == [4, 9]
        with pytest.raises(ValueError, match="not a number"):
            await bad

    run(scene)


def test_a_client_that_left_is_not_computed() -> None:
    engine = Squares()

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, engine)
        gone = asyncio.ensure_future(queue.ask(engine, ask(1, 2), seconds=10))
        late = asyncio.ensure_future(queue.ask(engine, ask(3), seconds=0.02))
        stays = asyncio.ensure_future(queue.ask(engine, ask(4), seconds=10))
        await asyncio.sleep(0.01)
        gone.cancel()
        with pytest.raises(Refusal, match=r"no answer within 0\.02 seconds") as refused:
            await late
        assert refused.value.status == 503
        engine.free.set()
        await first
        assert await stays == [16]

    run(scene)
    assert engine.batches == [[0], [4]]


def test_more_than_the_queue_holds_is_refused() -> None:
    engine = Squares()

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, engine)
        waits = asyncio.ensure_future(queue.ask(engine, ask(1, 2), seconds=10))
        await asyncio.sleep(0.01)
        with pytest.raises(Refusal, match="2 texts wait, at most 3 may") as refused:
            await queue.ask(engine, ask(3, 4), seconds=10)
        assert refused.value.status == 429
        fits = asyncio.ensure_future(queue.ask(engine, ask(3), seconds=10))
        await asyncio.sleep(0.01)
        engine.free.set()
        assert [await first, await waits, await fits] == [[0], [1, 4], [9]]

    run(scene, room=3)


def test_the_end_answers_what_waits_and_refuses_what_comes() -> None:
    engine = Squares()

    async def scene(queue: BatchQueue) -> None:
        first = await block(queue, engine)
        waits = asyncio.ensure_future(queue.ask(engine, ask(7), seconds=10))
        await asyncio.sleep(0.01)
        stopping = asyncio.ensure_future(asyncio.to_thread(queue.stop))
        await asyncio.sleep(0.01)
        with pytest.raises(Refusal, match="about to stop") as refused:
            await queue.ask(engine, ask(8), seconds=10)
        assert refused.value.status == 503
        engine.free.set()
        assert [await first, await waits] == [[0], [49]]
        await stopping

    run(scene)


class Countdown:
    """A flow whose question n is answered in its n-th step; notes what runs in each step."""

    def __init__(self) -> None:
        self.left: dict[Any, int] = {}
        self.steps: list[list[int]] = []
        self.begun, self.free = threading.Event(), threading.Event()
        self.joins = True

    def join(self, tickets: Sequence[Any], engines: Sequence[Any], questions: Any) -> None:
        assert all(engine.flow is self for engine in engines)
        if "bad" in questions:
            raise ValueError("not a number")
        self.left |= dict(zip(tickets, questions, strict=True))

    def step(self) -> list[tuple[Any, Any]]:
        self.begun.set()
        assert self.free.wait(10)
        self.steps.append(sorted(self.left.values()))
        if 13 in self.left.values():
            raise RuntimeError("unlucky")
        self.left = {ticket: number - 1 for ticket, number in self.left.items()}
        ended = [ticket for ticket, number in self.left.items() if not number]
        for ticket in ended:
            del self.left[ticket]
        return [(ticket, "together") for ticket in ended]

    def drop(self, gone: Callable[[Any], bool]) -> None:
        self.left = {ticket: own for ticket, own in self.left.items() if not gone(ticket)}


@dataclass(eq=False)
class Counter:
    flow: Countdown
    name: str = "counter"

    def answer(self, questions: Sequence[Any]) -> list[Any]:
        if "bad" in questions or 13 in questions:
            raise ValueError("not a number")
        return ["alone"] * len(questions)


@pytest.fixture
def flow() -> Iterator[Countdown]:
    made = Countdown()
    yield made
    made.free.set()


async def begin(queue: BatchQueue, flow: Countdown, *numbers: Any) -> asyncio.Future[list[Any]]:
    """Questions that run, in a first step that waits until the flow is free."""
    first = asyncio.ensure_future(queue.ask(Counter(flow), ask(*numbers), seconds=10))
    await asyncio.to_thread(flow.begun.wait, 10)
    return first


def test_questions_join_a_flow_while_it_runs_and_leave_at_once(flow: Countdown) -> None:
    async def scene(queue: BatchQueue) -> list[str]:
        order: list[str] = []

        async def note(name: str, waiting: Awaitable[list[Any]]) -> None:
            assert await waiting == ["together"]
            order.append(name)

        long = note("long", await begin(queue, flow, 5))
        short = note("short", queue.ask(Counter(flow), ask(2), seconds=10))
        both = asyncio.gather(long, short)
        await asyncio.sleep(0.05)
        flow.free.set()
        await both
        return order

    assert run(scene) == ["short", "long"]
    assert flow.steps == [[5], [2, 4], [1, 3], [2], [1]]


def test_other_engines_answer_between_the_steps_of_a_flow(flow: Countdown) -> None:
    squares = Squares()
    squares.free.set()

    async def scene(queue: BatchQueue) -> None:
        long = await begin(queue, flow, 10**6)
        other = asyncio.ensure_future(queue.ask(squares, ask(3), seconds=10))
        await asyncio.sleep(0.05)
        flow.free.set()
        assert await other == [9]
        assert not long.done()
        long.cancel()  # its client leaves, and the flow forgets it

    run(scene)
    assert flow.left == {}


def test_a_flow_takes_no_more_tokens_than_a_batch(flow: Countdown) -> None:
    async def scene(queue: BatchQueue) -> None:
        first = await begin(queue, flow, 2, 2)
        rest = asyncio.ensure_future(queue.ask(Counter(flow), ask(1, 1, 1), seconds=10))
        await asyncio.sleep(0.05)
        flow.free.set()
        assert await first == ["together"] * 2
        assert await rest == ["together"] * 3

    run(scene, batch_tokens=3)
    assert flow.steps == [[2, 2], [1, 1, 1], [1, 1]]


def test_a_flow_that_nothing_joins_is_waited_for(flow: Countdown) -> None:
    async def scene(queue: BatchQueue) -> None:
        flow.joins = False
        first = await begin(queue, flow, 2)
        rest = asyncio.ensure_future(queue.ask(Counter(flow), ask(1), seconds=10))
        await asyncio.sleep(0.05)
        flow.free.set()
        assert await first == ["together"]
        assert await rest == ["together"]

    run(scene)
    assert flow.steps == [[2], [1], [1]]


def test_what_a_flow_cannot_answer_is_answered_alone(flow: Countdown) -> None:
    async def scene(queue: BatchQueue) -> None:
        flow.free.set()
        with pytest.raises(ValueError, match="not a number"):
            await queue.ask(Counter(flow), ask(1, "bad"), seconds=10)
        assert await queue.ask(Counter(flow), ask(2), seconds=10) == ["together"]
        flow.free.clear()
        flow.begun.clear()
        first = await begin(queue, flow, 5)
        unlucky = asyncio.ensure_future(queue.ask(Counter(flow), ask(13), seconds=10))
        await asyncio.sleep(0.05)
        flow.free.set()
        with pytest.raises(ValueError, match="not a number"):
            await unlucky
        assert await first == ["alone"]
        assert flow.left == {}

    run(scene)
