"""What a shell completes: commands, options, recipes, settings, parts, values and files."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.cli.completion import suggest_topics
from plmctl.config.recipes import graph_recipes, part_files, recipe_names, slots, studies


def complete(line: str, shell: str = "bash") -> list[str]:
    """What Tab offers behind a line, as Typer's script for a shell asks for it."""
    words = line.split(" ")
    env = {"_PLMCTL_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        env |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    else:
        env |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = CliRunner().invoke(make_app(), [], env=env, prog_name="plmctl")
    assert done.exit_code == 0, done.output
    return [line.partition("\t")[0] for line in done.stdout.splitlines() if line]


def test_commands_and_options() -> None:
    assert complete("plmctl pret") == ["pretrain"]
    assert complete("plmctl data li") == ["link"]
    assert "--dry-run" in complete("plmctl pretrain --d")


def test_recipes_before_settings() -> None:
    found = complete("plmctl pretrain ro")
    assert found == sorted(name for name in recipe_names() if name.startswith("ro"))
    assert set(studies()) <= set(complete("plmctl ablate "))
    assert set(graph_recipes()) <= set(complete("plmctl graph "))
    assert complete("plmctl recipes show albe") == ["albert"]
    assert "roberta" not in complete("plmctl pretrain bert ro")


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_settings_of_the_command_and_of_chosen_parts(shell: str) -> None:
    both = ["train.batch_size=", "train.batch_tokens="]
    assert complete("plmctl pretrain bert train.bat", shell) == both
    assert complete("plmctl recipes run bert train.bat", shell) == both
    assert "objective=" in complete("plmctl pretrain bert obj", shell)
    assert "batch_size=" in complete("plmctl eval ", shell)
    assert complete("plmctl pretrain optim=lamb optim.we", shell) == ["optim.weight_decay="]
    assert complete("plmctl pretrain optim.we", shell) == ["optim.weight_decay="]
    assert complete("plmctl pretrain no.such", shell) == []
    # a long meaning stays in the line of its word
    assert all(word.endswith("=") for word in complete("plmctl pretrain bert train.", shell))
    assert set(complete("plmctl recipes show ", shell)) == set(recipe_names())


def test_parts_and_values_behind_the_equals_sign() -> None:
    wanted = [name for name in part_files("noise") if name.startswith("span")]
    begun = [f"noise=[token_mask,{name}" for name in wanted]
    assert complete("plmctl pretrain noise=[token_mask,span", "fish") == begun
    # bash cuts the word at its =
    assert complete("plmctl pretrain optim = lam") == ["lamb"]
    assert set(part_files("tokenizer")) == set(complete("plmctl pretrain tokenizer = "))
    assert complete("plmctl pretrain train.precision = bf") == ["bf16"]
    assert complete("plmctl pretrain train.compile=t", "fish") == ["train.compile=true"]


def test_files_behind_settings_that_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/wiki 1.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert complete("plmctl pretrain data.path=te", "fish") == ["data.path=texts/"]
    assert complete("plmctl pretrain data.path=texts/", "fish") == ["data.path=texts/wiki 1.txt"]
    assert complete("plmctl pretrain data.path=", "fish") == ["data.path=texts/"]


def test_files_where_a_word_alone_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs/sst2").mkdir(parents=True)
    (tmp_path / "mine.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert complete("plmctl eval ru") == ["runs/", "runtime="]
    assert complete("plmctl attack runs/") == ["runs/sst2/"]
    assert "runs/" in complete("plmctl tokenize ")
    assert complete("plmctl pretrain ./mi") == ["./mine.yaml"]
    assert complete("plmctl pretrain mi") == [name for name in recipe_names() if name[:2] == "mi"]
    assert complete("plmctl eval runs/a ru") == ["runtime="]


def test_parts_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise/mine.yaml").write_text(
        "# @package noise.mine\n_target_: mine.Noise\nrate: 1\n"
    )
    options = f"plmctl pretrain --config-dir {tmp_path}"
    assert complete(f"{options} noise=min", "fish") == ["noise=mine"]
    assert complete(f"{options} noise=mine noise.", "fish") == ["noise.mine.rate="]


def test_topics_of_help() -> None:
    assert complete("plmctl help span_ma") == ["span_mask"]
    assert set(slots()) <= set(suggest_topics(_Context(), ""))  # type: ignore[arg-type]


class _Context:
    params: dict[str, object] = {}  # noqa: RUF012
