"""Batches of texts, and the states that a model records of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.heads.features import HIDDEN
from plmctl.heads.sentences import POOLED
from plmctl.tasks import batches
from plmctl.text.characters import Spelling
from plmctl.use.embedding_lines import EmbeddingLine

TOKENS = 16384  # padded tokens of one forward pass at most, however many rows batch_size allows


def choose_layers(layers: Any, *, count: int) -> list[int]:
    """The recorded states that are written, out of `count`: all, a number or several; 0 is the
    embedding output, -1 the last.
    """
    if layers == "all":
        return list(range(count))
    numbers = [layers] if isinstance(layers, int) else [int(layer) for layer in layers]
    for layer in numbers:
        if not -count <= layer < count:
            allowed = f"all, or numbers from {-count} to {count - 1} (0 is the embedding output)"
            raise ConfigError("layers", layer, allowed)
    return [layer % count for layer in numbers]


def group_lines(
    lengths: Sequence[int], *, batch_size: int, overhead: int | None = None
) -> Iterator[list[int]]:
    """Batches of numbers of the lines that are not empty, the longest first, so that too little
    memory shows at once. `overhead` is that of `batches.cut`.
    """
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    if order and overhead is not None:
        most = max(1, min(batch_size, TOKENS // lengths[order[0]]))
        parts = batches.cut([lengths[i] for i in order], most, overhead)
        yield from (order[part] for part in parts)
        return
    while order:
        size = max(1, min(batch_size, TOKENS // lengths[order[0]]))
        yield order[:size]
        order = order[size:]


def make_batch(lines: Sequence[EmbeddingLine], spelling: Spelling | None = None) -> Batch:
    """The lines side by side, padded to the longest, with the characters of their words where
    `spelling` knows them.
    """
    shape = (len(lines), max(len(line.ids) for line in lines))
    ids, segment, real = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    for row, line in enumerate(lines):
        ids[row, : len(line.ids)] = line.spelled or line.ids
        segment[row, : len(line.segment)] = line.segment
        real[row, : len(line.ids)] = line.real or True
    length = real.sum(1)
    trailing = bool((real == (np.arange(shape[1]) < length[:, None])).all())
    tracks: dict[str, np.ndarray] = {"segment": segment} | ({} if trailing else {"real": real})
    if any(line.unpooled for line in lines):
        start = np.array([line.unpooled for line in lines])
        tracks[POOLED] = real & (np.arange(shape[1]) >= start[:, None])
    rows = Rows(key=np.arange(len(lines)), seqs={"text": Seq(ids, length, tracks)})
    if spelling is not None:
        rows = spelling.rows(rows)
        words = rows.seqs["characters"]
        rows = rows.with_seq("characters", replace(words, ids=words.ids[:], length=length))
    return collate(rows, {})


def count_states(loaded: Loaded) -> int:
    """How many states a backbone records: counted on one token, since not every backbone has a
    stack.
    """
    with torch.inference_mode():
        device = next(loaded.model.parameters()).device
        hidden = loaded.model(make_batch([EmbeddingLine([0])]).to(device), record=HIDDEN)
    return len(hidden.recorded["hidden"])
