"""Limits, the token and errors of every request."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from plmctl.serve.direct import JSON, DirectRoute
from plmctl.serve.errors import Refusal, as_refusal, spell_error
from plmctl.serve.metrics import Metrics
from plmctl.serve.queue import MARKS

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LINGER, SURPLUS = 10.0, 8  # seconds, and bodies of the longest length, that are read for nothing
OPEN = ("/health", "/v1/models")  # without a token: probes, and clients that ask for names first


class Guard:
    """The application behind limits.

    Args:
        app: The application.
        metrics: Counts requests.
        token: The word that clients send as `Authorization: Bearer <token>`; None: none.
        longest_body: Bytes of a request at most.
        routes: The addresses that metrics name; others count as one.
        direct: The addresses whose right requests do without the application.
    """

    def __init__(
        self,
        app: App,
        *,
        metrics: Metrics,
        token: str | None,
        longest_body: int,
        routes: frozenset[str],
        direct: Mapping[str, DirectRoute],
    ) -> None:
        self.app, self.metrics, self.token = app, metrics, token
        self.longest_body, self.routes, self.direct = longest_body, routes, direct

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        body = _Incoming(receive, headers, self.longest_body)
        answer = _Answer(send, body, scope.setdefault("state", {}))
        start, path = time.monotonic(), str(scope["path"])
        route = path if path in self.routes else "other"
        try:
            kind = self._check(scope["path"], headers)
            direct = self.direct.get(path)
            if direct is None or scope["method"] != "POST":
                await self.app(scope, body, answer)
            else:
                await self._answer(direct, kind, Request(scope, body), answer)
        except Refusal as refusal:
            await answer.refuse(refusal, path)
        except ClientDisconnect:
            pass
        except Exception:  # the application has answered and reported it
            if not answer.begun:
                raise
        finally:
            self.metrics.finished(route, answer.status, time.monotonic() - start)

    async def _answer(
        self, direct: DirectRoute, kind: bytes, request: Request, answer: _Answer
    ) -> None:
        """The answer to a right request; the application explains what is wrong with others."""
        content = await request.body()
        body = direct.read(kind, content)
        if body is None:
            await self.app(request.scope, _repeat(content, request.receive), answer)
            return
        try:
            found = await direct.answer(body, request)
        except Exception as error:
            raise as_refusal(error, request.scope["path"]) from error
        if isinstance(found, Response):
            await found(request.scope, request.receive, answer)
        else:
            await answer.send(200, found)

    def _check(self, path: str, headers: Mapping[bytes, bytes]) -> bytes:
        """The kind of the body; Refusal of a wrong token, or of a length that is too large."""
        if self.token is not None and path not in OPEN:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                raise Refusal(401, "the header 'Authorization: Bearer <token>' is missing or wrong")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.longest_body:
            raise _too_long(self.longest_body)
        return headers.get(b"content-type", b"")


def _name_texts(state: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Headers with the numbers of texts that were not read, or in part: an answer that is no
    object has no field for that.
    """
    found: Sequence[Mapping[str, Any]] = state.get("marks", ())
    lists = {
        mark: ",".join(str(number) for number, own in enumerate(found) if mark in own)
        for mark in MARKS
    }
    return [(f"x-{mark}".encode(), listed.encode()) for mark, listed in lists.items() if listed]


def _too_long(longest: int) -> Refusal:
    return Refusal(413, f"the body has more than {longest:,} bytes")


class _Incoming:
    """The messages of a client; a body without a stated length is counted as it comes.

    Attributes:
        ended: Whether no more of the body comes, or only if it is read (`Expect: 100-continue`).
    """

    def __init__(self, receive: Receive, headers: Mapping[bytes, bytes], longest: int) -> None:
        self._receive, self._longest, self._read = receive, longest, 0
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        self.ended = b"expect" in headers or not has_body

    async def __call__(self) -> Message:
        message = await self._take()
        if self._read > self._longest:
            raise _too_long(self._longest)
        return message

    async def _take(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        self.ended = not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Read the rest of a body. Many clients read no answer before they have sent theirs, and a
        connection that closes with unread bytes loses the answer.
        """
        try:
            async with asyncio.timeout(LINGER):
                while not self.ended and self._read <= SURPLUS * self._longest:
                    await self._take()
        except TimeoutError:
            pass


class _Answer:
    """Sends an answer, and knows its status; 499 until there is one. It ends behind the request.
    Its headers name the texts that the `state` of the request does.
    """

    def __init__(self, send: Send, body: _Incoming, state: Mapping[str, Any]) -> None:
        self._send, self._body, self._state = send, body, state
        self.status, self.begun = 499, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.begun = int(message["status"]), True
            headers = [*message.get("headers", ()), *_name_texts(self._state)]
            message = {**message, "headers": headers}
        elif not (message.get("more_body") or self._body.ended):
            await self._send({**message, "more_body": True})
            await self._body.drain()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def refuse(self, refusal: Refusal, path: str) -> None:
        """Send the refusal, unless an answer has begun."""
        if not self.begun:
            body, more = spell_error(refusal.status, refusal.message, path=path)
            await self.send(refusal.status, body, more)

    async def send(self, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
        """Send JSON, with more headers."""
        headers = [(name.encode(), value.encode()) for name, value in (more or {}).items()]
        headers += [(b"content-length", b"%d" % len(body)), (b"content-type", JSON)]
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _repeat(content: bytes, receive: Receive) -> Receive:
    """The body again, which has been read, and what comes after it."""
    parts = [content]

    async def repeated() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return repeated
