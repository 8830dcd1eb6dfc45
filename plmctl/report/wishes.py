"""Parse the options of `plmctl report` that choose what is drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.core.errors import DataError, UsageError
from plmctl.report.card import FACTS
from plmctl.report.subject import Wishes
from plmctl.text.inputs import need_lines

if TYPE_CHECKING:
    from plmctl.analysis.probing import Labels

DEV = "dev"  # instead of a file: the rows that a run held out


def parse_wishes(
    heads: str | None,
    sentences: Sequence[str],
    probes: Sequence[str],
    bits: str | None = None,
    *,
    words: Sequence[str] = (),
    units: str | None = None,
    text: str | None = None,
) -> Wishes:
    """Parse the options for optional panels; UsageError for a wrong one."""
    parsed = [_pair("attention", "head", word) for word in _split(heads)]
    keys = [_pair("keys", "unit", word) for word in _split(units)]
    if sentences and not (parsed or keys):
        raise UsageError("--sentence: of which heads?\n  fix: --attention 0.0 before it")
    return Wishes(
        heads=parsed,
        sentences=list(sentences),
        lines=None if text is None else _read_lines(text),
        probes=dict(_probe(word) for word in probes),
        bits=[_bits(word) for word in _split(bits)],
        words=dict(_word(word) for word in words),
        units=keys,
    )


def parse_facts(words: Sequence[str]) -> Mapping[str, str]:
    """Parse `key=value` facts for the model card."""
    facts = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in FACTS or not equals or not value:
            raise UsageError(f"--fact {word}: KEY=VALUE, where KEY is one of {', '.join(FACTS)}")
        facts[key] = value
    return facts


def _split(words: str | None) -> list[str]:
    return [word.strip() for word in (words or "").split(",") if word.strip()]


def _pair(option: str, what: str, word: str) -> tuple[int, int]:
    layer, _, number = word.partition(".")
    if not (layer.isdecimal() and number.isdecimal()):
        raise UsageError(
            f"--{option} {word}: layer.{what}, both counted from 0\n  fix: --{option} 0.0,1.3"
        )
    return int(layer), int(number)


def _read_lines(text: str) -> list[str]:
    """The lines of a file that are not empty; none for "dev", the held-out rows of a run."""
    if text == DEV:
        return []
    file = Path(os.path.expanduser(text))
    if not file.is_file():
        fix = f"--heads {DEV} # the text that the run held out"
        raise DataError("no such file", file=file, fix=fix)
    if lines := [line.strip() for _, line in need_lines(file) if line.strip()]:
        return lines
    raise DataError("this file has no text", file=file)


def _word(given: str) -> tuple[str, Path]:
    word, equals, file = given.partition("=")
    if not (word.strip() and equals and file):
        fix = "--word bank=sentences.txt"
        raise UsageError(f"--word {given}: WORD=FILE, with a sentence in each line\n  fix: {fix}")
    return word.strip(), Path(os.path.expanduser(file))


def _bits(word: str) -> int:
    if word.strip() not in map(str, range(2, 9)):
        raise UsageError(f"--sensitivity {word}: numbers of bits, 2 to 8\n  fix: --sensitivity 8,4")
    return int(word)


def _probe(word: str) -> tuple[str, Labels]:
    from plmctl.analysis.probing import Labels  # brings torch

    name, equals, where = word.partition("=")
    file, colon, columns = where.rpartition(":")
    if not colon or Path(where).is_file():
        file, columns = where, "0,1"
    numbers = columns.split(",")
    if (
        not (name and equals and file)
        or len(numbers) != 2
        or not all(n.lstrip("-").isdecimal() for n in numbers)
    ):
        fix = "--probe pos=conll/eng.testa or --probe sense=train.tags:1,7"
        raise UsageError(
            f"--probe {word}: NAME=FILE, or NAME=FILE:TOKENS,TAGS with the numbers of two columns\n"
            f"  fix: {fix}"
        )
    return name, Labels(Path(os.path.expanduser(file)), int(numbers[0]), int(numbers[1]))
