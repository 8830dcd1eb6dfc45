"""The files of a study that other commands make: the lines `# Before:` of its file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plmctl.config.headers import Header, header
from plmctl.config.published import asks_for_published, take_published_form
from plmctl.config.recipes import load
from plmctl.config.spec import Provenance, key_of
from plmctl.config.walks import references_in, select
from plmctl.core.errors import ConfigError, DataError, PlmctlError
from plmctl.core.spelling import spell

MADE = ("out", "run.dir")  # where a command writes


def list_makers(file: Path, given: Mapping[str, Any]) -> dict[str, str]:
    """{a path: the command that makes what is there}, of the lines `# Before:` of a study's file.

    A word that its line `# Launch:` has, too, stands there with the study's own value: the model of
    `init=runs/wiki`, and `data.path=law.txt`.
    """
    head = header(file)
    launch = dict(word.split("=", 1) for word in head.command() if "=" in word)
    usual, init = launch.pop("init", ""), given.get("init")
    makers: dict[str, str] = {}
    for command in _list_commands(head):
        words, made = [], []
        for word in command:
            key, _, value = word.partition("=")
            if launch.get(key) == value and value:
                own = select(given, key)
                words += [] if own is None else [f"{key}={spell(own)}"]
            else:
                words.append(_rename(word, usual, init) if usual and init else word)
                own = words[-1].partition("=")[2]
            made += [str(own)] if key in MADE and own else []
        makers |= dict.fromkeys(made, shlex.join(words))
    return makers


def _rename(word: str, usual: str, init: str) -> str:
    """A word or setting that is `usual`, or a path that begins with it, with `init` instead."""
    start = re.match(rf"([^=]*=)?{re.escape(usual)}(?=[-/]|$)", word)
    return f"{start[1] or ''}{init}{word[start.end() :]}" if start else word


def _list_commands(head: Header) -> Iterator[list[str]]:
    """The words of each command behind `# Before:`; remarks in brackets are left out."""
    for text in head.texts("Before"):
        for line in text.split("plmctl ")[1:]:
            yield ["plmctl", *head.words(line)]


def list_replaced(file: Path, given: Provenance) -> Iterator[str]:
    """Lines on overrides that have no effect: a list of the command line replaces the list in a
    study's file, and leaves them out.
    """
    settings: Mapping[str, Any] = load(file)
    if asks_for_published(given):
        settings = take_published_form(settings, file)
    for word in given.overrides:
        key, _, value = word.partition("=")
        old = select(settings, key)
        if not isinstance(old, list) or not all(re.search("=|^~", str(each)) for each in old):
            continue
        kept = {
            key for key in map(key_of, old) if re.search(rf"(?<![\w.]){re.escape(key)}=", value)
        }
        gone = [each for each in old if key_of(each) not in kept]
        if gone:
            listed = ", ".join(gone)
            yield f"{key}: replaces the list in the file; no longer set: {listed}"


def refuse_without_init(file: Path, given: Mapping[str, Any], makers: Mapping[str, str]) -> None:
    """ConfigError for a study without `init` whose file refers to it."""
    if given.get("init") is not None:
        return
    if any("${init}" in text for _, text in references_in(load(file))):
        allowed = "must be given: the run, checkpoint or folder that the arms begin with"
        fix = "init=<a run>"
        fix += f"; what comes before: {' && '.join(makers.values())}" if makers else ""
        raise ConfigError("init", ..., allowed, fix=fix)


def name_maker(error: PlmctlError, makers: Mapping[str, str]) -> PlmctlError:
    """The error of a missing file or folder, with the command that makes it. A better fix stays: a
    near name of a file that exists, or a download.
    """
    path = str(error.file) if isinstance(error, DataError) else ""
    command = makers.get(path)
    if not isinstance(error, DataError) or not command or Path(path).exists():
        return error
    given = not any(path.startswith(f"{word}-") for word in shlex.split(command))
    if error.exact and given:
        return error
    return DataError(error.message, file=error.file, fix=command)
