"""What token directories have decided, beside which the user cannot decide it again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.config.build import build, plain
from plmctl.config.groups import Data
from plmctl.config.texts import sources
from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.spelling import spell, spell_setting
from plmctl.data.shards import is_tokens, read_manifest

# what says how text is read, which the tokens of a text have decided
OF_THE_TEXT = tuple(name for name in Data() if name not in ("path", "cache_dir"))


def refuse_decided(spec: Any, named: Collection[str], plugins: Sequence[str] = ()) -> None:
    """ConfigErrors for settings that tokens decide otherwise, all at once.

    Args:
        named: The settings that the user named. What a recipe says for those who bring text is
            passed over: it holds for no tokens.

    A tokenizer is decided by the first tokens, how text is read by tokens alone: a text beside them
    is still read.
    """
    paths = [
        part.get("path") for node in sources(spec).values() for part in node["corpora"].values()
    ]
    folders = [path for path in paths if is_tokens(path)]
    if not folders:
        return
    settings = read_manifest(Path(folders[0]).expanduser())
    others = dict(_other_tokenizer(spec, settings, named, plugins))
    if len(folders) == len(paths):
        others |= _other_text(spec, settings["settings"], named)
    errors: list[ConfigError] = []
    for key, known in others.items():
        value = spec.select(key) if key != "tokenizer" else _kind(spec, plugins)
        allowed = f"the tokens of {folders[0]} decide this{known}"
        fix = "leave it out, or give the text instead of its tokens"
        if key == "data.segment":  # words that are not marked in tokens are marked by new ones
            fix = f"data.path=<text> {spell_setting(key, value)}, to tokenize again; or {fix}"
        errors.append(ConfigError(key, value, allowed, fix=fix))
    raise_all(errors)


def _kind(spec: Any, plugins: Sequence[str]) -> str:
    return str(build(spec.tokenizer, plugins=plugins, path="tokenizer").kind)


def _other_tokenizer(
    spec: Any, manifest: Mapping[str, Any], named: Collection[str], plugins: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """(key, what is so, for people); nothing beside `tokenizer.path`, which is compared with
    theirs and decides all others.
    """
    keys = [
        key
        for key in named
        if key.partition(".")[0] == "tokenizer" and "tokenizer.path" not in named
    ]
    theirs = manifest["settings"]["tokenizer"]
    ours = build(spec.tokenizer, plugins=plugins, path="tokenizer").settings() if keys else {}
    for key in sorted(keys):
        name = key.partition(".")[2] or "kind"
        if "path" in manifest["tokenizer"]:
            yield key, f": their tokenizer is that of {manifest['tokenizer']['path']}"
        elif ours.get(name) != theirs.get(name):
            yield key, f": {theirs.get(name)}"


def _other_text(
    spec: Any, theirs: Mapping[str, Any], named: Collection[str]
) -> Iterator[tuple[str, str]]:
    default = Data()
    for name in OF_THE_TEXT:
        value = plain(spec.data[name])
        if f"data.{name}" in named and value not in (getattr(default, name), theirs.get(name)):
            yield f"data.{name}", f": {spell(theirs[name])}" if name in theirs else ""
