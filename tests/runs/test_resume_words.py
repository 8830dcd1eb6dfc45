"""`--resume` with further words: only what they change counts, whatever had to be given the
first time.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.recipes import conf_dir
from plmctl.config.references import work_out
from plmctl.config.saved import spec_text
from plmctl.config.spec import Provenance, thaw
from plmctl.core.errors import ConfigError, DataError, UsageError, flatten
from plmctl.runs.resume import compare_with_checkpoint, keep_changes, list_told, resume_spec
from plmctl.storage.settings_file import to_yaml
from plmctl.training import rundir

MINE = """# @package _global_
defaults:
  - override /objective: [mlm]
size: {num_layers: 1, width: 32, num_heads: 2, inner_width: 64}
train: {steps: 6}
"""


def started(verb: str, folder: Path, recipe: str | None, *words: str) -> Provenance:
    cfg = compose(verb, recipe, [*words, f"run.dir={folder}"])
    first = [*([recipe] if recipe else []), *words, f"run.dir={folder}"]
    rundir.create(folder, config=spec_text(cfg), overrides=first)
    return Provenance(verb, overrides=(f"run.dir={folder}",), resume=True)


def with_words(flags: Provenance, *words: str) -> Provenance:
    return Provenance(flags.verb, overrides=(*flags.overrides, *words), resume=True)


def test_another_kind_of_length_is_told_as_one_change(tmp_path: Path) -> None:
    flags = started("pretrain", tmp_path / "run", "bert", "train.steps=20")
    spec = resume_spec(with_words(flags, "train.minutes=3", "train.patience=2"))
    assert sorted(list_told(spec.provenance.changes)) == [
        "train.minutes: 3.0 instead of train.steps: 20",
        "train.patience: null -> 2",
    ]


def test_no_folder_without_a_run_is_proposed_for_a_misspelled_one(tmp_path: Path) -> None:
    (tmp_path / "oldruns").mkdir()
    wrong = Provenance("pretrain", overrides=(f"run.dir={tmp_path}/oldrun",), resume=True)
    with pytest.raises(UsageError, match=r"run\.dir=runs/NAME/ID"):
        resume_spec(wrong)
    started("pretrain", tmp_path / "oldruns", "bert")
    with pytest.raises(UsageError, match=f"fix: .*run.dir={tmp_path}/oldruns"):
        resume_spec(wrong)


def test_finetune_needs_neither_task_nor_checkpoint_again(tmp_path: Path) -> None:
    flags = started(
        "finetune",
        tmp_path / "run",
        None,
        "task=cola",
        "task.path=data",
        "checkpoint=somewhere",
        "train.steps=5",
    )
    cfg = resume_spec(with_words(flags, "train.steps=9", "task.path=data"))
    assert (cfg.train.steps, cfg.task.name, cfg.checkpoint) == (9, "cola", "somewhere")
    assert cfg.provenance.changes == ("train.steps: 5 -> 9",)
    assert resume_spec(with_words(flags, "train.threads=1")).train.threads == 1
    cfg = resume_spec(with_words(flags, "train.minutes=1"))
    assert (cfg.train.steps, cfg.train.minutes) == (None, 1)
    for word, message in (
        ("task.path=other", "started with 'data'"),
        (
            "task=rte",
            r"task='rte': changes task\.[\w.]+ from .* and \d+ other settings; --resume keeps",
        ),
        ("seed=1", "seed=1"),
        ("train.lr_width=64", r"started with its default \(null\)"),
    ):
        with pytest.raises(UsageError, match=message):
            resume_spec(with_words(flags, word))


def test_a_recipe_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MINE, encoding="utf-8")
    flags = started("pretrain", tmp_path / "run", "./mine.yaml", "optim.lr=1e-3")
    cfg = resume_spec(with_words(flags, "train.steps=12"))
    assert (cfg.train.steps, cfg.size.width, cfg.provenance.changes) == (
        12,
        32,
        ("train.steps: 6 -> 12",),
    )
    with pytest.raises(
        ConfigError, match=r"noise\.rate='0\.2': changes noise\.token_mask\.rate from 0\.15 to 0\.2"
    ):
        resume_spec(with_words(flags, "noise.rate=0.2"))
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    there = rf"cd {tmp_path} && plmctl pretrain --resume run\.dir=run with the change"
    with pytest.raises(UsageError, match=there):
        resume_spec(with_words(flags, "train.steps=12"))
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").unlink()
    assert resume_spec(flags).size.width == 32
    with pytest.raises(
        UsageError, match=r"(?s)mine.yaml: there is no such file.*fix: # give run.dir alone"
    ):
        resume_spec(with_words(flags, "train.steps=12"))


OBJECTIVE = "objective/mlm.yaml"


@pytest.mark.slow  # test_a_recipe_of_the_users_own stays
def test_parts_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run knows its --config-dir; where that is gone, one line says so, and no name is guessed
    for what was right.
    """
    monkeypatch.chdir(tmp_path)
    part = tmp_path / "my conf/objective/own_mlm.yaml"
    part.parent.mkdir(parents=True)
    shutil.copy(conf_dir() / OBJECTIVE, part)
    words = ("bert", ["objective=[own_mlm]", "optim.eps=0.2", f"run.dir={tmp_path / 'run'}"])
    cfg = compose("pretrain", *words, config_dirs=["my conf"])
    rundir.create(
        tmp_path / "run",
        config=spec_text(cfg),
        overrides=["bert", *words[1]],
        config_dirs=["my conf"],
    )
    flags = Provenance("pretrain", overrides=("run.dir=run",), resume=True)
    assert resume_spec(with_words(flags, "train.steps=7")).train.steps == 7
    part.parents[1].rename("moved")
    with pytest.raises(UsageError) as error:
        resume_spec(with_words(flags, "train.steps=7"))
    assert str(error.value) == (
        "for a change, --resume reads the first words of the run again, which do not hold here:"
        f" objective=own_mlm\n  fix: # give run.dir alone,"
        f" or --config-dir <folder>, where {tmp_path}/my conf is now"
    )
    moved = replace(with_words(flags, "train.steps=7"), config_dirs=("moved",))
    assert resume_spec(moved).train.steps == 7
    env = tmp_path / "run" / "env.json"
    env.write_text("{}", encoding="utf-8")  # of an older version
    with pytest.raises(UsageError, match=r"with the same --config-dir and --plugin$"):
        resume_spec(with_words(flags, "train.steps=7"))


def test_a_run_is_resumed_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").touch()
    flags = started("pretrain", tmp_path / "runs/my run", "bert", "data.path=notes.txt")
    assert resume_spec(flags).data.path == "notes.txt"
    monkeypatch.chdir("runs")
    with pytest.raises(UsageError) as error:
        resume_spec(replace(flags, overrides=("run.dir=my run",)))
    assert str(error.value) == (
        f"--resume: data.path=notes.txt is not here: the run was started in {tmp_path}\n"
        f"  fix: # cd {tmp_path} && plmctl pretrain --resume 'run.dir=runs/my run'"
    )
    (tmp_path / "notes.txt").unlink()  # it is not there, either: the reader of the text says so
    assert resume_spec(flags).data.path == "notes.txt"


def test_the_other_command_is_named(tmp_path: Path) -> None:
    tuned = started(
        "finetune", tmp_path / "my run", None, "task=cola", "task.path=data", "checkpoint=somewhere"
    )
    message = f"{tmp_path / 'my run'} is a run of plmctl finetune, not of plmctl pretrain"
    with pytest.raises(
        UsageError,
        match=rf"(?s){message}.*fix: plmctl finetune --resume 'run.dir={tmp_path}/my run'",
    ):
        resume_spec(Provenance("pretrain", overrides=tuned.overrides, resume=True))
    flags = started("pretrain", tmp_path / "other", "gpt")
    with pytest.raises(
        UsageError, match=r"other is a run of plmctl pretrain, not of plmctl finetune"
    ):
        resume_spec(Provenance("finetune", overrides=flags.overrides, resume=True))


def test_another_recipe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MINE, encoding="utf-8")
    folder = tmp_path / "a run"
    flags = started("pretrain", folder, "bert")
    assert resume_spec(replace(flags, recipe="bert")).recipe == "bert"
    with pytest.raises(ConfigError) as error:
        resume_spec(replace(flags, recipe="gpt"))
    assert str(error.value) == (
        "recipe='gpt': the run was started with 'bert'; --resume keeps it\n"
        f"  fix: plmctl pretrain --resume 'run.dir={folder}'  # or a new run.dir"
    )
    own = started("pretrain", tmp_path / "own", "./mine.yaml")
    assert resume_spec(replace(own, recipe="mine.yaml")).recipe == "./mine.yaml"
    words = ["task=cola", "task.path=data", "checkpoint=somewhere"]
    tuned = started("finetune", tmp_path / "tuned", None, *words)
    with pytest.raises(ConfigError, match=r"recipe='\./mine.yaml': the run was started with none"):
        resume_spec(replace(tuned, recipe="./mine.yaml"))


@pytest.mark.parametrize("left", [(), ("overrides.txt", ".env.json.77", "lock"), ("config.yaml",)])
def test_a_start_that_was_cut_off(tmp_path: Path, left: tuple[str, ...]) -> None:
    """What it left is no run: --resume says so, and the first command begins there."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in left:
        (folder / name).touch()
    words = (f"run.dir={folder}",)
    with pytest.raises(
        UsageError,
        match=(r"(?s)run holds no config.*; .*stopped before.*fix: # the command that started it"),
    ):
        resume_spec(Provenance("pretrain", overrides=words, resume=True))
    cfg = resume_spec(Provenance("pretrain", "gpt", overrides=words, resume=True))
    assert (cfg.recipe, cfg.provenance.resume) == ("gpt", False)
    rundir.refuse_used(folder)
    (folder / "notes.txt").touch()
    with pytest.raises(UsageError, match="is not empty"):
        rundir.refuse_used(folder)


@pytest.mark.parametrize("name", rundir.FILES)
def test_ctrl_c_while_the_folder_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write = rundir.write_text

    def stopped(file: Path, text: str) -> None:
        assert not (tmp_path / "run" / "config.yaml").exists()  # the last that is written
        if file.name == name:
            raise KeyboardInterrupt
        write(file, text)

    monkeypatch.setattr(rundir, "write_text", stopped)
    with pytest.raises(KeyboardInterrupt):
        rundir.create(tmp_path / "run", config="a: 1", overrides=[])
    assert not (tmp_path / "run").exists()


def test_one_process_at_a_time_trains_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rundir.refuse_live(tmp_path)
    this, machine = os.getpid(), re.escape(platform.node())
    who = rf"{re.escape(str(tmp_path))}: another process is training there, process {this} on"
    with rundir.lock_folder(tmp_path) as given:
        with (
            pytest.raises(
                UsageError,
                match=rf"{who} {machine}\n  fix: # wait .* has ended, or end it: kill {this}$",
            ),
            rundir.lock_folder(tmp_path),
        ):
            pass
        for name, number in given.items():
            monkeypatch.setenv(name, str(number))
        with rundir.lock_folder(tmp_path) as further:  # a process that was started with the lock
            assert not further
        monkeypatch.undo()
    with rundir.lock_folder(tmp_path):
        pass
    rundir.refuse_live(tmp_path)


def test_a_new_run_is_told_of_one_that_is_going_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    rundir.create(folder, config="a: 1", overrides=[])
    going_on = f"run.dir={folder}: a run is going on there"
    with rundir.lock_folder(folder):
        with pytest.raises(UsageError) as error:
            rundir.refuse_live(folder)
        who = f", process {os.getpid()} on {platform.node()}"
        assert str(error.value) == f"{going_on}{who}\n  fix: # another run.dir"
        (folder / "lock").write_text("", encoding="utf-8")  # that of an earlier version
        with pytest.raises(UsageError) as error:
            rundir.refuse_live(folder)
        assert str(error.value) == f"{going_on}\n  fix: # another run.dir"


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flock(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("plmctl.training.rundir.fcntl.flock", flock)
    with rundir.lock_folder(tmp_path):
        pass
    assert (
        "cannot be locked (No locks available): make sure that no other process trains there"
        in capsys.readouterr().err
    )


def test_the_word_that_was_given_is_named_once(tmp_path: Path) -> None:
    """What follows from it is counted."""
    flags = started("pretrain", tmp_path / "run", "bert", "size=tiny", "data.path=text.txt")
    with pytest.raises(ConfigError) as error:
        resume_spec(with_words(flags, "size=mini"))
    assert str(error.value) == (
        "size='mini': changes size.num_layers from 2 to 4 and 6 other settings;"
        " --resume keeps those of the run\n  fix: # leave out size=mini, or start a new run.dir"
    )
    with pytest.raises(UsageError) as errors:
        resume_spec(with_words(flags, "size=mini", "seed=7"))
    paths = [problem.path for problem in flatten(errors.value) if isinstance(problem, ConfigError)]
    assert paths == ["size", "seed"]


@pytest.mark.parametrize("lost", ["emptied", "removed"])
def test_a_run_that_lost_its_config(tmp_path: Path, lost: str) -> None:
    """The message names a copy that brings it back."""
    folder = tmp_path / "a run"
    flags = started("pretrain", folder, "gpt", "seed=3")
    config = folder / "config.yaml"
    for step in (9, 10):
        copy = folder / "checkpoints" / f"step-{step}" / "config.yaml"
        copy.parent.mkdir(parents=True)
        copy.write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    config.unlink()
    if lost == "emptied":
        config.touch()
    with pytest.raises(UsageError, match=r"is not empty\n  fix: # another run.dir"):
        rundir.refuse_used(folder)
    what = "the file is empty" if lost == "emptied" else "there is no such file"
    with pytest.raises(DataError, match=f"config.yaml: {what}, .*newest") as error:
        resume_spec(flags)
    fix = shlex.split(str(error.value).partition("fix: ")[2])
    assert fix == ["cp", str(folder / "checkpoints" / "step-10" / "config.yaml"), str(config)]
    shutil.copy(*fix[1:])
    assert resume_spec(flags).seed == 3


COLA = ("task=cola", "task.path=data", "checkpoint=a")


@pytest.mark.parametrize(
    ("verb", "recipe", "words", "changed", "kept"),
    [
        ("finetune", None, COLA, ("train.steps=9",), (9, None)),
        ("finetune", None, COLA, ("train.minutes=2",), (None, 2)),
        (
            "pretrain",
            "bert",
            ("train.steps=5",),
            ("train.steps=50", "train.eval_every=4"),
            (50, None),
        ),
        ("graph", None, ("data.path=builtin",), ("train.steps=7",), (7, None)),
    ],
)
def test_the_run_keeps_what_a_start_changed(
    verb: str,
    recipe: str | None,
    words: tuple[str, ...],
    changed: tuple[str, ...],
    kept: tuple[int | None, int | None],
    tmp_path: Path,
) -> None:
    flags = started(verb, tmp_path / "run", recipe, *words)
    keep_changes(resume_spec(with_words(flags, *changed)))
    again = resume_spec(flags)
    assert (again.train.steps, again.train.minutes) == kept
    assert again.provenance.changes == ()
    if "train.eval_every=4" in changed:
        assert again.train.eval_every == 4
    back = resume_spec(with_words(flags, "train.steps=3"))  # beside the last words, not the first
    assert back.train.steps == 3
    assert len(back.provenance.changes) == (1 if kept[0] else 2)
    keep_changes(again)
    assert resume_spec(with_words(flags, *changed)).provenance.changes == ()


TEXT = "the cat sees a bird and the dog likes a river. the sun runs behind the house. "
TINY = ("size=tiny", "objective=[mlm]", "format=blocks", "format.max_length=16", "eval.rows=8")
ROWS = ("train.batch_size=4", "tokenizer.vocab_size=64", "train.log_every=1", "optim.lr=1e-3")


def run(*words: str) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == 0, done.output
    return str(done.stderr)


def test_a_longer_run_goes_on_to_its_new_length_and_says_how_the_rate_jumps(tmp_path: Path) -> None:
    text, folder = tmp_path / "text.txt", tmp_path / "a run (1)"
    text.write_text("\n\n".join([TEXT * 3] * 40), encoding="utf-8")
    words = (*TINY, *ROWS, f"data.path={text}", "schedule.warmup_steps=0", "train.steps=4")
    run("pretrain", "bert", *words, f"run.dir={folder}")
    longer = run("pretrain", "--resume", f"run.dir={folder}", "train.steps=8")
    # linear: at update t of n it begins at 1 - (t - 1) / n
    assert "train.steps: 4 -> 8" in longer
    assert "jumps from 0.00025 to 0.0005 after update 4" in longer
    (typed,) = re.findall(r"a new run from this one: (.*)", longer)
    words_of_new = ("bert", *TINY[1:], *ROWS[:1], *ROWS[2:3], f"data.path={text}")
    new = [*words_of_new, *shlex.split(typed), f"run.dir={tmp_path / 'new'}", "train.steps=2"]
    rates = {lr for lr in re.findall(r"lr (\S+)", run("pretrain", *new))}
    assert rates == {"0.00025"}
    shutil.rmtree(folder / "checkpoints/step-8")  # as if it had been stopped
    rest = run("pretrain", "--resume", f"run.dir={folder}")
    assert "step 8 100%" in rest
    assert "jumps" not in rest
    for schedule in ("constant", "inverse_sqrt"):
        other = tmp_path / schedule
        run("pretrain", "bert", *words, f"schedule={schedule}", f"run.dir={other}")
        assert "jumps" not in run("pretrain", "--resume", f"run.dir={other}", "train.steps=6")


@pytest.mark.parametrize(
    ("recipe", "layout", "cells"),
    [("bert", "", {"a", "f"}), ("knowbert", "", {"a", "f", "k"}), ("bert", "lf*2", {"l", "f"})],
)
def test_a_spec_holds_the_cells_of_its_layout(recipe: str, layout: str, cells: set[str]) -> None:
    words = [f"model.stack.layout={layout}"] if layout else []
    spec = compose("pretrain", recipe, ["size=tiny", *words])
    assert spec.model["stack"]["cells"].keys() == cells
    assert yaml.safe_load(spec_text(spec))["model"]["stack"]["cells"].keys() == cells


def test_a_run_that_saved_all_cells_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = started("pretrain", folder, "bert", "size=tiny", "train.steps=5")
    whole = compose("pretrain", "bert", ["size=tiny", "train.steps=5", f"run.dir={folder}"])
    all_cells = {"model": work_out(thaw(whole.provenance.written))["model"]}
    text = to_yaml({"version": 2, **thaw(whole), **all_cells})  # as an older version wrote it
    assert text != (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    again = resume_spec(with_words(flags, "train.steps=7"))
    assert again.provenance.changes == ("train.steps: 5 -> 7",)
    for config in (text, spec_text(whole)):  # of the checkpoint
        checkpoint = tmp_path / "checkpoint"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "config.yaml").write_text(config, encoding="utf-8")
        assert compare_with_checkpoint(checkpoint, again) == []


def test_of_two_processes_and_one_the_rows_of_a_micro_batch_are_said(tmp_path: Path) -> None:
    words = ["size=tiny", "train.processes=2", "train.batch_size=8", f"run.dir={tmp_path}"]
    spec = compose("pretrain", "bert", words)
    (tmp_path / "config.yaml").write_text(spec_text(spec), encoding="utf-8")
    lines = compare_with_checkpoint(tmp_path, spec.replace({"train.processes": 1}))
    assert lines == ["train.micro_batch_size 4 -> 8"]


def test_a_config_that_is_cut_off_is_called_so(tmp_path: Path) -> None:
    """Wherever it is cut within a line: the reason is never a setting."""
    flags = started("pretrain", tmp_path / "run", "bert", "size=tiny")
    file = tmp_path / "run" / "config.yaml"
    text = file.read_text(encoding="utf-8")
    for end in range(200, text.index("\nrun:"), 211):
        end = text.index("\n", end) - 1  # a letter of a value, or a bracket, is gone
        file.write_text(text[:end], encoding="utf-8")
        with pytest.raises(DataError, match="cut off"):
            resume_spec(flags)
