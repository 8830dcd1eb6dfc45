"""Answers that are sent while they grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
Watch = Callable[[int, Any], None]  # gets the number of a question, and its answer so far


class Growing(Generic[T]):
    """An answer to several questions, and what there is of it.

    Args:
        answer: Computes it, and calls its argument whenever a part of it grows.
    """

    def __init__(self, answer: Callable[[Watch], Coroutine[Any, Any, T]]) -> None:
        self._parts = asyncio.Queue[tuple[int, Any] | None]()
        self._next: tuple[int, Any] | None = None
        self._task = asyncio.ensure_future(answer(lambda *part: self._parts.put_nowait(part)))
        self._task.add_done_callback(lambda _: self._parts.put_nowait(None))

    async def begin(self) -> Self:
        """Wait for the first part; raise what keeps the answer from its beginning."""
        self._next = await self._parts.get()
        if self._next is None:
            await self._task
        return self

    async def __aiter__(self) -> AsyncIterator[tuple[int, Any]]:
        """Yield (the number of a question, its answer so far)."""
        while self._next is not None:
            yield self._next
            self._next = await self._parts.get()

    async def whole(self) -> T:
        """The whole answer."""
        return await self._task

    def leave(self) -> None:
        """Compute nothing more of it."""
        self._task.cancel()
