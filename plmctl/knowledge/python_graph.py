"""The knowledge graph that comes with Python: its own classes, what they inherit and define."""

from __future__ import annotations

import importlib
import inspect

MODULES = (
    *("builtins", "collections", "collections.abc", "numbers", "io", "enum", "types", "typing"),
    *("argparse", "ast", "datetime", "decimal", "email.message", "fractions", "json", "logging"),
    *("pathlib", "random", "string", "threading", "unittest", "xml.dom.minidom", "zipfile"),
)


def list_triples() -> list[tuple[str, str, str]]:
    """(head, relation, tail) of the classes of `MODULES`, in one order in every process.

    Relations: `subclass_of`, `defined_in`, `defines` (a method), `overrides` (a method, of a class
    above).
    """
    triples: dict[tuple[str, str, str], None] = {}
    for module in MODULES:
        for name, kind in sorted(vars(importlib.import_module(module)).items()):
            if not inspect.isclass(kind) or name.startswith("_"):
                continue
            own = _spell(kind)
            triples[own, "defined_in", kind.__module__] = None
            for base in kind.__bases__:
                triples[own, "subclass_of", _spell(base)] = None
            for method in sorted(n for n, value in vars(kind).items() if callable(value)):
                if method.startswith("_"):
                    continue
                triples[own, "defines", method] = None
                above = [base for base in kind.__mro__[1:] if method in vars(base)]
                if above:
                    triples[own, "overrides", f"{_spell(above[0])}.{method}"] = None
    return list(triples)


def _spell(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
