"""Weights, config and tokenizer of a model, written in another layout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError, UsageError
from plmctl.core.terminal import remark
from plmctl.interop import hf
from plmctl.interop.generator import extract_generator
from plmctl.models.encoder_decoder import ROLES
from plmctl.nn.tables import count
from plmctl.run.assemble import build_model
from plmctl.run.loading import Source, open_source, refuse_infinite
from plmctl.run.saved import CONFIG
from plmctl.storage.atomic import write_text
from plmctl.storage.reading import read_tensors
from plmctl.storage.settings_file import to_yaml
from plmctl.text.vocab import Vocab
from plmctl.training.checkpoint import Checkpoints, Snapshot, load_exactly, tensors_of
from plmctl.training.progress import Progress

# the run's folder, its config -> README.md
Card = Callable[[Path, Mapping[str, Any]], str]


def convert(
    source: Path,
    target: Path,
    *,
    to: str,
    part: str = "model",
    plugins: Sequence[str] = (),
    card: Card | None = None,
) -> None:
    """Read `source`, whatever it is, or its `part` "generator", and write `target`, which
    appears only when it is complete.

    Args:
        to: "hf" or "plmctl", the layout of `target`.
        card: Writes the model card of what goes to Hugging Face's layout.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"{target} exists and is not an empty folder\n  fix: give another OUT, or remove it"
        )
    found = open_source(source, plugins=plugins)
    found = found if part == "model" else _generator(found)
    refuse_infinite(found.tensors, file=found.folder)
    if found.unused:
        _say(f"left out, since no part of ours takes them: {', '.join(found.unused)}")
    if not found.has_tokenizer:
        _say("there is no tokenizer here: only weights and config are written")
    write: Callable[[Source, Path], str] = (
        (lambda s, folder: to_hf(s, folder, card))
        if to == "hf"
        else (lambda s, folder: to_plmctl(s, folder, plugins))
    )
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        made = write(found, partial)
        os.replace(partial, target)
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror or error}",
            file=target,
            fix="give a writable OUT with room",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _say(f"{target}: {made}")


def to_hf(source: Source, folder: Path, card: Card | None = None) -> str:
    """config.json, model.safetensors and tokenizer, as `from_pretrained` reads them, and a model
    card; returns the class.
    """
    vocab = _vocab(source)
    exported = hf.export(source.config, source.tensors, pad=vocab.pad if vocab else None)
    tokens = {} if vocab is None else {role: getattr(vocab, role) for role in ROLES}
    hf.write(folder, exported, tokens=tokens)
    if card is not None:
        folders = source.folder.parents
        home = folders[1] if folders[0].name == "checkpoints" else source.folder
        (folder / "README.md").write_text(card(home, source.config), encoding="utf-8")
    if vocab is not None:
        length = source.config["position"].get("max_length") or 1 << 30
        rows = source.config.get("format") or {}
        # there, the tokenizer alone says what stands around a source
        read = rows.get("source_template")
        source.tokenizer.export_hf(
            folder, model_max_length=length, framed=bool(source.config.get("task")), single=read
        )
    if exported.left_out:
        _say(
            f"left out, since {exported.architecture} has no place for them:"
            f" {', '.join(exported.left_out)}"
        )
    for note in exported.notes:
        _say(note)
    return exported.architecture


def to_plmctl(source: Source, folder: Path, plugins: Sequence[str] = ()) -> str:
    """A checkpoint folder like those of a run; the weights have been through the model that its
    config describes.
    """
    model = build_model(source.config, vocab_size=source.vocab_size, plugins=plugins)
    load_exactly(model, source.tensors, file=source.folder)

    def extras(place: Path) -> None:
        write_text(place / CONFIG, to_yaml(source.config))
        if _vocab(source) is not None:
            source.tokenizer.save(place / "tokenizer")

    snapshot = Snapshot(tensors_of(model), {}, {}, {}, {"progress": Progress().to_json()})
    made = Checkpoints(folder / "steps", extras=extras).save(snapshot, step=0)
    for part in made.iterdir():
        os.replace(part, folder / part.name)
    shutil.rmtree(folder / "steps")
    return f"{count(model):,} parameters"


def _generator(source: Source) -> Source:
    """The generator that an ELECTRA run trained beside its model."""
    file = source.folder / "objective.safetensors"
    config, tensors = extract_generator(
        source.config, source.tensors, read_tensors(file) if file.is_file() else {}
    )
    return replace(source, config=config, tensors=tensors)


def _vocab(source: Source) -> Vocab | None:
    """None where there is no tokenizer; one that cannot be read is an error."""
    if not source.has_tokenizer:
        return None
    return source.tokenizer.vocab


def _say(message: str) -> None:
    remark(message)
