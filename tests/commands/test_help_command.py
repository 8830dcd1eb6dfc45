"""`plmctl help`: settings of parts from their files and signatures, and what a command's --help
says of a task.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.command import all_commands, find_command
from plmctl.config.injected import ToNoises
from plmctl.config.instead import INSTEAD
from plmctl.config.other_names import OURS
from plmctl.config.part_help import describe_arguments, list_settings
from plmctl.config.recipes import conf_dir, part_files
from plmctl.config.settings import list_plumbing, settings
from plmctl.core.locate import parameters
from plmctl.core.pasted import spell_fix
from plmctl.core.values import Amount, Count, describe_values
from plmctl.noise.span_mask import SpanMask
from plmctl.noise.token_mask import TokenMask
from plmctl.tasks.task import TaskSettings

SLOTS = sorted(place.name for place in conf_dir().iterdir() if place.is_dir())


def said(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return str(done.stdout if code == 0 else done.stderr)


def test_a_part_is_list_settings() -> None:
    text = said("help", "span_mask")
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == str(conf_dir() / "noise" / "span_mask.yaml")
    assert lines[1].startswith("SpanBERT's masking (Joshi et al., 2020, sec. 3.1)")
    assert f"SpanMask: {SpanMask.__doc__.splitlines()[0]}" in lines  # type: ignore[union-attr]
    assert (
        "noise.span_mask.rate=0.15             share of the tokens, special ones not counted; a"
        " number" in lines
    )
    assert (
        "noise.span_mask.max_predictions=null  most targets in a row; a whole number or null"
        in lines
    )
    shown = {
        line.split("=")[0].rpartition(".")[2]
        for line in lines
        if line.startswith("noise.span_mask.")
    }
    # those are no settings
    assert shown == parameters(SpanMask).keys() - {each.name for each in fields(ToNoises)}
    assert said("help", "noise=span_mask") == text


def test_settings_that_the_file_leaves_out_come_from_the_signature(tmp_path: Path) -> None:
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise" / "mine.yaml").write_text(
        "# mine\n_target_: plmctl.noise.token_mask.TokenMask\nrate: 0.3 # of all\n"
    )
    found = {
        each["path"]: each
        for each in json.loads(said("help", "mine", "--json", "--config-dir", str(tmp_path)))
    }
    assert found["noise.rate"] == {
        "path": "noise.rate",
        "default": "0.3",
        "kind": "a number",
        "meaning": "of all",
        "target": "",
        "owners": [],
    }
    left_out = {
        name for name, each in parameters(TokenMask).items() if each.default is not each.empty
    } - {"corpus_sample"}
    assert {f"noise.{name}" for name in left_out} <= found.keys()


@pytest.mark.parametrize("slot", SLOTS)
def test_every_part_can_be_list_settings(slot: str) -> None:
    for name, file in part_files(slot).items():
        found = list_settings(file)
        assert found or yaml.safe_load(file.read_text(encoding="utf-8")) in (None, {"heads": {}}), (
            name,
            file,
        )
        assert len({each.path for each in found}) == len(found)


def test_slots_and_parts_are_listed() -> None:
    assert [line.split()[2] for line in said("help").splitlines() if line.startswith("plmctl")] == [
        *SLOTS,
        "fields",
    ]
    listed = said("help", "pattern").splitlines()
    assert [line.split()[0] for line in listed] == [
        f"pattern={name}" for name in part_files("pattern")
    ]
    assert any("a sliding window (Beltagy et al., 2020)" in line for line in listed)


def test_mistakes() -> None:
    assert (
        said("help", "spanmask", code=2)
        == "plmctl: spanmask: there is no such slot, part or setting (did you mean 'span_mask'?);"
        " a part of your own needs --config-dir <folder> (and --plugin <module>)\n"
        "  fix: plmctl help span_mask\n"
    )
    assert "fix: plmctl help data check" in said("help", "data chek", code=2)
    told = said("help", "prefix", code=2)
    assert (
        told == "plmctl: prefix: several slots have a part of this name\n"
        "  fix: plmctl help format=prefix  # or plmctl help pattern=prefix"
        " or plmctl help peft=prefix\n"
    )


def test_a_part_of_a_folder_is_hinted_at(tmp_path: Path) -> None:
    """Also where a shipped part is spelled alike, and only while no folder is given."""
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise/token_masks.yaml").write_text(
        "_target_: plmctl.noise.token_mask.TokenMask\n"
    )
    own = ["--config-dir", str(tmp_path)]
    hint = "a part of your own needs --config-dir"
    for name in ("token_masks", "toke_mask", "zzz"):
        words = ["pretrain", "bert", f"noise={name}", "--print-config"]
        for line in (words, ["help", name]):
            told = said(*line, code=2)
            assert hint in told
            assert ("did you mean 'token_mask'?" in told) == (name != "zzz")
            if name != "token_masks":
                assert hint not in said(*line, *own, code=2)
    assert "token_masks" in said("help", "token_masks", *own)


@pytest.mark.parametrize("name", ["finetune", "data check", "recipes"])
def test_a_command_is_explained_by_its_help(name: str) -> None:
    shown, own = said("help", *name.split()), said(*name.split(), "--help")
    assert shown.split() == own.replace("Usage: root ", "Usage: plmctl ").split()


@pytest.mark.parametrize("name", ["distill", "eval", "vectors"])
def test_a_command_with_the_name_of_something_else_has_a_line(name: str) -> None:
    """`plmctl distill --help` names `plmctl help distill` for the parts of distill=."""
    lines = said("help", name).splitlines()
    assert any(line.startswith(f"plmctl {name} --help  ") for line in lines)
    assert any(line.startswith(f"{name}=") or "=" in line.split("  ")[0] for line in lines)


@pytest.mark.parametrize(
    ("words", "name"), [("task surprisal", "task=surprisal"), ("train minutes", "train.minutes")]
)
def test_a_slot_and_its_part_are_two_words(words: str, name: str) -> None:
    assert said("help", *words.split()) == said("help", name)


def test_kinds_are_words() -> None:
    kinds = (int, float | None, bool, list[str], Count, Amount | None, str | None, Any, Any | None)
    assert [describe_values(each) for each in kinds] == [
        "a whole number",
        "a number or null",
        "true or false",
        "a list, like [a,b]",
        "a whole number, 1 or more",
        "a number (more than 0) or null",
        "null or text",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        (
            "train.minutes",
            [
                "train.minutes=null  wall-clock time, evaluation included; a recipe with budgets"
                " (plmctl help budgets) chooses size, batch, rate and rows by it, unless you"
                " set them; a number (more than 0) or null [plmctl pretrain, plmctl finetune,"
                " plmctl compress, plmctl graph]"
            ],
        ),
        (
            "train.precision",
            [
                "train.precision=auto  number type of the computation; weights stay fp32;"
                " one of auto, fp32, bf16, fp16 [plmctl pretrain, plmctl finetune,"
                " plmctl compress, plmctl graph]"
            ],
        ),
        (
            "optim.betas",
            ["optim.betas=[0.9, 0.999]  a list, like [a,b] [optim=adamw, optim=lamb, optim=muon"],
        ),
        (
            "noise.mean_length",
            ["noise.span_sentinel.mean_length=3.0", "noise.text_infill.mean_length=3.0"],
        ),
    ],
)
def test_one_setting(what: str, lines: list[str]) -> None:
    """Default, comment, allowed values, and whose it is, of plumbing and of parts."""
    shown = said("help", what).splitlines()
    assert len(shown) >= len(lines)
    for line in lines:
        assert any(text.startswith(line) for text in shown), shown


def test_the_same_key_of_several_commands_and_a_group() -> None:
    """None hides another, and a group lists what --help of the command lists."""
    shown = said("help", "seed").splitlines()
    title, gap, *shown = shown
    assert title == "seed  The number that decides all random numbers of a run."
    assert not gap
    assert all(line.startswith("seed=0") for line in shown)
    assert sum("plmctl pretrain" in line for line in shown) == 1
    assert sum("plmctl finetune" in line for line in shown) == 1
    keys = [line.partition("=")[0] for line in said("help", "train").splitlines()]
    both = [*settings(find_command("pretrain")), *settings(find_command("finetune"))]
    listed = dict.fromkeys(key.partition("=")[0] for key, _ in both)
    assert keys == [key for key in listed if key.startswith("train.")]
    assert "(did you mean 'train.minutes'?)" in said("help", "train.minute", code=2)
    assert json.loads(said("help", "train.minutes", "--json"))[0]["path"] == "train.minutes"


def test_no_key_is_broken_in_a_pipe() -> None:
    """Whatever a terminal's width would be, each setting has one line."""
    done = CliRunner().invoke(make_app(), ["help", "model=encoder"], env={"COLUMNS": "40"})
    listed = list_settings(conf_dir() / "model" / "encoder.yaml")
    lines = done.stdout.splitlines()
    for setting in listed:
        assert any(line.startswith(f"{setting.path}={setting.default}") for line in lines)


def test_parts_of_one_name_in_several_slots_are_listed() -> None:
    lines = said("help", "encoder")
    for part in ("model=encoder", "features=encoder", "head encoder"):
        assert part in lines


def test_help_of_finetune_shows_the_settings_of_a_task() -> None:
    text = " ".join(said("finetune", "--help", "--all").split())
    for words in (
        "task.columns.text=text names of columns, or numbers from 0",
        "task.columns.label=label",
        "task.max_length=128 tokens",
        "task.metrics=[accuracy, macro_f1] the first chooses the checkpoint that is kept",
        "plmctl help task=<name>",
    ):
        assert words in text
    code = (
        "import sys, plmctl.cli.epilog; plmctl.cli.epilog._of_task('classification');"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_of_a_shipped_file_on_which_ones_own_builds(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(
        "# mine\ndefaults: [encoder, _self_]\nstack: {layout: f*3}\n", encoding="utf-8"
    )
    text = said("help", "mine", "--config-dir", str(tmp_path))
    shown = dict(line.split()[0].split("=", 1) for line in text.splitlines() if "=" in line)
    assert "model.defaults" not in shown
    assert shown["model.embedding.segments"] == "2"
    assert shown["model.stack.layout"] == "f*3"


def test_an_empty_text_is_a_default() -> None:
    line = next(x for x in said("help", "classification").splitlines() if "task.reader.folder" in x)
    assert line.startswith("task.reader.folder=''")
    assert "must be given" not in line


@pytest.mark.parametrize(
    ("word", "term", "meaning"),
    [
        ("loss", "loss", "minus the logarithm of the probability"),
        ("mask", "mask", "replaces a hidden token"),
        ("Perplexity", "perplexity", "exponential of the loss"),
        ("attention", "attention", "add up to 1"),
        ("sentinels", "sentinel", "masked span"),
        ("gpt", "recipe gpt", "Radford et al., 2018"),
        ("learning_rate", "learning_rate, of other trainers", "optim.lr"),
        ("report_to", "report_to, of other trainers", "run.trackers=[wandb]"),
        ("evaluation_strategy", "evaluation_strategy, of other trainers", "train.eval_every"),
        ("fsdp", "fsdp, of other trainers", "train.parallel=sharded"),
        ("push_to_hub", "push_to_hub, of other trainers", "plmctl convert"),
        ("update_freq", "update_freq, of other trainers", "train.micro_batch_size"),
    ],
)
def test_a_word_is_explained(word: str, term: str, meaning: str) -> None:
    lines = said("help", word).splitlines()
    (line,) = [each for each in lines if each.startswith(f"{term}  ")]
    assert meaning in " ".join(said("help", word).split())
    assert line


@pytest.mark.parametrize("words", [("learning", "rate"), ("learning-rate",), ("learning rate",)])
def test_several_words_are_one_name(words: tuple[str, ...]) -> None:
    assert said("help", *words).startswith("learning_rate, of other trainers  here it is optim.lr")


@pytest.mark.parametrize("words", [("next", "sentence"), ("Next-sentence",)])
def test_words_that_no_name_has_are_looked_for_in_what_is_said(words: tuple[str, ...]) -> None:
    assert said("help", *words).startswith("plmctl help objective=nsp  next-sentence prediction")
    assert "plmctl help objective=nsp" in json.loads(said("help", *words, "--json"))
    assert "Radford" not in said("help", *words)  # as in the line of other parts


def test_a_word_of_the_glossary_beside_settings_is_explained_first() -> None:
    lines = said("help", "gpt").splitlines()
    assert lines[0].startswith("recipe gpt  ")
    assert str(conf_dir() / "transform" / "gpt.yaml") in lines
    assert json.loads(said("help", "tokens", "--json"))[0]["path"] == "tokens"  # settings alone
    assert "no such slot, part or setting" in said("help", "blablub", code=2)


def test_every_name_of_another_trainer_leads_to_something_that_is_here() -> None:
    """Settings of some command, options, or commands; and none is called as one of ours."""
    known = {
        setting.path for kind in all_commands().values() for setting in list_plumbing(kind)
    } | {*SLOTS}
    known |= {"task.columns.text", "task.metrics", "launcher"}
    for name, instead in INSTEAD.items():
        for word in instead.typed.split(", or ")[0].split()[:1]:
            key = word.partition("=")[0]
            programs = ("plmctl", "hf", "-v", "-q", "--plugin", "--dry-run")
            assert key in known or word in programs, (name, word)
        assert name not in known
        assert not [ours for ours, theirs in OURS.items() if name in theirs.split()], name
    for theirs, fix in (
        ("report_to=wandb", "run.trackers=[wandb]"),
        ("train.evaluation_strategy=steps", "train.eval_every=<updates>"),
        ("push_to_hub=true", "plmctl convert"),
        ("num_workers=4", "leave it out"),
        ("gradient_checkpointing=true", "train.checkpoint_activations=true"),
    ):
        assert f"fix: {spell_fix(fix)}" in said("pretrain", theirs, "--dry-run", code=2)
    assert "run.trackers=[wandb]" in said("finetune", "--report_to", "wandb", code=2)


def drawing(name: str) -> list[str]:
    lines = said("help", f"pattern={name}").splitlines()
    return [line for line in lines if len(line) == 24 and not set(line) - set("#+.")]


def test_pictures_show_what_a_pattern_is() -> None:
    causal = ["#" * n + "." * (24 - n) for n in range(1, 25)]
    assert drawing("causal") == causal
    assert drawing("full") == ["#" * 24] * 24
    # a stride of 128 tokens: the near ones, and every 128th before them (Child et al., 2019)
    sparse = drawing("sparse_transformer")
    tokens = 32  # of a cell
    for line, seen in enumerate(sparse):
        # of queries and keys in these cells: is any distance 0 to 128, or a multiple of 128?
        distances = [range((line - k) * tokens - 31, (line - k) * tokens + 32) for k in range(24)]
        expected = [any(d >= 0 and (d <= 128 or d % 128 == 0) for d in each) for each in distances]
        assert [cell != "." for cell in seen] == expected
    middle = drawing("window")[12]  # no wider than the picture
    assert middle.startswith(".")
    assert middle.endswith(".")


def test_a_task_names_its_data_and_a_long_meaning_once() -> None:
    lines = said("help", "tnews").splitlines()
    address = "https://storage.googleapis.com/cluebenchmark/tasks/tnews_public.zip"
    assert lines[2].startswith(f"data: {address}; its folder is task.path")
    columns = [
        line.split("  ")[-1].strip() for line in lines if re.match(r"task\.columns\..*  ", line)
    ]
    assert columns[0].startswith("names of columns, or numbers from 0; slice:")
    assert {*columns[1:]} == {"as task.columns.text"}


def test_settings_of_commands_and_of_all_tasks_have_a_meaning() -> None:
    for kind in all_commands(()).values():
        for setting in list_plumbing(kind):
            assert setting.meaning, f"plmctl {kind.about.name}: {setting.path}"
    stated = {field.name for field in fields(TaskSettings)}
    lacking = stated - describe_arguments(TaskSettings).keys()
    assert not lacking, f"arguments of TaskSettings without words: {lacking}"


def test_a_docstring_says_what_a_file_leaves_out() -> None:
    class Base:
        """A base.

        Args:
            rate: The share of the tokens
                that are hidden; None: all.
            width: Its width.

        Raises:
            ValueError: never.
        """

    class Part(Base):
        """A part.

        Args:
            width: Its own width, of a part.
        """

    said = {"rate": "The share of the tokens that are hidden; null: all"}
    assert describe_arguments(Part) == {**said, "width": "Its own width, of a part"}


def test_a_setting_of_many_parts_names_some_of_them() -> None:
    lines = said("help", "task.test_share").splitlines()
    assert len(lines) < 8
    assert "share of the training examples for test" in lines[0]
    assert "plmctl help task.test_share --json lists all" in " ".join(lines)
