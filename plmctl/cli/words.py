"""The words of a command with settings: which of them is a recipe, and which setting a word
without "=" stands for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from plmctl.config.command import About
from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell_word


def read_bare(about: About, words: Sequence[str]) -> list[str]:
    """The words of a command; the first word without "=" becomes the setting for which it stands.
    UsageError for another word that has no meaning there.
    """
    marks = dict(about.marks)
    words = [marks.get(word, word) if place else word for place, word in enumerate(words)]
    if not about.bare:
        refuse_cut_value(words)
    if not about.takes_path:
        return list(words)
    return name_argument(about.bare if isinstance(about.bare, str) else about.bare(words), words)


def name_argument(setting: str, words: Sequence[str]) -> list[str]:
    """The words, where a word without "=" becomes `setting`; a file of settings stays as it is."""
    bare = [word for word in words if not re.search(r"=|^~|\.ya?ml$", word)]
    given = [word for word in words if word.startswith(f"{setting}=")]
    if bare and len(bare) + len(given) > 1:
        both = " ".join([*bare, *given])
        first = spell_word(f"{setting}={bare[0]}")
        fix = f"{first} alone, or <another setting>={spell_word(bare[-1])}"
        raise UsageError(f"{setting} is given more than once: {both}\n  fix: {fix}")
    return [f"{setting}={word}" if word in bare else word for word in words]


def refuse_cut_value(words: Sequence[str]) -> None:
    """Raise UsageError for words without "=" behind a setting, of a command where they have no
    meaning: the shell ended a value at its space.
    """
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
        fix = f"{spell_word(bare[0])} alone, or {spell_word(bare[1])}=<a value>"
        raise UsageError(
            f"only one recipe may be named; settings are key=value: {' '.join(bare)}\n  fix: {fix}"
        )
    if bare and resume and Path(bare[0]).is_dir():
        return None, [*overrides, f"run.dir={bare[0]}"]
    return (bare[0] if bare else None), overrides
