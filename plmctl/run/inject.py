"""`plmctl inject`: a model is given tokens of whole words, with vectors from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plmctl.core.errors import ConfigError
from plmctl.core.terminal import tell
from plmctl.distill.word_vectors import WordsToAdd, WordVectors, table_of
from plmctl.interop.family import find_token_tables
from plmctl.knowledge.contexts import read_contexts
from plmctl.knowledge.words import WordCounts
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.run.adapt import with_new_tokens
from plmctl.run.assemble import build_model, longest
from plmctl.run.build import build
from plmctl.run.convert import to_plmctl
from plmctl.run.loading import Loaded, Source, load, open_source
from plmctl.run.schema import Inject
from plmctl.storage.resumable import new_folder
from plmctl.text.injected import InjectedToken
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.processes.world import device_of

OF_RUN = ("mimic",)  # heads that make vectors, and nothing else


def inject(spec: Inject) -> int:
    """Write `out`, a model that any command reads, and say what is in it."""
    out, device = new_folder(spec.out), device_of(spec.device, "device")
    loaded = load(spec.checkpoint, plugins=spec.plugins)
    maker = _build_maker(spec, loaded)
    wanted, target = _read_words(spec, maker), _find_target(spec, loaded)
    maker.check(wanted)
    known = set(loaded.tokenizer.pieces(range(loaded.vocab.size)))
    added = [InjectedToken(word, f"<word:{word}>", spec.form, spec.cased) for word in wanted.words]
    if twice := [entry.text for entry in added if entry.token in known]:
        raise ConfigError("words", spec.words, f"new words: {twice[0]} has a token already")
    loaded.model.to(device)
    vectors = maker.make(loaded.model, loaded.tokenizer, wanted).cpu()
    _write(target, loaded.tokenizer.inject(added), vectors, out)
    without = sum(word not in wanted.contexts for word in wanted.words)
    tell(f"{spec.out}: {len(added):,} tokens, {without:,} of them of words without contexts")
    tell(f"next: plmctl finetune task=<name> task.path=<folder> checkpoint={spec.out}")
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


def _build_maker(spec: Inject, loaded: Loaded) -> WordVectors:
    """The part that makes vectors, told how the model's rows are."""
    rows = loaded.config.get("format") or {}
    given = {
        "mode": rows.get("mode", "add"),
        "max_length": int(rows.get("max_length") or longest(loaded.config) or 128),
    }
    maker: WordVectors = build(spec.word_vectors, given, spec.plugins, path="word_vectors")
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


def _write(source: Source, tokenizer: Tokenizer, vectors: torch.Tensor, out: Path) -> None:
    """Write the model with the rows of the new tokens behind those that it has."""
    first, size = tokenizer.vocab.size - len(vectors), tokenizer.vocab.size
    config: dict[str, Any] = dict(source.config)
    config["heads"] = {
        name: node for name, node in (config.get("heads") or {}).items() if name not in OF_RUN
    }
    kept = tuple(f"heads.{name}." for name in OF_RUN)
    tensors = {name: x for name, x in source.tensors.items() if not name.startswith(kept)}
    model = build_model(config, vocab_size=max(size, source.vocab_size), plugins=source.plugins)
    tensors = with_new_tokens(model, tensors)
    _fill_rows(model, tensors, first, vectors)
    grown = replace(source, config=config, tensors=tensors)
    grown.__dict__["tokenizer"] = tokenizer  # in place of what its folder holds
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    partial.mkdir()
    to_plmctl(grown, partial)
    if out.is_dir():  # an empty one
        out.rmdir()
    partial.rename(out)


def _fill_rows(
    model: Model, tensors: dict[str, torch.Tensor], first: int, vectors: torch.Tensor
) -> None:
    """Set the rows of the new tokens: their vectors in tables as wide as these, and where there is
    one number for each token, a bias, the smallest that any has.
    """
    for name in token_rows(model):
        table = tensors.get(name)
        if table is None or table.dim() > 2:
            continue
        rows = slice(first, first + len(vectors))
        table = table.clone()
        if table.dim() == 1:
            table[rows] = table[:first].min()
        elif table.shape[1] == vectors.shape[1]:
            table[rows] = vectors.to(table)
        tensors[name] = table
