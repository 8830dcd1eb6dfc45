"""Two gloo processes do what one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from plmctl.training.processes.launch import launch
from tests.training import toy_process
from tests.training.toy import curve

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

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


@pytest.mark.slow  # the first failure stays, and the message of one process
def test_a_full_disk_is_one_line_of_each_process(tmp_path, run, capfd):
    assert run(2, "run", 2, 4, "full") == 1
    said = capfd.readouterr().err
    assert (
        "No space left on device; there is no earlier checkpoint\n  fix: # free some space" in said
    )
    assert "plmctl: process 1 ends, because another one has ended (" in said
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
