"""Fixes of messages about settings: the share of a percent, and for a setting without a fix its
value without the user's word.
"""

from __future__ import annotations

import re
from dataclasses import replace

from plmctl.config.build import MISSING, plain
from plmctl.config.compose import attempt
from plmctl.config.spec import Provenance
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, ConfigErrors, PlmctlError, flatten
from plmctl.core.spelling import spell_setting

# the words of a message on a share: 0 < rate <= 1, at most 1, between 0 and 1, 0 up to 1
_SHARE = re.compile(r"(?:<=?|at most|below|less than|0 and|0 (?:up )?to) 1\b")
_NUMBER = re.compile(r"must be a number|" + _SHARE.pattern)
LEAST_PERCENT = 5  # a smaller number may be a share with a wrong digit


def add_fixes(error: PlmctlError, given: Provenance) -> PlmctlError:
    """`error`, with a fix for each setting of the command line that has none, and for a percent as
    a share.
    """
    errors = [_mend_percent(each) for each in flatten(error)]
    error = ConfigErrors(errors) if isinstance(error, ConfigErrors) else errors[0]
    open_ones = [each for each in errors if isinstance(each, ConfigError) and not each.fix]
    words = {word.partition("=")[0].lstrip("+~"): word for word in given.overrides}
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


def _mend_percent(error: PlmctlError) -> PlmctlError:
    """The error with `abstain=0.95` as the fix of `abstain=95` or `95%`, where a share is wanted;
    of whole numbers such as a fold, the part itself knows better.
    """
    if not isinstance(error, ConfigError) or re.search(r"=\d+$", error.fix):
        return error
    typed = re.fullmatch(r"([\d.]+)(%?)", str(error.value))
    wanted = _NUMBER if typed and typed[2] else _SHARE
    if not typed or not wanted.search(error.allowed):
        return error
    share = float(typed[1]) / 100
    if not LEAST_PERCENT <= 100 * share < 100:
        return error
    return ConfigError(error.path, error.value, error.allowed, fix=f"{error.path}={share:.10g}")


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
