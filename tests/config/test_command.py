"""Commands as classes: found by folder, also in plug-ins, and described by a schema."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.config import command
from plmctl.config.command import find_command
from plmctl.config.compose import compose
from plmctl.config.json_schema import describe_command, find_schema
from plmctl.config.recipes import recipes_dir
from plmctl.config.saved import spec_text


def run(*words: str) -> Any:
    return CliRunner().invoke(make_app(), list(words))


OWN_COMMAND = '''
"""Letters of a text."""

from __future__ import annotations

from dataclasses import dataclass

from plmctl.config.command import About, Command, Result
from plmctl.core.terminal import tell
from plmctl.core.values import Count


@dataclass(frozen=True)
class CountLetters(Command):
    """Count the letters of a text."""

    about = About(
        "count",
        place=300,
        examples=("plmctl count text=ab", "plmctl count text=ab times=2"),
        bare="text",
        slots="search",
        options="print_config config_dir plugin",
    )

    text: str = "abc"  # whose letters are counted
    times: Count = 1  # as often as this
    search: object = None

    def perform(self) -> Result:
        """Print the number."""
        tell(str(len(self.text) * self.times))
        return {"letters": len(self.text) * self.times}
'''


@pytest.fixture
def own_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plug-in `counting` in the current folder, whose command is `plmctl count`."""
    folder = tmp_path / "counting/commands"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder / "count.py").write_text(OWN_COMMAND, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known, loaded = set(sys.modules), dict(command._LOADED)
    yield
    command._LOADED.clear()
    command._LOADED.update(loaded)
    for name in set(sys.modules) - known:
        if name.startswith("counting"):
            del sys.modules[name]


@pytest.mark.usefixtures("own_command")
def test_a_plugin_may_add_a_command() -> None:
    plugin = ("--plugin", "counting")
    assert run("count", "hello", "times=3", *plugin).stdout == "15\n"
    shown = run("count", "--help", *plugin).output
    assert "times=1" in shown
    assert "as often as this" in shown
    done = run("count", "tims=3", *plugin)
    assert (done.exit_code, "did you mean 'times'" in done.output) == (2, True)
    done = run("count", "times=x", *plugin)
    assert (done.exit_code, "times='x'" in done.output) == (2, True)
    printed = run("count", "search=beam", "--print-config", *plugin).stdout
    assert "plmctl.generation" in printed
    assert plmctl.perform("count", {"text": "ab"}, plugins=["counting"]) == "2\n"
    done = run("count", "hello")
    assert (done.exit_code, "No such command 'count'" in done.output) == (2, True)


@pytest.mark.usefixtures("own_command")
def test_a_plugin_that_is_imported_anew_has_a_new_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, where a plug-in is found later, or its modules are dropped and edited."""
    plugin = ("--plugin", "counting")
    with monkeypatch.context() as without:
        without.setattr(sys, "path", [place for place in sys.path if place != str(Path.cwd())])
        without.chdir("/")
        assert run("count", "hello", *plugin).exit_code == 2
    assert run("count", "hello", *plugin).stdout == "5\n"
    before = find_command("count", ["counting"])
    for name in [name for name in sys.modules if name.startswith("counting")]:
        del sys.modules[name]
    assert "Count the letters of a text." in run("count", "--help", *plugin).stdout
    assert find_command("count", ["counting"]) is not before


@pytest.mark.usefixtures("own_command")
def test_help_knows_a_command_of_a_plugin_and_its_settings() -> None:
    plugin = ("--plugin", "counting")
    assert "Count the letters of a text." in run("help", "count", *plugin).stdout
    for words in (("times",), ("times", "--json"), ("as often as",)):
        assert "as often as this" in run("help", *words, *plugin).stdout
    assert "fix: plmctl help count" in run("help", "coumt", *plugin).output
    assert "as often as this" not in run("help", "times").stdout


def errors_in(schema: dict[str, Any], text: str) -> list[str]:
    """What an independent validator finds in a YAML file."""
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    return {verb: describe_command(find_command(verb)) for verb in ("pretrain", "ablate", "graph")}


def test_every_recipe_and_study_fits_its_schema(schemas: dict[str, Any]) -> None:
    folders = {"pretrain": "*.yaml", "ablate": "studies/*.yaml", "graph": "graph/*.yaml"}
    found = {
        str(file): errors
        for verb, pattern in folders.items()
        for file in sorted(recipes_dir().glob(pattern))
        if (errors := errors_in(schemas[verb], file.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("train: {stps: 5}", "stps"),
        ("train: {steps: many}", "many"),
        ("train: {precision: fp8}", "fp8"),
        ("optim: {lr: high}", "high"),
        ("defaults: [{override /optim: adm}]", "adm"),
        ("no_setting: 1", "no_setting"),
    ],
)
def test_an_editor_sees_what_is_wrong(schemas: dict[str, Any], text: str, wrong: str) -> None:
    assert any(wrong in message for message in errors_in(schemas["pretrain"], text))


def test_a_schema_has_meanings_and_choices(schemas: dict[str, Any]) -> None:
    keys = schemas["pretrain"]["properties"]
    assert keys["train"]["properties"]["steps"]["description"].startswith("updates")
    assert "adamw" in keys["defaults"]["items"]["anyOf"][0]["properties"]["override /optim"]["enum"]
    assert {"rate"} <= keys["noise"]["properties"]["token_mask"]["properties"].keys()


def test_a_copied_recipe_names_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run("recipes", "cp", "bert").exit_code == 0
    first, *rest = Path("bert.yaml").read_text(encoding="utf-8").splitlines()
    place = urllib.request.url2pathname(first.rpartition("file://")[2])
    assert json.loads(Path(place).read_text(encoding="utf-8"))["title"] == "plmctl pretrain"
    assert rest == (recipes_dir() / "bert.yaml").read_text(encoding="utf-8").splitlines()
    assert run("pretrain", "./bert.yaml", "--print-config").exit_code == 0
    shown = run("help", "--schema", "embed")
    assert json.loads(shown.stdout)["title"] == "plmctl embed"
    assert "fix: plmctl help embed --schema" in run("help", "--schema", "embd").output


def test_a_saved_run_names_the_schema_that_it_fits(
    schemas: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = compose("pretrain", "bert")
    text = spec_text(spec)
    assert text.startswith(f"# yaml-language-server: $schema={find_schema('pretrain').as_uri()}\n")
    assert find_schema("pretrain").is_file()
    assert errors_in(schemas["pretrain"], text) == []
    assert spec_text(spec.asked(config_dirs=("mine",))).startswith("version")  # parts of one's own
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLMCTL_CACHE", str(tmp_path / "file"))  # no folder can be made there
    assert spec_text(spec).startswith("version")


def test_a_recipe_as_a_setting_is_refused() -> None:
    """It would name the run after the recipe, and train the usual one."""
    done = run("pretrain", "recipe=gpt2", "size=tiny", "--dry-run")
    assert done.exit_code == 2
    assert "fix: plmctl pretrain gpt2" in done.stderr
