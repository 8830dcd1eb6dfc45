"""Mistakes in the user's own part files: each message names the file, the line and the fix."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from plmctl.config.compose import compose
from plmctl.config.part_help import list_settings
from plmctl.core.errors import UsageError

TASK = """\
# @package _global_
# whether two halves belong together
defaults: [pair_classification, _self_]
task:
  name: halves
  path: pairs.csv
  max_length: 48
  columns: {text: head, text2: tail, label: fit}
  metrics: [f1, accuracy]
"""
MODEL = """\
defaults: [encoder, _self_]
stack:
  layout: af*${size.num_layers}
"""
NOISE = "# @package noise.mine\n_target_: plmctl.noise.token_mask.TokenMask\nrate: 0.3\n"
OBJECTIVE = """\
# @package _global_
defaults: [mlm, _self_]
objective:
  mlm: {weight: 2.0}
"""
PATTERN = "_target_: plmctl.attention.patterns.window.Window\nreach: 4\n"
CHOICES = {
    "task": ("finetune", None, ["task=mine", "checkpoint=runs/first"]),
    "model": ("pretrain", "bert", ["model=mine"]),
    "noise": ("pretrain", "bert", ["noise=[mine]"]),
    "objective": ("pretrain", "bert", ["objective=[mine]"]),
    "pattern": ("pretrain", "bert", ["pattern=mine"]),
    "size": ("pretrain", "bert", ["size=mine"]),
}


def fail(slot: str, text: str, *words: str) -> str:
    """The message for a part file of the user's that is chosen."""
    file = Path("own", slot, "mine.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    verb, recipe, choice = CHOICES[slot]
    with pytest.raises(UsageError) as raised:
        compose(verb, recipe, [*choice, *words], config_dirs=["own"])
    return str(raised.value)


@pytest.mark.parametrize(
    ("slot", "text", "wrong", "right", "line"),
    [
        ("task", TASK, "metric: ", "metrics: ", 9),
        ("task", TASK, "maxlength: ", "max_length: ", 7),
        ("model", MODEL, "stak:", "stack:", 2),
        ("noise", NOISE, "rat: ", "rate: ", 3),
        ("objective", OBJECTIVE, "wieght: ", "weight: ", 4),
        ("pattern", PATTERN, "reeach: ", "reach: ", 2),
    ],
)
def test_a_misspelt_key_of_a_file_is_refused_with_its_line_and_a_fix_that_mends_it(
    slot: str,
    text: str,
    wrong: str,
    right: str,
    line: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    message = fail(slot, text.replace(right, wrong))
    key, meant = wrong.strip(": "), right.strip(": ")
    assert f"'{meant}'" in message
    assert f"own/{slot}/mine.yaml:{line} states it" in message
    fix = next(row for row in message.splitlines() if f"{key}:" in row and "fix:" in row)
    subprocess.run(shlex.split(fix.partition("fix: ")[2]), check=True)
    assert Path("own", slot, "mine.yaml").read_text() == text


def test_a_key_without_a_like_one_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = fail("task", TASK.replace("  name: halves", "  name: halves\n  qqq: 1"))
    assert "fix: # leave out qqq: in own/task/mine.yaml:6" in message


def test_a_file_below_the_chosen_one_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = Path("own/task/base.yaml")
    base.parent.mkdir(parents=True)
    base.write_text(TASK.replace("metrics: ", "metricz: "))
    message = fail("task", "# @package _global_\ndefaults: [base, _self_]\ntask: {name: mine}\n")
    assert "own/task/base.yaml:9 states it" in message
    assert message.count("has no 'metricz'") == 1


def test_what_only_a_lower_file_of_another_class_states_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may take another class than the one below it, whose settings do not count then."""
    monkeypatch.chdir(tmp_path)
    folder = Path("own/optim")
    folder.mkdir(parents=True)
    (folder / "base.yaml").write_text("defaults: [adamw, _self_]\nbetas: [0.8, 0.9]\n")
    text = "defaults: [base, _self_]\n_target_: plmctl.training.optim.sgd.SGD\n"
    (folder / "mine.yaml").write_text(text)
    made = compose("pretrain", "bert", ["optim=base"], config_dirs=["own"])
    assert list(made.optim.betas) == [0.8, 0.9]
    with pytest.raises(UsageError) as raised:
        compose("pretrain", "bert", ["optim=mine"], config_dirs=["own"])
    assert "betas" not in str(raised.value)


@pytest.mark.parametrize(
    ("slot", "text", "header"),
    [
        ("noise", NOISE, "# @package noise.mine"),
        ("task", TASK, "# @package _global_"),
        ("objective", OBJECTIVE, "# @package _global_"),
    ],
)
def test_a_file_without_its_first_line_is_told_it_by_a_fix_that_adds_it(
    slot: str, text: str, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = fail(slot, text.partition("\n")[2])
    assert f"its first line must be '{header}'" in message
    assert message.count("fix: ") == 1
    subprocess.run(shlex.split(message.partition("fix: ")[2]), check=True)
    assert Path("own", slot, "mine.yaml").read_text() == text


@pytest.mark.parametrize(
    ("slot", "text", "left_out", "part"),
    [
        ("task", TASK, "defaults: [pair_classification, _self_]\n", "task"),
        ("pattern", PATTERN, "_target_: plmctl.attention.patterns.window.Window\n", "pattern"),
        ("noise", NOISE, "_target_: plmctl.noise.token_mask.TokenMask\n", "noise.mine"),
        ("model", MODEL, "defaults: [encoder, _self_]\n", "model"),
    ],
)
def test_a_part_without_a_class_is_named_with_the_file(
    slot: str, text: str, left_out: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = fail(slot, text.replace(left_out, ""))
    assert message.startswith(f"{part}: has no class; own/{slot}/mine.yaml:")
    assert "defaults: [<a file of the slot>, _self_], or _target_: <its class>" in message


@pytest.mark.parametrize(("more", "why"), [("near: [2\n", "expected"), ("a:\t[1\n b", "\\t")])
def test_a_file_that_is_no_yaml_is_refused_with_its_line(
    more: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for slot, text in (("pattern", PATTERN), ("noise", NOISE)):
        message = fail(slot, text + more)
        assert f"own/{slot}/mine.yaml:" in message
        assert "not readable as YAML" in message
        assert why in message


def test_a_taken_letter_of_a_cell_is_named_with_its_line_and_a_layout_with_the_new_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("lettered.py").write_text(
        "from plmctl.core.parts import part_of\nfrom plmctl.nn.cells.base import Cell\n\n"
        "@part_of('cells')\nclass Mine(Cell):\n"
        "    def __init__(self, width: int, *, groups: int = 4) -> None:\n"
        "        super().__init__()\n"
    )
    file = Path("own/model/mine.yaml")
    file.parent.mkdir(parents=True)
    cell = "{_target_: lettered.Mine, _partial_: true, groups: 4}"
    file.write_text(
        "defaults: [encoder, _self_]\nstack:\n  layout: rf*${size.num_layers}\n"
        f"  cells:\n    r: {cell}\n"
    )
    with pytest.raises(UsageError) as raised:
        compose("pretrain", "bert", ["model=mine"], config_dirs=["own"], plugins=["lettered"])
    message = str(raised.value)
    assert "own/model/mine.yaml:5 states it, and taken are a, " in message
    assert "model.stack.layout='qf*${size.num_layers}' '+model.stack.cells.q=" in message


def test_a_comment_stands_at_its_own_setting_alone(tmp_path: Path) -> None:
    file = tmp_path / "task" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(
        "# @package _global_\n# mine\ntask:\n  a: 1\n  # at the end of the task\nheads:\n"
        "  # of the head\n  class: {_target_: plmctl.heads.classify.Classify, dropout: 0.1}\n"
        "  pair: {_target_: plmctl.heads.classify.Classify, dropout: 0.2} # of the pair\n"
        "  numbers: {small: 1, large: 2} # of both\n"
    )
    found = {each.path: each.meaning for each in list_settings(file, types=False)}
    assert found == {
        "task.a": "",
        "heads.class": "of the head",
        "heads.class.dropout": "",
        "heads.pair": "of the pair",
        "heads.pair.dropout": "",
        "heads.numbers.small": "of both",
        "heads.numbers.large": "of both",
    }


def test_a_plugin_without_its_folder_is_no_other_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, fix in (
        (None, "FOLDER  # FOLDER: the folder with noise/window_mask.yaml"),
        ("own/conf", "own/conf"),
        ("conf", "conf"),
    ):
        if folder:
            (tmp_path / folder / "noise").mkdir(parents=True)
            (tmp_path / folder / "noise" / "window_mask.yaml").write_text("# a\nx: 1\n")
        with pytest.raises(UsageError, match="no such noise") as error:
            compose("pretrain", "bert", ["noise=[window_mask]"], plugins=["mine"])
        assert f"fix: --config-dir {fix}" in str(error.value)
