"""Weights of a run or a published model go into a model that is built: what is taken, what is new,
what is not used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from plmctl.core.errors import DataError
from plmctl.core.terminal import tell
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.run.loading import Source, open_source, refuse_infinite
from plmctl.training.checkpoint import Fit, load_tensors

_BACKBONE = "backbone."  # what names of tensors of a model's network begin with


def take(
    model: Model,
    tensors: Mapping[str, Tensor],
    *,
    source: object,
    unused: Sequence[str] = (),
    say: Callable[[str], None] = tell,
) -> Fit:
    """Copy into `model` what agrees in name and shape, and say in one line what was taken, what is
    new, what is not used.

    Heads may be new or of another shape (another task, another vocabulary); a backbone tensor of
    another shape is refused.
    `unused`: what the import of a published model has left out already.
    """
    refuse_infinite(tensors, file=source)
    fit = load_tensors(model, tensors)
    wrong = [line for line in fit.reshaped if line.startswith("backbone.")]
    if wrong or not fit.taken:
        reason = (
            f"other shapes: {'; '.join(wrong)}"
            if wrong
            else "no tensor of it has a name of this model"
        )
        raise DataError(
            f"its weights do not fit this model, {reason}",
            file=source,
            fix="take its size, position and model settings",
        )
    new = parts_of(
        [*fit.missing, *(line.split(" ")[0] for line in fit.reshaped)],
        among=model.state_dict(keep_vars=True),
    )
    left = [*parts_of(fit.unexpected, among=tensors), *unused]
    told = f"; new and random: {', '.join(new)}" if new else ", nothing is new"
    say(
        f"from {source}: {len(fit.taken)} tensors taken{told}"
        + (f"; not used: {', '.join(left)}" if left else "")
    )
    return fit


def parts_of(names: Sequence[str], *, among: Iterable[str]) -> list[str]:
    """`names` of tensors with whole parts (`heads.class`, `backbone.decoder.stack`) in place of
    all that these have `among`.
    """
    others = {name[:end] for name in set(among).difference(names) for end in _ends(name)}
    whole = (
        next((name[:end] for end in _ends(name) if name[:end] not in others), name)
        for name in names
    )
    return list(dict.fromkeys(whole))


def _ends(name: str) -> list[int]:
    """Where the names of the parts end that hold the tensor `name`, the widest first: two words
    at least.
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
) -> Fit:
    """`take` from whatever lies at `path`; rows of its tables that are no token of its tokenizer
    are left out.

    `into`: its backbone becomes that part of the model's (encoder), and its heads are not asked
    for.
    """
    source = open_source(path, layers, plugins=plugins)
    if into is not None:
        inside = {
            name: tensor for name, tensor in source.tensors.items() if name.startswith(_BACKBONE)
        }
        named = {
            f"{_BACKBONE}{into}.{name.removeprefix(_BACKBONE)}": tensor
            for name, tensor in inside.items()
        }
        say(f"{_BACKBONE}{into} begins as the backbone of {source.folder}")
        source = replace(source, tensors=named)
    return take(
        model, _tokens_only(model, source, say), source=source.folder, unused=source.unused, say=say
    )


def _tokens_only(model: Model, source: Source, say: Callable[[str], None]) -> Mapping[str, Tensor]:
    """The tensors of `source`; published tables often have more rows than tokens, for speed."""
    known, found = source.tokenizer.vocab.size, source.tensors
    longer = [
        name
        for name, rows in token_rows(model).items()
        if name in found and rows == known < len(found[name])
    ]
    if longer:
        more = max(len(found[name]) for name in longer) - known
        say(
            f"{more} rows beyond the {known:,} tokens of its tokenizer are left out:"
            f" {', '.join(longer)}"
        )
    return {name: tensor[:known] if name in longer else tensor for name, tensor in found.items()}
