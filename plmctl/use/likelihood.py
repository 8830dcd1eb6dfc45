"""The log-likelihood of sentences, for each kind of language model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby, islice
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.data.formats.blocks import end_of_text
from plmctl.heads.base import ScoringHead, about_of, head_of, heads_about, language_heads, widen
from plmctl.models.base import Hidden, Model
from plmctl.models.capabilities import read_at
from plmctl.models.xlnet import TARGETS
from plmctl.tasks.layouts import encode
from plmctl.text.annotate import find_word_starts
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab

PIECE = 1024  # positions whose logits are in memory together
SEGMENTS = 8  # numbers of segments that a pattern may tell apart
BLOCK = 2048  # sentences whose rows are sorted by length together, and shared
Way = Literal[
    "next",
    "bare",
    "shifted",
    "order",
    "masks",
    "words",
    "replaced",
    "written",
    "forward",
    "backward",
    "both",
]


class ScoredRow(NamedTuple):
    """A row of tokens, and the tokens of a sentence that are scored at some of its positions.

    Args:
        ids: The row.
        places: The positions whose states predict; those of a second stream follow the first ones.
        numbers: The tokens, by their numbers in the sentence.
    """

    ids: tuple[int, ...]
    places: Sequence[int]
    numbers: Sequence[int]


class ScoredToken(NamedTuple):
    """A token that is scored.

    Args:
        place: The position in a row whose state predicts it.
        token: The token.
        owner: Its number among the tokens of all sentences.
    """

    place: int
    token: int
    owner: int


class Scoring(Protocol):
    """A way to score the tokens of a sentence."""

    @property
    def streams(self) -> Sequence[str]:
        """The streams of states that predict; each has a state at every position."""
        ...

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        """Rows in which every token of a sentence is scored once."""
        ...

    def states(self, model: Model, ids: Tensor, index: Tensor) -> Tensor:
        """[P, W] the states that predict the tokens at the flattened (row, stream, position)
        `index [P]` of rows of equal length, ids [B, T].
        """
        ...

    def losses(self, features: Tensor, tokens: Tensor) -> Tensor:
        """features [P, W], tokens [P] -> [P] negative log-probabilities."""
        ...


def make_full(ids: Tensor, **tracks: Tensor) -> Seq:
    """Rows of ids [B, T] without padding."""
    return Seq(ids, ids.new_full((len(ids),), ids.shape[1]), tracks, full=True)


@dataclass(frozen=True)
class TextScoring:
    """The parts that all share: one text, and a head with a loss over the vocabulary.

    Args:
        segment: The segment of all tokens, by which some patterns choose what a token sees.
        streams: The streams of states that predict.
    """

    head: ScoringHead
    tokenizer: Tokenizer
    segment: int = 0
    streams: Sequence[str] = ("last",)

    @property
    def vocab(self) -> Vocab:
        """The vocabulary."""
        return self.tokenizer.vocab

    def batch(self, ids: Tensor) -> Batch:
        seq = make_full(ids, segment=torch.full_like(ids, self.segment))
        return Batch(torch.arange(len(ids), device=ids.device), {"text": seq})

    def states(self, model: Model, ids: Tensor, index: Tensor) -> Tensor:
        return read_at(model, self.batch(ids), index)

    def losses(self, features: Tensor, tokens: Tensor) -> Tensor:
        return self.head.token_losses(features, tokens)

    @property
    def first(self) -> list[int]:
        """The token before a text: bos, else the end-of-text token; or no token."""
        found = end_of_text(self.vocab) if self.vocab.bos is None else self.vocab.bos
        return [] if found is None else [found]

    def frame(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """(the sentence with the tokenizer's special tokens, the position of its first token)."""
        row = encode.lay_out(ids, None, self.vocab, max_length=len(ids) + 8, pooling="first")
        return row.ids, row.a_start


class CausalScoring(TextScoring):
    """`sum_t log p(x_t | x_<t)`. The first token follows the token that begins a text, else the
    end-of-text token. A tokenizer may have neither; then the first token is not scored.

    A model that reads from left to right only in rows of one segment begins them as all rows.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        framed, start = self.frame(ids) if self.segment else ([], 0)
        before = framed[:start] or self.first
        read, known = [*before, *ids], max(1, len(before))
        if len(read) > known:
            scored = range(known - len(before), len(ids))
            yield ScoredRow(tuple(read[:-1]), range(known - 1, len(read) - 1), scored)


class BareScoring(CausalScoring):
    """As `CausalScoring`, with no token before the text, so its first token is not scored. BabyLM's
    pipeline (2025) does so where a tokenizer adds no special tokens, as GPT-2's.
    """

    @property
    def first(self) -> list[int]:
        return []


class DirectedScoring(TextScoring):
    """`sum_t log p(x_t | x_<t)` by the stream "forward", `sum_t log p(x_t | x_>t)` by "backward",
    and by both the sum of the two (Peters et al., 2018, arXiv:1802.05365, sec. 3.1). The text
    stands between the tokens that begin and end one. A token that the head does not know is scored
    as the unknown one.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        end = end_of_text(self.vocab)
        read = [*self.first, *ids, *([] if end is None else [end])]
        places, numbers, start = list[int](), list[int](), len(self.first)
        for number, stream in enumerate(self.streams):
            step = 1 if stream == "backward" else -1
            known = [t for t in range(len(ids)) if 0 <= start + t + step < len(read)]
            places += [number * len(read) + start + t + step for t in known]
            numbers += known
        yield ScoredRow(tuple(read), places, numbers)

    def states(self, model: Model, ids: Tensor, index: Tensor) -> Tensor:
        hidden: Hidden = model(self.batch(ids))
        return torch.stack([hidden.streams[name] for name in self.streams], 1).flatten(0, 2)[index]

    def losses(self, features: Tensor, tokens: Tensor) -> Tensor:
        known = getattr(self.head, "words", self.vocab.size)
        if known < self.vocab.size:
            tokens = tokens.masked_fill(tokens >= known, self.vocab.id("unk"))
        return self.head.token_losses(features, tokens)


class OrderScoring(TextScoring):
    """`sum_t log p(x_t | x_<t)` by the query stream of XLNet, whose order is that of the text.
    Every token sees the special ones, as in training.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        framed, start = self.frame(ids)
        yield ScoredRow(tuple(framed), range(start, start + len(ids)), range(len(ids)))

    def states(self, model: Model, ids: Tensor, index: Tensor) -> Tensor:
        scored = torch.zeros_like(ids)
        scored.view(-1)[index] = 1
        batch = self.batch(ids)
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
        for number, places in enumerate(self.list_masked(ids)):
            row = list(framed)
            for place in places:
                row[start + place] = mask
            yield ScoredRow(tuple(row), (start + places.start,), (number,))


class WordScoring(MaskedScoring):
    """As `MaskedScoring`, with the later pieces of the same word masked, too. Otherwise they give
    the word away (Kauf and Ivanova, 2023, 2023.acl-short.80, PLL-word-l2r). A mark is a word.
    """

    @cached_property
    def _find_starts(self) -> Callable[[np.ndarray], np.ndarray]:
        return find_word_starts(self.tokenizer)

    def list_masked(self, ids: Sequence[int]) -> Iterator[range]:
        begins = self._find_starts(np.asarray(ids, np.int64))
        ends = [*(np.flatnonzero(begins[1:]) + 1).tolist(), len(ids)]
        at = 0
        for place in range(len(ids)):
            at += place >= ends[at]
            yield range(place, ends[at])


class ShiftedScoring(MaskedScoring):
    """As `MaskedScoring`, where the state before a masked token predicts it: masked next-token
    prediction (Charpentier and Samuel, 2024, arXiv:2410.24159). A token that begins the row is not
    scored.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        for row in super().rows(ids):
            if row.places[0]:
                yield row._replace(places=[place - 1 for place in row.places])


class DiscriminatorScoring(TextScoring):
    """`sum_t log (1 - p(x_t was replaced))` of ELECTRA's discriminator, in one pass. It is no
    likelihood, but orders sentences.
    """

    def rows(self, ids: Sequence[int]) -> Iterator[ScoredRow]:
        framed, start = self.frame(ids)
        yield ScoredRow(tuple(framed), range(start, start + len(ids)), range(len(ids)))

    def states(self, model: Model, ids: Tensor, index: Tensor) -> Tensor:
        """[P, 1] the logits, since the head may compare a token with the whole row."""
        hidden: Hidden = model(self.batch(ids))
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
        yield ScoredRow(tuple(framed[:end]), range(start, end), range(len(ids)))

    def batch(self, ids: Tensor) -> Batch:
        text = [] if self.vocab.mask is None else [self.vocab.mask]
        framed, _ = self.frame(text)
        source = ids.new_tensor(framed or [self.vocab.pad]).expand(len(ids), -1)
        seqs = {"source": make_full(source), "target": make_full(ids)}
        return Batch(torch.arange(len(ids), device=ids.device), seqs)


WAYS: Mapping[Way, Callable[[ScoringHead, Tokenizer, int], Scoring]] = {
    "next": CausalScoring,
    "bare": BareScoring,
    "shifted": ShiftedScoring,
    "order": OrderScoring,
    "masks": MaskedScoring,
    "words": WordScoring,
    "replaced": DiscriminatorScoring,
    "written": DecoderScoring,
    "forward": partial(DirectedScoring, streams=("forward",)),
    "backward": partial(DirectedScoring, streams=("backward",)),
    "both": partial(DirectedScoring, streams=("forward", "backward")),
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
            segment = find_causal_segment(model)
            if segment is not None:
                found.setdefault("next", name)
            if segment == 0:
                found.setdefault("bare", name)
            if vocab.mask is not None and model.backbone.looks_ahead("text"):
                found.setdefault("shifted", name)
        elif vocab.mask is not None:
            found.setdefault("masks", name)
            found.setdefault("words", name)
    for name, head in model.heads.items():
        ways: Sequence[Way] = getattr(head, "ways", ())
        found |= dict.fromkeys(ways, name)
    return found


@dataclass(frozen=True)
class Likelihood:
    """Scores sentences by a model.

    Args:
        scoring: The way to score its tokens.
        tokens: The largest number of tokens of a batch.
        done: A function that gets the number of scored sentences.
    """

    model: Model
    scoring: Scoring
    device: torch.device
    tokens: int = 8192
    done: Callable[[int], None] = field(default=lambda count: None)

    def score(self, sentences: Sequence[Sequence[int]]) -> np.ndarray:
        """[n] the log-likelihood of each sentence in nats, a sum in float64."""
        return np.array([own.sum() for own in self.score_tokens(sentences)])

    def score_tokens(
        self, sentences: Sequence[Sequence[int]], begins: Sequence[int] | None = None
    ) -> list[np.ndarray]:
        """The log-likelihood of each token of each sentence, 0 for one that is not scored.

        Rows that several sentences of a block have in common are read once.

        Args:
            begins: The number of the first token of each sentence that is scored; None: all are.
        """
        ends = np.cumsum([len(ids) for ids in sentences])
        values, first = np.zeros(ends[-1] if len(ends) else 0), begins or [0] * len(sentences)
        pending = iter(enumerate(zip(sentences, first, strict=True)))
        while block := list(islice(pending, BLOCK)):
            own = [(int(ends[number]) - len(ids), ids, begin) for number, (ids, begin) in block]
            self._add(values, own)
            self.done(block[-1][0] + 1)
        return np.split(values, ends[:-1])

    def _add(self, values: np.ndarray, block: Sequence[tuple[int, Sequence[int], int]]) -> None:
        """Add the log-likelihoods of a block: (number of its first token in `values`, sentence,
        number of the first token that is scored).
        """
        rows: dict[tuple[int, ...], list[ScoredToken]] = {}
        for start, ids, begin in block:
            for scored in self.scoring.rows(ids):
                own = [
                    ScoredToken(place, ids[number], start + number)
                    for place, number in zip(scored.places, scored.numbers, strict=True)
                    if number >= begin
                ]
                if own:
                    rows.setdefault(scored.ids, []).extend(own)
        for group in cut_by_tokens(rows, self.tokens):
            wanted = [rows[ids] for ids in group]
            owner = [each.owner for own in wanted for each in own]
            np.subtract.at(values, owner, self._read(group, wanted))

    def _read(
        self, group: Sequence[tuple[int, ...]], wanted: Sequence[Sequence[ScoredToken]]
    ) -> np.ndarray:
        """[N] the losses of the wanted tokens of rows of equal length."""
        ids, width = np.array(group, np.int64), len(group[0]) * len(self.scoring.streams)
        every = [row * width + each.place for row, own in enumerate(wanted) for each in own]
        index, which = np.unique(every, return_inverse=True)
        tokens = [each.token for own in wanted for each in own]

        def tensor(values: Sequence[int] | np.ndarray) -> Tensor:
            return torch.as_tensor(values, device=self.device)

        states = self.scoring.states(self.model, tensor(ids), tensor(index))[tensor(which)]
        pieces = zip(states.split(PIECE), tensor(tokens).split(PIECE), strict=True)
        with torch.autocast(self.device.type, enabled=False):  # low precision makes ties
            losses = [self.scoring.losses(widen(piece), own) for piece, own in pieces]
        return torch.cat(losses).double().cpu().numpy()


def cut_by_tokens(rows: Iterable[tuple[int, ...]], most: int) -> Iterator[list[tuple[int, ...]]]:
    """Rows in groups of equal length, of at most `most` tokens, or of one row."""
    for length, same in groupby(sorted(rows, key=len), len):
        while group := list(islice(same, max(1, most // length))):
            yield group


def make_scoring(
    way: Way, model: Model, head: str, tokenizer: Tokenizer, segment: int = 0
) -> Scoring:
    """The way to score text by a head of a model, all of it in one segment; from left to right, in
    the first one in which tokens see no later ones.
    """
    causal = (find_causal_segment(model) or 0) if way == "next" else 0
    return WAYS[way](head_of(model, head), tokenizer, segment or causal)


def find_causal_segment(model: Model) -> int | None:
    """The first segment whose rows see no later token; None: all of them do."""
    pattern: Pattern | None = getattr(model.backbone, "pattern", None)
    if pattern is None:
        return 0
    return next((each for each in range(SEGMENTS) if not pattern.looks_ahead(each)), None)


def choose_way(ways: Mapping[Way, str], asked: Way | None) -> tuple[Way, str]:
    """(the way to score, its head).

    Args:
        ways: The ways that fit a model, as `find_ways` gives them.
        asked: The way that is wanted; None: the usual one.

    Raises:
        UsageError: No way fits the model.
        ConfigError: The wanted one does not.
    """
    if not ways:
        raise UsageError(
            "the likelihood of a text needs a head that predicts its tokens; this model has none\n"
            "  fix: a checkpoint of pretraining (objective=mlm, clm, electra, seq2seq)"
        )
    way = next(iter(ways)) if asked is None else asked
    if way not in ways:
        allowed = f"{' or '.join(ways)}: this model has no other way to score"
        near = nearest(way, WAYS) if way not in WAYS else ""
        raise ConfigError("task.score", way, allowed + near, fix=f"task.score={next(iter(ways))}")
    return way, ways[way]
