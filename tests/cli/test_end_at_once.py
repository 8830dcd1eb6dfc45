"""Ctrl-C before a command has written anything."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from plmctl.cli.mistakes import end_at_once, report_mistakes


def test_ctrl_c_before_anything_is_written_ends_the_process(
    capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where Python would lose the exception, as in an import."""
    monkeypatch.setattr("sys.argv", ["plmctl", "pretrain", "bert"])
    child = os.fork()
    if not child:  # pragma: no cover
        signal.signal(signal.SIGINT, signal.default_int_handler)
        lost = contextlib.suppress(KeyboardInterrupt)
        with report_mistakes(), end_at_once(), lost:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    told = "plmctl: stopped before it began. To go on:\n  plmctl pretrain bert\n"
    assert capfd.readouterr().err == told
