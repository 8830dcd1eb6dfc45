"""A checkpoint of the trained part alone, and the model that its other weights are from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.loading import Source
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.spelling import spell_line
from plmctl.models.base import Model
from plmctl.nn.peft.base import fold
from plmctl.training.checkpoint import Base, fingerprint_tensors, load_exactly, tensors_of


def describe_base(model: Model, source: Source, run: Path) -> Base:
    """The tensors of a model that are equal to those of `source` and are not trained: checkpoints
    of `run` do not hold them.
    """
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    own = tensors_of(model)
    kept = [
        name
        for name, tensor in source.tensors.items()
        if name in own and name not in trained and own[name].shape == tensor.shape
    ]
    folder = source.folder.resolve()
    return Base(
        path=str(folder),
        relative=os.path.relpath(folder, run.resolve()),
        fingerprint=fingerprint_tensors({name: source.tensors[name] for name in kept}),
        tensors=kept,
    )


def fold_methods(source: Source) -> Source:
    """A model that was trained by methods of parameter-efficient fine-tuning as a plain one, whose
    weights have what was learned.

    Raises:
        UsageError: A method adds what no weights of the model compute.
    """
    if not source.config.get("peft"):
        return source
    model = build_model(source.config, vocab_size=source.vocab_size, plugins=source.plugins)
    load_exactly(model, source.tensors, file=source.folder)
    try:
        fold(model.backbone, model.methods)
    except ConfigError as error:
        what = f"{source.folder}: {error.path}={error.value!r} is {error.allowed}"
        raise UsageError(f"{what}\n  fix: use it as it is: plmctl eval, embed, generate") from None
    tensors: Mapping[str, Tensor] = tensors_of(model)
    return replace(source, config={**source.config, "peft": None}, tensors=tensors)


def refuse_methods(source: Source, key: str) -> None:
    """ConfigError for a model that has more than its own weights, where these alone are taken."""
    methods = source.config.get("peft")
    if methods:
        allowed = f"a plain model; this one was trained with peft=[{', '.join(methods)}]"
        place = source.home
        line = spell_line("convert", place, "--to", "plmctl", "--out", "folded")
        fix = f"{line}, then {key}=folded"
        raise ConfigError(key, str(place), allowed, fix=fix)
