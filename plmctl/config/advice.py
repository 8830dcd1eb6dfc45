"""The fix of a message where the part that found a wrong setting knows no better one: the setting's
value without the user's word.
"""

from __future__ import annotations

from dataclasses import replace

from plmctl.config.build import MISSING, plain
from plmctl.config.compose import attempt
from plmctl.config.spec import Provenance
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, ConfigErrors, PlmctlError, flatten
from plmctl.core.spelling import spell_setting


def add_fixes(error: PlmctlError, given: Provenance) -> PlmctlError:
    """`error`, with a fix for each setting of the command line that has none."""
    errors = flatten(error)
    open_ones = [each for each in errors if isinstance(each, ConfigError) and not each.fix]
    words = {_key(word): word for word in given.overrides}
    meant = {id(each): _find_word(each.path, words) for each in open_ones}
    wrong = {word for word in meant.values() if word}
    if not wrong or given.resume:
        return error
    try:
        others = tuple(word for word in given.overrides if word not in wrong)
        usual = plain(attempt(replace(given, overrides=others)).spec)
    except PlmctlError:
        return error
    advised = []
    for each in errors:
        word = meant.get(id(each))
        fix = _spell_usual(each.path, usual, word) if isinstance(each, ConfigError) and word else ""
        if isinstance(each, ConfigError) and fix:
            each = ConfigError(each.path, each.value, each.allowed, fix=fix)
        advised.append(each)
    return ConfigErrors(advised) if isinstance(error, ConfigErrors) else advised[0]


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _find_word(path: str, words: dict[str, str]) -> str | None:
    """The word that sets `path`, which it may spell short: `noise.rate` is that of the only
    noise.
    """
    slot, *between, name = path.split(".") if "." in path else (path, path)
    short = f"{slot}.{name}" if len(between) == 1 else path
    return words.get(path, words.get(short))


def _spell_usual(path: str, usual: object, word: str) -> str:
    """The setting with the value that it has without `word`, for a part or a mapping the advice to
    leave the word out; empty where the setting has no value then.
    """
    above, _, name = path.rpartition(".")
    node = select(usual, above) if above else usual
    value = node.get(name, MISSING) if isinstance(node, dict) else select(usual, path)
    if node is None:  # a slot without a part has no settings
        return ""
    if isinstance(value, dict):
        return "leave it out"
    if value == MISSING:
        return ""
    fix = spell_setting(path, value)
    return "" if fix == word else fix
