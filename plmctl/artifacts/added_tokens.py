"""A model with rows of new tokens behind the rows of its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from plmctl.artifacts.added_rows import with_new_tokens
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.convert import to_plmctl
from plmctl.artifacts.loading import Source
from plmctl.nn.tables import token_rows
from plmctl.storage.atomic import open_folder
from plmctl.text.tokenizer import Tokenizer

# sets the rows of new tokens in a table [V, ...], where they are drawn as in a new model
Fill = Callable[[Tensor, slice], None]


def write_with_tokens(source: Source, tokenizer: Tokenizer, fill: Fill, out: Path) -> None:
    """Write the model, whole or not at all, for a tokenizer that has the ids of its own and more
    behind them.
    """
    known, size = source.tokenizer.vocab.size, tokenizer.vocab.size
    rows = max(size, source.vocab_size)
    model = build_model(source.config, vocab_size=rows, seed=0, plugins=source.plugins)
    tensors = with_new_tokens(model, source.tensors)
    for name in token_rows(model):
        if name in tensors:
            tensors[name] = tensors[name].clone()
            fill(tensors[name], slice(known, size))
    grown = replace(source, tensors=tensors)
    grown.__dict__["tokenizer"] = tokenizer  # instead of the tokenizer of its folder
    with open_folder(out) as partial:
        to_plmctl(grown, partial)
