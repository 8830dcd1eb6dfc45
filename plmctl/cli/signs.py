"""Signs of Chinese and Japanese keyboards and of editors that look like those of a command line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from pathlib import Path

from plmctl.config.recipes import conf_dir
from plmctl.core.errors import UsageError
from plmctl.core.spelling import is_literal, spell_line

_KEY = r"\+{0,2}[A-Za-z_][A-Za-z0-9_.@/-]*"
_EQUALS = re.compile(rf"({_KEY})([＝﹦])(?=.)", re.DOTALL)
_DASHES = re.compile(r"([-‐‑‒–—―−﹘﹣－]{1,3})(?=[A-Za-z][A-Za-z-]*([=＝]|$))")
_SPACES = re.compile(r"[\u3000\u00a0\u2000-\u200a\u202f\ufeff\u200b]+")
_COMMAS = re.compile(r"[，、；]\s*")
_QUOTES = "“”„‟‘’‚「」『』＂＇"
_QUOTED = re.compile(rf"[{_QUOTES}]([^{_QUOTES}]+)[{_QUOTES}]")
_NAMES = re.compile(r"\[[\w./-]+(，[\w./-]+)+\]", re.ASCII)  # a list with full-width commas
_PLAIN = re.compile(r"[\w./:@~-]+", re.ASCII)
_PATH = re.compile(r".*(^|[._])(path|init|checkpoint|teacher|out|dir|input|plugin)", re.DOTALL)
_FILE = re.compile(r"(.*/.*|[^.]+\.[A-Za-z0-9]{1,7})")


def refuse_look_alikes(
    words: Sequence[str], options: Collection[str], valued: Collection[str]
) -> None:
    """Raise UsageError where signs that look like those of a command line stand where these belong,
    with the line as it runs.

    A file that has such a name, a prompt, and a value of an option are left as they are.

    Args:
        words: All words behind `plmctl`.
        options: The options that the command has: "--dry-run".
        valued: The options among them that take a value.
    """
    found: list[str] = []
    corrected: list[str] = []
    for word in _join_quoted(words):
        free = (corrected[-1:] or [""])[0] in valued or Path(word).exists()
        corrected += [word] if free or "--" in corrected else _correct(word, options, found)
    if found:
        several = "; ".join(dict.fromkeys(found))
        raise UsageError(f"{several}\n  fix: {spell_line(*corrected)}")


def _correct(word: str, options: Collection[str], found: list[str]) -> list[str]:
    """The words that a word was meant to be; `found` receives what is wrong with it."""
    if is_literal(word.partition("=")[0]):
        return [word]
    parts = []
    for part in _divide(word, found):
        part = _correct_dashes(part, options, found)
        if equals := _EQUALS.match(part):
            found.append(f"{part}: {_name(equals[2])} stands behind {equals[1]} instead of =")
            part = f"{equals[1]}={part[equals.end() :]}"
        parts.append(_correct_value(part, found))
    return parts


def _divide(word: str, found: list[str]) -> list[str]:
    """The settings and options of one word that wide spaces or commas divide."""
    if Path(word.partition("=")[2]).is_file():
        return [word]
    for sign in (_SPACES, _COMMAS):
        for place in sign.finditer(word):
            before, after = word[: place.start()], word[place.end() :]
            apart = bool(after) and _begins_word(after) and not _is_open(before)
            edge = sign is _SPACES and not (before and after)
            last = sign is _COMMAS and not after and _PLAIN.fullmatch(before.partition("=")[2])
            if apart or edge or last:
                what = "a space that a shell reads" if apart or last else "nothing"
                found.append(f"{word}: {_name(place[0][0])} stands instead of {what}")
                first = [before] if before else []
                return [*first, *(_divide(after, []) if after else [])]
    return [word]


def _begins_word(text: str) -> bool:
    """Whether a text begins with a setting of plmctl, or with an option."""
    key = re.match(rf"({_KEY})[=＝﹦]", text)
    if key is None:
        return re.match(r"--[a-z]", text) is not None
    return "." in key[1] or key[1] in _known_keys()


def _known_keys() -> set[str]:
    """The settings without a dot that a line often has: the slots and those of folders."""
    slots = {each.name for each in conf_dir().iterdir() if each.is_dir()}
    return {*slots, "checkpoint", "init", "out", "input", "seed", "split", "device", "overwrite"}


def _is_open(text: str) -> bool:
    """Whether a text ends inside quotes, brackets or braces."""
    return any(text.count(mark) % 2 for mark in "\"'") or any(
        text.count(left) > text.count(right) for left, right in ("[]", "{}", "()", "“”", "「」")
    )


def _correct_dashes(word: str, options: Collection[str], found: list[str]) -> str:
    """An option with the dashes that it has: `—help` may have been two or one."""
    dashes = _DASHES.match(word)
    if dashes is None or dashes[1].isascii():
        return word
    name = re.split("[=＝]", word[dashes.end() :])[0]
    long = len(name) > 1
    meant = f"--{name}" if long else f"-{name}"
    if meant not in options and not (long and len(dashes[1]) > 1):
        return word
    wrong = next(sign for sign in dashes[1] if sign != "-")
    found.append(f"{word}: {_name(wrong)} stands instead of {'--' if long else '-'}")
    return meant + word[dashes.end() + len(name) :].replace("＝", "=", 1)


def _correct_value(word: str, found: list[str]) -> str:
    """A word whose value has quotes of a text around a path or a name, or wide commas in a list."""
    key, equals, value = word.partition("=")
    if not equals or not re.fullmatch(_KEY, key):
        key, equals, value = "", "", word
    quoted = _QUOTED.fullmatch(value)
    named = quoted is not None and (
        Path(quoted[1]).exists()
        or (equals and (_PATH.fullmatch(key) or _PLAIN.fullmatch(quoted[1])))
        or (not equals and _FILE.fullmatch(quoted[1]))
    )
    if quoted is not None and named and not Path(value).exists():
        found.append(f"{word}: {_name(value[0])} stands instead of a quote that a shell reads")
        return f"{key}{equals}{quoted[1]}"
    if equals and _NAMES.fullmatch(value):
        found.append(f"{word}: {_name('，')} stands instead of ,")
        return word.replace("，", ",")
    return word


def _join_quoted(words: Sequence[str]) -> list[str]:
    """The words, where a value between typographic quotes that a shell has split at its spaces is
    one again.
    """
    joined: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        opened = re.match(rf"(?:(?!prompt){_KEY}[=＝])?[“‘「『„][^{_QUOTES}]*$", word)
        ends = [n for n, each in enumerate(rest) if re.search("[”’」』“]$", each)] if opened else []
        if ends:
            whole = " ".join([word, *rest[: ends[0] + 1]])
            if not any("=" in each for each in rest[: ends[0] + 1]):
                word, rest = whole, rest[ends[0] + 1 :]
        joined.append(word)
    return joined


def _name(sign: str) -> str:
    """A sign with its number, since a terminal may show it as the usual one."""
    kind = unicodedata.name(sign, "a sign without a name").lower()
    shown = "" if sign.isspace() or sign in "\ufeff\u200b" else f"{sign} "
    return f"{shown}(U+{ord(sign):04X}, {kind})"
