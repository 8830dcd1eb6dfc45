"""Processes that another one has started end with it, and a second Ctrl-C ends those that hear
nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plmctl.core import children as following
from plmctl.training.processes.launch import launch

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)


def wait_for(there: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(number: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir()]


def test_the_second_signal_ends_processes_that_hear_nothing(tmp_path: Path) -> None:
    def twice() -> None:
        wait_for(lambda: len(children(tmp_path)) == 2)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        began.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    began: list[float] = []
    thread = threading.Thread(target=twice)
    thread.start()
    assert launch(2, [str(tmp_path)], module="tests.training.toy_child") == 130
    thread.join()
    assert time.monotonic() - began[0] < 30  # they would hear nothing for minutes
    assert not any(map(alive, children(tmp_path)))


CODE = """
from plmctl.training.processes.launch import launch
launch(2, ['{}'], module='tests.training.toy_child')
"""


@pytest.mark.slow  # test_the_second_signal_ends_processes_that_hear_nothing stays
def test_processes_end_with_the_one_that_launched_them(tmp_path: Path) -> None:
    """They ignore the signal that lets a training save, so that only the hard end is left."""
    launcher = subprocess.Popen([sys.executable, "-c", CODE.format(tmp_path)])
    wait_for(lambda: len(children(tmp_path)) == 2)
    numbers = children(tmp_path)
    assert all(map(alive, numbers))
    launcher.kill()
    launcher.wait()
    wait_for(lambda: not any(map(alive, numbers)), 20)


def test_a_worker_of_a_launcher_follows_it_and_the_launcher_itself_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(following, "end_after", lambda wait, **others: begun.append(wait))
    following.follow_launcher(os.getpid())
    assert not begun
    following.follow_launcher(os.getpid() + 1)
    following.follow_launcher(os.getpid() + 1)  # its second job
    assert len(begun) == 1
    following._following.clear()
    monkeypatch.setenv(following.PARENT, "7")
    following.follow_starter()
    assert following.PARENT not in os.environ  # what this one starts does not look for number 7
    assert len(begun) == 2


def test_the_command_line_follows_what_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from plmctl.cli import app as cli

    followed: list[bool] = []
    monkeypatch.setattr(cli, "follow_starter", lambda: followed.append(True))
    monkeypatch.setattr(sys, "argv", ["plmctl", "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    assert followed == [True]
