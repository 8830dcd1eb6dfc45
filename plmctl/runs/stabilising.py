"""The stabilisers of a fine-tuning (`stabiliser=`), and whether a model can have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from plmctl.artifacts.loading import open_source
from plmctl.config.build import build
from plmctl.config.spec import thaw
from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.noise.base import Noise
from plmctl.objectives.base import Objective
from plmctl.tasks.batches import Batches
from plmctl.training.stabilisers.base import Beginning, Stabilised, Stabiliser, check_stabilisers

Passes = Callable[[], Iterator[Sequence[Batch]]]


def stabilise(
    spec: Any, model: Model, task: Objective, objective: Objective, *, resumed: bool, passes: Passes
) -> Objective:
    """`objective` with the stabilisers that the spec names; itself without any.

    Args:
        task: The task as the objective was before any addition to it.
        resumed: weights and buffers are loaded later.
        passes: one epoch of updates, the micro-batches of each.

    Raises:
        ConfigError: Two contradict each other, or one does not fit.
    """
    nodes: Mapping[str, Any] = thaw(spec.stabiliser) or {}
    if not nodes:
        return objective
    parts: dict[str, Stabiliser] = {
        name: build(node, {}, spec.plugins, path=f"stabiliser.{name}")
        for name, node in nodes.items()
    }
    _check(spec, parts)
    near = any(part.stays_near for part in parts.values())
    pretrained = find_pretrained(spec, model) if near else frozenset()
    given = Beginning(model, task, pretrained, spec.seed, resumed, passes)
    dropped, without = model.drops, ""  # who turns dropout off
    for name in begin_parts("stabiliser", parts, nodes, given):
        without = name if dropped and not model.drops and not without else without
    _check_dropout(model, parts, without)
    return Stabilised(objective=objective, parts=parts)


def begin_parts(
    slot: str, parts: Mapping[str, Stabiliser], nodes: Mapping[str, Any], given: Beginning
) -> Iterator[str]:
    """Let each part of a slot take up a model; yields its name.

    Raises:
        ConfigError: One does not fit; it names the setting.
    """
    for name, part in parts.items():
        try:
            part.begin(given)
        except ConfigError as error:
            inside = error.path in nodes[name]
            raise (error.under(f"{slot}.{name}") if inside else error) from None
        yield name


def read_epoch(
    spec: Any, device: torch.device, rows: Rows, noise: Noise | None
) -> Iterator[list[Batch]]:
    """One epoch of updates, all micro-batches of each in each process."""
    train = spec.train
    sizes = {name: train[name] for name in ("batch_size", "batch_tokens", "micro_batch_size")}
    batches = Batches(rows, **sizes, seed=spec.seed, noise=noise)
    for _ in range(batches.updates_per_epoch):
        yield [batch.to(device) for batch in next(batches)]


def find_pretrained(spec: Any, model: Model) -> frozenset[str]:
    """The names of the parameters that the checkpoint brings."""
    source = open_source(spec.checkpoint, thaw(spec.kept_layers), plugins=spec.plugins)
    tables = token_rows(model)

    def fits(name: str, shape: tuple[int, ...]) -> bool:
        if name not in source.tensors:
            return False
        theirs = tuple(source.tensors[name].shape)
        return theirs == shape or (name in tables and theirs[1:] == shape[1:])

    named = model.named_parameters()
    return frozenset(name for name, weight in named if fits(name, tuple(weight.shape)))


def _check_dropout(model: Model, parts: Mapping[str, Stabiliser], without: str) -> None:
    """ConfigError where passes that should differ by dropout would be the same.

    Args:
        without: the stabiliser that turned dropout off; empty: none did.
    """
    needs = next((name for name, part in parts.items() if part.needs_dropout), None)
    if needs and not model.drops:
        allowed = "a model with dropout: without it, both passes are the same"
        fix = f"stabiliser.{without}.dropout=true" if without else "a rate of dropout above 0"
        raise ConfigError("stabiliser", needs, allowed, fix=fix)


def _check(spec: Any, parts: Mapping[str, Stabiliser]) -> None:
    """ConfigError for stabilisers that contradict each other, or other settings."""
    check_stabilisers(parts, pretrained=spec.checkpoint is not None)
    near = next((name for name, part in parts.items() if part.stays_near), None)
    if near and spec.checkpoint_into:
        allowed = "a checkpoint that is the whole model: checkpoint_into makes it a part"
        raise ConfigError("stabiliser", near, allowed, fix="checkpoint_into=null")
    alone = next((name for name, part in parts.items() if part.of_one_task), None)
    if alone and spec.beside:
        allowed = "one task: it asks what the run's own task says of each batch"
        raise ConfigError("stabiliser", alone, allowed, fix="beside={}")
    rewrites = next((name for name, part in parts.items() if part.rewrites), None)
    for setting in ("checkpoint_activations", "compile"):
        if rewrites and spec.train[setting] is True:
            allowed = f"false: with {rewrites}, weights are others in each pass"
            fix = f"train.{setting}=false"
            raise ConfigError(f"train.{setting}", True, allowed, fix=fix)
