"""What one sees of jobs: a table on a terminal that is gone at the end, lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plmctl.jobs.display import read_progress
from tests.jobs import toy_jobs
from tests.jobs.toy_jobs import job


@pytest.mark.parametrize(
    ("lines", "steps", "shown"),
    [
        (toy_jobs.PRINTED, 300, ("120 of 300", "mlm 5.31 (18.2%)  nsp 0.69", "3:20")),
        (toy_jobs.PRINTED, None, ("120 (40%)", "mlm 5.31 (18.2%)  nsp 0.69", "3:20")),
        (["step 7  loss 1.2", "a warning"], None, ("7", "loss 1.2", "")),
        (["1,000 of 2,000 documents, 3 a second, 5:00 left", ""], None, ("", ..., "")),
        ([], None, ("", "", "")),
    ],
)
def test_the_newest_line_of_a_log_says_how_far_a_job_is(
    tmp_path: Path, lines: list[str], steps: int | None, shown: tuple[object, ...]
) -> None:
    log = tmp_path / "log.txt"
    log.write_text("x" * 5000 + "\n" + "".join(f"{line}\n" for line in lines))
    shown = tuple(lines[0] if each is ... else each for each in shown)
    expected = ("", "x" * 2047, "") if not lines else shown
    assert read_progress(log, job(tmp_path, "one", train={"steps": steps})) == expected
    assert read_progress(tmp_path / "none", job(tmp_path, "one")) == ("", "", "")


def run_on_a_terminal(folder: Path, until: str) -> tuple[int, str]:
    """Run the program of toy_jobs on a terminal of 100 columns, and send it a Ctrl-C when it has
    printed `until`; its exit code, and all that it printed.
    """
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    command = [sys.executable, toy_jobs.__file__, str(folder)]
    program = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    printed, deadline, sent = "", time.monotonic() + 240, False
    while time.monotonic() < deadline:
        if select.select([parent], [], [], 0.1)[0]:
            try:
                printed += os.read(parent, 65536).decode(errors="replace")
            except OSError:  # the program has closed it
                break
        if until in printed and not sent:
            program.send_signal(signal.SIGINT)
            sent = True
    os.close(parent)
    return program.wait(60), printed


@pytest.mark.slow  # test_engine.py hears signals
def test_ctrl_c_leaves_a_clean_terminal_and_a_folder_that_goes_on(tmp_path: Path) -> None:
    code, printed = run_on_a_terminal(tmp_path, until="120 of 300")
    assert code == 130
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed)
    for text in ("2 of 4 jobs ended", "the second", "mlm 5.31 (18.2%)", "nsp 0.69", "3:20"):
        assert text in shown
    assert "[1/4] finished: the" in shown
    assert "interrupted: the second" in shown
    # the cursor is back, and nothing is drawn behind that
    assert printed.rindex("\x1b[?25h") > printed.rindex("\x1b[?25l")
    assert "jobs ended" not in printed[printed.rindex("\x1b[?25h") :]
    (tmp_path / "go").touch()
    assert toy_jobs.run(tmp_path, toy_jobs.chain(tmp_path))[0] == 0


def test_elsewhere_there_is_a_line_for_each_event(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = {"bad": job(tmp_path, "bad", fails="no\nroom"), "one": job(tmp_path, "one", "bad")}
    assert toy_jobs.run(tmp_path, jobs)[0] == 1
    assert capfd.readouterr().err.splitlines() == [
        "[0/2] started: the bad",
        "[1/2] failed: the bad: no",
        "[2/2] skipped: the one: the bad failed",
    ]


def test_a_failed_job_says_how_to_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jobs = {"bad": job(tmp_path, "bad", fails="optim.lr=-1: above 0\n  fix: optim.lr=1e-3")}
    assert toy_jobs.run(tmp_path, jobs)[0] == 1
    assert capfd.readouterr().err.splitlines()[1:] == [
        "[1/1] failed: the bad: optim.lr=-1: above 0",
        "  fix: optim.lr=1e-3",
    ]
