"""Weights, config and tokenizer of a model, written in another layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from plmctl.artifacts.adapter_base import fold_methods
from plmctl.artifacts.adapter_layout import to_peft
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.compacting import compact_source
from plmctl.artifacts.inner_network import take_network
from plmctl.artifacts.kept_decision import (
    describe_export,
    find_head,
    fold_temperature,
    read_decision,
    spell_decision,
    write_decision,
)
from plmctl.artifacts.lengthen import lengthen
from plmctl.artifacts.loading import Source, open_source, refuse_infinite, without_spare_rows
from plmctl.artifacts.packing import Pack, keep
from plmctl.artifacts.places import Places
from plmctl.artifacts.sentence_model import to_sentence_folder
from plmctl.config.build import build
from plmctl.config.saved import CONFIG
from plmctl.core.errors import DataError, UsageError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark
from plmctl.generation.published import state_search
from plmctl.interop import google, hf
from plmctl.interop.generator import extract_generator
from plmctl.interop.stacks import FORCED
from plmctl.models.encoder_decoder import LAST, ROLES
from plmctl.nn.tables import count
from plmctl.storage.atomic import name_finished, open_folder, write_text
from plmctl.storage.parts.kinds import read_kind
from plmctl.storage.settings_file import to_yaml
from plmctl.tasks.calibration import LabelDecision
from plmctl.text.languages import spell_language
from plmctl.text.vocab import Vocab
from plmctl.training import checkpoint
from plmctl.training.checkpoint import Snapshot, load_exactly, tensors_of
from plmctl.training.progress import Progress


class CardWriter(Protocol):
    """README.md from the run's folder, its config and the sentence about how it decides."""

    def __call__(
        self, folder: Path, config: Mapping[str, Any], *, decided: Sequence[str] = ()
    ) -> str: ...


def convert(
    source: Path,
    target: Path,
    *,
    to: str,
    part: str = "model",
    max_length: int | None = None,
    reach: int | None = None,
    without: Sequence[str] = (),
    compact: bool = False,
    packing: Pack = keep,
    plugins: Sequence[str] = (),
    card: CardWriter | None = None,
) -> None:
    """Read `source`, whatever it is, or its `part` "generator" or "encoder", and write `target`,
    which appears only when it is complete.

    Args:
        to: "hf", "plmctl", "peft" or "sentence-transformers", the layout of `target`.
        max_length: Tokens of the rows that it is to read, more than today (lengthen.py).
        reach: With `max_length`, tokens that a token sees to either side; None: as many as before,
            or as many as an old row has, at most 256.
        without: With `max_length`, what is left out: "copies", "projections".
        compact: Leave out heads, neurons and columns that are 0 (compacting.py).
        packing: The layout of weights in the file, for `to="plmctl"` (packing.py).
        card: Writes the model card of an export in Hugging Face's layout.
    """
    refuse_target(target)
    model = open_source(source, plugins=plugins)
    decision = read_decision(model.folder) if part == "model" else None
    model = _take(model if to == "peft" else fold_methods(model), part, compact=compact)
    if max_length is not None:
        model = lengthen(model, max_length, reach=reach, without=without)
    refuse_infinite(model.tensors, file=model.folder)
    if model.unused:
        remark(f"left out, since no part of ours takes them: {', '.join(model.unused)}")
    if not model.has_tokenizer:
        remark("there is no tokenizer here: only weights and config are written")
    if decision is not None and to == "peft":
        remark(f"left out, since peft cannot store it: {decision.describe()}")
    write: dict[str, Callable[[Path], str]] = {
        "hf": lambda folder: to_hf(model, folder, card, decision),
        "plmctl": lambda folder: to_plmctl(model, folder, decision, packing),
        "peft": lambda folder: to_peft(model, folder),
        "sentence-transformers": lambda folder: to_sentence_folder(
            model, folder, lambda network, place: to_hf(network, place, card)
        ),
    }
    try:
        with open_folder(target) as unfinished:
            what = write[to](unfinished)
    except (OSError, SafetensorError) as error:  # a full disk raises one or the other
        problem = f"cannot write: {getattr(error, 'strerror', None) or error}"
        raise DataError(problem, file=target, fix="give a writable OUT with room") from error
    remark(f"{name_finished(target)}: {what}")
    if max_length is not None and to == "plmctl":
        remark(f"next: {spell_next(model.config, target, max_length)}")


def refuse_target(target: Path) -> None:
    """UsageError where a new folder cannot stand."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        problem = f"{target} exists and is not an empty folder"
        raise UsageError(f"{problem}\n  fix: give another OUT, or remove it")


def spell_next(config: Mapping[str, Any], target: Path, max_length: int) -> str:
    """The command that goes on with a model that was made long."""
    if "encoder" in config["model"]:
        rows = f"task.path=<folder> task.max_length={max_length}"
        written = Places.of(config).written
        rows += f" task.max_target={written}" if written and written < 128 else ""  # the task's own
        return f"plmctl finetune task=summarization {spell_setting('checkpoint', target)} {rows}"
    window, _ = config["pattern"]["parts"]
    reach = str(window["reach"]).replace(" ", "")
    window = f"pattern.parts.0.reach={reach} format.max_length={max_length}"
    return f"plmctl pretrain longformer {spell_setting('init', target)} {window} data.path=<file>"


def to_hf(
    source: Source,
    folder: Path,
    card: CardWriter | None = None,
    decision: LabelDecision | None = None,
) -> str:
    """config.json, model.safetensors and tokenizer, as `from_pretrained` reads them, and a model
    card; returns the class.

    `decision`: what was fitted to its labels; it goes into the weights, or config.json.
    """
    vocab, config = source.vocab, source.config
    left, decided = decision, list[str]()
    if decision is not None:
        source, left = fold_temperature(source, decision)
        decided = list(describe_export(decision, left))
    task = config.get("task") or {}
    languages = task.get("source_language"), task.get("target_language")
    exported = hf.export(
        _force_language(config, vocab, languages[1]),
        source.tensors,
        pad=vocab.pad if vocab else None,
    )
    if find_head(source) in exported.left_out:
        left, decided = None, []
    exported = replace(exported, settings=exported.settings | spell_decision(left))
    if exported.writing is not None and task.get("search"):
        exported = replace(exported, writing=_state_writing(source, exported.settings))
    tokens = {} if vocab is None else {role: getattr(vocab, role) for role in ROLES}
    hf.write(folder, exported, tokens=tokens)
    if card is not None:
        text = card(source.home, config, decided=decided)
        write_text(folder / "README.md", text)
    if vocab is not None:
        longest = config["position"].get("max_length"), task.get("max_length")
        length = min((own for own in longest if own), default=1 << 30)
        # there, the tokenizer alone says what stands around a source
        template = (config.get("format") or {}).get("source_template")
        source.tokenizer.export_hf(
            folder,
            model_max_length=length,
            framed=bool(task),
            # RoBERTa has one segment, which is that of all tokens
            segments=any(".segment" in key and len(own) > 1 for key, own in source.tensors.items()),
            single=template,
            languages=languages,
        )
    if exported.left_out:
        names = ", ".join(exported.left_out)
        remark(f"left out, since {exported.architecture} does not have them: {names}")
    for note in (*exported.notes, *decided):
        remark(note)
    return exported.architecture


def _state_writing(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The published settings of the search and the lengths of a task that writes."""
    task = source.config["task"]
    facts = getattr(build(task["search"], {}, source.plugins, path="search"), "facts", None)
    forced = int(settings.get(FORCED.key) is not None)
    return {} if facts is None else state_search(facts, max_new=task["max_target"], forced=forced)


def _force_language(
    config: dict[str, Any], vocab: Vocab | None, language: str | None
) -> dict[str, Any]:
    """The config of a model that was trained to write a language, which its folder states as the
    first token of a text; a decoder that begins with the language needs none.
    """
    if vocab is None or language is None or config["model"].get("start") == LAST:
        return config
    token = spell_language(language, vocab.tokens)
    forced = None if token is None else vocab.find(token)
    return {**config, "model": {**config["model"], "forced": forced}}


def to_plmctl(
    source: Source, folder: Path, decision: LabelDecision | None = None, packing: Pack = keep
) -> str:
    """A checkpoint folder like those of a run; the weights have been through the model that its
    config describes, and through `packing`.
    """
    source = without_spare_rows(source)
    model = build_model(source.config, vocab_size=source.vocab_size, plugins=source.plugins)
    load_exactly(model, source.tensors, file=source.folder)
    write_text(folder / CONFIG, to_yaml(source.config))
    if source.vocab is not None:
        source.tokenizer.save(folder / "tokenizer")
    trainer = {"progress": Progress().to_json()}
    packed, line = packing(tensors_of(model))
    checkpoint.write(Snapshot(packed, {}, {}, {}, trainer), folder)
    if decision is not None:
        write_decision(decision, folder)
    return f"{count(model):,} parameters{line}"


def _take(model: Source, part: str, *, compact: bool) -> Source:
    """A network of a model, if `compact` without what adds nothing."""
    if part == "generator":
        model = _take_generator(model)
    elif part != "model":
        model = take_network(model, part)
    if compact:
        model, left_out = compact_source(model)
        remark(left_out)
    return model


def _take_generator(source: Source) -> Source:
    """The generator that an ELECTRA run trained with its model, or that of Google's files."""
    if source.published and google.is_checkpoint(source.folder):
        found = google.read(source.folder, generator=True)
        return replace(source, config=found.config, tensors=found.tensors, unused=found.unused)
    saved = read_kind(source.folder, "objective")
    # inside of the objective that pruning wraps
    others = {name.removeprefix("objective."): tensor for name, tensor in saved.items()}
    config, tensors = extract_generator(source.config, source.tensors, others)
    return replace(source, config=config, tensors=tensors)
