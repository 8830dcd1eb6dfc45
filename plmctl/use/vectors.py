"""Contextual embeddings of texts, as arrays for an .npz file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.artifacts.loading import Loaded
from plmctl.artifacts.model_facts import pooling
from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.heads.base import Head, heads_of_states, pool
from plmctl.heads.features import HIDDEN
from plmctl.heads.features import read as read_features
from plmctl.heads.rows import POOLINGS as ROW_POOLINGS
from plmctl.heads.sentences import Reduce, find_first, find_last
from plmctl.models.base import Hidden, Model
from plmctl.text.characters import Spelling
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine

# the vector of each row of a batch, [B, W], of a model and what its backbone gave
Whole = Callable[[Model, Batch, Hidden], Tensor]

TOKENS = 16384  # padded tokens of one forward pass at most, however many rows batch_size allows


def choose_layers(layers: Any, *, count: int) -> list[int]:
    """Which of the `count` recorded states are written: all, a number or several; 0 is the
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


@torch.inference_mode()
def embed(
    loaded: Loaded,
    lines: Sequence[EmbeddingLine],
    *,
    layers: Sequence[int],
    logits: bool,
    batch_size: int,
    precision: Precision,
    pool: Reduce | None = None,
    whole: Whole | None = None,
    normalize: bool = False,
) -> Iterator[tuple[str, np.ndarray]]:
    """(name, array) of every line, in batches of similar length; no value depends on what else
    is in a batch.

    Args:
        loaded: the model.
        lines: what it reads.
        layers: whose states are given.
        logits: whether those of its heads are given, too.
        batch_size: lines at the same time, at most.
        precision: in which it computes.
        pool: makes one vector of the tokens of each layer.
        whole: makes one vector of a line in place of that.
        normalize: whether vectors get length 1.
    """
    if logits and not heads_of_states(loaded.model):
        fix = "embed with a model that was saved with one"
        raise ConfigError("logits", True, "false: this model has no head", fix=fix)
    empty = (len(layers), *([] if pool else [0]), loaded.model.backbone.width)
    for index in group_lines([len(line.ids) for line in lines], batch_size=batch_size):
        some = [lines[i] for i in index]
        batch = make_batch(some, loaded.source.spelling).to(precision.device)
        with precision.autocast():
            hidden = loaded.model(batch, record=HIDDEN)
            # [B, layers, T, W]
            states = torch.stack([hidden.recorded["hidden"][layer] for layer in layers], 1)
            features = read_features(loaded.model, batch, hidden) if logits else None
            answers = {} if features is None else _compute_logits(loaded, batch, features)
            vectors = None if whole is None else whole(loaded.model, batch, hidden)[:, None]
        if pool is not None:
            vectors = pool(states.float(), batch.text.real)
        if vectors is not None and normalize:
            vectors = F.normalize(vectors, dim=-1)
        empty = empty if vectors is None else tuple(vectors.shape[1:])
        for row, (i, line) in enumerate(zip(index, some, strict=True)):
            size = len(line.ids)
            yield f"hidden_{i}", _array(states[row, :, :size] if vectors is None else vectors[row])
            yield f"ids_{i}", np.asarray(line.ids, dtype=np.int64)
            for name, values in answers.items():
                yield (
                    f"{name}_{i}",
                    _array(values[row, :size] if values.dim() == 3 else values[row]),
                )
    for i in (i for i, line in enumerate(lines) if not line.ids):
        yield f"hidden_{i}", np.zeros(empty, np.float32)
        yield f"ids_{i}", np.zeros(0, np.int64)


def group_lines(lengths: Sequence[int], *, batch_size: int) -> Iterator[list[int]]:
    """Batches of numbers of the lines that are not empty, the longest first, so that too little
    memory shows at once.
    """
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
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
    tracks = {"segment": segment} | ({} if trailing else {"real": real})
    rows = Rows(key=np.arange(len(lines)), seqs={"text": Seq(ids, length, tracks)})
    if spelling is not None:
        rows = spelling.rows(rows)
        words = rows.seqs["characters"]
        rows = rows.with_seq("characters", replace(words, ids=words.ids[:], length=length))
    return collate(rows, {})


def _compute_logits(loaded: Loaded, batch: Batch, features: Tensor) -> dict[str, Tensor]:
    """{"logits": [B, T, K] or [B, K]} of the first head that can be asked, "logits_<name>" of
    the others.
    """
    heads: Any = loaded.model.heads
    logits: dict[str, Tensor] = {}
    for name in heads_of_states(loaded.model):
        about_rows = heads[name].about == "rows"
        read = _pool_rows(loaded, batch, features, heads[name]) if about_rows else features
        logits[f"logits_{name}" if logits else "logits"] = heads[name](read)
    return logits


def _pool_rows(loaded: Loaded, batch: Batch, features: Tensor, head: Head) -> Tensor:
    """[B, W] of `features [B, T, W]` what `head` reads of each row; only heads of tasks read the
    mean of its tokens.
    """
    kind = pooling(loaded.config, loaded.source.plugins)
    rows = torch.arange(len(features), device=features.device)
    anchors = torch.stack([rows, _find_row_tokens(loaded, batch, kind)], 1)
    read = ROW_POOLINGS[kind if head.of_task else "first"].read
    return pool(loaded.model, read(features, replace(batch, anchors=anchors)))


def _find_row_tokens(loaded: Loaded, batch: Batch, kind: str) -> Tensor:
    """[B] the position of the token that stands for the row: the first, or the last that is not
    padding where only that one sees all others.
    """
    real = batch.text.real
    if kind != "last":
        return find_first(real)
    return find_last(
        real & (batch.text.ids != loaded.vocab.pad) if loaded.source.has_tokenizer else real
    )


def count_states(loaded: Loaded) -> int:
    """How many states a backbone records: counted on one token, since not every backbone has a
    stack.
    """
    with torch.inference_mode():
        device = next(loaded.model.parameters()).device
        hidden = loaded.model(make_batch([EmbeddingLine([0])]).to(device), record=HIDDEN)
    return len(hidden.recorded["hidden"])


def _array(values: Tensor) -> np.ndarray:
    return values.float().cpu().numpy()
