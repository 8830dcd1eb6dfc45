"""Mistakes in the settings of texts: impossible ones, and settings that tokens decide otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from plmctl.config.build import build, class_of, plain
from plmctl.config.groups import Data
from plmctl.config.part_help import name_target
from plmctl.config.stage_mistakes import change_stage
from plmctl.config.stage_settings import count_stages, stage_config
from plmctl.config.texts import longest_sequence, sources
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, find_meant, nearest, raise_all
from plmctl.core.spelling import spell, spell_setting
from plmctl.data.located import locate
from plmctl.data.mixture import check_mixture
from plmctl.data.shards import is_tokens, read_manifest
from plmctl.data.token_batches import count_rows, explain_full_rows

# of one of `data.sources`
SOURCE_KEYS = ("path", "target_path", "language", "mixture", "format", "noise", "weight")
# settings of `data` that need all of a text, or a layout that a stream does not read
WHOLE = ("target_path", "fields", "spans", "tags", "bytes", "mixture", "sources", "temperature")
NOT_OF_IT = ("path", "cache_dir", "cache_size")
# the settings on how text is read, which the tokens of a text have decided
OF_THE_TEXT = tuple(name for name in Data() if name not in NOT_OF_IT)


def check_data(spec: Any) -> None:
    """The settings of sources and mixtures, before any data are read; all mistakes are raised
    together.
    """
    data = plain(spec.data)
    errors: list[UsageError] = list(check_stream(spec))
    mixtures = {"data.mixture": data["mixture"]}
    known = f"there is no such setting; there are {', '.join(SOURCE_KEYS)}"
    for name, node in data["sources"].items():
        path = f"data.sources.{name}"
        errors += [
            _refuse_key(path, key, value, known)
            for key, value in node.items()
            if key not in SOURCE_KEYS
        ]
        errors += _check_parts_of(path, node)
        mixtures[f"{path}.mixture"] = node.get("mixture")
    mixtures = {path: mixture for path, mixture in mixtures.items() if mixture}
    for path, mixture in mixtures.items():
        errors += check_mixture(mixture, data["temperature"], path)
        if data["valid_path"] is not None:
            fix = "plmctl tokenize data.valid_path=..., and name the token directories"
            allowed = f"each corpus of {path} holds documents of its own out"
            errors.append(ConfigError("data.valid_path", data["valid_path"], allowed, fix=fix))
    errors += _check_targets(spec, data["target_path"])
    if data["temperature"] is not None and not mixtures:
        allowed = "has no effect without data.mixture"
        errors.append(ConfigError("data.temperature", data["temperature"], allowed))
    if data["path"] is not None and data["mixture"]:
        allowed, fix = "has no effect with data.mixture", "make it one of the mixture's corpora"
        errors.append(ConfigError("data.path", data["path"], allowed, fix=fix))
    raise_all(errors)


def _check_parts_of(path: str, node: Mapping[str, Any]) -> Iterator[ConfigError]:
    """The format and the noise of a source that are no parts."""
    noise = node.get("noise") or {}
    named = {f"{path}.format": node["format"]} if "format" in node else {}
    named |= (
        {f"{path}.noise.{name}": part for name, part in noise.items()}
        if isinstance(noise, Mapping)
        else {f"{path}.noise": noise}
    )
    for where, part in named.items():
        if not (isinstance(part, Mapping) and "_target_" in part):
            yield ConfigError(where, part, "must be a part, with _target_", fix="leave it out")


def _check_targets(spec: Any, target: Any) -> list[ConfigError]:
    """The error of a `data.target_path` with texts of their own, none of which is `data.path`."""
    read = [part for node in sources(spec).values() for part in node["corpora"].values()]
    if target is None or any(part.get("target_path") == target for part in read):
        return []
    allowed = "goes with data.path, which none of these texts is"
    fix = "the target_path of a corpus: data.sources.pairs.target_path=..."
    return [ConfigError("data.target_path", target, allowed, fix=fix)]


def _refuse_key(path: str, key: str, value: Any, known: str) -> ConfigError:
    """A setting that no source has."""
    meant = find_meant(key, SOURCE_KEYS)
    fix = spell_setting(f"{path}.{meant}", value) if meant else ""
    return ConfigError(f"{path}.{key}", value, known + nearest(key, SOURCE_KEYS), fix=fix)


def check_stream(spec: Any) -> Iterator[ConfigError]:
    """Mistakes in the settings of a stream, before any data are read."""
    data, keys = plain(spec.data), spec.provenance.keys
    if not data["streaming"]:
        if "data.window" in keys and not any(map(is_tokens, _list_paths(spec))):
            allowed = "only with data.streaming=true, or with tokens in shards"
            yield ConfigError("data.window", data["window"], allowed, fix="data.streaming=true")
        return
    off = "data.streaming=false"
    if data["path"] is None or is_tokens(data["path"]):
        allowed = "false: it reads .jsonl files, which data.path names"
        yield ConfigError("data.streaming", True, allowed, fix="data.path=<.jsonl>")
    for name in WHOLE:
        if data[name]:
            allowed = "not with data.streaming, which reads the texts of rows one after the other"
            yield ConfigError(f"data.{name}", data[name], allowed, fix=off)
    if "data.valid_share" in keys and data["valid_share"]:
        allowed = "not with data.streaming, which nothing is held out of"
        fix = "data.valid_path=<other text>"
        yield ConfigError("data.valid_share", data["valid_share"], allowed, fix=fix)
    if not spec.init and not (spec.tokenizer and spec.tokenizer.get("path")):
        allowed = "must be given with data.streaming: there is no text yet to train one on"
        fix = "plmctl tokenize data.path=<a part of it> out=tokens, and tokenizer.path=tokens"
        yield ConfigError("tokenizer.path", None, allowed, fix=fix)
    if spec.train.epochs is not None:
        allowed = "null: nobody has counted the rows of a stream"
        yield ConfigError("train.epochs", spec.train.epochs, allowed, fix="train.steps=<updates>")
    if spec.train.share != 1:
        allowed = "1 with data.streaming: nobody has counted the text"
        yield ConfigError("train.share", spec.train.share, allowed, fix="train.share=1")


def check_token_batches(spec: Any) -> None:
    """ConfigErrors for updates that are limited by tokens where a format fills its rows."""
    stages, errors = plain(spec.train.stages), list[PlmctlError]()
    for number in range(count_stages(spec)):
        staged = stage_config(spec, number)
        if (tokens := staged.train.batch_tokens) is None:
            continue
        for node in sources(staged).values():
            if class_of(node["format"], spec.plugins).fills_rows():
                name = name_target("format", node["format"], spec.provenance.config_dirs)
                rows = count_rows(staged.train.batch_size, tokens, longest_sequence(node["format"]))
                error = explain_full_rows(f"format={name}", tokens, rows)
                if stages and error.path in stages[number]:
                    own, without = {"train.batch_size": rows}, [error.path]
                    where = f"train.stages.{number}.{error.path}"
                    fix = change_stage(stages, number, own, without=without)
                    error = ConfigError(where, tokens, error.allowed, fix=fix)
                errors.append(error)
    raise_all(errors)


def _list_paths(spec: Any) -> list[Any]:
    """The paths of all corpora."""
    nodes = sources(spec).values()
    return [part.get("path") for node in nodes for part in node["corpora"].values()]


def refuse_decided(spec: Any, named: Collection[str], plugins: Sequence[str] = ()) -> None:
    """ConfigErrors for settings that tokens decide otherwise, all at once.

    Args:
        named: The settings that the user named. A recipe's settings for users with text are passed
            over: they hold for no tokens.

    The first tokens decide the tokenizer. Tokens alone decide how text is read: a text next to them
    is still read.
    """
    paths = _list_paths(spec)
    folders = [path for path in paths if is_tokens(path)]
    if not folders:
        return
    settings = read_manifest(locate(folders[0]))
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
    """(key, the fact for people). With `tokenizer.path` it is empty: that is compared with theirs
    and decides all others.
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
