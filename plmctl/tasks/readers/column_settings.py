"""Settings that say in which column of a table a role is, such as `task.columns.text=body`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell, spell_word

Column = str | int
Columns = Mapping[str, Any]  # {role: its column, or those of all}


def spell_role(role: str, column: str, columns: Columns, several: Collection[str] = ()) -> str:
    """The setting by which a role is in this column, as one types it into a shell.

    Args:
        role: `text`, or `choice1` of `choices`.
        column: The column, as `spell` writes it, or a placeholder.
        columns: {role: its column}.
        several: the roles that may be in more than one column: a list names those of all.
    """
    for whole in several:
        numbers = [other for other in columns if other.removeprefix(whole[:-1]).isdigit()]
        if role in numbers:
            own = (column if other == role else spell(columns[other]) for other in numbers)
            return spell_word(f"task.columns.{whole}=[{','.join(own)}]")
    return spell_word(f"task.columns.{role}={column}")


def refuse_lists(columns: Columns, several: Collection[str]) -> None:
    """ConfigError for several columns of a role that is none of `several`; two texts are a pair."""
    for role, column in columns.items():
        if role in several or not isinstance(column, list | tuple):
            continue
        setting = f"task.columns.{role}"
        own = [*map(spell, column)] or [role]
        fix = spell_word(f"{setting}={own[0]}")
        if role == "text" and len(column) == 2:
            pairs = "" if "text2" in columns else "task=pair_classification "
            fix = f"{pairs}{fix} {spell_word(f'task.columns.text2={own[1]}')}"
        raise ConfigError(setting, f"[{','.join(map(str, column))}]", "one column", fix=fix)
