"""Limits, the token and errors of every request."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from plmctl.serve.errors import Refusal, spell_error
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
    """

    def __init__(
        self,
        app: App,
        *,
        metrics: Metrics,
        token: str | None,
        longest_body: int,
        routes: frozenset[str],
    ) -> None:
        self.app, self.metrics, self.token = app, metrics, token
        self.longest_body, self.routes = longest_body, routes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        start, path = time.monotonic(), str(scope["path"])
        route = path if path in self.routes else "other"
        try:
            self._check(scope)
            await self.app(scope, self._count(receive), answer)
        except Refusal as refusal:
            await answer.refuse(refusal, path)
        except Exception:  # the application has answered and reported it
            if not answer.begun:
                raise
        finally:
            self.metrics.finished(route, answer.status, time.monotonic() - start)

    def _check(self, scope: Message) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self.token is not None and scope["path"] not in OPEN:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                raise Refusal(401, "the header 'Authorization: Bearer <token>' is missing or wrong")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.longest_body:
            raise self._too_long()

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
        if self.begun:
            return
        content, more = spell_error(refusal.status, refusal.message, path=path)
        body = json.dumps(content).encode()
        named = {"content-type": "application/json", "content-length": str(len(body)), **more}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
