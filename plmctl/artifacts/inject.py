"""`plmctl inject`: a model is given tokens of whole words, with vectors from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from plmctl.artifacts.added_tokens import write_with_tokens
from plmctl.artifacts.assemble import longest
from plmctl.artifacts.loading import Loaded, Source, load, open_source
from plmctl.config.build import build
from plmctl.config.uses import Inject
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.distill.word_vectors import WordsToAdd, WordVectors, table_of
from plmctl.interop.family import find_token_tables
from plmctl.knowledge.contexts import read_contexts
from plmctl.knowledge.words import WordCounts
from plmctl.storage.resumable import new_folder
from plmctl.text.injected import InjectedToken
from plmctl.training.processes.world import device_of

OF_RUN = ("mimic",)  # heads that make vectors, and nothing else


def inject(spec: Inject) -> int:
    """Write `out`, a model that any command reads, and say what is in it."""
    out, device = new_folder(spec.out), device_of(spec.device, "device")
    loaded = load(spec.checkpoint, plugins=spec.plugins)
    maker = build_maker(spec.word_vectors, loaded.config, spec.plugins)
    wanted, target = _read_words(spec, maker), _find_target(spec, loaded)
    maker.check(wanted)
    known = set(loaded.tokenizer.pieces(range(loaded.vocab.size)))
    added = [InjectedToken(word, f"<word:{word}>", spec.form, spec.cased) for word in wanted.words]
    if twice := [entry.text for entry in added if entry.token in known]:
        raise ConfigError("words", spec.words, f"new words: {twice[0]} has a token already")
    loaded.model.to(device)
    vectors = maker.make(loaded.model, loaded.tokenizer, wanted).cpu()
    fill = partial(_fill_rows, vectors)
    write_with_tokens(_without_makers(target), loaded.tokenizer.inject(added), fill, out)
    without = sum(word not in wanted.contexts for word in wanted.words)
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, "tokens": len(added), "without contexts": without}))
        return 0
    tell(f"{spec.out}: {len(added):,} tokens, {without:,} of them of words without contexts")
    checkpoint = spell_setting("checkpoint", spec.out)
    tell(f"next: plmctl finetune task=<name> task.path=<folder> {checkpoint}")
    return 0


def _find_target(spec: Inject, loaded: Loaded) -> Source:
    """The model that gets the tokens; ConfigError for one whose tokens are others."""
    if spec.into is None:
        return loaded.source
    target = open_source(spec.into, plugins=spec.plugins)
    width = table_of(loaded.model, loaded.tokenizer).shape[1]
    rows = find_token_tables(target.tensors)
    same = target.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    if not same or not rows or rows[0].shape[1] != width:
        allowed = f"a model with the tokens and the width of {spec.checkpoint}"
        raise ConfigError("into", spec.into, allowed, fix="into=null")
    return target


def build_maker(node: Any, config: Mapping[str, Any], plugins: Sequence[str]) -> WordVectors:
    """The part that makes vectors, told how the rows of the model of `config` are; ConfigError
    where it cannot read such a model.
    """
    rows = config.get("format") or {}
    given = {
        "mode": rows.get("mode", "add"),
        "max_length": int(rows.get("max_length") or longest(config) or 128),
    }
    maker: WordVectors = build(node, given, plugins, path="word_vectors")
    maker.check_heads(config.get("heads") or {})
    return maker


def _read_words(spec: Inject, maker: WordVectors) -> WordsToAdd:
    """The words that are asked for, with their contexts."""
    if spec.words is None:
        names = maker.names()
        if names is None:
            fix = "words=<folder of plmctl data contexts>"
            raise ConfigError("words", None, "which words become tokens?", fix=fix)
        return WordsToAdd(names, {})
    table = WordCounts.read(spec.words)
    place = Path(spec.words).expanduser()
    folder = place if place.is_dir() else place.parent
    return WordsToAdd(table.spellings, read_contexts(folder, table))


def _without_makers(source: Source) -> Source:
    """A model without heads that make vectors."""
    heads = source.config.get("heads") or {}
    config = {**source.config, "heads": {n: node for n, node in heads.items() if n not in OF_RUN}}
    kept = tuple(f"heads.{name}." for name in OF_RUN)
    tensors = {name: x for name, x in source.tensors.items() if not name.startswith(kept)}
    return replace(source, config=config, tensors=tensors)


def _fill_rows(vectors: Tensor, table: Tensor, rows: slice) -> None:
    """Set the rows of the new tokens: their vectors in tables as wide as these, and where there is
    one number for each token, a bias, the smallest that any has.
    """
    if table.dim() == 1:
        table[rows] = table[: rows.start].min()
    elif table.dim() == 2 and table.shape[1] == vectors.shape[1]:
        table[rows] = vectors.to(table)
