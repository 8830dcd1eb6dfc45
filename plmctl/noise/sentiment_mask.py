"""Label-aware masking (Ke et al., 2020, SentiLARE): words with a polarity are hidden more often,
and their tags with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Rate, Share
from plmctl.knowledge.known import TextSample
from plmctl.knowledge.sentiment import Sentiment, WordPolarity
from plmctl.noise.base import Noise
from plmctl.noise.groups import Lengths, Walk
from plmctl.noise.masking import MaskOrReplace, find_document_begins
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab

TAGS = ("polarity", "pos")  # columns of `Sentiment`


@part_of("noise")
class SentimentMask(Noise):
    """Hides whole words, `rate` of the neutral ones and `sentiment_rate` of those with a polarity;
    80/10/10 for each token. In the input their polarity and part of speech become 0; they are
    predicted at each of their tokens.

    If the data have a track `rating` (data.tags=[rating], from 1), all tokens of a row are shown it
    (early fusion). In a `late` share of the rows it is hidden, and predicted from the first token
    (late supervision). A row with several ratings has none. (Ke et al., 2020, arXiv:1911.02493,
    sec. 3.3, and its released code.) Tags come from the lexicon; tracks `polarity` and `pos` of the
    data (data.tags) go before it. Differs: the paper draws each word by itself; here the number of
    tokens of each kind is exact.
    """

    reads = frozenset({"input", "tracks.word_start"})
    uses = frozenset({"tracks.polarity", "tracks.pos", "tracks.rating"})
    writes = frozenset(
        {
            *("targets.mlm", "targets.polarity", "targets.pos", "targets.rating"),
            *("tracks.polarity", "tracks.pos", "tracks.rating"),
        }
    )
    fields: Mapping[str, Field] = {
        "tracks.polarity": Field(
            "[n, T]",
            "int",
            "polarity of its word: 0 neutral or hidden, 1 negative, 2 positive",
            stored=True,
        ),
        "tracks.pos": Field(
            "[n, T]",
            "int",
            "part of speech of its word: 0 other or hidden, 1 noun, 2 verb, 3 adjective, 4 adverb",
            stored=True,
        ),
        "tracks.rating": Field(
            "[n, T]", "int", "rating of the text, from 1; 0: unknown or hidden", stored=True
        ),
        "targets.polarity": Field("[n, T]", "int", "polarity of a hidden word"),
        "targets.pos": Field("[n, T]", "int", "part of speech of a hidden word"),
        "targets.rating": Field("[n, T]", "int", "hidden rating of the row, from 0, first token"),
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        lexicon: Sentiment,
        rate: Share = 0.15,
        sentiment_rate: Share = 0.3,
        late: Rate = 0.2,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        random_specials: bool = True,
    ) -> None:
        self.vocab, self.lexicon, self.late = vocab, lexicon, late
        self.rates = (rate, sentiment_rate)
        self.corrupt = MaskOrReplace(
            vocab=vocab,
            mask_share=mask_share,
            random_share=random_share,
            random_specials=random_specials,
        )
        self._known: dict[bytes, WordPolarity] = {}  # polarity of words of several tokens

    @cached_property
    def table(self) -> np.ndarray:
        """[V, 2] the tags of tokens that are words."""
        return self.lexicon.of_vocab(self.vocab)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        units = find_units(rows, self.vocab, words=True)
        tags = self._find_tags(rows, units)
        walk = Walk(rows, units, Lengths(np.ones(1)), draws)
        self._choose(walk, tags["polarity"].ravel() != 0, draws)
        spans = walk.spans()
        noised = self.corrupt(rows, spans, draws.child("corrupt"))
        hidden = noised.targets["mlm"] != IGNORE
        seq = noised.seqs[rows.input]
        tracks = {name: np.where(hidden, 0, tag) for name, tag in tags.items()}
        targets = {name: np.where(hidden, tag, IGNORE) for name, tag in tags.items()}
        tracks["rating"], targets["rating"] = self._fuse(rows, draws)
        noised = noised.with_seq(rows.input, seq.with_tracks(**tracks))
        return replace(noised, targets={**noised.targets, **targets})

    def describe_known(self, text: TextSample) -> str:
        """How many words of a text the lexicon knows."""
        return self.lexicon.describe_known(text)

    def capacity(self, length: int) -> dict[str, int]:
        most = min(length, int(max(self.rates) * length) + 2)
        return {**dict.fromkeys(("mlm", *TAGS), most), "rating": 1}

    def _find_tags(self, rows: Rows, units: Units) -> dict[str, np.ndarray]:
        """{"polarity", "pos": [n, T]}: of the word of each token."""
        seq = rows.seqs[rows.input]
        ids, start, length = seq.ids.ravel(), units.start[:-1], np.diff(units.start)
        own = self.table[ids[start]]  # [u, 2]
        for number in np.flatnonzero(length > 1).tolist():
            own[number] = self._look_up(ids[start[number] : start[number] + length[number]])
        own[~units.ordinary[start]] = 0
        wide = np.repeat(own, length, axis=0).reshape(*seq.ids.shape, 2)
        return {
            name: np.asarray(seq.tracks.get(name, wide[..., column]), np.int64)
            for column, name in enumerate(TAGS)
        }

    def _look_up(self, ids: np.ndarray) -> WordPolarity:
        key = ids.tobytes()
        if key not in self._known:
            word = "".join(self.vocab.texts[token] for token in ids.tolist())
            self._known[key] = self.lexicon.of_word(word)
        return self._known[key]

    def _choose(self, walk: Walk, marked: np.ndarray, draws: Draws) -> None:
        """Take words without and with a polarity, each kind up to its rate of every document."""
        rows, (n, width) = walk.rows, walk.shape
        document = rows.seqs[rows.input].tracks.get("document")
        first = np.arange(n) * width
        if document is not None:
            first = np.flatnonzero(find_document_begins(document))
        for kind, rate in enumerate(self.rates):
            # a word belongs to the kind of its first token
            heads = walk.heads & (marked == bool(kind))
            size = np.where(heads, self._lengths(walk), 0)
            count = np.add.reduceat(size, first, dtype=np.int64)
            part = draws.uniform(rows.key, f"rounding {kind}", width)
            budget = np.floor(rate * count + part[first // width, first % width])
            walk.take(draws.child(kind), heads, first, budget.astype(np.int64))

    @staticmethod
    def _lengths(walk: Walk) -> np.ndarray:
        """[n*T] the tokens of the unit that begins here, else 0."""
        lengths = np.zeros(len(walk.heads), np.int64)
        lengths[walk.units.start[:-1]] = np.diff(walk.units.start)
        return lengths

    def _fuse(self, rows: Rows, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """The track that is shown, and the labels to predict, each [n, T]."""
        seq = rows.seqs[rows.input]
        shown, asked = np.zeros(seq.ids.shape, np.int64), np.full(seq.ids.shape, IGNORE)
        given = seq.tracks.get("rating")
        if given is not None:
            most = given.max(1)
            least = np.where(given > 0, given, most[:, None]).min(1)
            rating = np.where(most == least, most, 0)
            late = draws.uniform(rows.key, "late") < self.late
            shown = np.where(seq.real & ~late[:, None], rating[:, None], 0)
            asked[:, 0] = np.where(late & (rating > 0), rating - 1, IGNORE)
        return shown, asked
