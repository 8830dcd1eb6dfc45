"""A store of files over HTTP on this machine, with faults on demand."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLOW = 3.0  # seconds before an answer
# (path, number of the request for this file) -> the fault: a status, "cut", "flip", "whole",
# "slow" or ""
Fault = Callable[[str, int], "int | str"]


class Store:
    """The files of a folder at `url`; `asked` counts the requests of each."""

    def __init__(self, folder: Path, fault: Fault) -> None:
        self.folder, self.fault, self.url = folder, fault, ""
        self.asked: Counter[str] = Counter()
        self.sent = 0


@contextmanager
def open_store(folder: Path, fault: Fault = lambda path, number: "") -> Iterator[Store]:
    """Serve a folder until the end of the block."""
    store, lock = Store(folder, fault), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            with lock:
                store.asked[self.path] += 1
                fault = store.fault(self.path, store.asked[self.path])
            file = store.folder / self.path.lstrip("/")
            if isinstance(fault, int) or not file.is_file():
                return self.answer(fault if isinstance(fault, int) else 404, b"")
            if fault == "slow":
                time.sleep(SLOW)
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            begin, end, size = 0, file.stat().st_size, file.stat().st_size
            if asked and fault != "whole":
                begin, end = int(asked[1]), int(asked[2] or size - 1) + 1
                if begin >= size:
                    return self.answer(416, b"")
            with file.open("rb") as stream:
                stream.seek(begin)
                content = stream.read(end - begin)
            if fault == "flip":
                content = bytes([content[0] ^ 1]) + content[1:]
            store.sent += len(content)
            if fault == "cut":  # fewer bytes than stated
                self.answer(206, content[: len(content) // 2], len(content))
                self.close_connection = True
                return None
            return self.answer(206 if asked and fault != "whole" else 200, content)

        def answer(self, status: int, content: bytes, stated: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) if stated is None else stated))
            self.end_headers()
            if self.command == "GET":
                with suppress(ConnectionError):  # of a reader that was killed
                    self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
