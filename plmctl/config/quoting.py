"""Quotes for Hydra's grammar: paths and foreign letters on a command line are values, never
grammar.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from plmctl.config.keys import is_literal, is_path, is_written
from plmctl.core.spelling import quote_value

# of Hydra's sweep grammar
FUNCTION = re.compile(r"(choice|glob|range|interval|sort|shuffle|tag)\(.*\)", re.DOTALL)


def quote(text: str, *, sweep: bool = False) -> str:
    """The override with its value in quotes if it is a path, or has letters that Hydra's grammar
    lacks (Chinese column names).

    So no letter of a file name is grammar; commas sweep only with `sweep`, and not where a command
    writes. In a list of overrides, [size=tiny,seed=1], each is, in a mapping of such lists, too.
    """
    key, equals, value = text.partition("=")
    sweep = sweep and not is_written(key.lstrip("+~"))
    if is_literal(key) and value != "null":
        return f"{key}={quote_value(value)}"
    if is_path(key.lstrip("+~")) and re.fullmatch(r"\{\s*\w+\s*:.*\}", value, re.DOTALL):
        return f"{key}={_quote_values(value)}"
    if value[:1] in ("[", "{") and (inner := _overrides(value)) != value:
        return f"{key}={inner}"
    foreign = not value.isascii() and value[0] not in "{$"
    if (
        not equals
        or not (foreign or is_path(key.lstrip("+~")))
        or value in ("", "null")
        or _in_quotes(value)
    ):
        return text
    if sweep and FUNCTION.fullmatch(value):
        return text
    if os.path.exists(value):
        return f"{key}={quote_value(value)}"
    listed = "," in value or not is_written(key.lstrip("+~"))  # a list of one is a list, too
    if listed and value.startswith("[") and value.endswith("]"):
        return f"{key}=[{_each(_split(value[1:-1]))}]"
    return f"{key}={_each(_split(value) if sweep else [value])}"


def _each(parts: Sequence[str]) -> str:
    return ",".join(
        part if _in_quotes(part) else quote_value(part) for part in map(str.strip, parts)
    )


def _quote_values(value: str) -> str:
    """A mapping with quotes around each value: {train:'a.tsv',dev:'b.tsv'}."""
    pairs = [part.partition(":") for part in _split(value[1:-1])]
    return f"{{{','.join(f'{name}:{_each([inner])}' for name, _, inner in pairs)}}}"


def _overrides(value: str) -> str:
    """`value` with quotes around each override in its lists of them, which stand in mappings,
    too: {name: [size=tiny]}.
    """
    if re.fullmatch(r"\[\s*['\"]?[\w.@/+~]+=.*\]", value, re.DOTALL):
        return f"[{_each(_split(value[1:-1]))}]"
    if not re.fullmatch(r"\{.*\}", value, re.DOTALL):
        return value
    pairs = [part.partition(":") for part in _split(value[1:-1])]
    return (
        "{"
        + ",".join(f"{name}{colon}{_overrides(inner.strip())}" for name, colon, inner in pairs)
        + "}"
    )


def _in_quotes(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] and text[0] in "'\""


def _split(text: str) -> list[str]:
    """`text` at its commas, but not at those inside quotes, brackets or braces."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        # one inside a word is a letter of a file name
        if quote or (letter in "'\"" and not parts[-1].strip()):
            quote = "" if letter == quote else quote or letter
        depth += 0 if quote else (letter in "[{(") - (letter in "]})")
        if letter == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
