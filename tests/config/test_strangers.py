"""A run or checkpoint of a stranger: whatever its config says, no command runs code, deletes
files or reads the environment.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import plmctl
from plmctl.cli.app import main
from plmctl.core.errors import PlmctlError
from plmctl.training.checkpoint import seal

Run = Callable[..., int]
SIZE = ("size=tiny", "size.width=32", "size.inner_width=64")
SHORT = ("train.batch_size=2", "format.max_length=32", "train.compile=false", "train.steps=1")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["plmctl", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return run


@pytest.fixture(scope="module")
def honest(tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one update."""
    place = tmp_path_factory.mktemp("honest") / "run"
    patch = pytest.MonkeyPatch()
    words = (
        f"data.path={tokens_of('wordpiece')}",
        "train.eval_every=0",
        f"run.dir={place}",
        *SIZE,
        *SHORT,
    )
    patch.setattr("sys.argv", ["plmctl", "pretrain", "bert", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    patch.undo()
    assert not ended.value.code
    return place


def edited(honest: Path, place: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the run whose configs are changed, with manifests that fit."""
    shutil.copytree(honest, place)
    for file in (place / "config.yaml", place / "checkpoints/step-1/config.yaml"):
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
        change(config)
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
    (place / "checkpoints/step-1/manifest.json").unlink()
    seal(place / "checkpoints/step-1")
    return place


def commands(place: Path, tmp_path: Path) -> list[list[str]]:
    """Every way in which a command reads somebody's run."""
    (tmp_path / "lines.txt").write_text("one line\n", encoding="utf-8")
    (tmp_path / "train.tsv").write_text(
        "sentence\tlabel\n" + "good\t1\nbad\t0\n" * 8, encoding="utf-8"
    )
    table, lines = f"task.path={tmp_path / 'train.tsv'}", str(tmp_path / "lines.txt")
    tune = [
        "finetune",
        "task=classification",
        table,
        "task.columns.text=sentence",
        f"checkpoint={place}",
    ]
    return [
        ["embed", f"checkpoint={place}", f"input={lines}", f"out={tmp_path / 'x.npz'}"],
        ["eval", f"checkpoint={place}", "task=held_out"],
        ["generate", f"checkpoint={place}", "prompt=one"],
        ["report", str(place), "--out", str(tmp_path / "page.html")],
        [*tune, "--dry-run"],
        ["pretrain", "bert", f"init={place}", f"run.dir={tmp_path / 'next'}", *SHORT],
        ["pretrain", "bert", f"init={place}", "--preview", "1", *SHORT],
        ["distill", "bert", f"teacher={place}", "--dry-run", *SIZE, *SHORT],
        ["convert", str(place), str(tmp_path / "hf"), "--to", "hf"],
        ["pretrain", "--resume", f"run.dir={place}"],
        ["recipes", "show", str(place / "config.yaml")],
    ]


def test_no_command_calls_what_a_config_names(
    honest: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    (kept / "checkpoints").mkdir(parents=True)
    target = {"_target_": "plmctl.training.rundir.undo_create", "folder": str(kept), "made": []}

    def harm(config: dict[str, Any]) -> None:
        config["position"] = target

    place = edited(honest, tmp_path / "run", harm)
    with pytest.raises(PlmctlError, match="_target_"):
        plmctl.load(place)
    for words in commands(place, tmp_path):
        code, said = run(*words), capsys.readouterr()
        assert "Traceback" not in said.err
        if words[0] == "report":  # it builds nothing of a run without a task
            assert code in (0, 2)
        else:
            assert (code, "does not declare itself a part" in said.err) == (2, True), (
                words,
                said.err,
            )
        assert (kept / "checkpoints").is_dir(), words


@pytest.mark.parametrize("where", ["model", "heads", "optim", "objective"])
def test_not_inside_of_a_part_either(honest: Path, tmp_path: Path, where: str) -> None:
    kept = tmp_path / "kept"
    (kept / "checkpoints").mkdir(parents=True)
    node = {"_target_": "plmctl.training.rundir.undo_create", "folder": str(kept), "made": []}
    places = {
        "model": lambda config: config["model"]["stack"]["cells"].update(a=node),
        "heads": lambda config: config["heads"].update(pooler=node),
        "optim": lambda config: config.update(optim=node),
        "objective": lambda config: config["objective"].update(mlm=node),
    }
    place = edited(honest, tmp_path / "run", places[where])
    if where in ("model", "heads"):
        with pytest.raises(PlmctlError, match=rf"{where}\..*_target_"):
            plmctl.load(place)
    else:
        plmctl.load(place)  # neither is built
    assert (kept / "checkpoints").is_dir()


def test_a_saved_config_reads_no_environment(
    honest: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PLMCTL_TEST_SECRET", "hunter2")

    def harm(config: dict[str, Any]) -> None:
        config["run"]["name"] = "${oc.env:PLMCTL_TEST_SECRET}"
        config["size"]["width"] = "${oc.env:PLMCTL_TEST_SECRET}"

    place = edited(honest, tmp_path / "run", harm)
    for words in commands(place, tmp_path):
        code, said = run(*words), capsys.readouterr()
        assert code == (2 if words[0] == "recipes" else 3), (words, said.err)
        assert "oc.env:PLMCTL_TEST_SECRET}'" in said.err
        assert "hunter2" not in said.err + said.out
    written = [
        file for file in tmp_path.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()
    ]
    assert written == []


def test_what_would_be_saved_with_a_reference_is_refused_before_work(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pretrain", "bert", r"run.name='\${x}'", "--dry-run") == 2
    assert "run.name='${x}'" in capsys.readouterr().err


def listing(folder: Path) -> dict[str, bytes]:
    """What is in a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.parametrize(
    "name", ["lock", "checkpoints", "metrics.jsonl", "events.out.tfevents.1.x", "env.json"]
)
def test_going_on_with_a_run_follows_no_link_in_it(
    honest: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    place, theirs = tmp_path / "run", tmp_path / "theirs"
    shutil.copytree(honest, place)
    shutil.copytree(honest, theirs)
    for number in (7, 8):  # newer ones, so that pruning would take the others
        shutil.copytree(theirs / "checkpoints/step-1", theirs / f"checkpoints/step-{number}")
    (theirs / "events.out.tfevents.1.x").write_bytes(b"kept")
    if (place / name).is_dir():
        shutil.rmtree(place / name)
    (place / name).unlink(missing_ok=True)
    (place / name).symlink_to(theirs / name)
    before = listing(theirs)
    code, said = (
        run("pretrain", "--resume", f"run.dir={place}", "train.steps=4"),
        capsys.readouterr(),
    )
    assert listing(theirs) == before
    assert (code, f"{place / name}: a link to" in said.err) == (3, True), said.err
    assert f"fix: cp -rL {place} {place}-copy" in said.err


def test_a_link_among_checkpoints_is_refused_before_training(
    honest: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run"
    shutil.copytree(honest, place)
    (place / "checkpoints/step-1").rename(tmp_path / "moved")
    (place / "checkpoints/step-1").symlink_to(tmp_path / "moved")
    code = run("pretrain", "--resume", f"run.dir={place}", "train.steps=4")
    said = capsys.readouterr()
    assert (code, "checkpoints/step-1: a link to" in said.err) == (3, True), said.err
    assert "resumed from" not in said.out + said.err


def test_a_copied_run_goes_on_where_links_lead_to_it(
    honest: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    shutil.copytree(honest, tmp_path / "disk/one")
    code = run("pretrain", "--resume", f"run.dir={tmp_path / 'runs/one'}", "train.steps=2")
    assert code == 0, capsys.readouterr().err
    assert (tmp_path / "disk/one/checkpoints/step-2").is_dir()


def test_answers_are_not_written_through_a_link(
    honest: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "named").symlink_to(tmp_path / "theirs")
    table = "text\tlabel\n" + "good\tyes\nbad\tno\n" * 8
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(table, encoding="utf-8")
    place, task = tmp_path / "tuned", ("task=classification", f"task.path={tmp_path}")
    tuned = run("finetune", *task, f"checkpoint={honest}", f"run.dir={place}", "train.steps=1")
    assert tuned == 0, capsys.readouterr().err
    (place / "eval").symlink_to(tmp_path / "theirs")
    asked = ("eval", f"checkpoint={place}", *task)
    code, said = run(*asked), capsys.readouterr()
    assert (code, "a link to" in said.err) == (3, True), said.err
    assert not any((tmp_path / "theirs").iterdir())
    assert run(*asked, f"out={tmp_path / 'named'}") == 0
    assert (tmp_path / "theirs" / "dev.jsonl").is_file()
