"""The words of a command line made ready for Hydra: paths quoted, shortcuts spelled out, every
mistake found and named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.core.locate import locate, parameters
from plmctl.run.other_names import ours
from plmctl.run.schema import MANY, is_literal, is_path, is_written

if TYPE_CHECKING:
    from plmctl.run.composer import HydraComposer, Override

# of Hydra's sweep grammar
FUNCTION = re.compile(r"(choice|glob|range|interval|sort|shuffle|tag)\(.*\)", re.DOTALL)
NAMED = ("data.mixture", "data.sources")  # mappings from names that the user gives
IN_STUDIES = ("arms", "finetune.tasks", "eval", "metrics")  # the same, of a study


@dataclass
class OverrideWord:
    """One override: what Hydra is told, the key it sets, and one value of it (itself, or the
    first of a sweep).
    """

    text: str
    key: str
    sample: str
    group: bool  # chooses a part file, rather than setting a value

    @property
    def mark(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip("+~"))]


def read(
    texts: Sequence[str], composer: HydraComposer, *, sweep: bool
) -> tuple[list[OverrideWord], list[UsageError]]:
    """The words that Hydra can parse and whose options exist, and what is wrong with the others."""
    words: list[OverrideWord] = []
    errors: list[UsageError] = []
    for text in texts:
        try:
            words.append(_read(text, composer, sweep))
        except UsageError as error:
            errors.append(error)
    return words, errors


def quote(text: str, *, sweep: bool = False) -> str:
    """The override with its value in quotes if it is a path, or has letters that Hydra's grammar
    lacks (Chinese column names).

    So no letter of a file name is grammar; commas sweep only with `sweep`, and not where a command
    writes. In a list of overrides, [size=tiny,seed=1], each is, in a mapping of such lists, too.
    """
    key, equals, value = text.partition("=")
    sweep = sweep and not is_written(key.lstrip("+~"))
    if is_literal(key) and value != "null":
        return f"{key}={_quote(value)}"
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
        return f"{key}={_quote(value)}"
    if value.startswith("[") and value.endswith("]") and "," in value:
        return f"{key}=[{_each(_split(value[1:-1]))}]"
    return f"{key}={_each(_split(value) if sweep else [value])}"


def spell(value: Any) -> str:
    """A value as an override writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{','.join(map(spell, value))}]" if isinstance(value, (list, tuple)) else str(value)


def settle(
    words: Sequence[OverrideWord],
    tree: Mapping[str, Any],
    plugins: Sequence[str],
    composer: HydraComposer,
) -> tuple[list[OverrideWord], list[UsageError]]:
    """Value overrides against the composed tree: `noise.rate` becomes `noise.token_mask.rate`,
    unknown keys become errors.
    """
    kept: list[OverrideWord] = []
    errors: list[UsageError] = []
    for word in words:
        try:
            _refuse_part(word, tree, composer)
            if not word.mark and _gives_names(word, tree):
                kept.append(OverrideWord(f"+{word.text}", word.key, f"+{word.sample}", group=False))
            else:
                kept.append(
                    word
                    if word.mark.startswith("+") or _is_known(tree, word.key)
                    else _lengthen(word, tree, plugins, composer)
                )
        except UsageError as error:
            errors.append(error)
    return kept, errors


def paths(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a nested mapping."""
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from paths(value, f"{prefix}{key}.")


def _read(text: str, composer: HydraComposer, sweep: bool) -> OverrideWord:
    if "=" not in text and not text.startswith("~"):
        raise UsageError(
            f"'{text}': an override is written key=value, and a recipe stands first and alone"
        )
    text = quote(text, sweep=sweep)
    override = _parse(text, composer)
    key = override.key
    if override.of_hydra:
        if not sweep:
            raise UsageError(f"{text}: hydra's own settings need -m/--multirun")
        return OverrideWord(text, key, "", group=False)
    if override.sweeps and not sweep:
        fix = (
            "add -m to run each value;"
            f" write {key}=[a,b] for a list, {key}=\"'a,b'\" for a text with a comma"
        )
        raise ConfigError(key, text.partition("=")[2], "these are several values", fix=fix)
    options = composer.options(key)
    if not options:
        return OverrideWord(text, key, next(override.words()), group=False)
    chosen = override.choices()
    for place, option in enumerate(chosen):
        if key in MANY and option in chosen[:place] and not override.sweeps:
            once = ",".join(dict.fromkeys(chosen))
            raise ConfigError(
                key,
                f"[{','.join(chosen)}]",
                f"{option} is named twice, and counts once",
                fix=f"{key}=[{once}]",
            )
        if option not in options:
            allowed = (
                f"there is no such {key}{nearest(option, options)}; there are {', '.join(options)}"
            )
            raise ConfigError(key, option, allowed)
    if override.removes:
        # Hydra deletes no list of options, and takes no null
        text = f"{key}=[]" if key in MANY else f"~{key}"
        return OverrideWord(text, key, text, group=True)
    return OverrideWord(text, key, next(override.words()), group=True)


def _parse(text: str, composer: HydraComposer) -> Override:
    try:
        return composer.parse(text)
    except ValueError as error:
        key, _, value = text.partition("=")
        fix = f"quote a value that has special letters: {key}=\"'{value}'\""
        raise UsageError(f"{text}: cannot be read ({error})\n  fix: {fix}") from None


def _refuse_part(word: OverrideWord, tree: Mapping[str, Any], composer: HydraComposer) -> None:
    """ConfigError for `task.search=beam`, the name of a part file as the value of a part."""
    node, (_, _, value) = _select(tree, word.key), word.text.partition("=")
    group = word.key.rpartition(".")[2]
    if isinstance(node, Mapping) and "_target_" in node and value in composer.options(group):
        fix = f"{group}@{word.key}={value}"
        raise ConfigError(
            word.key,
            value,
            f"a part, not a value; parts inside of others are chosen by {group}@{word.key}",
            fix=fix,
        )


def _find_choice(composer: HydraComposer, slot: str, name: str) -> str:
    """`search=sample`: the choices of a part for `slot` whose files have a setting `name`; as a
    choice in a fix.
    """
    group = slot.rpartition(".")[2]
    owners = [
        option for option in composer.options(group) if name in composer.settings_in(group, option)
    ]
    one = owners[0] if len(owners) == 1 else f"<{' or '.join(owners)}>"
    return f"{group if group == slot else f'{group}@{slot}'}={one}" if owners else ""


def _lengthen(
    word: OverrideWord, tree: Mapping[str, Any], plugins: Sequence[str], composer: HydraComposer
) -> OverrideWord:
    """The word for the only part of a slot that has its key, or for a parameter that a file
    leaves out; else an error.
    """
    slot, _, name = word.key.rpartition(".")
    parts = _select(tree, slot) if slot else None
    if isinstance(parts, Mapping) and "_target_" not in parts:
        owners = [
            part
            for part, node in parts.items()
            if isinstance(node, Mapping) and "_target_" in node and name in node
        ]
        if len(owners) == 1:
            long = f"{slot}.{owners[0]}.{name}"
            return OverrideWord(
                word.text.replace(word.key, long, 1),
                long,
                word.sample.replace(word.key, long, 1),
                group=False,
            )
        if owners:
            raise ConfigError(
                word.key,
                word.text.partition("=")[2],
                f"several have it: {', '.join(f'{slot}.{x}.{name}' for x in owners)}",
            )
    takes = _parameters(parts, plugins)
    if name in takes and not word.mark:
        return OverrideWord(f"+{word.text}", word.key, f"+{word.sample}", group=False)
    known = [*paths(tree), *(f"{slot}.{parameter}" for parameter in takes)]
    value = word.text.partition("=")[2]
    if other := ours(word.key, lambda name: _is_settable(name, tree, known, composer)):
        name, _, spelled_out = other.partition("=")
        choice = (
            ""
            if _is_settable(name, tree, known)
            else _find_choice(composer, name.rpartition(".")[0], name.rpartition(".")[2])
        )
        fix = f"{choice} {name}={spelled_out or value}".strip()
        raise ConfigError(
            word.key, value, f"there is no such setting (did you mean '{name}'?)", fix=fix
        )
    same = [f"'{path}'" for path in known if path.endswith(f".{word.key}")]
    hint = f" (did you mean {' or '.join(same)}?)" if same else nearest(word.key, known)
    choice = (
        _find_choice(composer, slot, name)
        if isinstance(parts, Mapping) and "_target_" in parts
        else ""
    )
    allowed = (
        f"{slot} has no such setting as it is chosen"
        if choice
        else f"there is no such setting{hint}"
    )
    fix = f"{choice} {word.text}" if choice else ""
    if value.startswith("{") and isinstance(parts, Mapping) and "_target_" not in parts:
        fix = f"'+{word.text}', which adds it"
    raise ConfigError(word.key, value, allowed, fix=fix)


def _is_settable(
    key: str, tree: Mapping[str, Any], known: Sequence[str], composer: HydraComposer | None = None
) -> bool:
    """Whether the command takes the setting as its parts are chosen; with `composer`, also with
    another choice of a part.
    """
    slot, _, name = key.rpartition(".")
    parts = _select(tree, slot) if slot else None
    inner = parts.values() if isinstance(parts, Mapping) and "_target_" not in parts else ()
    return (
        key in known
        or any(isinstance(part, Mapping) and name in part for part in inner)
        or bool(
            composer
            and isinstance(parts, Mapping)
            and "_target_" in parts
            and _find_choice(composer, slot, name)
        )
    )


def _parameters(node: Any, plugins: Sequence[str]) -> list[str]:
    if not isinstance(node, Mapping) or "_target_" not in node:
        return []
    try:
        return list(parameters(locate(node["_target_"], plugins)))
    except ValueError:
        return []  # reported with the part itself


def _gives_names(word: OverrideWord, tree: Mapping[str, Any]) -> bool:
    """Whether the word gives new names to a mapping of `NAMED`, or to one of a part that is empty,
    or something to such a name.
    """
    named = (*NAMED, *IN_STUDIES) if "arms" in tree else NAMED
    named = (*named, *_find_empty(tree, word.key))
    if not f"{word.key}.".startswith(tuple(f"{name}." for name in named)):
        return False
    return word.text.partition("=")[2].startswith("{") or not (
        word.key in named or _is_known(tree, word.key)
    )


def _find_empty(tree: Mapping[str, Any], key: str) -> list[str]:
    """The part of a dotted key that leads to an empty mapping of a part, such as `optim.scales`."""
    words = key.split(".")
    for place in range(1, len(words)):
        part, here = _select(tree, ".".join(words[:place])), ".".join(words[: place + 1])
        if isinstance(part, Mapping) and "_target_" in part and _select(tree, here) == {}:
            return [here]
    return []


def _is_known(tree: Mapping[str, Any], key: str) -> bool:
    slot, _, name = key.rpartition(".")
    parent = _select(tree, slot) if slot else tree
    if isinstance(parent, list):
        return name.isdigit() and int(name) < len(parent)
    return isinstance(parent, Mapping) and name in parent


def _select(tree: Any, path: str) -> Any:
    for word in path.split("."):
        if isinstance(tree, list) and word.isdigit() and int(word) < len(tree):
            tree = tree[int(word)]
        elif isinstance(tree, Mapping):
            tree = tree.get(word)
        else:
            return None
    return tree


def _quote(text: str) -> str:
    """`text` in single quotes as Hydra reads them: only backslashes before a quote are special."""
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    tail = len(text) - len(text.rstrip("\\"))
    return f"'{text}{chr(92) * tail}'"


def _each(parts: Sequence[str]) -> str:
    return ",".join(part if _in_quotes(part) else _quote(part) for part in map(str.strip, parts))


def _overrides(value: str) -> str:
    """`value` with quotes around each override in its lists of them, which stand in mappings,
    too: {name: [size=tiny]}.
    """
    if re.fullmatch(r"\[\s*[\w.@/+~]+=.*\]", value, re.DOTALL):
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
