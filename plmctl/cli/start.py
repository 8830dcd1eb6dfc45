"""How a command with settings starts."""

from __future__ import annotations

import contextlib
import functools
import gc
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import typer

from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import DETAIL, remark, tell
from plmctl.run.spec import Provenance, RunSpec, thaw

# what a word without "=" stands for, where it names no recipe: what the command is about
ARGUMENTS = {
    **dict.fromkeys(("tokenize", "data", "contexts", "polarity", "triples"), "data.path"),
    **dict.fromkeys(("eval", "attack", "embed", "generate", "inject", "extend"), "checkpoint"),
    "link": "path",
}
RECIPES = ("pretrain", "graph", "ablate", *ARGUMENTS)  # whose word without "=" has a meaning


def start(
    verb: str,
    words: Sequence[str] | None,
    *,
    recipe: str | None = None,
    complete: Callable[[Provenance], Provenance] = lambda given: given,
    print_config: bool = False,
    multirun: bool = False,
    **options: Any,
) -> None:
    """Compose the settings and run the command.

    Args:
        verb: The command.
        words: A recipe and settings, as they stand on the command line.
        recipe: Counts where the words name none.
        complete: Adds words for settings that the user left out.
        options: As for `collect_options`.

    Raises:
        typer.Exit: Always, with the exit code.
    """
    given = collect_options(verb, **options)
    if not given.resume:
        refuse_cut_value(verb, words or [])
    named, overrides = sort_words(name_argument(verb, words or []), resume=given.resume)
    recipe = named or (None if given.resume else recipe)
    given = complete(replace(given, recipe=recipe, overrides=tuple(overrides)))
    raise typer.Exit(_go(given, print_config, multirun))


def collect_options(
    verb: str,
    *,
    config_dir: Sequence[str] | None = None,
    plugin: Sequence[str] | None = None,
    **wishes: Any,
) -> Provenance:
    """What the options of a command say."""
    return Provenance(
        verb, config_dirs=tuple(config_dir or ()), plugins=tuple(plugin or ()), **wishes
    )


def _go(given: Provenance, print_config: bool, multirun: bool) -> int:
    if multirun:
        from plmctl.jobs.sweep import sweep

        if given.resume or print_config:
            raise UsageError(
                "-m/--multirun cannot be combined with --resume or --print-config:"
                "\n  fix: name the run.dir or the settings of one job"
            )
        return sweep(given)
    from plmctl.run.deciding import advise, decide

    with advise(given):
        with _without_collector():
            spec = decide(given)
            remark(f"composed the settings of plmctl {given.command}", DETAIL)
            action = _print_config if print_config else _import_action(spec)
        remark("imported what it needs", DETAIL)
        result = action(spec)
    return result if isinstance(result, int) else 0


def _print_config(spec: RunSpec) -> int:
    from plmctl.storage.settings_file import to_yaml

    known = spec.provenance
    head = f"# {known.decision}\n" if known.decision else ""
    head += "".join(f"# unused, its part is not chosen: {line}\n" for line in known.removed)
    tell(head + to_yaml(thaw(spec)), end="")
    return 0


def _import_action(spec: RunSpec) -> Callable[[RunSpec], Any]:
    from plmctl.run.action import find_action

    return find_action(spec)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Import and compose without the garbage collector: nearly all objects that this makes stay,
    and looking through them takes a tenth of the time to the first update of a small run.

    What the first command of a process has imported is not looked through later, either.
    """
    gc.disable()
    try:
        yield
    finally:
        _freeze_imports()
        gc.enable()


@functools.cache
def _freeze_imports() -> None:
    """Once a process, since what is garbage by then stays, too."""
    gc.freeze()


def name_argument(verb: str, words: Sequence[str]) -> list[str]:
    """The words with the one that has no "=" as the setting for which it stands, unless it names a
    recipe; a file of settings stays as it is.
    """
    setting = ARGUMENTS.get(verb)
    if setting is None:
        return list(words)
    if verb == "data" and any(word.startswith("task=") for word in words):
        setting = "task.path"
    bare = [word for word in words if not re.search(r"=|^~|\.ya?ml$", word)]
    given = [word for word in words if word.startswith(f"{setting}=")]
    if bare and len(bare) + len(given) > 1:
        both = " ".join([*bare, *given])
        fix = f"{setting}={bare[0]} alone, or <another setting>={bare[-1]}"
        raise UsageError(f"{setting} is given more than once: {both}\n  fix: {fix}")
    return [f"{setting}={word}" if word in bare else word for word in words]


def refuse_cut_value(verb: str, words: Sequence[str]) -> None:
    """Raise UsageError for words without "=" behind a setting, where the command takes no recipe:
    the shell ended a value at its space.
    """
    if verb in RECIPES:
        return
    for place, word in enumerate(words[1:], 1):
        if re.search(r"=|^~|\.ya?ml$", word) or "=" not in words[place - 1]:
            continue
        rest = list(takewhile(lambda word: "=" not in word, words[place:]))
        problem = f"'{word}': has no =; the shell ends a value at a space that is not in quotes"
        raise UsageError(f"{problem}\n  fix: {spell_word(' '.join([words[place - 1], *rest]))}")


def sort_words(words: Sequence[str], *, resume: bool) -> tuple[str | None, list[str]]:
    """Split words into a recipe, which is the one word without "=", and overrides. With --resume
    this word may be the folder of the run.
    """
    bare = [word for word in words if "=" not in word and not word.startswith("~")]
    overrides = [word for word in words if word not in bare]
    if len(bare) > 1:
        fix = f"{bare[0]} alone, or {bare[1]}=<a value>"
        raise UsageError(
            f"only one recipe may be named; settings are key=value: {' '.join(bare)}\n  fix: {fix}"
        )
    if bare and resume and Path(bare[0]).is_dir():
        return None, [*overrides, f"run.dir={bare[0]}"]
    return (bare[0] if bare else None), overrides
