"""`plmctl embed checkpoint=... input=... out=x.npz`: contextual embeddings of the lines of a file.

Input: lines of text, where the model's task reads pairs of two with a tab between, as `plmctl
predict` takes them; the column `field` of a table (.csv, .tsv, .parquet) whose first line names
its columns; or JSON lines with a text in `field`, or with `input_ids`, taken as they are, and
optionally `segment_ids` and `padding` (1 or true: this token is padding) or `attention_mask` (1: it
is not). The arrays are in the order of the lines. Line or row i (from 0) gives

    hidden_<i>  [layers, T, W]  the embedding output, then the state after each layer; `layers`
                                picks some
                [layers, W]     with `pooling`: one vector for all tokens but padding, the special
                                ones among them; [1, W] of poolings that choose the layers
                                themselves (first_last, pooler, splade, idf, sif, trained); with
                                `dimensions` the first columns
    ids_<i>     [T]             the token ids, special tokens included
    logits_<i>  [T, K] or [K]   with logits=true: what the model's head says of each token, or of
                                the whole line

T is the number of ids of the line, padding of its own included; a blank line keeps its number and
has T = 0, pooled zeros; a folder of sentence-transformers reads its special tokens. Further heads
of the model give `logits_<head>_<i>`. Texts longer than the longest row of the model are cut, and
counted. An existing file is overwritten only with overwrite=true. A file with one vector for each
line also has `made`, from which `among` reads how these were made, with the texts. It has
`weights`, [V], where tokens have any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.artifacts.loading import Loaded
from plmctl.artifacts.model_facts import pooling as pooling_of
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.heads.base import Head, heads_of_states, pool
from plmctl.heads.features import HIDDEN
from plmctl.heads.features import read as read_features
from plmctl.heads.rows import POOLINGS as ROW_POOLINGS
from plmctl.heads.sentences import REDUCTIONS, Reduce, find_first, find_last, take_columns
from plmctl.models.base import Model
from plmctl.runtime.base import Program, Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine, read
from plmctl.use.sentence_vectors import (
    SentencePooling,
    check_weights,
    choose_pooling,
    count_weights,
)
from plmctl.use.vectors import choose_layers, count_states, group_lines, make_batch


@dataclass(frozen=True)
class EmbeddingManner:
    """How vectors are made: of layers, or of the line as a whole."""

    layers: list[int]
    pool: Reduce | None  # makes one vector of the tokens of each layer
    whole: SentencePooling | None  # makes one vector of a line instead
    normalize: bool  # vectors have length 1
    dimensions: int | None = None  # the first columns that are kept; None: all

    @property
    def words(self) -> str:
        """The summary for a person."""
        return f"pooling {self.whole.words}" if self.whole else f"{len(self.layers)} layers"

    @property
    def of_lines(self) -> bool:
        """Whether a line has one vector."""
        return self.whole is not None or (self.pool is not None and len(self.layers) == 1)

    @property
    def sparse(self) -> bool:
        """Whether most numbers of its vectors are 0."""
        return self.whole is not None and self.whole.sparse

    @property
    def weights(self) -> np.ndarray | None:
        """[V] the weights of tokens, if they have any."""
        return None if self.whole is None else self.whole.weights

    def weigh(
        self,
        loaded: Loaded,
        lines: Sequence[EmbeddingLine],
        *,
        source: str,
        weights_from: str | None = None,
        field: str = "text",
    ) -> EmbeddingManner:
        """The same, with the weights of tokens in the text `weights_from`, else in these lines of
        `source`.
        """
        if self.whole is None:
            return self
        if weights_from is not None:
            lines = read(Path(weights_from), loaded, field=field)
        whole = count_weights(self.whole, loaded, lines, source=weights_from or source)
        return self if whole is self.whole else replace(self, whole=whole)


def check_manner(
    *, pooling: str, normalize: bool, weights_from: str | None, dimensions: int | None = None
) -> None:
    """ConfigError for settings that contradict each other."""
    if normalize and pooling == "none":
        allowed = "vectors of lines are brought to length 1, and pooling=none has those of tokens"
        raise ConfigError("normalize", True, allowed, fix="pooling=mean")
    if dimensions is not None and pooling == "none":
        allowed = "vectors of lines are cut to columns, and pooling=none has those of tokens"
        raise ConfigError("dimensions", dimensions, allowed, fix="pooling=mean")
    check_weights(weights_from, pooling)


def choose_manner(
    loaded: Loaded, *, pooling: str, layers: Any, normalize: bool, dimensions: int | None = None
) -> EmbeddingManner:
    """How the settings have the vectors of this model made."""
    whole = None
    if pooling != "none" and pooling not in REDUCTIONS:
        if layers != "all":
            allowed = f"all: pooling={pooling} chooses the layers itself"
            raise ConfigError("layers", layers, allowed, fix="leave it out")
        whole = choose_pooling(loaded, pooling, path="pooling")
    chosen = choose_layers(layers, count=count_states(loaded))
    return EmbeddingManner(chosen, REDUCTIONS.get(pooling), whole, normalize, dimensions)


def embed(
    loaded: Loaded,
    lines: Sequence[EmbeddingLine],
    manner: EmbeddingManner,
    *,
    batch_size: int,
    precision: Precision,
    logits: bool = False,
    runtime: Runtime | None = None,
) -> Iterator[tuple[str, np.ndarray]]:
    """(name, array) of every line, in batches of similar length; no value depends on what else
    is in a batch.

    Args:
        manner: The layers, and the pooling of their tokens.
        batch_size: The number of lines at the same time, at most.
        logits: Whether to give the logits of its heads, too.
        runtime: The library of the computation; None: PyTorch.
    """
    if logits and not heads_of_states(loaded.model):
        fix = "embed with a model that was saved with one"
        raise ConfigError("logits", True, "false: this model has no head", fix=fix)
    runtime = runtime or EagerRuntime()
    program = Program(loaded.model, _States(loaded, manner, logits))
    empty = (len(manner.layers), *([] if manner.pool else [0]), loaded.model.backbone.width)
    for index in group_lines([len(line.ids) for line in lines], batch_size=batch_size):
        some = [lines[i] for i in index]
        batch = make_batch(some, loaded.source.spelling).to(precision.device)
        with precision.autocast():
            answers = dict(runtime.answer(program, batch))
        hidden, one = answers.pop("hidden"), manner.pool is not None or manner.whole is not None
        empty = tuple(hidden.shape[1:]) if one else empty
        for row, (i, line) in enumerate(zip(index, some, strict=True)):
            size = len(line.ids)
            yield f"hidden_{i}", _array(hidden[row] if one else hidden[row, :, :size])
            yield f"ids_{i}", np.asarray(line.ids, dtype=np.int64)
            for name, values in answers.items():
                yield (
                    f"{name}_{i}",
                    _array(values[row, :size] if values.dim() == 3 else values[row]),
                )
    for i in (i for i, line in enumerate(lines) if not line.ids):
        yield f"hidden_{i}", np.zeros(empty, np.float32)
        yield f"ids_{i}", np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class _States:
    """The computation of "hidden", [B, layers, T, W] or [B, layers, W], and of logits; the same one
    for the same manner.
    """

    loaded: Loaded
    manner: EmbeddingManner
    logits: bool

    def __call__(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        hidden, manner = model(batch, record=HIDDEN), self.manner
        features = read_features(model, batch, hidden) if self.logits else None
        answers = {} if features is None else _compute_logits(self.loaded, batch, features)
        if manner.whole is not None:
            vectors = manner.whole(model, batch, hidden)[:, None]
        else:
            # [B, layers, T, W]
            vectors = torch.stack([hidden.recorded["hidden"][layer] for layer in manner.layers], 1)
        if manner.pool is not None:
            vectors = manner.pool(vectors.float(), batch.text.real)
        vectors = take_columns(vectors, manner.dimensions, path="dimensions")
        return {"hidden": F.normalize(vectors, dim=-1) if manner.normalize else vectors, **answers}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _States):
            return NotImplemented
        return self.manner is other.manner and self.logits == other.logits


def _compute_logits(loaded: Loaded, batch: Batch, features: Tensor) -> dict[str, Tensor]:
    """{"logits": [B, T, K] or [B, K]} of the first head of states, "logits_<name>" of the
    others.
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
    kind = pooling_of(loaded.config, loaded.source.plugins)
    rows = torch.arange(features.shape[0], device=features.device)
    anchors = torch.stack([rows, _find_row_tokens(loaded, batch, kind)], 1)
    read = ROW_POOLINGS[kind if head.of_task else "first"].read
    return pool(loaded.model, read(features, replace(batch, anchors=anchors)))


def _find_row_tokens(loaded: Loaded, batch: Batch, kind: str) -> Tensor:
    """[B] the position of the token that stands for the row.

    It is the first token, or the last one where only that one sees all others.
    """
    real = batch.text.real
    if kind != "last":
        return find_first(real)
    return find_last(
        real & (batch.text.ids != loaded.vocab.pad) if loaded.source.has_tokenizer else real
    )


def _array(values: Tensor) -> np.ndarray:
    return values.float().cpu().numpy()
