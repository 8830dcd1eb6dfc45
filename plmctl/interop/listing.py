"""The published systems that can be opened, from the files of this package alone: nothing is
imported, so that `plmctl convert --help` and `plmctl models ls` are fast.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ListedFamily:
    """A family of published models, as its class states it.

    Args:
        model_type: The name in its config.json.
        systems: The systems that it stands for.
        recipes: The recipes that train them.
        hub: Usual names on the hub, each with its millions of parameters.
    """

    model_type: str
    systems: tuple[str, ...]
    recipes: tuple[str, ...] = ()
    hub: tuple[tuple[str, int], ...] = ()

    def spell_names(self) -> str:
        """The usual names, each with its size."""
        return ", ".join(f"{name} ({_spell_size(millions)})" for name, millions in self.hub)


def list_families() -> list[ListedFamily]:
    """Every family, by the name in its config.json."""
    families = []
    for file in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            facts = _constants(node) if isinstance(node, ast.ClassDef) else {}
            if {"model_type", "systems"} <= facts.keys():
                families.append(ListedFamily(**facts))
    return sorted(families, key=lambda family: family.model_type)


def list_systems() -> list[tuple[str, str]]:
    """(`model_type` of its config.json, the systems it stands for) of every family, by name."""
    return [(family.model_type, ", ".join(family.systems)) for family in list_families()]


def _spell_size(millions: int) -> str:
    return f"{millions / 1000:.1f}B" if millions >= 1000 else f"{millions}M"


def _constants(node: ast.ClassDef) -> dict[str, Any]:
    """The attributes of a class whose values are written out."""
    assigned = [
        (
            statement.targets[0] if isinstance(statement, ast.Assign) else statement.target,
            statement.value,
        )
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
    ]
    return {
        target.id: ast.literal_eval(value)
        for target, value in assigned
        if isinstance(target, ast.Name) and target.id in ListedFamily.__annotations__ and value
    }
