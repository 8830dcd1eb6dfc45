"""The engine alone, with toy jobs: order, failure, a kill in the middle, signals, the rule."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.terminal import REMARK, WARN, remark
from plmctl.jobs.display import show_jobs
from plmctl.jobs.job import Job
from plmctl.jobs.journal import State
from plmctl.jobs.runners import Processes, run_here
from plmctl.jobs.work import work
from tests.config.test_broken_plugins import Halved
from tests.jobs import toy_jobs
from tests.jobs.toy_jobs import execute, job, journal, notes


def by_name(*jobs: Job) -> dict[str, Job]:
    return {each.name: each for each in jobs}


def events(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "jobs/journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [(record["event"], record["job"]) for record in map(json.loads, lines)]


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(folder: Path) -> subprocess.Popen[bytes]:
    """The program of toy_jobs, its second job at work."""
    child = subprocess.Popen([sys.executable, toy_jobs.__file__, str(folder)])
    wait_for(lambda: "second starts" in notes(folder))
    return child


def test_a_job_starts_when_what_it_needs_is_done(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    code, kept = toy_jobs.run(tmp_path, toy_jobs.chain(tmp_path))
    assert code == 0
    whole = ("first", "second", "third", "beside")
    assert notes(tmp_path) == [f"{name} {what}" for name in whole for what in ("starts", "ends")]
    assert {state.kind for state in kept.states.values()} == {"done"}
    assert all(kept.events.of(name).seconds > 0 for name in whole)


def test_so_many_at_a_time_and_no_more(tmp_path: Path) -> None:
    jobs = by_name(*(job(tmp_path, f"job{n}", starts=2 + n // 2 * 2) for n in range(4)))
    assert toy_jobs.run(tmp_path, jobs, count=2)[0] == 0
    running, most = 0, 0
    for line in notes(tmp_path):
        running += 1 if line.endswith("starts") else -1
        most = max(most, running)
    assert most == 2


def test_a_failure_ends_only_what_needs_it(tmp_path: Path) -> None:
    bad = job(tmp_path, "bad", fails="no such file\nmore of it")
    jobs = by_name(bad, job(tmp_path, "lost", "bad"), job(tmp_path, "well"))
    code, kept = toy_jobs.run(tmp_path, jobs)
    assert code == 1
    assert kept.states == {
        "bad": State("failed", "no such file\nmore of it"),
        "lost": State("skipped", "the bad failed"),
        "well": State("done"),
    }
    assert "no such file" in (kept.locate("bad") / "log.txt").read_text()
    # another start tries again what failed, and only that
    again = by_name(job(tmp_path, "bad"), jobs["lost"], jobs["well"])
    assert toy_jobs.run(tmp_path, again)[0] == 0
    assert notes(tmp_path)[3:] == ["bad starts", "bad ends", "lost starts", "lost ends"]


def test_a_lack_of_memory_has_its_fix_once_for_all_seeds_of_an_arm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ["pretrain wide, seed 0", "pretrain wide, seed 1", "pretrain deep, seed 0"]
    made = [job(tmp_path, f"job{n}", lacks_memory=True) for n in range(len(labels))]
    kept = journal(tmp_path, by_name(*map(_relabel, made, labels)))
    shown = []
    with show_jobs(kept):
        for each in kept.ready():
            code = work(kept.prepare(each), execute)
            capsys.readouterr()
            kept.conclude(each, code)
            shown.append(capsys.readouterr().err)
    assert all("out of memory" in text for text in shown)
    fix = "\n  fix: train.micro_batch_size=1  # the same training"
    assert [fix in text for text in shown] == [True, False, True]
    assert fix in kept.states["job1"].why


def test_the_warnings_of_a_job_are_in_its_journal(tmp_path: Path) -> None:
    def execute(record: dict[str, Any], run: Path) -> None:
        for line, level in (("little text", WARN), ("step 1", REMARK), ("little text", WARN)):
            remark(line, level)
        run.mkdir(parents=True)

    done = list[str]()
    kept = journal(tmp_path, by_name(job(tmp_path, "one")))
    kept.ended_one = lambda: done.append("one")
    for each in kept.ready():
        kept.conclude(each, work(kept.prepare(each), execute))
    assert kept.events.of("one").warnings == ["little text"]
    assert done == ["one"]


def test_the_trace_of_a_bug_is_in_the_log_of_its_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(record: dict[str, Any], run: Path) -> None:
        Halved()(3)

    kept = journal(tmp_path, by_name(job(tmp_path, "one")))
    assert run_here(kept, execute) == 1
    log = kept.locate("one") / "log.txt"
    place = f"{Halved.__module__.replace('.', '/')}.py:"
    why = kept.states["one"].why
    assert place in why
    assert why.endswith(f"ZeroDivisionError: division by zero (trace: {log})")
    assert "Traceback" in log.read_text()
    assert "Traceback" not in capsys.readouterr().err


def _relabel(each: Job, label: str) -> Job:
    return replace(each, label=label)


def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    child = start(tmp_path)
    wait_for(lambda: ("finished", "beside") in events(tmp_path))
    child.kill()
    assert child.wait(60) == -signal.SIGKILL
    before = notes(tmp_path)
    (tmp_path / "go").touch()
    code, _ = toy_jobs.run(tmp_path, toy_jobs.chain(tmp_path))
    assert code == 0
    new = notes(tmp_path)[len(before) :]
    # what was at work saves and ends with its parent, or just came to its end: never two at a time
    assert [line for line in new if line.startswith("third")] == ["third starts", "third ends"]
    assert not any(line.startswith(("first", "beside")) for line in new)
    assert notes(tmp_path).count("second ends") == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_jobs_and_the_exit_code(tmp_path: Path, number: int) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("the tests run under nohup, and what they start ignores this signal, too")
    child = start(tmp_path)
    child.send_signal(number)
    assert child.wait(60) == 128 + number
    assert ("interrupted", "second") in events(tmp_path)
    (tmp_path / "go").touch()
    assert toy_jobs.run(tmp_path, toy_jobs.chain(tmp_path))[0] == 0
    assert notes(tmp_path)[-2:] == ["third starts", "third ends"]
    assert notes(tmp_path).count("second ends") == 1


def test_ctrl_c_of_the_terminal_does_not_end_the_process_that_makes_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal sends it to that process, too, which imports what the jobs need by then."""
    # one of its own: the other one has imported what later tests need
    own = forkserver.ForkServer()
    names = ("set_forkserver_preload", "ensure_running", "connect_to_new_process")
    for name in (*names, "get_inherited_fds"):
        monkeypatch.setattr(forkserver, name, getattr(own, name))
    kept = journal(tmp_path, by_name(job(tmp_path, "one")))
    runner = Processes(kept, 1, execute, preload=["tests.jobs.interrupted_import"])
    try:
        assert runner.run() == 0
    finally:
        own._stop()  # type: ignore[attr-defined]
    assert kept.states["one"].kind == "done"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_killed_job_is_a_failed_one(tmp_path: Path) -> None:
    kept = journal(tmp_path, by_name(job(tmp_path, "one")))
    kept.prepare(kept.jobs["one"])
    kept.conclude(kept.jobs["one"], -9)
    assert kept.states["one"] == State("failed", "killed by signal 9")


def test_here_the_first_failure_ends_the_whole_with_its_code(tmp_path: Path) -> None:
    jobs = by_name(
        job(tmp_path, "one"), job(tmp_path, "two", "one", fails="no"), job(tmp_path, "three")
    )
    kept = journal(tmp_path, jobs)
    assert run_here(kept, execute) == 3
    assert [kept.states[name].kind for name in jobs] == ["done", "failed", "open"]
    assert os.listdir(tmp_path / "jobs" / "one" / "run") == ["made"]


def test_a_rule_stops_a_job_and_what_needs_it_without_a_failure(tmp_path: Path) -> None:
    jobs = by_name(job(tmp_path, "one"), job(tmp_path, "two", "one"), job(tmp_path, "three"))
    rule = lambda each, run: "it is hopeless" if each.name == "one" else ""  # noqa: E731
    kept = journal(tmp_path, jobs, rule=rule)
    assert run_here(kept, execute) == 0
    assert kept.states["one"] == State("stopped", "stopped early: it is hopeless")
    assert kept.states["two"] == State("skipped", "the one was stopped early")
    assert kept.states["three"].kind == "done"
    # without the rule, what it stopped goes on
    assert journal(tmp_path, jobs).states["one"].kind == "open"


def test_what_is_gone_is_made_again(tmp_path: Path) -> None:
    jobs = by_name(job(tmp_path, "one"))
    assert run_here(journal(tmp_path, jobs), execute) == 0
    (tmp_path / "jobs/one/run/made").unlink()
    (tmp_path / "jobs/one/run").rmdir()
    assert journal(tmp_path, jobs).states["one"].kind == "open"
