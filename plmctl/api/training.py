"""Commands from Python: the training commands, and all others that have settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from plmctl.api.runs import RunFolder
from plmctl.api.settings import Settings, check_path, to_words
from plmctl.api.state import keep_state
from plmctl.api.studies import StudyRecord, read_study
from plmctl.config.command import all_commands, find_command
from plmctl.config.command import perform as act
from plmctl.config.plugins import Unconfirmed
from plmctl.config.published import find_study_folder
from plmctl.config.run_name import place_run
from plmctl.config.spec import Provenance, RunSpec
from plmctl.core.errors import PlmctlError, UsageError, nearest
from plmctl.runs.deciding import advise, decide
from plmctl.training.stop import STOPPED

Training = Literal["pretrain", "finetune", "distill", "graph"]
TRAINING = ("pretrain", "finetune", "distill", "graph")


def train(
    command: Training,
    settings: Settings | None = None,
    *,
    recipe: str | os.PathLike[str] | None = None,
    resume: bool = False,
    plugins: Sequence[str] = (),
    config_dirs: Sequence[str | os.PathLike[str]] = (),
) -> RunFolder:
    """Train as `plmctl <command>` does, and return the run.

        plmctl.train("pretrain", {"size": "tiny", "train.steps": 50}, recipe="roberta")

    Args:
        command: "pretrain", "finetune", "distill" or "graph".
        settings: The settings of the command, by their keys: {"data.path": "notes.txt"}.
        recipe: a name of `plmctl recipes ls`, or a file; of pretraining without one: bert.
        resume: go on with the run in the setting run.dir.
        plugins: packages outside plmctl whose parts the settings may name.
        config_dirs: folders with parts and recipes of your own.

    Raises:
        PlmctlError: with the message that the command shows.
        KeyboardInterrupt: Ctrl-C, after which all is saved: `resume=True` goes on.
    """
    if command not in TRAINING:
        allowed = f"one of {', '.join(TRAINING)}{nearest(command, TRAINING)}"
        fix = "plmctl.perform(command, settings) runs a command that trains no model"
        raise UsageError(f"{command!r}: must be {allowed}\n  fix: {fix}")
    given = _collect(command, settings, recipe, plugins, config_dirs, resume=resume)
    done, _ = _run(given, place_run)
    return RunFolder(Path(done["run"]["dir"]), tuple(plugins))


def ablate(
    study: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    plugins: Sequence[str] = (),
    config_dirs: Sequence[str | os.PathLike[str]] = (),
) -> StudyRecord:
    """Run what is not done yet of a study, as `plmctl ablate` does, and return its table.

    plmctl.ablate("prenorm_gradients", {"seeds": [0, 1, 2], "out": "studies/gradients"})
    """
    given = _collect("ablate", settings, study, plugins, config_dirs)
    done, _ = _run(given)
    return read_study(find_study_folder(done))


def perform(
    command: str,
    settings: Settings | None = None,
    *,
    recipe: str | os.PathLike[str] | None = None,
    plugins: Sequence[str] = (),
    config_dirs: Sequence[str | os.PathLike[str]] = (),
) -> str:
    """Run any other command that has settings; it writes where `out` says. Returns what it prints
    as its result.

    plmctl.perform("tokenize", {"data.path": "wiki/", "out": "tokens"})
    plmctl.perform("data link", {"path": "dump.xml.bz2", "out": "linked"})
    """
    verb = str(command).removeprefix("data ")
    try:
        find_command(verb, plugins)
    except KeyError:
        known = [name for name in all_commands(tuple(plugins)) if name not in TRAINING]
        message = f"{command!r} is no command with settings{nearest(verb, known)}"
        raise UsageError(f"{message}\n  fix: one of {', '.join(known)}") from None
    return _run(_collect(verb, settings, recipe, plugins, config_dirs))[1]


def predict(
    checkpoint: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    *,
    plugins: Sequence[str] = (),
    config_dirs: Sequence[str | os.PathLike[str]] = (),
) -> list[dict[str, Any]]:
    """Label files of any length, as `plmctl predict` does. Returns the remarks on each file: its
    rows, and the file of the predictions.

        plmctl.predict("runs/sst2", "reviews.csv", "labelled.csv")
        plmctl.predict("runs/sst2", ["a.csv", "b.csv"], "labelled", {"runtime": "onnx"})

    Args:
        checkpoint: A run or an exported folder; several runs are an ensemble.
        input: A file, a pattern, or several files.
        out: A file, or a folder; None: eval/ in the run.
        settings: Further settings of `plmctl predict`.
        plugins: packages outside plmctl whose parts the settings may name.
        config_dirs: folders with parts of your own.
    """
    named = {"checkpoint": _spell_paths(checkpoint), "input": _spell_paths(input)}
    named |= {} if out is None else {"out": os.fspath(out)}
    given = _collect("predict", {**named, **(settings or {})}, None, plugins, config_dirs)
    return [json.loads(line) for line in _run(replace(given, json=True))[1].splitlines()]


def _spell_paths(paths: str | os.PathLike[str] | Sequence[Any]) -> str | list[str]:
    if isinstance(paths, str | os.PathLike):
        return os.fspath(paths)
    return [os.fspath(path) for path in paths]


def _collect(
    command: str,
    settings: Settings | None,
    recipe: str | os.PathLike[str] | None,
    plugins: Sequence[str],
    config_dirs: Sequence[str | os.PathLike[str]],
    *,
    resume: bool = False,
) -> Provenance:
    """The settings that a command line of the same meaning has."""
    if recipe is not None:
        check_path("recipe", recipe)
    name = os.fspath(recipe) if recipe is not None else None
    if name is None and not resume:
        name = find_command(command, plugins).about.recipe
    places = tuple(os.fspath(place) for place in config_dirs)
    return Provenance(command, name, to_words(settings), places, tuple(plugins), resume=resume)


def _run(
    given: Provenance, complete: Callable[[RunSpec], RunSpec] | None = None
) -> tuple[RunSpec, str]:
    """Compose and run a command. Returns its settings, as `complete` changes them, and what it
    printed.
    """
    if given.plugins and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with keep_state() as printed, advise(given):
            given = find_command(given.verb).read(given)
            spec = complete(decide(given)) if complete else decide(given)
            result = act(spec)
    except Unconfirmed as error:
        raise error.for_python() from None
    except PlmctlError as error:
        error.__cause__, error.__suppress_context__ = None, True
        raise
    if result in STOPPED:
        again = f"plmctl.train({given.command!r}, {{'run.dir': ...}}, resume=True) goes on"
        raise KeyboardInterrupt(f"stopped, all saved: {again}")
    if isinstance(result, int) and result:
        raise PlmctlError(f"plmctl {given.command} ended with code {result}: see its messages")
    return spec, printed.getvalue()
