"""Vectors of whole texts out of a trained model: how it was trained to make them, or any other
pooling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.artifacts.loading import Loaded
from plmctl.artifacts.sentence_model import find_settings
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.heads.features import HIDDEN
from plmctl.heads.sentences import TEXT_POOLINGS, embed_text, pool_text
from plmctl.heads.token_weights import TOKEN_WEIGHTS, TokenFrequencies, pool_weighted
from plmctl.interop.sentence_folder import SentenceSettings
from plmctl.models.base import Hidden, Model
from plmctl.runtime.base import Program, Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.tasks.term_vectors import TermVectors
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine, find_longest, lay_out_text
from plmctl.use.vectors import group_lines, make_batch

TRAINED = "trained"  # the pooling with which a model learned to compare texts
UNTRAINED = "mean"  # for models that learned none


@dataclass(frozen=True)
class SentencePooling:
    """How vectors of texts are read: by `pooling` of heads/sentences.py, or by the weights of
    tokens of heads/token_weights.py, once they are counted. With `with_head` the head that the
    model was trained with follows.
    """

    pooling: str
    with_head: bool = False
    # its prompts, for the trained pooling
    settings: SentenceSettings | None = field(default=None, repr=False, compare=False)
    weights: np.ndarray | None = field(default=None, repr=False, compare=False)  # [V]

    def __call__(self, model: Model, batch: Batch, hidden: Hidden | None = None) -> Tensor:
        """[B, W] the vector of each row."""
        if self.weights is not None:
            return pool_weighted(model, batch, torch.from_numpy(self.weights), hidden)
        read = embed_text if self.with_head else pool_text
        return read(model, batch, self.pooling, hidden)

    def find_prompt(self, *names: str) -> str:
        """The text before each text: the first prompt of these names that the model has, else its
        usual one; "" without any.
        """
        return "" if self.settings is None else self.settings.find_prompt(*names)

    @property
    def weighs(self) -> bool:
        """Whether tokens have weights, which are counted before."""
        return self.pooling in TOKEN_WEIGHTS

    @property
    def sparse(self) -> bool:
        """Whether most numbers of its vectors are 0."""
        return self.pooling in TEXT_POOLINGS and TEXT_POOLINGS[self.pooling].terms

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.pooling}, as it was trained" if self.with_head else self.pooling


def find_trained(loaded: Loaded) -> SentencePooling | None:
    """How the model was trained to make vectors of texts; None where it was not."""
    settings = find_settings(loaded.source)
    if settings is None:
        return None
    return SentencePooling(settings.pooling, with_head=True, settings=settings)


def choose_pooling(loaded: Loaded, asked: str | None, *, path: str) -> SentencePooling:
    """The pooling `asked`; None: the trained one, else the mean of all tokens.

    Raises:
        ConfigError: For an unknown name, or for the trained one if the model has none.
    """
    known = find_trained(loaded)
    if asked is None:
        return known or SentencePooling(UNTRAINED)
    if asked == TRAINED:
        if known is None:
            has = f"{', '.join(TEXT_POOLINGS)}: this model was not trained on whole texts"
            raise ConfigError(path, asked, has, fix=f"{path}={UNTRAINED}")
        return known
    if asked not in {**TEXT_POOLINGS, **TOKEN_WEIGHTS}:
        names = [*TEXT_POOLINGS, *TOKEN_WEIGHTS, TRAINED]
        raise ConfigError(path, asked, f"one of {', '.join(names)}{nearest(asked, names)}")
    return SentencePooling(asked)


def check_prompt(pooling: SentencePooling | None, name: str | None) -> str:
    """The text before each text: the prompt `name` of the model; None: its usual one, or "".

    Raises:
        ConfigError: The model has no prompt of this name.
    """
    known = {} if pooling is None or pooling.settings is None else pooling.settings.prompts
    if name is not None and name not in known:
        has = f"one of {', '.join(known)}" if known else "null: this model has no prompts"
        raise ConfigError("prompt", name, f"{has}{nearest(name, known)}", fix="leave it out")
    if pooling is None or pooling.settings is None:
        return ""
    return pooling.find_prompt() if name is None else known[name]


def check_weights(weights_from: str | None, pooling: str | None, *, beside: str = "") -> None:
    """ConfigError for `weights_from` with a pooling of tokens that weigh the same.

    Args:
        beside: The config path above the settings: "task.".
    """
    if weights_from is not None and pooling not in TOKEN_WEIGHTS:
        allowed = f"null: tokens weigh the same but with pooling={' or '.join(TOKEN_WEIGHTS)}"
        path = f"{beside}weights_from"
        raise ConfigError(path, weights_from, allowed, fix=f"{beside}pooling=idf")


def count_weights(
    pooling: SentencePooling, loaded: Loaded, lines: Sequence[EmbeddingLine], *, source: object
) -> SentencePooling:
    """The pooling with the weights of the tokens of these lines, if it is one that weighs them;
    special tokens weigh nothing.

    Args:
        source: The source of the lines, for messages.

    Raises:
        DataError: if all lines have the same tokens, of which none is rarer than others.
    """
    if not pooling.weighs:
        return pooling
    size, vocab = loaded.source.vocab_size, loaded.source.vocab
    special = np.zeros(size, bool)
    if vocab is not None:
        special[: vocab.size] = vocab.special[:size]
    texts = ([i for i in _read_tokens(line) if not special[i]] for line in lines)
    counts = TokenFrequencies.of(texts, size=size)
    weights = np.where(special, 0, TOKEN_WEIGHTS[pooling.pooling](counts))
    if not weights[counts.said > 0].any():
        what = f"pooling={pooling.pooling}: each of its texts has the same tokens, which weigh 0"
        raise DataError(what, file=source, fix="weights_from=<a text of many lines>")
    return replace(pooling, weights=weights.astype(np.float32))


def _read_tokens(line: EmbeddingLine) -> Iterable[int]:
    """The ids of a line without its padding."""
    return compress(line.ids, line.real) if line.real else line.ids


@dataclass(frozen=True, eq=False)
class _Vectors:
    """The computation of "vectors", [B, W]; the same one for the same pooling."""

    pooling: SentencePooling
    normalize: bool

    def __call__(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        vectors = self.pooling(model, batch, model(batch, record=HIDDEN))
        return {"vectors": F.normalize(vectors, dim=-1) if self.normalize else vectors}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Vectors):
            return NotImplemented
        return self.pooling is other.pooling and self.normalize == other.normalize


def embed_lines(
    loaded: Loaded,
    lines: Sequence[EmbeddingLine],
    pooling: SentencePooling,
    *,
    batch_size: int,
    precision: Precision,
    normalize: bool = False,
    runtime: Runtime | None = None,
    overhead: int | None = None,
) -> np.ndarray:
    """[n, W] the vector of each line, with `normalize` of length 1; zeros for an empty one.

    `runtime`: the library of the computation; None: PyTorch. `overhead` is that of `batches.cut`.
    """
    runtime = runtime or EagerRuntime()
    program = Program(loaded.model, _Vectors(pooling, normalize))
    found: dict[int, np.ndarray] = {}
    how: Any = {"batch_size": batch_size, "precision": precision, "overhead": overhead}
    for index, vectors in _read(loaded, lines, program, runtime, **how):
        found |= dict(zip(index, vectors, strict=True))
    width = len(next(iter(found.values()))) if found else loaded.model.backbone.width
    empty = np.zeros(width, np.float32)
    return np.stack([found.get(number, empty) for number in range(len(lines))])


def _read(
    loaded: Loaded,
    lines: Sequence[EmbeddingLine],
    program: Program,
    runtime: Runtime,
    *,
    batch_size: int,
    precision: Precision,
    overhead: int | None = None,
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield (numbers of lines, their vectors [B, W]) of lines with tokens, batch by batch."""
    lengths = [len(line.ids) for line in lines]
    for index in group_lines(lengths, batch_size=batch_size, overhead=overhead):
        batch = make_batch([lines[i] for i in index], loaded.source.spelling)
        with precision.autocast():
            vectors = runtime.answer(program, batch.to(precision.device))["vectors"]
        yield list(index), vectors.float().cpu().numpy()


def embed_texts(
    loaded: Loaded,
    texts: Sequence[str],
    pooling: SentencePooling,
    *,
    batch_size: int,
    precision: Precision,
    max_length: int | None = None,
    prompts: Sequence[str] = (),
    **how: Any,
) -> np.ndarray:
    """As `embed_lines`, of texts; longer ones than the model, or `max_length`, are cut.

    `prompts`: names of prompts, of which the first that the model has stands before each text.
    """
    lines = _lay_out(loaded, texts, pooling, max_length, prompts)
    return embed_lines(loaded, lines, pooling, batch_size=batch_size, precision=precision, **how)


def embed_terms(
    loaded: Loaded,
    texts: Sequence[str],
    pooling: SentencePooling,
    *,
    batch_size: int,
    precision: Precision,
    max_length: int | None = None,
    prompts: Sequence[str] = (),
) -> TermVectors:
    """As `embed_texts`; the zeros of vectors take no memory."""
    lines = _lay_out(loaded, texts, pooling, max_length, prompts)
    program, how = Program(loaded.model, _Vectors(pooling, False)), EagerRuntime()
    order, parts, width = list[int](), list[TermVectors](), 1
    for index, vectors in _read(
        loaded, lines, program, how, batch_size=batch_size, precision=precision
    ):
        order += index
        parts.append(TermVectors.of(vectors))
        width = vectors.shape[1]
    empty = [number for number, line in enumerate(lines) if not line.ids]
    parts.append(TermVectors.of(np.zeros((len(empty), width))))
    return TermVectors.join(parts, width)[np.argsort([*order, *empty])]


def _lay_out(
    loaded: Loaded,
    texts: Sequence[str],
    pooling: SentencePooling,
    max_length: int | None,
    prompts: Sequence[str],
) -> list[EmbeddingLine]:
    length = min(filter(None, (find_longest(loaded), max_length)), default=None)
    prompt = pooling.find_prompt(*prompts)
    return [lay_out_text(text, loaded, length, prompt) for text in texts]
