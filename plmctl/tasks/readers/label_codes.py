"""Labels that files have as codes, and their names: 104 is news_finance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plmctl.core.errors import ConfigError, DataError, list_some
from plmctl.tasks.readers.broken_rows import SHOWN
from plmctl.tasks.readers.label_text import SETTING, spell_codes, spell_label
from plmctl.tasks.record import Example

LabelNames = Sequence[str] | Mapping[str, str]  # names, or {code in files: name}


def names_of(stated: LabelNames) -> list[str]:
    """The names of labels in the order of the logits."""
    if isinstance(stated, Mapping):
        return [*read_codes(stated).values()]
    return [spell_label(name) for name in stated]


def read_codes(stated: LabelNames | None) -> dict[str, str]:
    """{code: name}; empty where files have the names.

    Raises:
        ConfigError: Two codes have one name.
    """
    if not isinstance(stated, Mapping):
        return {}
    codes = {spell_label(code): spell_label(name) for code, name in stated.items()}
    for name in codes.values():
        same = [other for other, own in codes.items() if own == name]
        if len(same) > 1:
            allowed = f"one name for each code, and {' and '.join(same)} are '{name}'"
            more = "; task.reader.merged_by= counts several labels as one"
            fix = spell_codes({each: f"{name}_{each}" for each in same[:-1]} | {same[-1]: name})
            raise ConfigError(SETTING, {each: name for each in same}, allowed + more, fix=fix)
    return codes


class NamesOfCodes:
    """The names that the rows of files state for the codes of their labels."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}  # code -> name
        self._codes: dict[str, str] = {}  # name -> code
        self._first: dict[str, str] = {}  # code -> file:line of its name

    def add(self, label: Any, name: Any, file: object, line: int) -> None:
        """The label and its name in a row; a row without one says nothing.

        Raises:
            DataError: An earlier row has another name of this code, or this name for another.
        """
        code, name = spell_label(label), spell_label(name or "")
        if label is None or not name or code in ("", name) or self.found.get(code) == name:
            return
        other = code if code in self.found else self._codes.get(name)
        if other is not None:
            known = f"{other} is '{self.found[other]}' at {self._first[other]}"
            fix = "one name for each code, or task.columns.label_name=null: none is read"
            what = f"label {code} is '{name}' here, but {known}"
            raise DataError(what, file=file, line=line, fix=fix)
        self.found[code], self._codes[name] = name, code
        self._first[code] = f"{file}:{line}"


def name_by_files(codes: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, str]:
    """{code: name}, with the names that files state. A code is called by itself if files give its
    name to another one.
    """
    taken = {*stated.values()}
    own = {code: code if name in taken else name for code, name in codes.items()}
    return {code: stated.get(code, name) for code, name in own.items()}


def describe_named(codes: Mapping[str, str], stated: Mapping[str, str]) -> str:
    """A sentence on the names that files state otherwise; "" for none."""
    other = [code for code, name in codes.items() if stated.get(code, name) != name]
    if not other:
        return ""
    listed = list_some([f"{code} is {stated[code]}, not {codes[code]}" for code in other], SHOWN)
    return f"the files name labels otherwise: {listed} (task.columns.label_name=null: as before)"


def rename(label: Any, names: Mapping[str, str]) -> Any:
    """A label, or a list of labels, by these names; others stay as they are."""
    return [rename(e, names) for e in label] if isinstance(label, list) else names.get(label, label)


def name_examples(examples: list[Example], codes: Mapping[str, str]) -> list[Example]:
    """The examples with names for codes."""
    if not codes:
        return examples
    return [
        replace(
            each,
            label=rename(each.label, codes),
            shares=each.shares and {rename(name, codes): p for name, p in each.shares.items()},
        )
        for each in examples
    ]
