"""The Dockerfile and the page about it against this tree: nothing builds them here."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from plmctl.commands.serve import Serve
from plmctl.core.extras import EXTRAS
from tests.command import plmctl

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAGE = (ROOT / "docs/howto/containers.md").read_text("utf-8").replace("\\\n", "")
FILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", "")
STEPS = [
    (line.split()[0], line.partition(" ")[2].strip())
    for line in FILE.splitlines()
    if line and not line.startswith("#")
]
FROM = [words.split() for name, words in STEPS if name == "FROM"]
PORT = str(Serve.__dataclass_fields__["port"].default)


def find(name: str) -> list[str]:
    return [words for each, words in STEPS if each == name]


def test_python_is_that_of_the_pinned_versions() -> None:
    own = {base for base, *_ in FROM} - {name for *_, name in FROM}
    (version,) = (re.fullmatch(r"python:([\d.]+)-slim", base) for base in own)
    assert version is not None
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(f"{version[1]}.0")
    assert f"an empty Python {version[1]} environment" in (ROOT / "constraints.txt").read_text()


def test_versions_are_pinned_and_extras_known() -> None:
    for step in find("RUN"):
        assert "pip wheel" in step or "-c constraints.txt" in step.replace("/tmp/", "")
        assert "--no-cache-dir" in step, "a cache is of no use in an image"
    found = re.search(r"\[([\w,]+)\]", FILE)
    assert found is not None
    extras = found[1].split(",")
    assert {*extras} <= {*EXTRAS}
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {re.sub("[-_.]+", "-", line.partition("==")[0]).lower() for line in pins}
    assert {library for extra in extras for library in EXTRAS[extra].libraries} <= pinned


def test_what_the_wheel_is_made_of_gets_into_the_build_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert lines[1] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    wanted = {*PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]}
    wanted |= {PROJECT["project"]["readme"], "LICENSE", "pyproject.toml", "constraints.txt"}
    assert let_in == wanted
    assert all((ROOT / name).exists() for name in let_in)
    copied = [words.split()[:-1] for words in find("COPY") if "--from" not in words]
    assert all(fnmatch(name, "constraints.txt") or name == "." for each in copied for name in each)


def test_nothing_runs_as_root_and_any_user_has_a_name_and_a_cache() -> None:
    names = [name for name, _ in STEPS]
    assert find("USER") == ["1000"]
    assert "RUN" not in names[names.index("USER") :]
    (environment,) = find("ENV")
    assert {"USER=plmctl", "PLMCTL_CACHE=/tmp/plmctl"} == {*environment.split()}


def test_each_stage_of_the_page_is_one_of_the_file() -> None:
    stages = {name for *_, name in FROM}
    assert {*re.findall(r"--target (\w+)", PAGE)} <= stages
    *_, (base, _, last) = FROM
    assert (base, last) == ("tool", "serve"), "the last stage is built without --target"


def test_the_command_starts_and_its_port_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,), (*_, last) = find("ENTRYPOINT"), find("CMD")
    name, verb, *words = json.loads(entry) + json.loads(last)
    assert (name, verb) == ("plmctl", "serve")
    token = re.search(r"-e (\w+)=(\S+)", PAGE)
    assert token is not None
    monkeypatch.setenv(token[1], token[2])
    assert "/model" in plmctl("serve", *words, "port=0", code=3)  # all is right but for the model
    monkeypatch.delenv(token[1])
    assert "token" in plmctl("serve", *words, "port=0", code=2)
    assert find("EXPOSE") == [PORT]
    runs = re.findall(r"^docker run .*-p .*$", PAGE, re.MULTILINE)
    assert len(runs) == 2
    for run in runs:
        assert f"-p {PORT}:{PORT} " in run
        wait = re.search(r"--stop-timeout (\d+)", run)
        assert wait is not None
        assert int(wait[1]) > Serve.__dataclass_fields__["grace"].default
        assert all(
            f"/{each.split('/')[1]}:ro" in run for each in shlex.split(run) if each[0] == "/"
        )


def test_health_is_asked_where_the_server_answers_without_a_token() -> None:
    from plmctl.serve.guard import OPEN

    (words,) = find("HEALTHCHECK")
    *_, code = json.loads(words[words.index("[") :])
    compile(code, "HEALTHCHECK", "exec")
    found = re.search(r"http://127.0.0.1:(\d+)(/\w+)", code)
    assert found is not None
    assert found[1] == PORT
    assert found[2] in OPEN
