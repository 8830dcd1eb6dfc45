"""The log-likelihood of sentences, for each kind of language model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch, Seq, Targets
from plmctl.data.formats.blocks import end_of_text
from plmctl.heads.base import ScoringHead, about_of, head_of, heads_about, language_heads, widen
from plmctl.heads.discriminator import Discriminator
from plmctl.models.base import Hidden, Model
from plmctl.models.xlnet import TARGETS
from plmctl.tasks.layouts import encode
from plmctl.text.vocab import Vocab

PIECE = 1024  # positions whose logits are in memory together
BLOCK = 2048  # sentences whose rows are sorted by length together, and shared
Way = Literal["next", "order", "masks", "words", "replaced", "written"]


class ScoredRow(NamedTuple):
    """A row of tokens, and the tokens that are scored at some of its positions."""

    ids: tuple[int, ...]
    places: Sequence[int]
    tokens: Sequence[int]


class Scoring(Protocol):
    """A way to score the tokens of a sentence."""

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        """Rows in which every token of a sentence is scored once."""
        ...

    def states(self, model: Model, ids: Tensor, length: Tensor, index: Tensor) -> Tensor:
        """[P, W] the states that predict the tokens at the flattened (row, position) `index [P]`
        of rows with ids [B, T] and length [B].
        """
        ...

    def losses(self, features: Tensor, tokens: Tensor) -> Tensor:
        """features [P, W], tokens [P] -> [P] negative log-probabilities."""
        ...


@dataclass(frozen=True)
class TextScoring:
    """The parts that all share: one text, and a head with a loss over the vocabulary."""

    head: ScoringHead
    vocab: Vocab

    def batch(self, ids: Tensor, length: Tensor) -> Batch:
        seq = Seq(ids, length, {"segment": torch.zeros_like(ids)})
        return Batch(torch.arange(len(ids), device=ids.device), {"text": seq})

    def states(self, model: Model, ids: Tensor, length: Tensor, index: Tensor) -> Tensor:
        hidden: Hidden = model(self.batch(ids, length))
        return hidden.gather(index)

    def losses(self, features: Tensor, tokens: Tensor) -> Tensor:
        return self.head.token_losses(features, tokens)

    def frame(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """(the sentence with the tokenizer's special tokens, the position of its first token)."""
        row = encode.lay_out(ids, None, self.vocab, max_length=len(ids) + 8, pooling="first")
        return row.ids, row.a_start


class CausalScoring(TextScoring):
    """`sum_t log p(x_t | x_<t)`. The first token follows the token that begins a text, else the
    end-of-text token. A tokenizer may have neither; then the first token is not scored.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        first = end_of_text(self.vocab) if self.vocab.bos is None else self.vocab.bos
        read = list(ids) if first is None else [first, *ids]
        if len(read) > 1:
            yield ScoredRow(tuple(read[:-1]), range(len(read) - 1), read[1:])


class OrderScoring(TextScoring):
    """`sum_t log p(x_t | x_<t)` by the query stream of XLNet, whose order is that of the text.
    Every token sees the special ones, as in training.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        framed, start = self.frame(ids)
        yield ScoredRow(tuple(framed), range(start, start + len(ids)), ids)

    def states(self, model: Model, ids: Tensor, length: Tensor, index: Tensor) -> Tensor:
        scored = torch.zeros_like(ids)
        scored.view(-1)[index] = 1
        batch = self.batch(ids, length)
        text = batch.text.with_tracks(order=scored.cumsum(1) * scored)
        targets = {TARGETS: Targets(index, ids.flatten()[index], len(index))}
        hidden: Hidden = model(replace(batch, seqs={"text": text}, targets=targets))
        return hidden.streams["query"]


class MaskedScoring(TextScoring):
    """`sum_i log p(x_i | x without x_i)`, pseudo-log-likelihood: each token masked in turn (Salazar
    et al., 2020, arXiv:1910.14659, eq. 1). Special tokens are neither masked nor scored.
    """

    def list_masked(self, ids: Sequence[int]) -> Iterator[range]:
        """For each token of a sentence, the positions that are masked when it is scored."""
        return (range(place, place + 1) for place in range(len(ids)))

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        framed, start = self.frame(ids)
        mask = self.vocab.id("mask")
        for token, places in zip(ids, self.list_masked(ids), strict=True):
            row = list(framed)
            for place in places:
                row[start + place] = mask
            yield ScoredRow(tuple(row), (start + places.start,), (token,))


class WordScoring(MaskedScoring):
    """As `MaskedScoring`, with the later pieces of the same word masked, too. Otherwise they give
    the word away (Kauf and Ivanova, 2023, 2023.acl-short.80, PLL-word-l2r).
    """

    def list_masked(self, ids: Sequence[int]) -> Iterator[range]:
        begins = self.vocab.word_start[np.asarray(ids, np.int64)]
        ends = [*(np.flatnonzero(begins[1:]) + 1).tolist(), len(ids)]
        at = 0
        for place in range(len(ids)):
            at += place >= ends[at]
            yield range(place, ends[at])


class DiscriminatorScoring(TextScoring):
    """`sum_t log (1 - p(x_t was replaced))` of ELECTRA's discriminator, in one pass. It is no
    likelihood, but orders sentences.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        framed, start = self.frame(ids)
        yield ScoredRow(tuple(framed), range(start, start + len(ids)), ids)

    def states(self, model: Model, ids: Tensor, length: Tensor, index: Tensor) -> Tensor:
        """[P, 1] the logits, since the head may compare a token with the whole row."""
        hidden: Hidden = model(self.batch(ids, length))
        with torch.autocast(ids.device.type, enabled=False):
            return self.head(widen(hidden.last)).flatten()[index, None]

    def losses(self, features: Tensor, tokens: Tensor) -> Tensor:
        return F.softplus(features[:, 0])


class DecoderScoring(TextScoring):
    """`sum_t log p(x_t | x_<t, source)` of a decoder; the source is one mask, without a mask token
    an empty text.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        framed, start = self.frame(ids)
        end = start + len(ids)
        yield ScoredRow(tuple(framed[:end]), range(start, end), ids)

    def batch(self, ids: Tensor, length: Tensor) -> Batch:
        text = [] if self.vocab.mask is None else [self.vocab.mask]
        framed, _ = self.frame(text)
        source = ids.new_tensor(framed or [self.vocab.pad]).expand(len(ids), -1)
        full = length.new_full((len(ids),), source.shape[1])
        seqs = {"source": Seq(source, full, {}), "target": Seq(ids, length, {})}
        return Batch(torch.arange(len(ids), device=ids.device), seqs)


WAYS: Mapping[Way, Callable[[ScoringHead, Vocab], Scoring]] = {
    "next": CausalScoring,
    "order": OrderScoring,
    "masks": MaskedScoring,
    "words": WordScoring,
    "replaced": DiscriminatorScoring,
    "written": DecoderScoring,
}


def find_ways(model: Model, vocab: Vocab) -> dict[Way, str]:
    """{way: its head} of the ways to score text that fit a model, the usual one first."""
    found: dict[Way, str] = {}
    if model.backbone.writes == "target":
        for name in heads_about(model, "text", "next"):
            found.setdefault("written", name)
    if "query" in model.backbone.streams:
        for name in heads_about(model, "next", "text"):
            found.setdefault("order", name)
    for name in language_heads(model):
        if about_of(model.heads[name]) == "next":
            found.setdefault("next", name)
        elif vocab.mask is not None:
            found.setdefault("masks", name)
            found.setdefault("words", name)
    for name, head in model.heads.items():
        if isinstance(head, Discriminator):
            found.setdefault("replaced", name)
    return found


@dataclass(frozen=True)
class Likelihood:
    """Scores sentences by a model.

    Args:
        model: The model.
        scoring: The way to score its tokens.
        pad: The id that fills short rows.
        device: The device of the computation.
        tokens: The largest number of tokens of a batch, padding included.
        done: A function that gets the number of scored sentences.
    """

    model: Model
    scoring: Scoring
    pad: int
    device: torch.device
    tokens: int = 8192
    done: Callable[[int], None] = field(default=lambda count: None)

    def score(self, sentences: Sequence[Sequence[int]]) -> np.ndarray:
        """[n] the log-likelihood of each sentence in nats, a sum in float64.

        Rows that several sentences of a block have in common are read once.
        """
        sums, pending = np.zeros(len(sentences)), iter(enumerate(sentences))
        while block := list(islice(pending, BLOCK)):
            self._add(sums, block)
            self.done(block[-1][0] + 1)
        return sums

    def _add(self, sums: np.ndarray, block: Sequence[tuple[int, Sequence[int]]]) -> None:
        rows: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}  # (position, token, sentence)
        for number, ids in block:
            for asked in self.scoring.rows(ids):
                places = zip(asked.places, asked.tokens, strict=True)
                own = rows.setdefault(asked.ids, [])
                own += [(place, token, number) for place, token in places]
        for group in cut_by_tokens(sorted(rows, key=len), self.tokens):
            asked_of = [rows[ids] for ids in group]
            owner = [number for asks in asked_of for _, _, number in asks]
            np.subtract.at(sums, owner, self._read(group, asked_of))

    def _read(
        self, group: Sequence[tuple[int, ...]], asked: Sequence[Sequence[tuple[int, int, int]]]
    ) -> np.ndarray:
        length = np.fromiter(map(len, group), np.int64, len(group))
        width = int(length.max())
        ids = np.full((len(group), width), self.pad, np.int64)
        for row, own in enumerate(group):
            ids[row, : len(own)] = own
        index = [row * width + place for row, asks in enumerate(asked) for place, _, _ in asks]
        tokens = [token for asks in asked for _, token, _ in asks]

        def tensor(values: Sequence[int] | np.ndarray) -> Tensor:
            return torch.as_tensor(values, device=self.device)

        features = self.scoring.states(self.model, tensor(ids), tensor(length), tensor(index))
        pieces = zip(features.split(PIECE), tensor(tokens).split(PIECE), strict=True)
        with torch.autocast(self.device.type, enabled=False):  # low precision makes ties
            losses = [self.scoring.losses(widen(states), asks) for states, asks in pieces]
        return torch.cat(losses).double().cpu().numpy()


def cut_by_tokens(rows: Iterable[tuple[int, ...]], most: int) -> Iterator[list[tuple[int, ...]]]:
    """Rows, the shorter ones first, in groups of at most `most` tokens with padding, or of one."""
    group: list[tuple[int, ...]] = []
    for row in rows:
        if group and (len(group) + 1) * len(row) > most:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def make_scoring(way: Way, model: Model, head: str, vocab: Vocab) -> Scoring:
    """The way to score text by a head of a model."""
    return WAYS[way](head_of(model, head), vocab)
