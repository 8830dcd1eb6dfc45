"""A busy machine is said where several threads would wait for each other."""

from __future__ import annotations

import os

import pytest

from plmctl.training.processes.threads import describe_busy


@pytest.mark.parametrize(
    ("threads", "load", "told"), [(2, 8.0, True), (1, 8.0, False), (2, 1.0, False)]
)
def test_a_busy_machine_is_said(
    threads: int, load: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    line = describe_busy(threads)
    assert ("train.threads=1" in line) == told
    assert ("load 8 on 2 processors" in line) == told
