"""Jobs of a cluster: the words, the script, and the four endings by submitit's local executor."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import submitit
from safetensors.torch import load_file

from plmctl.config.compose import compose
from plmctl.config.launcher import Launcher, read_launcher, take_launcher
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.jobs import cluster, on_cluster
from plmctl.jobs.cluster import LOST, Cluster, _refuse_waiting
from plmctl.jobs.on_cluster import ClusterJob, NodeRun
from plmctl.jobs.work import Outcome
from tests.training import toy_process
from tests.training.toy import curve, same

ROOT = Path(__file__).parents[2]
TOY = "tests.training.toy_process"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def wait_for(job: Any) -> None:
    deadline = time.monotonic() + 120
    while not job.done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def start_again(job: Any, folder: Path) -> None:
    """Start what was submitted, as SLURM does on another machine after the loss of one."""
    numbers = {"JOB_ID": job.job_id, "NTASKS": 1, "JOB_NUM_NODES": 1, "NODEID": 0}
    numbers |= {"GLOBALID": 0, "LOCALID": 0}
    own = {f"SUBMITIT_LOCAL_{name}": str(value) for name, value in numbers.items()}
    command = [sys.executable, "-m", "submitit.core._submit", str(folder)]
    subprocess.run(command, env={**os.environ, **own, "SUBMITIT_EXECUTOR": "local"}, check=True)


slow = pytest.mark.slow  # the first of them takes the way of all


@pytest.mark.parametrize(
    "how",
    [
        "preempt",
        pytest.param("node", marks=slow),
        pytest.param("wait", marks=slow),  # for the end of its minutes
        pytest.param("exit", marks=slow),
    ],
)
def test_whatever_ends_a_job_it_goes_on_and_ends_with_the_same_numbers(
    tmp_path: Path, how: str
) -> None:
    folder, minutes = tmp_path / "submitted", {"minutes": 1, "warning": 45}
    launcher = Launcher(cluster="local", **(minutes if how == "wait" else {}))
    argv = (str(tmp_path / "two"), "8", "8", "resume", f"end=5:{how}")
    call = ClusterJob(NodeRun(argv, 1, restarts=1, module=TOY), str(ROOT), ends=True)
    (job,) = Cluster(launcher, folder).submit([call])
    wait_for(job)
    assert (tmp_path / "two" / "ended").exists()
    assert job.submission().function == call  # nothing of the progress
    if how == "node":
        assert not job.paths.result_pickle.exists()
        start_again(job, folder)
    assert job.result() == Outcome(0)
    assert toy_process.main(str(tmp_path / "one"), "8", "8") == 0
    assert curve(tmp_path / "one") == curve(tmp_path / "two")
    one, two = (
        load_file(tmp_path / name / "checkpoints/step-8/model.safetensors")
        for name in ("one", "two")
    )
    assert same(one, two)
    said = job.stderr() + job.stdout()
    assert ("Requeued job" in said) == (how in ("preempt", "wait"))
    assert ("start 1 of 1 anew" in said) == (how == "exit")


@pytest.mark.parametrize(
    ("code", "cancelled", "again", "ends"),
    [
        (0, False, False, False),
        (1, False, False, True),
        (128 + signal.SIGUSR2, False, True, False),
        (128 + signal.SIGUSR1, False, True, False),
        (128 + signal.SIGTERM, False, True, False),
        (128 + signal.SIGTERM, True, False, False),
        (128 + signal.SIGINT, False, False, True),
    ],
)
def test_a_warned_job_waits_for_its_turn_and_a_cancelled_one_does_not(
    monkeypatch: pytest.MonkeyPatch, code: int, cancelled: bool, again: bool, ends: bool
) -> None:
    monkeypatch.setattr(on_cluster, "_is_cancelled", lambda: cancelled)
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    monkeypatch.setattr(submitit, "JobEnvironment", submitit.local.local.LocalJobEnvironment)
    try:
        call = ClusterJob(lambda: Outcome(code), ".", ends=True)
        if ends:
            with pytest.raises(SystemExit):
                call()
        else:
            assert call() == Outcome(code)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert heard == [code - 128] * again


def do_job(file: Path, how: str) -> Outcome:
    """A job that leaves a line; its first start is lost if `how` says so."""
    first = not file.exists()
    with file.open("a") as out:
        out.write("started\n")
    if how == "lost" or (how == "once" and first):
        os._exit(7)
    return Outcome(0, result=how)


@pytest.mark.slow  # three jobs are five starts of Python; the endings are above
def test_lost_jobs_are_submitted_again(tmp_path: Path) -> None:
    hows = ("well", "once", "lost")
    calls = [ClusterJob(partial(do_job, tmp_path / how, how), str(ROOT)) for how in hows]
    ended: dict[int, Outcome] = {}
    launcher = Launcher(cluster="local", restarts=1, parallel=2)
    assert Cluster(launcher, tmp_path / "submitted").run(calls, ended.__setitem__) == 0
    assert ended[0] == Outcome(0, result="well")
    assert ended[1] == Outcome(0, result="once")
    assert ended[2].code == LOST
    assert [len((tmp_path / how).read_text().split()) for how in hows] == [1, 2, 2]


def test_the_words_are_read_and_refused() -> None:
    words = ("launcher=slurm", "nodes=4", "launcher.gpus=8", "launcher.setup=[module load cuda]")
    given = take_launcher(Provenance("pretrain", overrides=("optim.lr=1", *words)))
    assert given.overrides == ("optim.lr=1",)
    expected = Launcher(nodes=4, gpus=8, setup=("module load cuda",))
    assert read_launcher(given.launcher) == expected
    assert read_launcher(("hydra/launcher=joblib",)) is None
    for bad, said in (
        (("launcher=slrum",), "must be one of slurm, local"),
        (("launcher=slurm", "launcher.partion=a"), "did you mean 'partition'"),
        (("launcher=slurm", "nodes=0"), "1 or more"),
        (("launcher=slurm", "nodes=four"), "a whole number"),
        (("launcher.gpus=1",), "of which launcher?"),
        (("launcher=local", "nodes=2"), "1 with launcher=local"),
    ):
        with pytest.raises(UsageError, match=said.replace("?", r"\?")):
            take_launcher(Provenance("pretrain", overrides=bad))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            Provenance(
                "ablate",
                "gpt_lstm",
                launcher=("hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu"),
            ),
            "plmctl ablate gpt_lstm launcher=slurm launcher.partition=gpu",
        ),
        (
            Provenance(
                "pretrain",
                "bert",
                (
                    "seed=1,2",
                    "hydra/launcher=submitit_local",
                    "hydra.launcher.timeout_min=60",
                    "hydra.launcher.comment=mine",
                ),
            ),
            "plmctl pretrain bert -m seed=1,2 launcher=local launcher.minutes=60"
            " 'launcher.more={comment: mine}'",
        ),
    ],
)
def test_the_launcher_of_hydra_is_answered_with_the_line_of_today(
    given: Provenance, line: str
) -> None:
    with pytest.raises(UsageError, match="plmctl submits its jobs itself") as refused:
        take_launcher(given)
    fix = str(refused.value).partition("fix: ")[2]
    assert shlex.split(fix) == shlex.split(line)
    words = tuple(shlex.split(fix)[2:])
    read_launcher(words)


def test_the_script_has_all_settings_without_a_cluster(tmp_path: Path) -> None:
    launcher = Launcher(
        nodes=4,
        gpus=8,
        cpus=16,
        memory=64.0,
        minutes=90,
        partition="gpu",
        account="lab",
        parallel=3,
        setup=("module load cuda",),
        more={"mail-user": "me@example.org"},
    )
    lines = Cluster(launcher, tmp_path, name="pretrain").describe().splitlines()
    for line in (
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --cpus-per-task=16",
        "#SBATCH --mem=64GB",
        "#SBATCH --time=90",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=lab",
        "#SBATCH --signal=USR2@120",
        "#SBATCH --requeue",
        "#SBATCH --job-name=pretrain",
        "#SBATCH --mail-user=me@example.org",
        "module load cuda",
    ):
        assert line in lines
    assert not any(tmp_path.iterdir())


def test_a_command_that_does_not_train_has_one_process_on_one_machine() -> None:
    tokenize = compose("tokenize", overrides=("out=x",))
    assert cluster._count_processes(tokenize, Launcher(gpus=8)) == 1
    with pytest.raises(ConfigError, match="nodes=4: 1: plmctl tokenize runs on one machine"):
        cluster._refuse_idle_machines(tokenize, Launcher(nodes=4))
    spec = compose("pretrain", overrides=("size=tiny", "train.steps=1", "train.processes=2"))
    cluster._refuse_idle_machines(spec, Launcher(nodes=4))
    assert cluster._count_processes(spec, Launcher(nodes=4)) == 2
    assert cluster._count_processes(spec, Launcher(nodes=4, gpus=8)) == 8


def test_a_cluster_takes_an_array_and_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for SLURM: `sbatch` keeps the script, and answers with a number."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, does in (("srun", ""), ("sbatch", f'cp "$1" {tmp_path}/script; echo job 77')):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    calls = [ClusterJob(NodeRun((name,), 1, 0), ".") for name in ("a", "b", "c")]
    cluster = Cluster(Launcher(partition="gpu", parallel=2), tmp_path / "submitted")
    jobs = cluster.submit(calls)
    assert [job.job_id for job in jobs] == ["77_0", "77_1", "77_2"]
    assert [job.submission().function for job in jobs] == calls
    script = (tmp_path / "script").read_text()
    assert "#SBATCH --array=0-2%2" in script
    assert "#SBATCH --partition=gpu" in script
    refuses = "#!/bin/sh\necho 'invalid partition specified: gpu' >&2\nexit 1\n"
    (programs / "sbatch").write_text(refuses)
    with pytest.raises(DataError, match=r"does not take the job: .*invalid partition"):
        cluster.submit(calls[:1])


def test_without_srun_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="this machine has no srun"):
        Cluster(Launcher(), tmp_path / "submitted").submit([])
    assert not list(tmp_path.iterdir())


def test_one_job_at_a_time_begins_a_run(tmp_path: Path) -> None:
    _refuse_waiting(tmp_path)
    place = tmp_path / "submitted"
    place.mkdir()
    (place / "77_submitted.pkl").touch()
    with pytest.raises(UsageError, match=r"job 77 was submitted .*\n  fix: run\.dir=ANOTHER"):
        _refuse_waiting(tmp_path)
    (place / "77_0_result.pkl").touch()
    _refuse_waiting(tmp_path)
    (place / "7_submitted.pkl").touch()  # 77 is another job
    with pytest.raises(UsageError, match="job 7 was"):
        _refuse_waiting(tmp_path)
