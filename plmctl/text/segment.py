"""Segmenters of Chinese text: functions from a text to the (start, end) of its words."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.extras import require_library
from plmctl.core.locate import refuse_foreign
from plmctl.core.parts import declared

Segmenter = Callable[[str], Iterable[tuple[int, int]]]
OWN = ("jieba", "jieba_hmm")


def jieba(text: str) -> Iterator[tuple[int, int]]:
    """The words of jieba's dictionary, without its hidden Markov model, whose results change
    between versions. The dictionary has few traditional words.
    """
    return ((start, end) for _, start, end in _jieba().tokenize(text, HMM=False))


def jieba_hmm(text: str) -> Iterator[tuple[int, int]]:
    """The words of jieba's dictionary, and words of its hidden Markov model elsewhere, as in
    traditional text.
    """
    return ((start, end) for _, start, end in _jieba().tokenize(text))


def find(name: str, plugins: Sequence[str] | None = None, path: str = "data.segment") -> Segmenter:
    """Find the function of this file called `name`, or the one at a dotted path.

    Args:
        name: `jieba`, `jieba_hmm`, or `<module>.<function>`; a function of a plug-in declares
            itself by `@part_of("segment")`.
        plugins: the packages that it may lie in; None: any.
        path: the setting that names it.

    Raises:
        ConfigError: if there is no such segmenter.
        UsageError: if its library is not installed.
    """
    module, _, function = name.rpartition(".")
    if not module and function in OWN:
        segmenter: Segmenter = globals()[function]
        next(iter(segmenter("")), None)  # a missing library is reported now, not after an hour
        return segmenter
    fix = "" if module else f"{path}={OWN[0]}"
    allowed = (
        f"must be {', '.join(OWN)}, or <module>.<function> (text -> start,"
        " end of words) of a --plugin package"
    )
    error = ConfigError(path, name, allowed + nearest(name, OWN), fix=fix)
    if not module:
        raise error
    if plugins is not None and name.partition(".")[0] not in plugins:
        raise refuse_foreign(path, name, error.allowed, slot="segment", known=OWN)
    try:
        segmenter = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as missing:
        raise ConfigError(path, name, f"cannot be imported ({missing})") from missing
    if declared(segmenter) != "segment":
        fix = '@part_of("segment") of plmctl.core.parts above its definition'
        raise ConfigError(path, name, "does not declare itself a segmenter", fix=fix)
    return segmenter


@cache
def _jieba() -> Any:
    library = require_library("jieba", "chinese", "data.segment=jieba")
    library.setLogLevel(60)
    library.initialize()
    return library
