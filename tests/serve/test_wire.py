"""Requests that no client of ours sends: over a socket, since clients would refuse to."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from plmctl.serve import guard
from plmctl.serve.app import make_app
from plmctl.serve.models import Models
from plmctl.serve.running import make_config
from plmctl.serve.server import Limits, Server

BODY = json.dumps({"inputs": "a fine film"}).encode()
HEAD = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def port(models: Models) -> Iterator[int]:
    """A server in this process, at a port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = make_app(Server(models, Limits(body=100_000)), token=None)
        server = uvicorn.Server(make_config(app, grace=1))
        serving = server.serve([listening])
        thread = threading.Thread(target=asyncio.run, args=(serving,))
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def send(port: int, *parts: bytes) -> tuple[int, Any]:
    """(the status of the first answer to bytes, its body)."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        answer = b""
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:  # it has answered and closed
            pass
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1 << 16)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
        while len(body) < length:
            body += connection.recv(1 << 16)
        return int(head.split()[1]), body[:length].decode()


def receive(connection: socket.socket) -> tuple[int, str]:
    """(the status of an answer, its body), of one byte at a time: the next answer stays."""
    answer = connection.makefile("rb", buffering=0)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += answer.read(1)
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
    return int(head.split()[1]), b"".join(answer.read(1) for _ in range(length)).decode()


def spell(body: bytes, more: bytes = b"") -> bytes:
    return HEAD + more + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("begin", "unit"),
    [
        (b"POST /", b"a" * 50_000),
        (b"POST /predict HTTP/1.1\r\nx: ", b"a" * 50_000),
        (b"POST /predict HTTP/1.1\r\n", b"x: y\r\n" * 10_000),
        (CHUNKED + b"0\r\nx: ", b"a" * 50_000),
        (CHUNKED + b"1;", b"a" * 50_000),
        (b"", b"\r\n" * 30_000),
    ],
    ids=["address", "header", "headers", "trailer", "chunk", "empty lines"],
)
def test_endless_requests_end_with_status_400(port: int, begin: bytes, unit: bytes) -> None:
    status, said = send(port, begin, *[unit] * 40)
    assert status == 400
    assert "65,536 bytes around its body" in said
    assert send(port, spell(BODY))[0] == 200


def test_a_body_in_small_chunks_is_read(port: int) -> None:
    text = json.dumps({"inputs": "film " * 10_000}).encode()  # 250,000 bytes around it
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in text)
    assert send(port, CHUNKED + chunks + b"0\r\nx: y\r\n\r\n")[0] == 200
    longer = b"1\r\nx\r\n" * 10_000
    assert send(port, CHUNKED, *[longer] * 11)[0] == 413


@pytest.mark.parametrize("more", [b"Upgrade: h2c\r\n", b"uPgrade: websocket\r\n"])
def test_a_request_that_asks_for_another_protocol_is_answered(port: int, more: bytes) -> None:
    plain, settings = send(port, spell(BODY)), b"Connection: Upgrade, HTTP2-Settings\r\n"
    assert send(port, spell(BODY, settings + more)) == plain
    assert plain[0] == 200


def test_a_later_request_of_a_connection_may_ask_for_another_protocol(port: int) -> None:
    asked = spell(BODY, b"Connection: Upgrade\r\nUpgrade: h2c\r\n")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for content in (spell(BODY), asked, asked):
            connection.sendall(content)
            assert receive(connection)[0] == 200


@pytest.mark.parametrize(("path", "status"), [(b"predict", 413), (b"nowhere", 413), (b"", 404)])
def test_a_client_that_sends_all_before_it_reads_gets_its_refusal(
    port: int, path: bytes, status: int
) -> None:
    longer = b"x" * (99_000 if status == 404 else 700_000)
    asked = spell(b"", b"Connection: close\r\n").replace(b"h: 0", b"h: %d" % len(longer))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(asked.replace(b"predict", path))
        for start in range(0, len(longer), 50_000):
            time.sleep(0.02)  # it would have answered and closed by now
            connection.sendall(longer[start : start + 50_000])
        assert receive(connection)[0] == status
        assert connection.recv(1) == b""


def test_a_client_that_waits_for_leave_to_send_gets_its_refusal_at_once(port: int) -> None:
    more = b"Connection: close\r\nExpect: 100-continue\r\n"
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(spell(b"", more).replace(b"h: 0", b"h: 700000"))
        assert receive(connection)[0] == 413
        assert connection.recv(1) == b""
    assert time.monotonic() - started < guard.LINGER / 2


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01" * 9, 400),  # TLS
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"POST /pr\xc3\xa9dict HTTP/1.1\r\n\r\n", 400),
        (HEAD + b"content-length: -5\r\n\r\n", 400),
        (HEAD + b"content-length: 9999999999999999999999\r\n\r\n", 400),
        (HEAD + b"content-length: 9999999999\r\n\r\n", 413),
        (HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", 400),
        (spell(b"5\r\nhello\r\n0\r\n\r\n", b"transfer-encoding: chunked\r\n"), 400),
    ],
)
def test_bytes_that_are_no_request_are_refused(port: int, content: bytes, status: int) -> None:
    found, said = send(port, content)
    assert found == status
    assert "Traceback" not in said
