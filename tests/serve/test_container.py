"""The Dockerfile of the documentation against this tree: nothing builds it here."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from plmctl.commands.serve import Serve
from plmctl.core.extras import EXTRAS
from tests.command import plmctl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/commands/serve.md").read_text("utf-8")
FILE = PAGE.partition("```dockerfile\n")[2].partition("```")[0].replace("\\\n", "")
SHELL = PAGE.partition("```dockerfile\n")[2].partition("```sh\n")[2].partition("```")[0]
STEPS = [(line.split()[0], line.partition(" ")[2]) for line in FILE.strip().splitlines()]


def test_each_step_is_known() -> None:
    assert [name for name, _ in STEPS] == ["FROM", "COPY", "RUN", "COPY", "EXPOSE", "CMD"]


def test_python_is_that_of_the_pinned_versions() -> None:
    version = re.fullmatch(r"python:([\d.]+)-slim", STEPS[0][1])
    assert version is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert SpecifierSet(project["requires-python"]).contains(f"{version[1]}.0")
    assert f"an empty Python {version[1]} environment" in (ROOT / "constraints.txt").read_text()


def test_what_is_copied_is_there() -> None:
    pins, wheels, target = STEPS[1][1].split()
    assert (ROOT / pins).is_file()
    assert wheels == "dist/*.whl"
    assert "--wheel-dir dist ." in SHELL  # which makes them
    installed = STEPS[2][1].partition("&&")[2]
    assert f"-c {target}{pins} " in installed
    assert f'"$(echo {target}plmctl-*.whl)[' in installed
    assert json.loads(STEPS[5][1])[2] == STEPS[3][1].split()[1]  # the model


def test_what_is_installed_has_pins_and_extras() -> None:
    torch, installed = STEPS[2][1].split("&&")
    required = Requirement(next(word for word in torch.split() if word.startswith("torch")))
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert str(required) in pins
    found = re.search(r"\[([\w,]+)\]", installed)
    assert found is not None
    extras = found[1].split(",")
    assert {*extras} <= {*EXTRAS}
    pinned = {re.sub("[-_.]+", "-", line.partition("==")[0]).lower() for line in pins}
    assert {library for extra in extras for library in EXTRAS[extra].libraries} <= pinned


def test_the_command_starts_and_its_port_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name, verb, *words = json.loads(STEPS[5][1])
    assert (name, verb) == ("plmctl", "serve")
    run = SHELL.splitlines()[-1]
    token = re.search(r"-e (\w+)=(\S+)", run)
    assert token is not None
    monkeypatch.setenv(token[1], token[2])
    assert "/model" in plmctl("serve", *words, "port=0", code=3)  # all is right but for the model
    monkeypatch.delenv(token[1])
    assert "token" in plmctl("serve", *words, "port=0", code=2)
    port = Serve.__dataclass_fields__["port"].default
    assert STEPS[4][1] == str(port)
    assert f"-p {port}:{port} " in run
    wait = re.search(r"--stop-timeout (\d+)", run)
    assert wait is not None
    assert int(wait[1]) > Serve.__dataclass_fields__["grace"].default
