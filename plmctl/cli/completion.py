"""The Tab key's additions to a command line: recipes, settings, parts, values and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from glob import escape, glob
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from plmctl.config.command import Command

Suggested = list[tuple[str, str]]  # (a word that may stand there, its meaning or "")
LONGEST = 72  # letters of a meaning: Typer breaks longer ones, and a shell reads lines as words


def suggest_words(ctx: typer.Context, incomplete: str) -> Suggested:
    """The words that may follow the words of a command with settings."""
    from plmctl.config.command import find_command, find_settings

    command = str(ctx.command_path).partition(" ")[2]
    folders = tuple(ctx.params.get("config_dir") or ())
    # words that bash has cut at their `=`, whole again
    words = re.sub(r"\n=(?:\n|$)", "=", "\n".join(ctx.params.get("words") or ())).splitlines()
    kind = find_settings(command.rpartition(" ")[2])
    if command == "distill" and any(word.startswith("task=") for word in words):
        kind = find_command("finetune")
    own = SettingNames(folders)
    key, equals, value = _take_apart(words, incomplete)
    if equals:
        found = own.values(kind, key, value)
        begun = incomplete.partition("=")[0] + "=" if "=" in incomplete else ""
        return _shorten((f"{begun}{word}", about) for word, about in found)
    named = any("=" not in word for word in words)
    recipes = [] if named else list(_list_recipes(command, folders))
    about = ctx.command.callback.kind.about  # type: ignore[union-attr]
    takes_file = not named and (about.takes_path or "/" in incomplete)
    files = [(name, "") for name in _list_files(incomplete)] if takes_file else []
    keys = own.keys(kind, words, incomplete) if kind else ()
    return _shorten(pair for pair in (*recipes, *files, *keys) if pair[0].startswith(incomplete))


def suggest_recipes(ctx: typer.Context, incomplete: str) -> Suggested:
    """The recipes of `plmctl recipes show|cp|run`."""
    return _shorten(_list_recipes("pretrain", tuple(ctx.params.get("config_dir") or ())))


def suggest_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics that `plmctl help` explains: slots, and parts of every slot."""
    from plmctl.config.recipes import part_files, slots

    groups = slots(tuple(ctx.params.get("config_dir") or ()))
    return sorted({*groups, *(name for group in groups for name in part_files(group))})


def suggest_pages(ctx: typer.Context, incomplete: str) -> Suggested:
    """The pages that `plmctl docs` shows."""
    from plmctl.config.pages import list_pages

    pages = [(page.name, page.about) for page in list_pages()]
    return _shorten(pair for pair in pages if pair[0].startswith(incomplete))


def _shorten(pairs: Iterable[tuple[str, str]]) -> Suggested:
    """The pairs with meanings of one line."""
    return [(word, shorten(about, LONGEST, placeholder=" ...")) for word, about in pairs]


def _take_apart(words: list[str], incomplete: str) -> tuple[str, str, str]:
    """(key, "=", the begin of its value) of the word at the cursor; else three empty texts. Bash
    cuts a word at its `=`.
    """
    if "=" in incomplete:
        key, equals, value = incomplete.partition("=")
        return key.lstrip("+"), equals, value
    last = words[-1] if words else ""
    if last.endswith("="):
        words.pop()
        return last[:-1].lstrip("+"), "=", incomplete
    # an empty word behind `key` and `=` comes without the latter
    if not incomplete and "." in last and "=" not in last and "/" not in last:
        words.pop()
        return last, "=", ""
    return "", "", ""


def _list_recipes(command: str, folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, summary) of the recipes or studies that the bare word of a command names."""
    from plmctl.config import recipes
    from plmctl.config.headers import header

    files: dict[str, Path] = {}
    named = {"graph": recipes.graph_recipes, "ablate": recipes.studies, "search": recipes.searches}
    if command in ("pretrain", "distill"):
        names = recipes.recipe_names(folders)
        files = {name: recipes.find_recipe(name, folders) for name in names}
    elif list_files := named.get(command):
        files = list_files(folders)
    yield from ((name, header(file).about) for name, file in files.items())


class SettingNames:
    """The names of settings and their values, by the files of conf/ and of the user's folders."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = folders

    def keys(
        self, kind: type[Command], words: Sequence[str], incomplete: str
    ) -> Iterator[tuple[str, str]]:
        """`key=` of the command's settings, and of the parts that the words choose."""
        from plmctl.config.part_help import list_settings
        from plmctl.config.settings import list_plumbing

        for slot in self._slots(kind):
            yield f"{slot}=", "a part"
        for setting in list_plumbing(kind):
            yield f"{setting.path}=", setting.meaning
        slot = incomplete.partition(".")[0]
        chosen_parts = [word.partition("=")[2] for word in words if word.startswith(f"{slot}=")]
        names = chosen_parts[-1] if chosen_parts else _read_default(kind.about.verb, slot)
        for name in re.findall(r"\w+", names):
            if "." in incomplete and (file := self._parts(slot).get(name)):
                for setting in list_settings(file, types=False):
                    if not setting.target:
                        yield f"{setting.path}=", setting.meaning

    def values(self, kind: type[Command] | None, key: str, value: str) -> Iterable[tuple[str, str]]:
        """The values that a setting may have, behind the written part of the value."""
        from plmctl.config.command import find_command
        from plmctl.config.keys import is_path
        from plmctl.config.settings import list_plumbing

        if is_path(key):
            return [(name, "") for name in _list_files(value)]
        if parts := self._parts(key):
            before, _, begun = value.rpartition(",") if "," in value else ("", "", value)
            before = f"{before}," if before else begun[: begun.startswith("[")]
            begun = begun.lstrip("[")
            return [(f"{before}{name}", "") for name in parts if name.startswith(begun)]
        owners = [kind] if kind else [find_command("pretrain"), find_command("finetune")]
        kinds = {s.path: s.kind for each in owners for s in list_plumbing(each)}
        return [(word, "") for word in _list_choices(kinds.get(key, "")) if word.startswith(value)]

    def _slots(self, kind: type[Command]) -> list[str]:
        from plmctl.config.schema import hints

        return [name for name in hints(kind) if name != "recipe" and self._parts(name)]

    def _parts(self, slot: str) -> dict[str, Path]:
        from plmctl.config.recipes import part_files

        return part_files(slot, self.folders) if slot.isidentifier() else {}


def _read_default(verb: str, slot: str) -> str:
    """The parts that a command takes by default in a slot; "" without any."""
    from plmctl.config.recipes import conf_dir

    file = conf_dir() / f"{verb}.yaml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(rf"^  - {re.escape(slot)}: ([^#\n]+)", text, re.MULTILINE)
    return found[1].strip() if found else ""


def _list_choices(kind: str) -> list[str]:
    """The words of "one of a, b" or "true or false"."""
    if kind.startswith("one of "):
        return re.findall(r"[^\s,]+", kind.removeprefix("one of ").replace(" or ", " "))
    return ["true", "false"] if kind.startswith("true or false") else []


def _list_files(begun: str) -> list[str]:
    """Files and folders whose path begins so; a folder with the slash behind it."""
    folder, slash, name = begun.rpartition("/")
    place = Path(f"{folder}{slash}").expanduser()
    return sorted(
        f"{folder}{slash}{found}{'/' * (place / found).is_dir()}"
        for found in glob(f"{escape(name)}*", root_dir=place)
    )
