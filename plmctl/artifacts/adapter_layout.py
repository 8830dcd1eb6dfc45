"""The learned part of LoRA or a relative of it, IA3, a prompt or a prefix, in the layout of the
library `peft`.

`PeftModel.from_pretrained` adds it to a published model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.kept_decision import find_head
from plmctl.artifacts.label_rows import arrange, count_rows, labels_of, with_order
from plmctl.artifacts.loading import Source, find_base, open_source
from plmctl.artifacts.peft.places import Place, find_changes, find_places
from plmctl.artifacts.peft.products import LAYOUTS
from plmctl.artifacts.peft.reading import LABELS
from plmctl.artifacts.peft.vectors import ALONE, Learned, write_vectors
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import remark
from plmctl.interop import hf
from plmctl.interop.labels import SETTINGS
from plmctl.models.base import Model
from plmctl.nn.peft.base import Method
from plmctl.nn.peft.ia3 import LearnedScales
from plmctl.nn.peft.prefix import PrefixTuning
from plmctl.nn.peft.prompt import PromptTuning
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit
from plmctl.storage.parts.kinds import read_kind
from plmctl.training.checkpoint import Base, load_exactly, read_base, tensors_of

OF_ROWS = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")  # tasks with heads of their own
PREFIX = "base_model.model"
VECTORS = (PromptTuning, PrefixTuning)
KNOWN = (*(layout.target for layout in LAYOUTS.values()), LearnedScales, *VECTORS)
# by the class of the published model: what peft calls its task
TASKS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "LMHeadModel": "CAUSAL_LM",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
}


def can_fold(methods: Sequence[Method]) -> bool:
    """Whether the weights of a model can compute all that methods add."""
    try:
        for method in methods:
            method.check_folding()
    except ConfigError:
        return False
    return True


def to_peft(source: Source, folder: Path) -> str:
    """adapter_config.json and adapter_model.safetensors; returns what the library calls the
    method.

    Raises:
        UsageError: The run has no method, several, or one that the library does not have; or the
            published model has no linear map of its own where something was learned.
    """
    base = read_base(source.folder)
    start = open_source(find_base(source.folder, base), plugins=source.plugins) if base else None
    source = source if start is None else _follow_base(source, start)
    model = build_model(source.config, vocab_size=source.vocab_size, plugins=source.plugins)
    load_exactly(model, source.tensors, file=source.folder)
    if len(model.methods) != 1 or not isinstance(model.methods[0], KNOWN):
        names = ", ".join(source.config.get("peft") or {}) or "nothing"
        known = ", ".join([*LAYOUTS, "ia3", "prompt", "prefix"])
        what = f"--to peft writes one method of {known}; this run has {names}"
        fix = "--to hf, which folds it into the weights" if can_fold(model.methods) else ALONE
        raise UsageError(f"{what}\n  fix: {fix}")
    method: Any = model.methods[0]
    plain = {**source.config, "peft": None}
    own = set(method.trains(model.backbone))
    tensors = {
        name: tensor
        for name, tensor in tensors_of(model).items()
        if name.removeprefix("backbone.") not in own
    }
    pad = source.vocab.pad if source.vocab else None
    published = hf.export(plain, tensors, pad=pad)
    task = next((task for end, task in TASKS.items() if published.architecture.endswith(end)), None)
    heads: list[str] = []
    if isinstance(method, VECTORS):
        _refuse_trained_head(source, base)
        learned = write_vectors(model, method, of_rows=task in OF_ROWS)
    else:
        heads = _find_heads(plain, tensors, pad)
        places = find_places(model, method.mark, plain, tensors, pad)
        _refuse_fused(model, method.mark, places)
        learned = _write_changes(model, method, places)
    kind, found, settings = learned
    found |= {f"{PREFIX}.{name}": published.tensors[name].contiguous().clone() for name in heads}
    saved = sorted({_find_module(name, heads, published.tensors) for name in heads})
    config = {
        "peft_type": kind,
        "task_type": task,
        "base_model_name_or_path": base["path"] if base else None,
        "modules_to_save": saved or None,
        "inference_mode": True,
        **settings,
    }
    write_text(folder / "adapter_config.json", json.dumps(config, indent=2))
    if start is not None and (labels := _find_labels(source, start, published.settings)):
        write_text(folder / LABELS, json.dumps(labels, indent=2, ensure_ascii=False))
        by_row = {int(row): name for row, name in labels["id2label"].items()}
        words = f"id2label={by_row}{_let_head_go(source, start)}"
        remark(f"the base has other labels, {LABELS} has these: load it with {words}")
    save_file(found, admit(folder / "adapter_model.safetensors"), {"format": "pt"})
    return f"{kind} for {published.architecture}"


def _follow_base(source: Source, base: Source) -> Source:
    """The source with rows of heads in the order of the base, whose `config.json` names them.

    Heads with other labels than the base stay as they are.
    """
    known = labels_of(base.config, base.plugins)
    for head, names in labels_of(source.config, source.plugins).items():
        if names is not None:
            source = with_order(source, head, arrange(names, known.get(head)))
    return source


def _find_labels(source: Source, base: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of labels in a published `config.json`; {} where those of the base say the
    same.
    """
    head = find_head(source).removeprefix("heads.")
    names, others = (labels_of(each.config, each.plugins).get(head) for each in (source, base))
    rows, theirs = (count_rows(each.config, head) for each in (source, base))
    same = [*(names or ())] == [*(others or ())] and rows == theirs
    return {} if same else {key: settings[key] for key in SETTINGS if key in settings}


def _let_head_go(source: Source, base: Source) -> str:
    """The argument of `from_pretrained` for a base with another number of labels, or ""."""
    head = find_head(source).removeprefix("heads.")
    rows, theirs = (count_rows(each.config, head) for each in (source, base))
    return "" if theirs in (None, rows) else ", ignore_mismatched_sizes=True"


def _find_module(name: str, heads: Sequence[str], tensors: Mapping[str, Tensor]) -> str:
    """The largest module around a tensor of a head that has nothing else.

    `peft` copies `classifier` in any case, and no part of a copied module.
    """
    others = [other for other in tensors if other not in heads]
    ends = (end for end, letter in enumerate(name) if letter == ".")
    whole = (name[:end] for end in ends)
    alone = (m for m in whole if not any(other.startswith(f"{m}.") for other in others))
    return next(alone, name.rpartition(".")[0])


def _write_changes(
    model: Model, method: Method, places: Mapping[tuple[str, str], Place]
) -> Learned:
    if method.mark in LAYOUTS:
        return _write_product(model, method, places)
    return "IA3", _ia3(model, places), _describe_ia3(model, places)


def _refuse_trained_head(source: Source, base: Base | None) -> None:
    """UsageError where the run has trained a head, which `peft` cannot store with vectors."""
    own = read_kind(source.folder) if base else {}
    if any(name.startswith("heads.") for name in own):
        what = "peft saves no head with a prompt or a prefix, and this run has trained one"
        raise UsageError(f"{what}\n  fix: {ALONE}")


def _refuse_fused(model: Model, mark: str, places: Mapping[tuple[str, str], Place]) -> None:
    """UsageError where something was learned for no linear map alone of the published model."""
    for name, added in find_changes(model, mark):
        for role in added.rows:
            if (name, role) not in places or not places[name, role].whole:
                what = f"the published model has no linear map for {role} alone, as peft needs it"
                raise UsageError(f"{what}\n  fix: --to hf, which folds it into the weights")


def _find_heads(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad: int | None
) -> list[str]:
    """The tensors of the published model that are those of our heads."""
    marked = {
        name: torch.full_like(tensor, torch.nan) if name.startswith("heads.") else tensor
        for name, tensor in tensors.items()
    }
    exported = hf.export(config, marked, pad=pad).tensors
    return [name for name, tensor in exported.items() if bool(tensor.isnan().any())]


def _write_product(
    model: Model, method: Method, places: Mapping[tuple[str, str], Place]
) -> Learned:
    layout = LAYOUTS[method.mark]
    found: dict[str, Tensor] = {}
    for name, added in find_changes(model, method.mark):
        for key, own in layout.common.items():
            found[key] = getattr(added.matrices, own).contiguous()
        for role in added.rows:
            module = f"{PREFIX}.{places[name, role].module}"
            for end, learned in layout.tensors.items():
                found[f"{module}.{end}"] = getattr(added, learned.own)[role].detach().contiguous()
    return layout.kind, found, {**layout.write(method), **_describe_modules(places)}


def _describe_modules(places: Mapping[tuple[str, str], Place]) -> dict[str, Any]:
    return {
        "target_modules": sorted({place.module for place in places.values()}),
        "fan_in_fan_out": any(place.transposed for place in places.values()),
    }


def _ia3(model: Model, places: Mapping[tuple[str, str], Place]) -> dict[str, Tensor]:
    found = {}
    for name, added in find_changes(model, LearnedScales.mark):
        for role in added.rows:
            factor = added.factors[role].detach()
            shape = (1, -1) if added.before else (-1, 1)
            module = f"{PREFIX}.{places[name, role].module}"
            found[f"{module}.ia3_l"] = factor.reshape(shape).contiguous()
    return found


def _describe_ia3(model: Model, places: Mapping[tuple[str, str], Place]) -> dict[str, Any]:
    before = {name: added.before for name, added in find_changes(model, LearnedScales.mark)}
    inputs = {place.module for (name, _), place in places.items() if before[name]}
    return {**_describe_modules(places), "feedforward_modules": sorted(inputs)}
