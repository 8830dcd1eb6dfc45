"""Memory and size of a report against the lines of a log and the number of runs."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from plmctl.analysis.runs import MOST, RunLog
from plmctl.report.page import render_html
from plmctl.report.subject import DETAILED, ReportedRun, find_subject
from plmctl.report.write import make_blocks
from tests.report import fabricated


def measure_peak(folder: Path) -> int:
    """Bytes at the peak of reading a run."""
    tracemalloc.start()
    RunLog.read(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow  # a matter of long runs
def test_memory_does_not_grow_with_the_lines_of_a_log(tmp_path: Path) -> None:
    short = fabricated.run(tmp_path / "short", steps=2 * MOST)
    long = fabricated.run(tmp_path / "long", steps=6 * MOST)
    RunLog.read(short)  # imports and caches
    assert measure_peak(long) < 1.5 * measure_peak(short)


@pytest.mark.parametrize("steps", [1, 2, MOST - 1, MOST, MOST + 1, 3 * MOST + 7])
def test_a_long_curve_keeps_its_first_and_last_point(tmp_path: Path, steps: int) -> None:
    whole = RunLog.read(fabricated.run(tmp_path / "run", steps=steps), most=None).series["loss"]
    assert len(whole) == steps
    thinned = RunLog.read(tmp_path / "run").series["loss"]
    assert min(steps, MOST // 2) <= len(thinned) <= MOST
    assert (thinned[0], thinned[-1]) == (whole[0], whole[-1])
    assert set(thinned) <= set(whole)
    gaps = {b[0] - a[0] for a, b in pairwise(thinned[:-1])}
    assert len(gaps) <= 1  # evenly spaced, but for the last one


def test_runs_of_unlike_lengths_keep_common_updates(tmp_path: Path) -> None:
    curves = [
        RunLog.read(fabricated.run(tmp_path / str(steps), steps=steps)).series["loss"]
        for steps in (3 * MOST, 5 * MOST)
    ]
    steps = [{step for step, _ in curve} for curve in curves]
    assert len(steps[0] & steps[1]) >= MOST // 4


def test_a_page_of_many_runs_reads_few_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()

    def note(run: ReportedRun) -> dict[str, list[dict[str, object]]]:
        read.add(run.name)
        return {"dev": [{"id": "0", "gold": "a", "guess": "b", "probabilities": {"b": 1.0}}] * 50}

    monkeypatch.setattr(ReportedRun, "predictions", property(note))
    folders = [fabricated.run(tmp_path / f"run_{n}", steps=400) for n in range(60)]
    (folders[-1] / "predictions").mkdir()
    pages = {}
    for count in (DETAILED, 30, 60):
        read.clear()
        pages[count] = render_html(make_blocks(find_subject(folders[:count])), title="")
        assert read == {f"run_{n}" for n in range(DETAILED)}
    assert f"first {DETAILED} of 60 runs; plmctl report {folders[-1]} shows" in pages[60]
    assert "of the first" not in pages[DETAILED]
    assert len(pages[60]) - len(pages[30]) < 30 * 4_000


def test_a_log_with_a_cut_line_is_read_up_to_it(tmp_path: Path) -> None:
    folder = fabricated.run(tmp_path / "run", steps=5)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 6, "loss": 1.0})[:9])
    log = RunLog.read(folder)
    assert (log.cut, log.step) == (True, 5)
