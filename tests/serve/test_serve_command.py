"""`plmctl serve` as a process: clients of others, a graceful end, and what is refused at once."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

import plmctl as face
from tests.command import plmctl
from tests.late import Late

openai = Late("openai")


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(the process, the address that it prints)."""
    command = [sys.executable, "-m", "plmctl", "serve", *words, "port=0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if address := re.match(r"(http://\S+) answers", line):
                yield process, address[1]
                return
        raise AssertionError("".join(lines))
    finally:
        process.kill()
        process.wait()


def test_clients_of_others_and_a_graceful_end(folder: Path) -> None:
    texts = ["a fine film", "poor", ""]
    with started(str(folder / "films"), str(folder / "lora_two")) as (process, address):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        assert [model.id for model in client.models.list()] == ["films", "lora_two"]
        found = client.embeddings.create(model="films", input=texts)
        own = face.load(folder / "films").embed(texts, normalize=True)
        assert np.array([each.embedding for each in found.data]) == pytest.approx(own, abs=1e-6)
        with pytest.raises(openai.BadRequestError, match="no text"):
            client.embeddings.create(model="films", input=[])
        with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
            client.embeddings.create(model="gpt", input="x")
        with httpx.Client(base_url=address) as plain:  # one connection: no answer waits for an ACK
            took = [plain.post("/predict", json={"inputs": "poor"}).elapsed for _ in range(80)]
        # the fastest quarter of one of four rounds, as other work may hold up the rest
        rounds = [sorted(took[begin : begin + 20])[5] for begin in range(0, 80, 20)]
        assert min(rounds).total_seconds() < 0.035
        answers: list[int] = []

        def ask() -> None:
            body = {"inputs": [["a fine film " * 5]] * 2000, "model": "films"}
            answers.append(httpx.post(f"{address}/predict", json=body, timeout=60).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        thread.join()
        process.wait(timeout=120)
        assert answers == [200]
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def refuse(*words: str, code: int = 2) -> str:
    """The message of a server that does not start."""
    return plmctl("serve", "checkpoint=nowhere", *words, code=code)


def test_what_is_wrong_is_said_before_a_model_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLMCTL_TOKEN", raising=False)
    assert "fix: token_file=token.txt" in refuse("host=0.0.0.0")
    (tmp_path / "empty").write_text("\n")
    for name, words in (("empty", "empty, where a token"), ("absent", "no file with a token")):
        assert words in refuse(f"token_file={tmp_path / name}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "fix: port=0" in refuse(f"port={taken.getsockname()[1]}")
    for word in ("port=70000", "port=-1", "port=x"):
        assert "port" in refuse(word)
    monkeypatch.setenv("PLMCTL_TOKEN", "a word")
    assert "fix: host=127.0.0.1" in refuse("host=no.such.host.invalid")
    assert "nowhere" in refuse("port=0", code=3)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    found = refuse()
    assert "plmctl serve needs fastapi" in found
    assert "fix: pip install " in found
    assert "uvicorn" in found
