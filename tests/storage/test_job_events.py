"""The journal of a folder of jobs: whole lines, torn lines, folders from before there was one."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from plmctl.jobs.runners import run_here
from plmctl.storage.job_events import JobEvents
from plmctl.storage.lines import append_line, read_lines
from tests.jobs.toy_jobs import execute, job, journal


def append_many(file: Path, writer: int) -> None:
    for number in range(200):
        append_line(file, {"writer": writer, "number": number, "text": "x" * (number % 7 * 1000)})


@pytest.mark.slow  # starts processes
def test_lines_of_several_writers_stay_whole(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lines.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=append_many, args=(file, each)) for each in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 600
    for each in range(3):
        assert [line["number"] for line in lines if line["writer"] == each] == list(range(200))


def test_a_torn_line_is_passed_over_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    append_line(file, {"n": 1}, durable=True)
    with file.open("a") as stream:
        stream.write('{"n": 2, "text": "a kill cut th')
    records, end = read_lines(file)
    assert records == [{"n": 1}]
    append_line(file, {"n": 3})
    assert read_lines(file)[0] == [{"n": 1}, {"n": 3}]
    assert read_lines(file, end)[0] == [{"n": 3}]
    assert read_lines(tmp_path / "none.jsonl", 7) == ([], 7)


def test_the_last_event_counts_and_seconds_add_up(tmp_path: Path) -> None:
    events = JobEvents(tmp_path)
    events.write("started", "one", label="the one")
    events.write("interrupted", "one", seconds=2.0)
    JobEvents(tmp_path).write("finished", "one", seconds=0.5, kept=False)  # another process
    assert events.of("one").event == "interrupted"
    events.read()
    last = events.of("one")
    assert (last.event, last.label, last.kept, last.seconds) == ("finished", "the one", False, 2.5)
    events.write("started", "one")
    assert (events.of("one").kept, events.of("one").seconds) == (True, 2.5)


def test_a_torn_end_leaves_a_job_open(tmp_path: Path) -> None:
    jobs = {"one": job(tmp_path, "one")}
    assert run_here(journal(tmp_path, jobs), execute) == 0
    file = tmp_path / "jobs/journal.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    kept = journal(tmp_path, jobs)
    assert kept.states["one"].kind == "open"
    assert run_here(kept, execute) == 0
    assert journal(tmp_path, jobs).states["one"].kind == "done"


@pytest.mark.parametrize("gone", ["run", "."])
def test_a_finished_job_whose_run_is_gone_is_open(tmp_path: Path, gone: str) -> None:
    import shutil

    jobs = {"one": job(tmp_path, "one")}
    assert run_here(journal(tmp_path, jobs), execute) == 0
    shutil.rmtree(tmp_path / "jobs/one" / gone)
    kept = journal(tmp_path, jobs)
    assert kept.states["one"].kind == "open"
    assert run_here(kept, execute) == 0
    assert (tmp_path / "jobs/one/run/made").is_file()
