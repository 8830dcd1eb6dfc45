"""One grammar for all commands: arguments, settings and options, as docs/grammar.md says; former
spellings are taken with a warning.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.cli.verb import read_bare, sort_words
from plmctl.config.command import find_command, find_settings, list_commands, load_command
from plmctl.config.compose import compose
from plmctl.config.implied_task import _find_task
from plmctl.config.schema import hints
from plmctl.core.errors import UsageError
from plmctl.runs.finetuning import commands_after
from plmctl.runs.session import quoted

FORMER = {"out"}  # options of data check that are taken with a warning


def parameters(name: str) -> list[Any]:
    command: Any = typer.main.get_command(make_app())
    for word in name.split():
        command = command.commands[word]
    return list(command.params)


def has_settings(name: str) -> bool:
    return any(p.name == "words" for p in parameters(name)) and not name.startswith("recipes")


NAMES = sorted(list_commands())


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_is_a_setting_or_an_option_and_never_both(name: str) -> None:
    shown = {param.name for param in parameters(name) if not param.hidden}
    if has_settings(name):
        kind = find_settings(name.rpartition(" ")[2])
        assert kind
        assert not shown & hints(kind).keys()
        assert {"config_dir", "plugin", "print_config", "json"} <= shown
    elif "out" in shown:
        (out,) = (param for param in parameters(name) if param.name == "out")
        assert out.opts == ["-o", "--out"]


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_and_shows_every_default(name: str) -> None:
    done = CliRunner().invoke(make_app(), [*name.split(), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    head, _, rest = done.stdout.partition("\nExamples")
    assert max(map(len, head.splitlines())) <= 80
    usage, *others = done.stdout.splitlines()
    assert not any(line.endswith("...") for line in others), usage
    assert rest
    assert len(rest.splitlines()) <= 45  # a screen, with the options above
    for line in re.findall(r"^  (plmctl .*?)(?:  |$)", rest.partition("\nMore")[2], re.MULTILINE):
        assert not CliRunner().invoke(make_app(), line.split()[1:]).exit_code, line
    words = " ".join(head.split())
    for param in parameters(name):
        if param.param_type_name != "option" or param.hidden or param.is_flag:
            continue
        said = re.search(rf"{param.opts[-1]} .*?(?= --|$)", words)
        assert said, param.opts
        stated = "default" in said[0] or param.multiple
        assert stated, f"plmctl {name} {param.opts[-1]}: {said[0]}"


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["predict", "runs/a", "-o", "x.csv"], "out=x.csv"),
        (["data", "check", "a.txt", "-o", "b.md"], "out=b.md"),
        (["pretrain", "-o", "runs/a"], "run.dir=runs/a"),
    ],
)
def test_a_short_option_for_the_output_is_answered_with_the_setting(
    words: list[str], fix: str
) -> None:
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 2
    assert (
        f"there is no option -o: settings are written without dashes\n  fix: {fix}" in done.stderr
    )


def test_the_list_of_commands_is_whole() -> None:
    shown = CliRunner().invoke(make_app(), ["--help"], env={"COLUMNS": "80"}).stdout
    assert "..." not in shown.partition("\n")[2]
    assert max(map(len, shown.splitlines())) <= 80
    for name, listed in list_commands().items():
        about = (load_command(listed.module).__doc__ or "").split("\n\n")[0]
        if " " not in name:
            assert " ".join(about.split()).rstrip(".") in " ".join(shown.split()), name


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("finetune", ["checkpoint", "task.path", "train.epochs", "optim.lr", "run.dir"]),
        ("pretrain", ["data.path", "train.minutes", "optim.lr", "run.dir"]),
        ("generate", ["checkpoint", "prompt", "out"]),
    ],
)
def test_help_has_the_settings_in_most_use(name: str, keys: list[str]) -> None:
    shown = CliRunner().invoke(make_app(), [name, "--help"], env={"COLUMNS": "80"}).stdout
    listed = shown.partition("Settings in most use:")[2].partition("\nMore:")[0]
    for key in keys:
        assert f"\n  {key}=" in listed


def test_options_stand_in_groups() -> None:
    shown = CliRunner().invoke(make_app(), ["pretrain", "--help"], env={"COLUMNS": "80"}).stdout
    titles = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert titles[:4] == ["Options", "Output", "Parts of your own", "Examples"]


def test_a_word_alone_is_what_the_command_is_about() -> None:
    def read(name: str, *words: str) -> list[str]:
        return read_bare(load_command(list_commands()[name].module).about, words)

    assert read("eval", "runs/a", "split=test") == ["checkpoint=runs/a", "split=test"]
    assert read("embed", "./mine.yaml", "out=x.npz") == ["./mine.yaml", "out=x.npz"]
    assert read("data check", "a", "task=sst2") == ["task.path=a", "task=sst2"]
    assert read("data check", "a", "seed=2") == ["data.path=a", "seed=2"]
    assert read("tokenize", "~x") == ["~x"]
    assert read("pretrain", "bert") == ["bert"]
    assert read("distill", "teacher=runs/a", "bert") == ["teacher=runs/a", "bert"]
    with pytest.raises(UsageError, match=r"fix: 'task.columns.text=my text'"):
        read("finetune", "task.columns.text=my", "text")
    with pytest.raises(UsageError, match=r"checkpoint is given more than once: a b"):
        read("eval", "a", "b")
    with pytest.raises(UsageError, match=r"a checkpoint=b"):
        read("eval", "checkpoint=b", "a")


def test_the_commands_after_a_job_of_a_sweep_name_its_folder(tmp_path: Path) -> None:
    """Its name has the settings of the job."""
    folder = tmp_path / "clue/seed=1,task=chnsenticorp"
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("label\ttext_a\n0\ta\n1\tb\n", encoding="utf-8")
    settings = ["task=chnsenticorp", f"task.path={tmp_path}", "checkpoint=null"]
    spec: Any = compose("finetune", overrides=settings)
    lines = [line.format(run=quoted(folder)) for line in commands_after(spec)]
    assert len(lines) == 3
    for _, verb, *words in map(shlex.split, lines):
        if verb == "report":
            assert words == [str(folder)]
            continue
        recipe, found = sort_words(read_bare(find_command(verb).about, words), resume=False)
        assert recipe is None
        asked: Any = compose(verb, overrides=found)
        assert asked.checkpoint == str(folder)
    assert sort_words([str(folder)], resume=True) == (None, [f"run.dir={folder}"])
    hydra = ["hydra/launcher=joblib", "~callbacks", "+task.path=a/b=c"]
    assert sort_words(hydra, resume=False) == (None, hydra)


@pytest.mark.parametrize("form", ["{}", "'{}'", "['{}',other]"])
def test_the_task_of_a_checkpoint_is_found_behind_commas(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "seed=0,task=sst2"
    folder.mkdir()
    (folder / "config.yaml").write_text("task: {name: sst2}\n", encoding="utf-8")
    assert _find_task(form.format(folder)) == "sst2"


def test_former_spellings_warn_and_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[Any] = []
    monkeypatch.setattr(
        "plmctl.artifacts.convert.convert", lambda source, out, **more: calls.append((source, out))
    )

    def said(*words: str) -> str:
        done = CliRunner().invoke(make_app(), list(words))
        assert done.exit_code == 0, done.output
        return str(done.stderr)

    assert "takes only: convert a --out b" in said("convert", "a", "b", "--to", "hf")
    assert said("convert", "a", "--out", "b", "--to", "hf") == ""
    assert calls == [(Path("a"), Path("b"))] * 2
    assert "recipes cp bert --out mine.yaml" in said("recipes", "cp", "bert", "mine.yaml")
    assert said("recipes", "cp", "bert", "--out", "other.yaml") == ""
    assert Path("mine.yaml").read_text() == Path("other.yaml").read_text()
    for words in (("convert", "a", "--to", "hf"), ("recipes", "cp", "bert")):
        done = CliRunner().invoke(make_app(), [*words, "b", "--out", "c"])
        assert done.exit_code == 2
        assert "the target appears twice: b and --out c\n  fix: # leave out b" in done.stderr
    Path("text.txt").write_text("one line of text\n" * 20, encoding="utf-8")
    warned = said("data", "check", "text.txt", "--out", "page.md")
    assert "takes only: out=page.md" in warned
    assert Path("page.md").is_file()
