"""Processes meet at a port that nobody else can take, and a lost one leaves no traceback."""

import socket
from pathlib import Path

import pytest

from plmctl.training.processes import launch as launching
from plmctl.training.saving import worker

CHILD = """
import os, socket, sys
port = int(os.environ["MASTER_PORT"])
door = os.environ.get("PLMCTL_DOOR")
if os.environ["RANK"] != "0":
    assert door is None  # one process accepts
    socket.create_connection(("127.0.0.1", port)).sendall(b"1")
    sys.exit()
with socket.socket(fileno=int(door)) as listener:
    assert listener.getsockname()[1] == port
    assert listener.accept()[0].recv(1) == b"1"
"""


def test_the_first_process_has_the_open_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "meeting_child.py").write_text(CHILD, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    taken = []

    def start(*given, **more):
        """Take the port, as another program may just before the first process starts."""
        port = int(more["env"]["MASTER_PORT"])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        taken.append(port)
        return popen(*given, **more)

    popen = launching.subprocess.Popen
    monkeypatch.setattr(launching.subprocess, "Popen", start)
    assert launching.launch(2, [], module="meeting_child") == 0
    assert len(taken) == 2
    with socket.socket() as later:  # and the launcher keeps nothing open
        later.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        later.bind(("127.0.0.1", taken[0]))


def test_a_lost_peer_is_the_answer_to_an_order(monkeypatch: pytest.MonkeyPatch):
    def lose(*given):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")

    def fail(*given):
        raise RuntimeError("a mistake of ours")

    order = type("Order", (), {"size": 0, "staged": None})
    monkeypatch.setattr(worker.mmap, "mmap", lambda *given: None)
    monkeypatch.setattr(worker, "save_order", lose)
    assert worker._save(order, -1, None) == "another process that saves has ended"
    monkeypatch.setattr(worker, "save_order", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        worker._save(order, -1, None)
