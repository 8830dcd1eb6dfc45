"""Parts inside of others by their names: `model.stack.residual.norm=rms_norm`."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.config.build import class_of, parameters_of
from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.core.parts import declared
from plmctl.core.values import fit

_DECLARED = re.compile(r'^@part_of\("(\w+)"\)\n(?:@.*\n)*(?:class|def) ([A-Za-z]\w*)', re.MULTILINE)
_NAME = re.compile(r"[\w.+-]+")


def find_target(
    word: str, node: Mapping[str, Any], plugins: Sequence[str], *, path: str, outer: Any = None
) -> str:
    """The target of the part that a word names instead of `node`; "" where the word is a value.

    Args:
        word: The value on the command line: `rms_norm`, `rms`, `plmctl.nn.norm.rms_norm`.
        node: The settings of the part that stands at `path`.
        outer: The settings of the part around it, whose signature may allow a text.

    Raises:
        ConfigError: There is no part of this name.
    """
    word = word.strip("'\"")
    names = list_parts(node, plugins)
    if not names or not _NAME.fullmatch(word) or word == "null":
        return ""
    if target := match_name(word, names):
        return target
    if _takes_text(path.rpartition(".")[2], parameters_of(outer, plugins)):
        return ""
    meant = find_meant(word, names) or str(node["_target_"]).rpartition(".")[2]
    allowed = f"must be a part{nearest(word, names)}; there are {', '.join(sorted(names))}"
    raise ConfigError(path, word, allowed, fix=f"{path}={meant}")


def match_name(word: str, names: Mapping[str, str]) -> str:
    """The target of the name that is meant by a word: itself, its letters alone, or without the
    name of the slot (`rms` of `rms_norm`); "" for none.
    """
    if word in names.values():
        return word
    by_letters = {_letters(name): target for name, target in names.items()}
    endings = {_letters(re.sub(r".*_", "_", name)) for name in names if "_" in name}
    spelt = [word, *(f"{word}{ending}" for ending in sorted(endings))]
    return next((by_letters[n] for n in map(_letters, spelt) if n in by_letters), "")


def list_parts(node: Mapping[str, Any], plugins: Sequence[str] = ()) -> Mapping[str, str]:
    """{name: target} of the parts that may replace `node`: those of its slot in the modules of
    its folder.
    """
    try:
        part = class_of(node, plugins)
    except ValueError:  # `check` says why
        return {}
    return _list_declared(part.__module__, str(declared(part)))


@functools.cache
def _list_declared(module: str, slot: str) -> Mapping[str, str]:
    """{name: target} of the parts of a slot in the folder of a module; nothing is imported."""
    package, folder = module.rpartition(".")[0], Path(sys.modules[module].__file__ or "").parent
    return {
        name: ".".join(filter(None, [package, file.stem, name]))
        for file in sorted(folder.glob("*.py"))
        if file.stem.isidentifier() and not file.stem.startswith("_")
        for own, name in _DECLARED.findall(file.read_text(encoding="utf-8", errors="replace"))
        if own == slot
    }


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _takes_text(name: str, known: Mapping[str, Any] | None) -> bool:
    """Whether a signature states that a parameter may be a text."""
    if known is None or name not in known or known[name].annotation is Any:
        return False
    try:
        fit("a", known[name].annotation)
    except ValueError as error:
        return "must be a part" not in str(error)
    return True
