"""Requests as bytes, of which a client sends no endless head."""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = 1 << 16  # bytes of a line, its headers and trailers: the parser keeps all of them
AROUND = 8  # bytes of a chunked body for each of its own: one byte a chunk has five
# Some clients, such as that of Java, ask for HTTP/2. The parser would drop the body then.
UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class BoundedProtocol(HttpToolsProtocol):
    """The parser of uvicorn; it answers status 400 where much more than a body comes."""

    _body = _around = 0  # bytes of the request: of its body, and all others
    _in_head = True  # whether headers come next, or more of them

    def data_received(self, data: bytes) -> None:
        """Read bytes of a connection."""
        if self._in_head:
            data = UPGRADE.sub(b"\r\nignored:", data)
        self._around += len(data)
        super().data_received(data)
        if self._around > HEAD + AROUND * self._body and not self.transport.is_closing():
            self.send_400_response(f"The request has more than {HEAD:,} bytes around its body.")

    def on_message_begin(self) -> None:
        """Begin with a request."""
        super().on_message_begin()
        self._body = self._around = 0

    def on_headers_complete(self) -> None:
        """End with the headers of a request."""
        super().on_headers_complete()
        self._in_head = False

    def on_message_complete(self) -> None:
        """End with a request."""
        super().on_message_complete()
        self._in_head = True

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        super().on_body(body)
        self._body += len(body)
        self._around -= len(body)
