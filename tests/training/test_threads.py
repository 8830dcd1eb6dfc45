"""Threads wait without holding a processor, and a busy machine is said."""

from __future__ import annotations

import os
import signal

import pytest

from plmctl.__main__ import main
from plmctl.cli import app
from plmctl.training.processes.threads import describe_busy

WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.mark.parametrize(
    ("given", "count"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_a_command_lets_threads_sleep(
    given: dict[str, str], count: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    monkeypatch.setattr(app, "import_command", lambda words: seen.append(os.getenv(WAITING[0])))
    monkeypatch.setattr(app, "main", lambda: None)
    for name in WAITING:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    main()
    assert seen == [count]


@pytest.mark.parametrize(("load", "told"), [(8.0, True), (1.0, False)])
def test_a_busy_machine_is_said(load: float, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert ("load 8 on 2 processors" in describe_busy()) == told
