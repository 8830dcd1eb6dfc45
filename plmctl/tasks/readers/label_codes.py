"""Labels that files have as codes, and their names: 104 is news_finance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.tasks.readers.label_text import SETTING, spell_label
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
    if len({*codes.values()}) < len(codes):
        allowed = "one name for each code; task.reader.merged_by= counts several labels as one"
        raise ConfigError(SETTING, dict(codes), allowed)
    return codes


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
