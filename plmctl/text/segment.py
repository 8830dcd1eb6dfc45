"""Segmenters of Chinese text: functions from a text to the (start, end) of its words."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.extras import require_library
from plmctl.core.locate import refuse_foreign
from plmctl.core.parts import declared
from plmctl.core.spelling import spell_setting
from plmctl.storage.paths import find_near
from plmctl.text.inputs import read_lines

Segmenter = Callable[[str], Iterable[tuple[int, int]]]
OWN = ("jieba", "jieba_hmm")
_FORM = "a word, its frequency and its part of speech, the last two optional"
# a line of jieba's dictionary: a word, its frequency, its part of speech
_ENTRY = re.compile(r"(?P<word>[\w+#&.%·•・-]+)(?: (?P<count>\d+))?(?: [A-Za-z]+)?")
_LETTERS = re.compile(r"[\w+#&.%·•・-]+")
_TEXT = re.compile(r"[{}]|[，。！？；]\w")  # an object of JSON, or a sentence
_BETWEEN = re.compile(r"[\s,;:|/，；：、]+")  # signs between the cells of other layouts
_NUMBER = re.compile(r"[-+]?(?P<whole>\d+)(?:\.\d*)?")
_TAG = re.compile("[A-Za-z]+")


def jieba(text: str, dictionary: str = "") -> Iterator[tuple[int, int]]:
    """The words of jieba's dictionary, without its hidden Markov model, whose results change
    between versions. The dictionary has few traditional words.

    Args:
        dictionary: A file of further words, as `read_dictionary` reads it; "" for none.
    """
    return ((start, end) for _, start, end in _jieba(dictionary).tokenize(text, HMM=False))


def jieba_hmm(text: str, dictionary: str = "") -> Iterator[tuple[int, int]]:
    """The words of jieba's dictionary, and words of its hidden Markov model elsewhere, as in
    traditional text; `dictionary`: further words, as of `jieba`.
    """
    return ((start, end) for _, start, end in _jieba(dictionary).tokenize(text))


def find(name: str, plugins: Sequence[str] | None = None, path: str = "data.segment") -> Segmenter:
    """Find the function of this file called `name`, or the one at a dotted path.

    Args:
        name: `jieba`, `jieba_hmm`, each also with a dictionary of the user (`jieba:words.txt`), or
            `<module>.<function>`; a function of a plug-in declares itself by `@part_of("segment")`.
        plugins: the packages that it may lie in; None: any.
        path: the setting that names it.

    Raises:
        ConfigError: if there is no such segmenter.
        UsageError: if its library is not installed.
        DataError: if its dictionary cannot be read.
    """
    own, dictionary = split_name(name)
    if own in OWN:
        _refuse_missing(own, dictionary, path)
        require_library("jieba", "chinese", spell_setting(path, own))
        segmenter: Segmenter = partial(globals()[own], dictionary=dictionary)
        next(iter(segmenter("")), None)  # a wrong dictionary is reported now, not after an hour
        return segmenter
    module, _, function = own.rpartition(".")
    fix = "" if module else f"{path}={name.replace(own, OWN[0], 1)}"
    allowed = (
        f"must be {', '.join(OWN)} (or {OWN[0]}:<your dictionary>), or <module>.<function> (text ->"
        " start, end of words) of a --plugin package"
    )
    error = ConfigError(path, name, allowed + nearest(own, OWN), fix=fix)
    if not module or dictionary:
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


def _refuse_missing(own: str, dictionary: str, path: str) -> None:
    """Raise ConfigError for a dictionary that is no file."""
    file = Path(dictionary).expanduser()
    if dictionary and not file.is_file():
        near = find_near(file, folders=False)
        fix = spell_setting(path, f"{own}:{near}" if near else own)
        raise ConfigError(path, f"{own}:{dictionary}", f"there is no file {file}", fix=fix)


def split_name(name: str) -> tuple[str, str]:
    """(segmenter, dictionary) of `jieba:words.txt`; the dictionary is "" where it names none."""
    own, _, dictionary = name.partition(":")
    return own, dictionary


def identify(name: str) -> str:
    """The name of a segmenter, with a hash of its dictionary: equal names find equal words."""
    own, dictionary = split_name(name)
    if not dictionary:
        return name
    content = repr(read_dictionary(Path(dictionary).expanduser()))
    return f"{own}:{Path(dictionary).name}#{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def read_dictionary(file: Path) -> list[tuple[str, int | None]]:
    """The words of a dictionary in jieba's layout, each with its frequency or None. A line has a
    word, its frequency and its part of speech. The last two are optional.

    Raises:
        DataError: A line has another form, or no line has a word.
    """
    words = list[tuple[str, int | None]]()
    for number, line in read_lines(file):
        if not line.strip():
            continue
        if (entry := _ENTRY.fullmatch(line.strip())) is None:
            problem = f"no entry of jieba's dictionary ({_FORM}): {line[:40]}"
            raise DataError(problem, file=file, line=number, fix=_mend_entry(line))
        words.append((entry["word"], int(entry["count"]) if entry["count"] else None))
    if not words:
        raise DataError(f"no entries of jieba's dictionary ({_FORM})", file=file)
    return words


def _mend_entry(line: str) -> str:
    """The fix for a line that is no entry: the same word, frequency and part of speech, or none of
    it.
    """
    if _TEXT.search(line):
        return "leave this line out"
    cells = [*filter(None, _BETWEEN.split(line.strip()))]
    counts = [number["whole"] for cell in cells if (number := _NUMBER.fullmatch(cell))]
    texts = [cell for cell in cells if not _NUMBER.fullmatch(cell)]
    tags = [cell for cell in texts[1:] if _TAG.fullmatch(cell)]
    word = "".join(
        _LETTERS.findall("".join([*texts[:1], *(t for t in texts[1:] if t not in tags)]))
    )
    entry = " ".join([*filter(None, [word]), *counts[:1], *tags[:1]])
    return f"write it as: {entry}" if _ENTRY.fullmatch(entry) else "leave this line out"


@cache
def _jieba(dictionary: str) -> Any:
    library = require_library("jieba", "chinese", "the words of Chinese text")
    library.setLogLevel(60)
    words = library.Tokenizer() if dictionary else library.dt
    words.initialize()
    for word, count in read_dictionary(Path(dictionary).expanduser()) if dictionary else ():
        words.add_word(word, count)
    return words
