"""Errors that users can cause: each says what is wrong, where, what is allowed, and the smallest
fix.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from plmctl.core.pasted import spell_fixes

ALIKE = 0.6  # how much two words are alike, in difflib's measure, if one may stand for the other


class PlmctlError(Exception):
    """An error that a user reads as one message, not as a traceback; `exit_code` is that of the
    command. Its fixes, each on a line of its own, are written as one pastes them.
    """

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(spell_fixes(str(message)))


def first_with_fix(text: str, *, told: set[str] | None = None) -> str:
    """The first problem in the text of an error, and its fix on a line of its own. Fixes in `told`
    are left out; the function adds the new one to it.
    """
    lines = text.splitlines()
    fixes = [line.strip() for line in lines if line.startswith("  fix: ")][:1]
    if told is not None:
        fixes = [fix for fix in fixes if fix not in told]
        told.update(fixes)
    return "\n  ".join([first_problem(text), *fixes])


def first_problem(text: str) -> str:
    """The first problem in the text of an error, on one line, without its fix."""
    lines = text.splitlines()
    several = lines[0].endswith(":") and len(lines) > 1
    return f"{lines[0]} {lines[1].removeprefix('- ')}" if several else lines[0]


class UsageError(PlmctlError):
    """The command line or the config is wrong (exit code 2)."""

    exit_code = 2


class DataError(PlmctlError):
    """A file is missing, malformed or too small (exit code 3); the message names file and line, if
    there are any. `exact`: the fix is for this very file, and no other is better. `meant`: an
    existing path for one that is missing.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        file: object = None,
        line: int | None = None,
        fix: str = "",
        exact: bool = False,
        meant: object = None,
    ) -> None:
        self.message, self.file, self.exact, self.meant = message, file, exact, meant
        fix = fix or (f"give {meant}" if meant is not None else "")
        place = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(f"{place}{message}" + (f"\n  fix: {fix}" if fix else ""))


class AbsentData(DataError):
    """A file that has to be downloaded first is missing."""


class ConfigError(UsageError):
    """One wrong setting: its config path, its value (`...` if it has none; None is null, as it is
    written), what is allowed, and the smallest fix.
    """

    def __init__(self, path: str, value: object, allowed: str, *, fix: str = "") -> None:
        self.path, self.value, self.allowed, self.fix = path, value, allowed, fix
        shown = "null" if value is None else repr(value)
        setting = path if value is ... else f"{path}={shown}"
        super().__init__(f"{setting}: {allowed}" + (f"\n  fix: {fix}" if fix else ""))

    def under(self, place: str) -> ConfigError:
        """The error of a part whose settings are at `place`, which its fix then names."""
        slot, path = place.partition(".")[0], f"{place}.{self.path}"
        own = rf"(?<![\w.])(?:{slot}\.\w+\.)?{re.escape(self.path)}="
        return ConfigError(path, self.value, self.allowed, fix=re.sub(own, f"{path}=", self.fix))


class ConfigErrors(UsageError):
    """Several settings, or files that they name, are wrong; all are listed at once."""

    def __init__(self, errors: Sequence[PlmctlError]) -> None:
        self.errors = list(errors)
        super().__init__(
            f"{len(self.errors)} problems in the configuration:\n"
            + "\n".join(f"- {e}" for e in self.errors)
        )


def raise_all(errors: Iterable[PlmctlError]) -> None:
    """Raise nothing for no errors, the error itself for one, `ConfigErrors` for more; each counts
    once, and not where another has all its lines and more, or says more of the same setting.
    """
    texts = {str(error): error for error in errors}
    first = {text: text.partition("\n")[0] for text in texts}
    different = [
        error
        for text, error in texts.items()
        if not any(
            other.startswith(f"{text}\n") or line.startswith(f"{first[text]}; ")
            for other, line in first.items()
        )
    ]
    if different:
        raise different[0] if len(different) == 1 else ConfigErrors(different)


@contextlib.contextmanager
def collect(errors: list[PlmctlError]) -> Iterator[None]:
    """Go on after a user's mistake, with it in `errors`."""
    try:
        yield
    except PlmctlError as error:
        errors += flatten(error)


def flatten(error: PlmctlError) -> list[PlmctlError]:
    """The errors in one message; the error itself, if it is a single one."""
    return error.errors if isinstance(error, ConfigErrors) else [error]


def list_problems(error: BaseException) -> str:
    """All problems of an error on one line, without their fixes."""
    each = flatten(error) if isinstance(error, PlmctlError) else [error]
    return "; ".join(str(own).partition("\n")[0] for own in each)


def find_alike(
    word: object, choices: Iterable[str], *, least: float = ALIKE, most: int = 1
) -> list[str]:
    """The `most` of `choices` that are spelt most like a wrong word, the closest first. Names that
    begin with the word come before all others.

    Args:
        word: The word that a user wrote.
        choices: The existing names.
        least: The least likeness, in difflib's measure; 1 is the same word.
        most: The most results.
    """
    names = [str(choice) for choice in choices]
    begun = [name for name in names if len(str(word)) > 2 and name.startswith(str(word))]
    close = difflib.get_close_matches(str(word), names, n=most, cutoff=least)
    return list(dict.fromkeys([*sorted(begun, key=len), *close]))[:most]


def find_meant(word: object, choices: Iterable[str], *, least: float = ALIKE) -> str:
    """The first of `find_alike`; "" without one."""
    return next(iter(find_alike(word, choices, least=least)), "")


def find_meant_beside(key: str, keys: Iterable[str], *, least: float = ALIKE) -> str:
    """The key in the group of a wrong key (`train` of `train.sed`) whose last word is spelt most
    like its own; "" without one.
    """
    group, dot, name = key.rpartition(".")
    beside = (other.rpartition(".")[2] for other in keys if other.rpartition(".")[0] == group)
    meant = find_meant(name, beside, least=least)
    return f"{group}{dot}{meant}" if meant else ""


def list_some(names: Sequence[object], most: int = 8) -> str:
    """`a, b, c and 60,000 more`: the first `most` names, in a message."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def did_you_mean(names: Iterable[object]) -> str:
    """` (did you mean 'a' or 'b'?)`, or the empty string."""
    words = " or ".join(f"'{name}'" for name in names)
    return f" (did you mean {words}?)" if words else ""


def nearest(word: object, choices: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the closest of `choices`, or the empty string."""
    return did_you_mean(find_alike(word, choices))
