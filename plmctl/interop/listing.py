"""The published systems that can be converted, from the files of this package alone: nothing is
imported, so that `plmctl convert --help` is fast.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any


def list_systems() -> list[tuple[str, str]]:
    """(`model_type` of its config.json, the systems it stands for) of every family, by name."""
    systems = []
    for file in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            facts = _constants(node) if isinstance(node, ast.ClassDef) else {}
            if {"model_type", "systems"} <= facts.keys():
                systems.append((str(facts["model_type"]), ", ".join(facts["systems"])))
    return sorted(systems)


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
        if isinstance(target, ast.Name) and target.id in ("model_type", "systems") and value
    }
