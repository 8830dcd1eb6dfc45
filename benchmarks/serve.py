"""`plmctl serve` from outside: rows a second, seconds of requests under a load, and minutes of
clients that behave badly. It starts the server of a run itself, with further settings behind `--`.

    python benchmarks/serve.py rate --run runs/sst2 --texts dev.txt -- runtime=onnx
    python benchmarks/serve.py load --run runs/sst2 --texts dev.txt --share 0.7
    python benchmarks/serve.py chaos --run runs/sst2 --texts dev.txt --minutes 10

`rate`: clients send `--batch` texts a request, in turns with `predict` on the same rows in this
process; each ratio is that of a turn. Then one client asks again and again: processor time of a
request, of the server's HTTP, of its model, of this client. `load`: requests of `--batch` texts
arrive at random moments (a Poisson process), at a share of the rate that was measured first; p50,
p99 and their ratio are printed, with that of a queue whose requests all take equally long.
`chaos`: clients that leave, long and malformed bodies, strange characters, many requests of one
word; each good answer is compared with the first answer to the same text. In the middle the server
gets SIGTERM with requests under way, and a new one goes on. Memory is that of each server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STRANGE = ["", " ", "\x00", "好看的电影", "🙂" * 50, "a\tb\nc", "é" * 300, "\u202eabc", "x " * 3000]
BROKEN = [b"{", b'{"inputs": 3}', b'{"inputs": []}', b"\xff\xfe", b'{"inputs": [["a", 3]]}', b"[]"]
WORDS = 10_000  # requests of one word, behind the minutes of chaos
BURST = 50  # such requests among the others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["rate", "load", "chaos"])
    parser.add_argument("--run", required=True, help="the run whose model answers")
    parser.add_argument("--texts", type=Path, required=True, help="a file of lines")
    parser.add_argument("--batch", type=int, help="texts of a request: 32, of a load 1")
    parser.add_argument("--at-once", type=int, nargs="+", default=[4, 8, 16], help="clients")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.7, help="of the rate, for a load")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("settings", nargs="*", help="settings of serve")
    given = parser.parse_intermixed_args()  # settings stand behind options
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    texts = [line for line in given.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    {"rate": compare_rates, "load": load, "chaos": misbehave}[given.what](given, texts)


@dataclass
class Running:
    """A server: its process, its address, its log, and its memory in MiB."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    memory: list[int] = field(default_factory=list)

    def watch(self) -> None:
        """Note the memory now."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        kib = next((line.split()[1] for line in lines if line.startswith("VmRSS")), None)
        self.memory += [] if kib is None else [int(kib) >> 10]

    def describe_memory(self) -> str:
        """The memory at the start and as medians of fifths, and the growth after two of them."""
        size = len(self.memory) // 5
        if not size:
            return f"memory {self.memory} MiB"
        parts = [statistics.median(self.memory[at * size : (at + 1) * size]) for at in range(5)]
        spelled = ", ".join(f"{part:.0f}" for part in parts)
        growth = f"{parts[4] / parts[1] - 1:+.1%} after two fifths"
        return f"memory {self.memory[0]} MiB, by fifths {spelled}: {growth}"


@contextmanager
def started(given: argparse.Namespace) -> Iterator[Running]:
    """A server that has begun to answer."""
    words = [sys.executable, "-m", "plmctl", "serve", given.run, "port=0", *given.settings]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(words, stdout=stream, stderr=stream)
        try:
            while not (address := re.search(r"(http://\S+) answers", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield Running(process, address[1], log)
        finally:
            process.kill()
            process.wait()


def open_client(url: str) -> Any:
    import httpx

    limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
    return httpx.AsyncClient(base_url=url, timeout=120, limits=limits)


class Connections:
    """Connections of clients that take little time themselves: spelled requests, unread answers."""

    def __init__(self, url: str) -> None:
        self.url, self.free = url, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

    async def ask(self, request: bytes) -> bytes:
        """The body of an answer, over a connection that is free, or a new one."""
        reader, writer = self.free.pop() if self.free else await open_connection(self.url)
        writer.write(request)
        answer = await read_answer(reader)
        self.free.append((reader, writer))
        return answer

    def close(self) -> None:
        for _, writer in self.free:
            writer.close()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].split(b"\r")[0])
    answer = await reader.readexactly(length)
    assert b" 200 " in head, answer
    return answer


def spell_texts(texts: Sequence[str]) -> bytes:
    return spell_request(json.dumps({"inputs": [[text] for text in texts]}))


def read_processor(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """(seconds of the thread that speaks HTTP, of all others); 0 where the system does not say."""
    used = [0.0, 0.0]
    for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        used[file.parent.name != str(process.pid)] += int(file.read_text().split()[0]) / 1e9
    return used[0], used[1]


def show(name: str, seconds: list[float]) -> None:
    seconds = sorted(seconds)
    p50, p99 = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.99)]
    times = f"p50 {1e3 * p50:.1f} ms, p99 {1e3 * p99:.1f} ms, {p99 / p50:.2f} of p50"
    print(f"{name}: {times}", flush=True)


def compare_rates(given: argparse.Namespace, texts: list[str]) -> None:
    """Rows a second of clients and of predict, in turns; processor time of requests."""
    import plmctl

    many, batch = repeat(texts, given.rows), given.batch or 32
    names = [word.partition("=")[2] for word in given.settings if word.startswith("runtime=")]
    model = plmctl.load(given.run, runtime=names[0] if names else None)
    model.predict(many[:32])
    with started(given) as server:
        asyncio.run(measure_rate(server, many, batch, 1))
        for _ in range(given.rounds):
            start = time.perf_counter()
            model.predict(many)
            own = len(many) / (time.perf_counter() - start)
            print(f"predict: {own:,.0f} rows/s")
            for count in given.at_once:
                rate, took, _ = asyncio.run(measure_rate(server, many, batch, count))
                show(f"{count} clients: {rate:,.0f} rows/s, {rate / own:.2f} of predict", took)
        for size in (1, batch):
            *_, used = asyncio.run(measure_rate(server, many[: 20 * size + 400], size, 1))
            spelled = ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in used.items())
            print(f"a request of {size}, one client: {spelled} ms of processor")


def repeat(texts: list[str], rows: int) -> list[str]:
    """So many texts in an order without lengths."""
    return random.Random(0).sample((texts * (rows // len(texts) + 1))[:rows], rows)


async def measure_rate(
    server: Running, texts: list[str], batch: int, clients: int
) -> tuple[float, list[float], dict[str, float]]:
    """(rows a second of several clients, seconds of each request, processor seconds of one)."""
    parts = [texts[at : at + batch] for at in range(0, len(texts), batch)]
    requests = iter([spell_texts(part) for part in parts])
    took, answers = list[float](), list[bytes]()
    connections = Connections(server.url)

    async def work() -> None:
        for request in requests:
            start = time.perf_counter()
            answers.append(await connections.ask(request))
            took.append(time.perf_counter() - start)

    http, model = read_processor(server.process)
    own, start = time.process_time(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    rate = len(texts) / (time.perf_counter() - start)
    used = {"client": time.process_time() - own}
    later = read_processor(server.process)
    used |= {"HTTP": later[0] - http, "model": later[1] - model}
    connections.close()
    assert sum(len(json.loads(answer)) for answer in answers) == len(texts)
    return rate, took, {name: seconds / len(parts) for name, seconds in used.items()}


def load(given: argparse.Namespace, texts: list[str]) -> None:
    """Seconds of requests that arrive at random moments, at a share of what is possible."""
    batch, clients = given.batch or 1, max(given.at_once)
    with started(given) as server:
        for _ in range(2):
            many = repeat(texts, given.rows)
            rate, *_ = asyncio.run(measure_rate(server, many, batch, clients))
        print(f"{clients} clients of {batch} texts: {rate:,.0f} rows/s")
        rate *= given.share / batch
        took, busy = asyncio.run(arrive(server, texts, batch, rate, 60 * given.minutes))
        show(f"{rate:,.1f} requests/s, {len(took)} in all", took)
        print(f"the threads of the model are busy for {busy:.2f} of the time")
        one = expect_ratio(given.share)
        print(f"one request after the other, all equally long, at this share: {one:.2f} of p50")


def expect_ratio(share: float) -> float:
    """p99 / p50 of the time in a queue with one server that is busy for a share of the time:
    requests at random moments, of length 1 each (M/D/1).

    `P(wait <= t) = (1 - r) sum_{k <= t} (r (k - t))^k / k! e^{r (t - k)}`, r the share
    (Erlang, 1909).
    """

    def reached(t: float) -> float:
        terms = (
            (share * (k - t)) ** k / math.factorial(k) * math.exp(share * (t - k))
            for k in range(int(t) + 1)
        )
        return (1 - share) * math.fsum(terms)

    def find(part: float) -> float:
        low, high = 0.0, 20.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if reached(middle) < part else (low, middle)
        return high

    return (1 + find(0.99)) / (1 + find(0.5))


async def arrive(
    server: Running, texts: list[str], batch: int, rate: float, seconds: float
) -> tuple[list[float], float]:
    """(seconds of requests that arrive at random moments, the share in which the model is busy)."""
    draws, took = random.Random(0), list[float]()
    connections = Connections(server.url)

    async def one(request: bytes, start: float) -> None:
        await connections.ask(request)
        took.append(time.perf_counter() - start)

    await connections.ask(spell_texts(texts[:batch]))
    before = read_processor(server.process)[1]
    start = due = time.perf_counter()
    running = set[asyncio.Task[None]]()
    while (due := due + draws.expovariate(rate)) < start + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        request = spell_texts(draws.choices(texts, k=batch))
        running.add(asyncio.create_task(one(request, due)))
    await asyncio.gather(*running)
    busy = (read_processor(server.process)[1] - before) / (time.perf_counter() - start)
    connections.close()
    return took, busy


class Chaos:
    """Bad clients among good ones, at a server that ends and at the one behind it."""

    def __init__(self, given: argparse.Namespace, texts: list[str]) -> None:
        self.texts, self.clients = texts, max(given.at_once)
        self.draws, self.right, self.counts = random.Random(0), dict[str, Any](), Counter[str]()
        self.stopping = False

    async def run(self, server: Running, seconds: float, *, ends: bool) -> None:
        """So many seconds; with `ends` the server is stopped while requests are under way."""
        self.end, self.server, self.stopping = time.monotonic() + seconds, server, False
        async with open_client(server.url) as self.client:
            workers = [asyncio.create_task(self._work()) for _ in range(self.clients)]
            while time.monotonic() < self.end:
                server.watch()
                await asyncio.sleep(min(1.0, seconds / 20))
            if ends:
                self.stopping = True
                self.end += 5
                server.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*workers)
        if not ends:
            words = iter(range(WORDS))
            start = time.perf_counter()
            await asyncio.gather(*(self._say(words) for _ in range(64)))
            print(f"{WORDS / (time.perf_counter() - start):,.0f} requests of one word a second")
            server.watch()

    async def _work(self) -> None:
        import httpx

        kinds = [self._ask, self._ask, self._leave, self._break, self._burst]
        while time.monotonic() < self.end:
            try:
                await self.draws.choice(kinds)()
            except (httpx.ConnectError, ConnectionRefusedError):
                if self.stopping:  # it listens no more
                    return
                self._note("no connection")
            except Exception as error:
                # a connection that waited for its next request is closed at the end
                self._note("closed" if self.stopping else f"unexpected: {error!r}"[:200])

    def _note(self, what: str) -> None:
        self.counts[what] += 1

    async def _ask(self) -> None:
        """Many texts, whose answers are those of before."""
        some = self.draws.choices([*self.texts, *STRANGE], k=self.draws.randint(1, 40))
        under_way = not self.stopping
        body = {"inputs": [[text] for text in some]}
        try:
            reply = await self.client.post("/predict", json=body)
        except Exception:
            self._note("lost" if under_way and self.stopping else "unsent")
            raise
        if reply.status_code == 503 and self.stopping:
            self._note("told that the server stops")
            return
        assert reply.status_code == 200, reply.text
        for text, found in zip(some, reply.json(), strict=True):
            alike = same(self.right.setdefault(text, found), found)
            self._note("good" if alike else "wrong")

    async def _leave(self) -> None:
        """A request whose client does not wait for the answer."""
        body = json.dumps({"inputs": [[text] for text in self.draws.choices(self.texts, k=200)]})
        _, writer = await open_connection(self.server.url)
        writer.write(spell_request(body))
        await writer.drain()
        await asyncio.sleep(self.draws.random() * 0.05)
        writer.close()
        self._note("left")

    async def _break(self) -> None:
        """A body that is wrong, or too long."""
        content = self.draws.choice([*BROKEN, b"x" * (9 << 20)])
        headers = {"content-type": "application/json"}
        reply = await self.client.post("/predict", content=content, headers=headers)
        fine = reply.status_code in (400, 413, 422) and "Traceback" not in reply.text
        self._note("refused" if fine else f"unexpected: {reply.status_code} {reply.text[:100]}")

    async def _burst(self) -> None:
        await self._say(iter(self.draws.choices(range(WORDS), k=BURST)))

    async def _say(self, numbers: Iterator[int]) -> None:
        """One connection, one word a request; httpx itself would need most of the time."""
        reader, writer = await open_connection(self.server.url)
        try:
            for number in numbers:
                writer.write(spell_request(json.dumps({"inputs": f"w{number}"})))
                await read_answer(reader)
                self._note("words")
        finally:
            writer.close()


async def open_connection(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


def spell_request(body: str) -> bytes:
    head = "POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


def misbehave(given: argparse.Namespace, texts: list[str]) -> None:
    """Bad clients until the server is stopped, and again at a new one."""
    chaos, logs, codes = Chaos(given, texts), "", []
    for ends in (True, False):
        with started(given) as server:
            asyncio.run(chaos.run(server, 30 * given.minutes, ends=ends))
            if not ends:
                server.process.send_signal(signal.SIGTERM)
            codes.append(server.process.wait(60))
            logs += server.log.read_text()
            print(server.describe_memory(), flush=True)
    counts = dict(chaos.counts)
    wrong = {name: n for name, n in counts.items() if name in ("wrong", "lost", "no connection")}
    wrong |= {name: n for name, n in counts.items() if name.startswith("unexpected")}
    print(f"{counts}; exit codes {codes}")
    failed = wrong or "Traceback" in logs or any(code != -signal.SIGTERM for code in codes)
    sys.exit(f"failed: {wrong} {logs[-2000:]}" if failed else 0)


def same(one: Any, other: Any) -> bool:
    """Whether two answers have the same labels with the same probabilities to five digits."""
    first, second = ({each["label"]: each["score"] for each in found} for found in (one, other))
    return first.keys() == second.keys() and all(
        abs(first[name] - second[name]) < 1e-5 for name in first
    )


if __name__ == "__main__":
    main()
