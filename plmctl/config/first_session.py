"""How a run was started: its words, the folder, and the folders of --config-dir."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plmctl.config.keys import is_path, is_written
from plmctl.config.plugins import option
from plmctl.config.spec import Provenance, RunSpec, thaw
from plmctl.config.walks import leaves
from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell_setting
from plmctl.storage.reading import parse_json, read_text


@dataclass(frozen=True)
class FirstSession:
    """The record of a run's start; runs of older versions do not know the folder of the command.

    Args:
        words: the settings on the command line; its recipe is in the config.
        folder: The folder in which the command was typed.
        code: {file: hash} of the plug-ins.
    """

    words: tuple[str, ...]
    folder: Path | None
    config_dirs: tuple[str, ...]
    code: Mapping[str, str] = field(default_factory=dict)

    def spell_resume(self, run: Path, given: Provenance) -> str:
        """The command line that goes on with `run`, typed where it was started."""
        place = self.folder or Path.cwd()
        inside = run.resolve().is_relative_to(place)
        there = os.path.relpath(run.resolve(), place) if inside else str(run.resolve())
        line = f"plmctl {given.command} --resume {spell_setting('run.dir', there)}"
        line += option(given.plugins, self.config_dirs)
        return f"cd {shlex.quote(str(place))} && {line}" if place != Path.cwd() else line


def read_first_session(run: Path) -> FirstSession:
    """How the run in a folder was started."""
    start: dict[str, Any] = {}
    if (file := run / "env.json").is_file():
        try:
            start = dict(parse_json(read_text(file)))
        except (ValueError, TypeError):  # it is not needed where the run goes on as it was
            start = {}
    folder = start.get("folder")
    dirs = tuple(map(str, start.get("config_dirs") or ()))
    words, code = tuple(first_words(run)), dict(start.get("code") or {})
    return FirstSession(words, Path(folder) if folder else None, dirs, code)


def first_words(run: Path) -> list[str]:
    """The settings on the command line that started the run; its recipe is in the config."""
    return [word for word in first_lines(run) if "=" in word or word.startswith("~")]


def first_lines(run: Path) -> list[str]:
    """The words that started the run, its recipe among them."""
    file = run / "overrides.txt"
    return read_text(file).splitlines() if file.is_file() else []


def refuse_elsewhere(spec: RunSpec, run: Path, given: Provenance) -> None:
    """UsageError where files that the run names from the folder where it was started are not
    here, but there.
    """
    started = read_first_session(run)
    if started.folder is None or started.folder == Path.cwd():
        return
    for key, name in _named_files(spec):
        path = Path(name).expanduser()
        if not path.is_absolute() and not path.exists() and (started.folder / path).exists():
            raise UsageError(
                f"--resume: {key}={name} is not here: the run was started in {started.folder}\n"
                f"  fix: {started.spell_resume(run, given)}"
            )


def _named_files(spec: RunSpec) -> Iterable[tuple[str, str]]:
    """(key, path) of all that a run reads."""
    for key, value in leaves(thaw(spec)):
        if is_path(key) and not is_written(key) and isinstance(value, str) and value:
            yield key, value
