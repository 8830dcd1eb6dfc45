"""Weights of a run or a published model go into a model that is built: what is taken, what is new,
what is not used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from plmctl.artifacts.loading import Source, open_source, refuse_infinite
from plmctl.config.walks import select
from plmctl.core.errors import DataError
from plmctl.core.terminal import tell
from plmctl.heads.base import POOLER
from plmctl.heads.inner import Inner
from plmctl.models.base import Model
from plmctl.nn.added_cells import rename_plain
from plmctl.nn.stack import Stack
from plmctl.nn.starting import FitsIn
from plmctl.nn.tables import token_rows
from plmctl.training.checkpoint import Fit, load_tensors

_BACKBONE = "backbone."  # the first word of the names of tensors of a model's network
HEADS = "heads."  # and those of heads
WORDS = "heads.mlm."  # the head that predicts masked words


def take(
    model: Model,
    tensors: Mapping[str, Tensor],
    *,
    source: object,
    unused: Sequence[str] = (),
    say: Callable[[str], None] = tell,
) -> Fit:
    """Copy into `model` what agrees in name and shape, and say in one line what was taken, what is
    new, what is not used. A new part that is `FitsIn` starts as its `fit_in` sets it.

    Heads may be new or of another shape (another task, another vocabulary); a backbone tensor of
    another shape is refused.

    Args:
        unused: The tensors that the import of a published model has left out already.
    """
    refuse_infinite(tensors, file=source)
    fit = load_tensors(model, tensors)
    wrong = "; ".join(line for line in fit.reshaped if line.startswith(_BACKBONE))
    if wrong or not fit.taken:
        why = f"other shapes: {wrong}" if wrong else "no tensor of it has a name of this model"
        fix = "take its size, position and model settings"
        raise DataError(f"its weights do not fit this model, {why}", file=source, fix=fix)
    for name, part in model.named_modules():
        if isinstance(part, FitsIn) and any(key.startswith(f"{name}.") for key in fit.missing):
            part.fit_in()
    random = [*fit.missing, *(line.partition(" ")[0] for line in fit.reshaped)]
    new = ", ".join(name_parts(random, among=model.state_dict(keep_vars=True)))
    left = ", ".join([*name_parts(fit.unexpected, among=tensors), *unused])
    message = f"from {source}: {len(fit.taken)} tensors taken"
    whole = ", nothing is new in the model"
    if parted := _find_parted(model, fit):
        whole = f"; their input is no longer what they were trained on: {', '.join(parted)}"
    message += f"; new and random: {new}" if new else whole
    say(message + (f"; not used: {left}" if left else ""))
    return fit


def _find_parted(model: Model, fit: Fit) -> list[str]:
    """Heads whose last map is taken, and no layer before it: a layer of their own or the pooler."""
    unused = {name.split(".")[1] for name in fit.unexpected if name.startswith(HEADS)}
    taken = dict.fromkeys(name.split(".")[1] for name in fit.taken if name.startswith(HEADS))
    pooled = POOLER in unused and POOLER not in taken
    return [
        f"{HEADS}{name}"
        for name in taken
        if name in unused or (pooled and getattr(model.heads[name], "about", "") == "rows")
    ]


def list_new_parts(objective: nn.Module, model: nn.Module) -> list[str]:
    """The parts of an objective whose weights are not its model's, such as a generator."""
    every = dict(objective.named_parameters(remove_duplicate=False))
    shared = {id(weight) for weight in model.parameters()}
    own = [name for name, weight in every.items() if id(weight) not in shared]
    return name_parts(own, among=every)


def name_parts(names: Sequence[str], *, among: Iterable[str]) -> list[str]:
    """`names` of tensors in which the name of a whole part (`heads.class`,
    `backbone.decoder.stack`) stands for all its tensors among these.
    """
    others = {name[:end] for name in set(among).difference(names) for end in _find_ends(name)}
    whole = (
        next((name[:end] for end in _find_ends(name) if name[:end] not in others), name)
        for name in names
    )
    return list(dict.fromkeys(whole))


def _find_ends(name: str) -> list[int]:
    """The lengths of the names of all parts that hold the tensor `name`, of two words or more,
    the shortest first.
    """
    return [end for end, letter in enumerate(name) if letter == "."][1:]


def initialize(
    model: Model,
    path: str | os.PathLike[str],
    *,
    into: str | None = None,
    layers: Any = None,
    plugins: Sequence[str] = (),
    say: Callable[[str], None] = tell,
    keep: Callable[[Path], None] = lambda folder: None,
) -> Fit:
    """`take` from the run or the published model at `path`; rows of its tables that are no token
    of its tokenizer are left out.

    Args:
        into: the part of the model's backbone, such as the encoder, that its backbone becomes; its
            heads are not taken.
        keep: Keeps the folder that `path` means.
    """
    source = open_source(path, layers, plugins=plugins)
    keep(source.folder)
    if into is not None:
        whole = f"{_BACKBONE}{into}."
        tensors = {
            whole + name.removeprefix(_BACKBONE): tensor
            for name, tensor in source.tensors.items()
            if name.startswith(_BACKBONE)
        }
        say(f"{_BACKBONE}{into} begins as the backbone of {source.folder}")
        source = replace(source, tensors=tensors)
    tensors = _with_added_cells(model, source.config, _drop_spare_rows(model, source, say))
    tensors = _with_inner_layers(model, tensors)
    return take(model, tensors, source=source.folder, unused=source.unused, say=say)


def _with_added_cells(
    model: Model, config: Mapping[str, Any], tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """`tensors` by the names of `model`, whose layers may have cells that `config` lacks."""
    for name, stack in model.named_modules():
        node = select(config["model"], name.removeprefix(_BACKBONE)) or {}
        if isinstance(stack, Stack) and stack.adds and not node.get("adds"):
            continues = {
                letter: blocks[0].cell.facts.continues  # type: ignore[index]
                for letter, blocks in stack.blocks.items()
            }
            own = f"{name}.blocks"
            tensors = rename_plain(tensors, stack.origins, continues, stack=own)
    return tensors


def _with_inner_layers(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` in which the normed layer of a new head is that of the head of masked words. A
    published ModernBERT has one such layer, whatever its head.
    """
    added: dict[str, Tensor] = {}
    for name, head in model.heads.items():
        if not isinstance(head, Inner) or head.norm is None:
            continue
        own = [f"{part}.{key}" for part in ("dense", "norm") for key in ("weight", "bias")]
        found = {key: tensors[WORDS + key] for key in own if WORDS + key in tensors}
        if f"heads.{name}.{own[0]}" not in tensors:
            added |= {f"heads.{name}.{key}": tensor for key, tensor in found.items()}
    return added | tensors


def _drop_spare_rows(model: Model, source: Source, say: Callable[[str], None]) -> dict[str, Tensor]:
    """The tensors of `source` without rows beyond the tokens of its tokenizer, which published
    tables often have for speed.
    """
    known, tensors = source.tokenizer.vocab.size, dict(source.tensors)
    longer = [
        name
        for name, rows in token_rows(model).items()
        if name in tensors and rows == known < len(tensors[name])
    ]
    if longer:
        more, names = max(len(tensors[name]) for name in longer) - known, ", ".join(longer)
        say(f"{more} rows beyond the {known:,} tokens of its tokenizer are left out: {names}")
    return tensors | {name: tensors[name][:known] for name in longer}
