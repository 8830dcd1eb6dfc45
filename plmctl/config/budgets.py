"""The settings that follow from `train.minutes`: a recipe's table names them for the compute of
this machine in that time.

A table is a list of rows, the smallest budget first; a row holds for budgets of at most so many
FLOPs, the last one for all larger ones:

    budgets:
      - {up_to: 3e13, size: tiny, optim.lr: 2e-3}
      - {size: mini, optim.lr: 1e-3}

A setting that the command line names is left as it is. So are all settings of a part that the
command line chooses (of `optim.lr` after `optim=muon`). If rows choose the same part as the command
line (`size=mini`), the row nearest to the budget counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from plmctl.config.decision import Decision, shorten
from plmctl.config.groups import LENGTHS
from plmctl.config.overrides import OverrideWord
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, PlmctlError
from plmctl.core.spelling import spell

TABLE = "budgets"  # the key of the table
UP_TO = "up_to"  # the key of a row for its largest budget, in FLOPs
NONE = f"{TABLE}=[]"  # the word by which nothing is decided
Row = Mapping[str, Any]


def check_table(table: Any) -> Iterator[ConfigError]:
    """Every mistake in the form of a table; whether its settings exist is seen where it is used."""
    if not isinstance(table, (list, tuple)):
        return  # its type is wrong already
    before, rows = 0.0, [row for row in table if isinstance(row, Mapping)]
    for place, row in enumerate(rows):
        path, bound = f"{TABLE}.{place}", row.get(UP_TO)
        if bound is None and row is not rows[-1]:
            allowed = f"needs {UP_TO}, the FLOPs up to which it holds; only the last row has none"
            yield ConfigError(path, ..., allowed, fix=f"{UP_TO}: 1e15 in this row")
        elif bound is not None and not _is_amount(bound):
            yield ConfigError(f"{path}.{UP_TO}", bound, "a number of FLOPs, more than 0")
        elif bound is not None:
            if bound <= before:
                allowed = f"more than {before:g}, that of the row before it"
                yield ConfigError(f"{path}.{UP_TO}", bound, allowed)
            before = max(before, bound)
        if not set(row) - {UP_TO}:
            fix = "size: tiny, optim.lr: 2e-3"
            yield ConfigError(path, ..., "a row has the settings for its budget", fix=fix)
        for key, value in row.items():
            if isinstance(value, Mapping):
                inner = next(iter(value), "name")
                allowed = "a value; a setting inside of another has a dotted key"
                yield ConfigError(f"{path}.{key}", ..., allowed, fix=f"{key}.{inner}: ...")
            if key == TABLE or key.removeprefix("train.") in LENGTHS:
                yield ConfigError(f"{path}.{key}", value, "a table decides no length of a run")


def choose_row(
    table: Sequence[Row],
    count_flops: Callable[[int], float],
    words: Sequence[OverrideWord],
    parts: Collection[str],
) -> int:
    """The number of the row for a budget.

    Args:
        table: the rows, checked.
        count_flops: The budget of a row by its number: a narrow model reaches less of a processor.
        parts: the keys of rows that choose a part.
    """
    chosen = {word.key: word.sample.partition("=")[2] for word in words if word.key in parts}
    fitting = [
        place
        for place, row in enumerate(table)
        if all(key not in row or spell(row[key]) == value for key, value in chosen.items())
    ]
    fitting = fitting or list(range(len(table)))
    bounded = [place for place in fitting if UP_TO in table[place]]
    large = (place for place in bounded if count_flops(place) <= table[place][UP_TO])
    return next(large, fitting[-1])


def spell_row(row: Row) -> list[str]:
    """The settings of a row, as overrides."""
    return [f"{key}={spell(value)}" for key, value in row.items() if key != UP_TO]


def find_given(key: str, words: Sequence[OverrideWord]) -> OverrideWord | None:
    """The word of the command line that names a setting, or the part whose setting it is."""
    return next((word for word in words if f"{key}.".startswith(f"{word.key}.")), None)


def at_row(error: PlmctlError, place: int, row: Row) -> PlmctlError:
    """An error of a setting that a row decided, with the config path where it is written."""
    if not isinstance(error, ConfigError):
        return error
    if not any(f"{error.path}.".startswith(f"{key}.") for key in row):
        return error
    return ConfigError(f"{TABLE}.{place}.{error.path}", error.value, error.allowed)


def conclude(
    minutes: float,
    rate: float,
    table: Sequence[Row],
    place: int,
    settings: Mapping[str, Any],
    words: Sequence[OverrideWord],
    parts: Collection[str],
) -> Decision:
    """The decision for a row, with the values that its settings have in the run.

    Args:
        rate: FLOP/s that training reaches.
        settings: The settings of the run, composed with the row.
        parts: the keys of rows that choose a part.
    """
    row = table[place]
    bound = f"up to {shorten(row[UP_TO])} FLOPs" if row.get(UP_TO) else "the largest"
    decided: list[str] = []
    sources: dict[str, tuple[Any, str]] = {}
    for key in (key for key in row if key != UP_TO):
        given = find_given(key, words)
        value = row[key] if key in parts else select(settings, key)
        if given is None:
            decided.append(f"{key}={spell(value)}")
            sources[key] = value, f"{TABLE}.{place}: {bound}"
        elif given.key == key:
            sources[key] = given.sample.partition("=")[2], "given"
        else:
            sources[key] = value, f"as the recipe has it: {given.text} is given"
    return Decision(minutes, rate, tuple(decided), sources)


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
