"""Two gloo processes do what one does."""

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from plmctl.core.errors import UsageError
from plmctl.training.processes.launch import launch
from plmctl.training.processes.watch import RANKS, Watch
from plmctl.training.processes.world import World, check_alike
from tests.forked import fork_processes
from tests.training import toy_process
from tests.training.toy import curve

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path, monkeypatch):
    fork_processes(monkeypatch)

    def start(processes, name, *argv):
        words = [str(tmp_path / name), *map(str, argv)]
        if processes == 1:
            return toy_process.main(*words)
        return launch(processes, words, module="tests.training.toy_process")

    return start


@pytest.mark.slow  # two processes make the same run in tests/commands/test_pretrain_command.py
def test_two_processes_are_one(tmp_path, run):
    """Same losses, every row once, one writer, a signal to one stops both, resume on another
    number of processes.
    """
    assert run(1, "one", 6, 4) == 0
    assert run(2, "two", 6, 2, "signal=3") == 143
    assert {p.name for p in (tmp_path / "two" / "checkpoints").iterdir()} == {"step-2", "step-4"}
    rows = [(tmp_path / "two" / f"rows-{rank}.txt").read_text().split() for rank in range(2)]
    assert sorted(map(int, rows[0] + rows[1])) == list(range(32))
    assert run(1, "two", 6, 8, "resume") == 0
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    assert len(one) == len(two) == 9
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    a, b = (
        load_file(tmp_path / name / "checkpoints/step-6/model.safetensors")
        for name in ("one", "two")
    )
    assert all((a[k] - b[k]).abs().max() < 1e-5 for k in a)


def test_the_first_failure_ends_all_and_is_the_exit_code(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("plmctl.training.processes.launch.GRACE", 0.5)
    assert launch(2, [], module="tests.training.toy_failure") == 7


def test_a_lost_process_is_named_and_a_start_anew_ends_the_same(tmp_path, run, capfd):
    """Killed between two checkpoints; the newest one counts, and no update is in the log twice."""
    words = [str(tmp_path / "two"), "6", "2", "resume", "kill=5"]
    assert launch(2, words, module="tests.training.toy_process", restarts=1) == 0
    said = capfd.readouterr().err
    assert "plmctl: process 1 was ended by SIGKILL" in said
    assert "plmctl: process 0 ends: process 1 on " in said
    assert re.search(r"has ended \(it \w+.*, after update \d\)", said)
    assert "start 1 of 1 anew, from the newest checkpoint" in said
    run(1, "one", 6, 4)
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    assert [record["step"] for record in one] == [record["step"] for record in two]
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert not (tmp_path / "two" / RANKS).exists()


@pytest.mark.slow  # two of them do, above
def test_one_process_alone_starts_anew(tmp_path, run, capfd):
    words = [str(tmp_path / "one"), "6", "4", "resume", "end=5:exit"]
    assert launch(1, words, module="tests.training.toy_process", restarts=1) == 0
    said = capfd.readouterr().err
    assert "plmctl: process 0 ended with exit code 9\n" in said
    assert "start 1 of 1 anew, from the newest checkpoint" in said
    assert [record["step"] for record in curve(tmp_path / "one")][-1] == 6


@pytest.mark.slow  # the watch names them in a test of its own
def test_a_hung_process_is_named_with_its_phase(tmp_path, run, capfd, monkeypatch):
    monkeypatch.setattr("plmctl.training.processes.launch.GRACE", 0.5)
    began = time.monotonic()
    assert run(2, "two", 6, 2, "hang=3", "timeout=2") == 1
    assert time.monotonic() - began < 40
    said = capfd.readouterr().err
    stuck = r"process 0 ends: process 1 on \S+ computes for \d+ s \(after update 2\)"
    assert re.search(stuck, said)


def read_ranks(folder, *states, age=0.0):
    """A watch of the first of several processes, with the signs of life of the others."""
    watch = Watch(folder, rank=0, size=1 + len(states), timeout=60)
    watch.folder.mkdir(parents=True)
    for rank, state in enumerate(states, 1):
        base = {"step": 7, "phase": "computes", "host": "far", "pid": 1, "waits": False}
        file = watch.folder / f"{rank}.json"
        file.write_text(json.dumps({**base, "seconds": 9.0, **state}))
        os.utime(file, (time.time() - age, time.time() - age))
    return watch.find_missing(patience=0.0)


def test_the_watch_names_lost_failed_and_stuck_processes(tmp_path):
    def read(*states, age=0.0):
        return read_ranks(tmp_path / str(len(list(tmp_path.iterdir()))), *states, age=age)

    (tmp_path / "0").mkdir()
    assert "process 1 on far has given no sign of life for 60 s" in read({}, age=60)
    assert read({"waits": True}) == ""
    assert read({"waits": True}, {}) == "process 2 on far computes for 9 s (after update 7)"
    failed = {"phase": "has failed: no space", "waits": True}
    assert read({}, failed) == "process 2 on far has failed: no space (after update 7)"
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = {"host": platform.node(), "waits": True}
    assert "process 1 on" in read({**here, "pid": gone.pid})
    assert read({**here, "pid": os.getpid()}) == ""


@pytest.mark.parametrize(
    ("versions", "clock", "said"),
    [
        ("plmctl 1, torch 2", 0.0, None),
        ("plmctl 1, torch 1", 0.0, "process 1 on b has plmctl 1, torch 1"),
        ("plmctl 1, torch 2", -40.0, "process 1 on b is 40 s behind that of process 0 on a"),
    ],
)
def test_other_software_and_clocks_are_named_before_work(versions, clock, said):
    class Two(World):
        def exchange(self, value):
            return [("plmctl 1, torch 2", "a", 100.0), (versions, "b", 100.0 + clock)]

    lines = []
    if clock or not said:
        check_alike(Two(size=2), lines.append)
        assert len(lines) == bool(said)
        assert said is None or said in lines[0]
    else:
        with pytest.raises(UsageError, match=said):
            check_alike(Two(size=2), lines.append)


@pytest.mark.slow  # the first failure stays, and the message of one process
def test_a_full_disk_is_one_line_of_each_process(tmp_path, run, capfd):
    assert run(2, "run", 2, 4, "full") == 1
    said = capfd.readouterr().err
    assert (
        "No space left on device; there is no earlier checkpoint\n  fix: # free some space" in said
    )
    assert "plmctl: process 1 ends: process 0 on " in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_under_torchrun(tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "tests.training.toy_process",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, str(tmp_path / "run"), "2", "4"], env=environment, check=True, timeout=100
    )
    assert (tmp_path / "run/checkpoints/step-2/manifest.json").exists()
