"""The meaning of a word: a term of the glossary, a recipe, or the name of another trainer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from plmctl.config.command import list_commands
from plmctl.config.headers import header
from plmctl.config.instead import INSTEAD
from plmctl.config.other_names import OURS
from plmctl.config.other_values import UNSAID, say, say_instead
from plmctl.config.recipes import docs_dir, find_recipe, recipe_names
from plmctl.storage.reading import read_text

_ROW = re.compile(r"^\| (?P<terms>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE)

_SPACES = str.maketrans("_-", "  ")


def explain_word(
    what: str, config_dirs: Sequence[str] = (), plugins: Sequence[str] = ()
) -> dict[str, str]:
    """{term or name: what it means}; empty for a word that nothing here explains."""
    lines = _find_terms(what) | describe_command(what, plugins)
    if what in recipe_names(config_dirs):
        about = header(find_recipe(what, config_dirs)).about
        lines[f"recipe {what}"] = f"{about} (plmctl recipes show {what})"
    name = re.sub(r"[\s-]+", "_", what.strip())  # as one word of a setting
    if instead := INSTEAD.get(name):
        typed = say_instead(name, instead.typed, UNSAID, lambda _: None)
        typed = f": {typed}" if typed else ""
        lines[f"{name}, of other trainers"] = f"{instead.words}{typed}"
    if same := [ours for ours, theirs in OURS.items() if name in theirs.split()]:
        words = [say(name, ours, UNSAID, lambda _: None).removesuffix("=...") for ours in same]
        lines[f"{name}, of other trainers"] = f"here it is {', or '.join(words)}"
    return lines


def describe_command(name: str, plugins: Sequence[str] = ()) -> dict[str, str]:
    """{what shows the help of a command: its line}; empty where there is no such command."""
    command = list_commands(tuple(plugins)).get(name)
    return {f"plmctl {name} --help": command.about} if command else {}


def _find_terms(what: str) -> dict[str, str]:
    """The rows of the glossary that explain a term, or begin or end with it, in any number."""
    file = docs_dir() / "glossary.md"
    rows = _ROW.finditer(read_text(file) if file.is_file() else "")
    wanted, short = _bare(what), _bare(what.removeprefix("valid/"))
    # `loss/TERM` explains `loss/mlm`, `ndcg@K` explains `ndcg@10`, `loss_N` explains `loss_100`
    general = re.sub(r"@\d+$", "@k", re.sub(r"^(?:.*/)?([^/]+)/[^/]+$", r"\1/term", short))
    general = re.sub(r" [\d.]+$", " n", general)
    exact: dict[str, str] = {}
    alike: dict[str, str] = {}
    inside: dict[str, str] = {}
    for row in rows:
        terms = [_bare(term) for term in re.split(r"[,;]", row["terms"])]
        if wanted in terms or short in terms:
            exact[row["terms"]] = row["meaning"]
        elif general in terms or f"{short}/term" in terms:
            alike[row["terms"]] = row["meaning"]
        elif any(re.search(rf"(^|[ -]){re.escape(wanted)}($|[ -])", term) for term in terms):
            inside[row["terms"]] = row["meaning"]
    exact = exact or alike
    return exact | inside if len(wanted) > 2 else exact


def _bare(term: str) -> str:
    """A term in lower case and in the singular, without marks of code."""
    return re.sub(r"(?<=\w{3})(?<![su])s$", "", term.strip().strip("`").lower().translate(_SPACES))
