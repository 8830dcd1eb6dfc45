"""A running `plmctl serve` from outside: rows a second, seconds of requests under a load, and
minutes of clients that behave badly.

    plmctl serve runs/sst2 &
    python benchmarks/serve.py rate --texts dev.txt                as fast as it answers
    python benchmarks/serve.py load --texts dev.txt --rate 50      so many requests a second
    python benchmarks/serve.py chaos --texts dev.txt --minutes 10 --pid $!

`rate`: `--at-once` clients send requests of `--batch` texts each. `load`: requests of one text
arrive at random moments (a Poisson process); p50, p99 and their ratio are printed. `chaos`: clients
that leave, long and malformed bodies, strange characters, many short requests; each good answer is
compared with the first answer to the same text, and the memory of the process is watched.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STRANGE = ["", " ", "\x00", "好看的电影", "🙂" * 50, "a\tb\nc", "é" * 300, "\u202eabc", "x " * 3000]
BROKEN = [b"{", b'{"inputs": 3}', b'{"inputs": []}', b"\xff\xfe", b'{"inputs": [["a", 3]]}', b"[]"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["rate", "load", "chaos"])
    parser.add_argument("--texts", type=Path, required=True, help="a file of lines")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--batch", type=int, default=32, help="texts of a request")
    parser.add_argument("--at-once", type=int, default=4, help="clients at the same time")
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--rate", type=float, default=50, help="requests a second")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--pid", type=int, help="the process whose memory is watched")
    given = parser.parse_args()
    texts = [line for line in given.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    asyncio.run(
        {"rate": measure_rate, "load": measure_load, "chaos": misbehave}[given.what](given, texts)
    )


def open_client(given: argparse.Namespace) -> Any:
    import httpx

    limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
    return httpx.AsyncClient(base_url=given.url, timeout=120, limits=limits)


async def ask(client: Any, texts: list[str]) -> list[Any]:
    reply = await client.post("/predict", json={"inputs": [[text] for text in texts]})
    assert reply.status_code == 200, reply.text
    found: list[Any] = reply.json()
    assert len(found) == len(texts)
    return found


def show(name: str, seconds: list[float]) -> None:
    seconds = sorted(seconds)
    p50, p99 = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.99)]
    print(f"{name}: p50 {1e3 * p50:.1f} ms, p99 {1e3 * p99:.1f} ms, {p99 / p50:.2f} of p50")


async def measure_rate(given: argparse.Namespace, texts: list[str]) -> None:
    """Rows a second of several clients."""
    many = (texts * (given.rows // len(texts) + 1))[: given.rows]
    parts = iter([many[at : at + given.batch] for at in range(0, len(many), given.batch)])
    took: list[float] = []
    async with open_client(given) as client:

        async def work() -> None:
            for part in parts:
                start = time.perf_counter()
                await ask(client, part)
                took.append(time.perf_counter() - start)

        await ask(client, many[: given.batch])  # the first batch prepares the runtime
        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(given.at_once)))
        rate = len(many) / (time.perf_counter() - start)
    show(f"{rate:,.0f} rows/s", took)


async def measure_load(given: argparse.Namespace, texts: list[str]) -> None:
    """Seconds of requests that arrive at random moments."""
    draws, took = random.Random(0), list[float]()
    async with open_client(given) as client:

        async def one(text: str) -> None:
            start = time.perf_counter()
            await ask(client, [text])
            took.append(time.perf_counter() - start)

        await ask(client, texts[:1])
        end, running = time.monotonic() + 60 * given.minutes, set[asyncio.Task[None]]()
        while time.monotonic() < end:
            running.add(asyncio.create_task(one(draws.choice(texts))))
            await asyncio.sleep(draws.expovariate(given.rate))
        await asyncio.gather(*running)
    show(f"{given.rate:g} requests/s, {len(took)} in all", took)


async def misbehave(given: argparse.Namespace, texts: list[str]) -> None:
    """Bad clients beside good ones."""
    draws, right = random.Random(0), dict[str, Any]()
    counts = {"good": 0, "wrong": 0, "left": 0, "refused": 0, "unexpected": 0}
    memory = list[int]()
    headers = {"content-type": "application/json"}
    async with open_client(given) as client:

        async def good() -> None:
            some = draws.choices([*texts, *STRANGE], k=draws.randint(1, 40))
            for text, found in zip(some, await ask(client, some), strict=True):
                near = right.setdefault(text, found)
                counts["good" if same(near, found) else "wrong"] += 1

        async def leave() -> None:
            body = json.dumps({"inputs": [[text] for text in draws.choices(texts, k=200)]})
            host, port = given.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = "POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
            await asyncio.sleep(draws.random() * 0.05)
            writer.close()
            counts["left"] += 1
            del reader

        async def refused() -> None:
            content = draws.choice([*BROKEN, b"x" * (9 << 20)])
            reply = await client.post("/predict", content=content, headers=headers)
            fine = reply.status_code in (400, 413, 422) and "Traceback" not in reply.text
            counts["refused" if fine else "unexpected"] += 1

        kinds, end = [good, good, leave, refused], time.monotonic() + 60 * given.minutes

        async def work() -> None:
            while time.monotonic() < end:
                try:
                    await draws.choice(kinds)()
                except (OSError, AssertionError) as error:
                    counts["unexpected"] += 1
                    print(f"unexpected: {error!r}"[:300])

        async def watch() -> None:
            while given.pid and time.monotonic() < end:
                memory.append(read_memory(given.pid))
                await asyncio.sleep(1)

        await asyncio.gather(watch(), *(work() for _ in range(given.at_once)))
        words = iter([f"w{number}" for number in range(10_000)])
        start = time.perf_counter()
        await asyncio.gather(*(ask_each(given.url, words) for _ in range(64)))
        rate = 10_000 / (time.perf_counter() - start)
    print(f"{counts}; 10,000 requests of one word: {rate:,.0f} a second")
    if memory:
        half = memory[len(memory) // 2 :]
        first = statistics.median(half[: len(half) // 2]), statistics.median(half[len(half) // 2 :])
        print(f"memory of the third and of the last quarter: {first[0]:.0f}, {first[1]:.0f} MiB")


async def ask_each(url: str, words: Iterator[str]) -> None:
    """One connection, one word a request; httpx itself would need most of the time."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for word in words:
        body = json.dumps({"inputs": word})
        head = "POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in answer
        await reader.readexactly(int(answer.partition(b"content-length: ")[2].split(b"\r")[0]))
    writer.close()


def same(one: Any, other: Any) -> bool:
    """Whether two answers have the same labels with the same probabilities to five digits."""
    pairs = ({each["label"]: each["score"] for each in found} for found in (one, other))
    first, second = pairs
    return first.keys() == second.keys() and all(
        abs(first[name] - second[name]) < 1e-5 for name in first
    )


def read_memory(pid: int) -> int:
    """MiB of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) >> 10


if __name__ == "__main__":
    main()
