"""Entity and phrase masking (Sun et al., 2019): all tokens of a marked span are hidden together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, Unpack

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.groups import Lengths, Walk
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.noise.masking import NoiseBudget, Select, Spans, expand_runs
from plmctl.noise.units import find_counted, find_spans, find_units, scatter_spans
from plmctl.text.vocab import Vocab


class MarkedSpans(Select):
    """Takes units in random order, each completely or not at all, while the budget has room: marked
    spans, and the words or tokens outside them.

    `span_share=None`: all units in one random order; else spans come first, with at most this share
    of the budget, and the other units get the rest. A span that is not chosen stays visible either
    way. `scattered`: spans of the same lengths at random positions.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        budget: NoiseBudget,
        names: Sequence[str],
        span_share: float | None,
        words: bool,
        scattered: bool = False,
    ) -> None:
        self.vocab = vocab
        self.budget = budget
        self.names = list(names)
        self.share = span_share
        self.words = words
        self.scattered = scattered
        self.reads = frozenset(
            {"input", *(f"spans.{name}" for name in names)}
            | ({"tracks.word_start"} if words else set())
        )

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        if self.scattered:
            own = draws.child("scatter")
            moved = {
                name: scatter_spans(rows, find_spans(rows, name), self.vocab, own.child(name))
                for name in self.names
            }
            rows = replace(rows, spans={**rows.spans, **moved})
        units = find_units(rows, self.vocab, words=self.words, spans=self.names)
        walk = Walk(rows, units, Lengths(np.ones(1)), draws)
        counted = find_counted(rows, units, self.budget)
        first, budget = self.budget.of_documents(rows, draws, counted)
        if self.share is None:
            walk.take(draws, walk.heads, first, budget)
        else:
            marks = self._marks(rows)
            reserved = np.rint(self.share * budget).astype(np.int64)
            left = walk.take(draws.child("spans"), walk.heads & marks, first, reserved)
            walk.take(draws, walk.heads & ~marks, first, budget - reserved + left)
        return walk.spans()

    def _marks(self, rows: Rows) -> np.ndarray:
        """[n*T] bool: inside a span."""
        n, width = rows.seqs[rows.input].ids.shape
        marks = np.zeros(n * width, bool)
        for name in self.names:
            spans = find_spans(rows, name)
            marks[expand_runs(spans[:, 0] * width + spans[:, 1], spans[:, 2])] = True
        return marks


@part_of("noise")
class EntityMask(MaskTokens):
    """Masks marked spans (`spans: [entity, phrase]`; where two overlap, the first name wins)
    instead of single tokens.

    The unit of masking grows from tokens to phrases to entities, and all tokens of a unit are
    predicted (Sun et al., 2019, arXiv:1904.09223, sec. 3.2). As in the published reader, a unit is
    chosen like any other (`span_share: null`), and 80/10/10 applies to each token separately.
    `span_share: 0.5` gives half of the budget to the spans (SpanBERT's comparison, Joshi et al.,
    2020, sec. 6.1). Without names of spans the units are tokens, or with `words` whole words: the
    first stages of the paper. `control: random` masks spans of the same lengths at random
    positions. Differs: the reader chooses every unit with probability 15%; here units are taken in
    random order up to an exact budget, and one that would exceed it is skipped.
    """

    fields: Mapping[str, Field] = {
        "spans.entity": Field("[m, 4]", "int", "row, start, length, id of a mention", stored=True),
        "spans.phrase": Field("[m, 4]", "int", "row, start, length, id of a phrase", stored=True),
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        spans: Sequence[str] = ("entity",),
        span_share: float | None = None,
        words: bool = False,
        control: Literal["none", "random"] = "none",
        **masking: Unpack[MaskSettings],
    ) -> None:
        if span_share is not None and not 0 <= span_share <= 1:
            allowed = "0 <= span_share <= 1, or null (spans are chosen like any unit)"
            raise ConfigError("noise.span_share", span_share, allowed)
        super().__init__(
            select=partial(
                MarkedSpans,
                vocab=vocab,
                names=spans,
                span_share=span_share,
                words=words,
                scattered=control == "random",
            ),
            vocab=vocab,
            **masking,
        )
