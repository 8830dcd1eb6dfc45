"""Reports of a run on itself: the slowest process, the wait for data, traces of updates."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from plmctl.training.device.profiler import Profiler
from plmctl.training.device.stopwatch import Stopwatch
from plmctl.training.lag import Lag
from plmctl.training.log import format_line, read_metrics
from plmctl.training.processes.world import NOTHING, World
from plmctl.training.stages import Stage
from tests.command import plmctl
from tests.training.toy import ToyBatches, make_trainer


def exchange(lags: list[Lag]) -> None:
    """One update: the counts of all are summed, and each adds the sum."""
    every = [lag.counts() for lag in lags]
    assert len({tuple(counts) for counts in every}) == 1  # the same names, as a sum needs them
    total = {name: sum(counts[name] for counts in every) for name in every[0]}
    for lag in lags:
        lag.add(total)


def test_the_slowest_of_four() -> None:
    lags = [Lag(World(rank, 4)) for rank in range(4)]
    computed = [1.0, 1.0, 1.0, 1.1]
    for _ in range(3):
        for lag, seconds in zip(lags, computed, strict=True):
            lag.compute(seconds)
            lag.wait(0.02 if lag is lags[3] else 0.0)
        exchange(lags)
    assert all(lag.figures() == {"slowest_rank": 3, "slowest_over": 0.12} for lag in lags)
    assert all(lag.waited == pytest.approx(0.06) for lag in lags)
    for lag in lags:
        lag.clear()
    lags[1].wait(1e-3)
    exchange(lags)
    assert lags[0].figures() == {}  # no time of a pass has come
    record = {"step": 7, "data_wait": 0.02, "slowest_rank": 3, "slowest_over": 0.12}
    assert format_line(record) == "step 7  wait 2%  slowest rank 3 +12%"


def test_one_process_is_not_the_slowest(tmp_path: Path) -> None:
    make_trainer(tmp_path, steps=2, settings={"log_every": 1}).fit()
    assert all("slowest_rank" not in record for record in read_metrics(tmp_path / "metrics.jsonl"))


class Pair(World):
    """Two processes as threads of one, which meet where counts are summed."""

    meeting = threading.Barrier(2, timeout=60)
    given: tuple[dict[str, int], dict[str, int]] = ({}, {})
    sums = 0

    def sum_counts(
        self, counts: Mapping[str, int], also: Mapping[str, int] = NOTHING
    ) -> dict[str, int]:
        counts = {**counts, **also}
        self.given[self.rank].clear()
        self.given[self.rank].update(counts)
        self.meeting.wait()
        total = {name: sum(own[name] for own in self.given) for name in counts}
        self.meeting.wait()
        type(self).sums += self.rank == 0
        return total


def test_a_stopwatch_measures_between_its_marks() -> None:
    watch = Stopwatch(torch.device("cpu"))
    assert watch.seconds() == 0.0
    watch.begin()
    time.sleep(0.01)
    watch.end()
    measured = watch.seconds()
    assert measured >= 0.01
    time.sleep(0.01)
    assert watch.seconds() == measured


def test_the_slowest_is_found_without_a_further_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(rank: int) -> None:
        world = Pair(rank, 2)
        trainer = make_trainer(
            tmp_path / str(rank),
            steps=4,
            world=World(),
            stages=[Stage(batches=lambda: ToyBatches(8, 8, World()))],
            settings={"log_every": 2},
        )
        trainer.strategy.world, trainer.lag = world, Lag(world)
        # far above any wait of this machine
        monkeypatch.setattr(trainer.update.stopwatch, "seconds", lambda: 3e3 if rank else 1e3)
        trainer.fit()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = [read_metrics(tmp_path / name / "metrics.jsonl") for name in "01"]
    for first, second in zip(*records, strict=True):
        assert first.get("slowest_rank") == second.get("slowest_rank")
        if first["step"] > 1:  # the time of the first update travels with the second
            assert first["slowest_rank"] == 1
            assert first["slowest_over"] == pytest.approx(2.0, rel=0.1)
        else:
            assert "slowest_rank" not in first
    assert Pair.sums == 4  # one for each update


def test_a_trace_of_some_updates(tmp_path: Path) -> None:
    said: list[str] = []
    profiler = Profiler((2, 3), folder=tmp_path / "profile", say=said.append)
    make_trainer(tmp_path, steps=4, profiler=profiler).fit()
    (file,) = (tmp_path / "profile").iterdir()
    assert file.name == "updates-2-3.rank0.pt.trace.json"
    events = json.loads(file.read_text())["traceEvents"]
    assert {e["name"] for e in events if e.get("name", "").startswith("update ")} == {
        "update 2",
        "update 3",
    }
    assert any(event.get("name") == "aten::addmm" for event in events)
    head, *rows, place = said[0].splitlines()
    assert head.startswith("operators by their own time on the CPU, ms (")
    assert str(file) in place
    own = [float(row.split()[0].replace(",", "")) for row in rows]
    assert own == sorted(own, reverse=True)
    assert len(own) == 8
    assert not torch.autograd._profiler_enabled()


def test_a_trace_ends_with_the_run(tmp_path: Path) -> None:
    profiler = Profiler((2, 9), folder=tmp_path / "profile", rank=1, say=lambda line: None)
    make_trainer(tmp_path, steps=3, profiler=profiler).fit()
    assert [file.name for file in (tmp_path / "profile").iterdir()] == [
        "updates-2-3.rank1.pt.trace.json"
    ]
    assert not torch.autograd._profiler_enabled()


def test_updates_that_are_not_made_are_not_recorded(tmp_path: Path) -> None:
    said: list[str] = []
    profiler = Profiler((20, 22), folder=tmp_path / "profile", say=said.append)
    make_trainer(tmp_path, steps=2, profiler=profiler).fit()
    assert not (tmp_path / "profile").exists()
    assert said == ["train.profile=[20,22]: no trace, the run ended after update 2"]


@pytest.mark.parametrize("wrong", ["[3]", "[5,4]", "[0,2]", "3", "[1,2,3]"])
def test_updates_that_are_no_range(wrong: str) -> None:
    said = plmctl("pretrain", "size=tiny", f"train.profile={wrong}", "--dry-run", code=2)
    assert "train.profile" in said
    assert "[first,last] or []" in said or "1 or more" in said or "a list" in said
