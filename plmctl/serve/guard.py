"""Limits, the token and errors of every request."""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

from plmctl.serve.direct import JSON, DirectRoute
from plmctl.serve.errors import Refusal, as_refusal, spell_error
from plmctl.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

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
        answer = _Answer(send)
        start, path = time.monotonic(), str(scope["path"])
        route = path if path in self.routes else "other"
        try:
            kind = self._check(scope)
            counted, direct = self._count(receive), self.direct.get(path)
            if direct is None or scope["method"] != "POST":
                await self.app(scope, counted, answer)
            else:
                await self._answer(direct, kind, Request(scope, counted), answer)
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
        await answer.send(200, found)

    def _check(self, scope: Message) -> bytes:
        """The kind of the body; Refusal of a wrong token, or of a length that is too large."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self.token is not None and scope["path"] not in OPEN:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                raise Refusal(401, "the header 'Authorization: Bearer <token>' is missing or wrong")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.longest_body:
            raise self._too_long()
        return headers.get(b"content-type", b"")

    def _too_long(self) -> Refusal:
        return Refusal(413, f"the body has more than {self.longest_body:,} bytes")

    def _count(self, receive: Receive) -> Receive:
        """The same messages; a body without a stated length is counted as it comes."""
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.longest_body:
                raise self._too_long()
            return message

        return counted


class _Answer:
    """Sends an answer, and knows its status; 499 until there is one."""

    def __init__(self, send: Send) -> None:
        self._send, self.status, self.begun = send, 499, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.begun = int(message["status"]), True
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
