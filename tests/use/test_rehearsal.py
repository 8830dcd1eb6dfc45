"""The time that a few answers foresee."""

from __future__ import annotations

import pytest

from plmctl.core.progress import Took
from plmctl.use import rehearsal
from plmctl.use.rehearsal import Rehearsal, rehearse


def test_the_time_of_all_is_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a millisecond each: 8 first, then 32, 128 and so on, until they take a second."""
    tried: list[int] = []

    def take(work: object) -> Took:
        work()  # type: ignore[operator]
        return Took(0.001 * tried[-1], 0.002 * tried[-1])

    monkeypatch.setattr(rehearsal.Took, "by", take)
    found = rehearse("t", range(4000), lambda some: tried.append(len(some)), start=0.0)
    assert tried == [8, 32, 128, 512]
    assert found.costs["seconds"] == pytest.approx(4.0)
    assert rehearse("t", range(3), lambda some: tried.append(len(some))).tried == 3
    known = rehearse("t", range(64), lambda some: tried.append(len(some)), count=90_000, start=5.0)
    assert known.costs["seconds"] == pytest.approx(95.0)
    assert known.costs["busy_seconds"] == pytest.approx(190.0)
    assert "1:35, or 3:10 while" in str(known.tabulate().extra["time"])


def test_a_stream_has_a_time_a_row() -> None:
    found = Rehearsal("t", None, 10, Took(0.5, 0.5), 1000)
    assert found.costs == {"bytes": 1000}
    assert str(found.tabulate().extra["time"]).startswith("50 ms a row")
