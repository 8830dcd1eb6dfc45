"""Requests as bytes, of which a client sends no endless head."""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = 1 << 16  # bytes of a line, its headers and trailers: the parser keeps all of them
AROUND = 8  # bytes of a chunked body for each of its own: one byte a chunk has five
# Java asks for HTTP/2 with the first request of a connection. The parser would drop its body.
UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class BoundedProtocol(HttpToolsProtocol):
    """The parser of uvicorn; it answers status 400 where much more than a body comes."""

    _body = _around = 0  # bytes of the request: of its body, and all others
    _new = True  # whether nothing has come yet

    def data_received(self, data: bytes) -> None:
        """Read bytes of a connection."""
        if self._new:
            self._new, data = False, UPGRADE.sub(b"\r\nignored:", data, count=1)
        self._around += len(data)
        super().data_received(data)
        if self._around > HEAD + AROUND * self._body and not self.transport.is_closing():
            self.send_400_response(f"The request has more than {HEAD:,} bytes around its body.")

    def on_message_begin(self) -> None:
        """Begin with a request."""
        super().on_message_begin()
        self._body = self._around = 0

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        super().on_body(body)
        self._body += len(body)
        self._around -= len(body)
