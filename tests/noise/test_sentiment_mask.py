"""Label-aware masking: the rates of both kinds of words, hidden tags, and the two modes of the
rating.
"""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.knowledge.sentiment import Sentiment, WordPolarity
from plmctl.noise.sentiment_mask import SentimentMask
from tests.noise.plain_rows import make_rows, make_vocab, mark_words

V = 200
ENTRIES = {
    "bad": WordPolarity(1, 3),
    "good": WordPolarity(2, 3),
    "goodly": WordPolarity(2, 4),
    "dog": WordPolarity(0, 1),
}


@part_of("sentiment")
class Words(Sentiment):
    def of_word(self, word: str) -> WordPolarity:
        return ENTRIES.get(word, WordPolarity(0, 0))


NAMES = ["bad" if n < 40 else "good" if n < 80 else "dog" if n < 120 else "so" for n in range(V)]
TEXTS = (*[""] * 10, *NAMES[10:150], *["ly"] * 50)
VOCAB = make_vocab(V, eos=None, word_start=np.arange(V) < 150, texts=TEXTS)


def cells_of(n: int = 50, width: int = 120, **tracks: np.ndarray) -> Rows:
    return mark_words(make_rows(n, width, high=V), VOCAB, **tracks)


def mask(**settings: object) -> SentimentMask:
    return SentimentMask(vocab=VOCAB, lexicon=Words(), **settings)


def true_tags(rows: Rows) -> np.ndarray:
    """[n, T, 2] as a loop over words."""
    ids = rows.seqs["text"].ids
    tags = np.zeros((*ids.shape, 2), np.int64)
    for row in range(len(ids)):
        column = 1
        while column < ids.shape[1] - 1:
            end = column + 1
            while end < ids.shape[1] - 1 and ids[row, end] >= 150:
                end += 1
            word = "".join(VOCAB.texts[token] for token in ids[row, column:end])
            tags[row, column:end] = ENTRIES.get(word, (0, 0))
            column = end
    return tags


def test_rates_and_hidden_tags() -> None:
    rows = cells_of()
    tags = true_tags(rows)
    noised = mask()(rows, Draws(0, 0))
    hidden = noised.targets["mlm"] != IGNORE
    marked = tags[..., 0] != 0
    ordinary = np.ones(marked.shape, bool)
    ordinary[:, [0, -1]] = False
    for kind, rate in ((marked, 0.3), (~marked & ordinary, 0.15)):
        wanted = rate * kind.sum(1)
        # a word that would exceed the budget is skipped: at most its length is missing
        assert (((hidden & kind).sum(1) - wanted) <= 1).all()
        assert (hidden & kind).sum() / kind.sum() == pytest.approx(rate, abs=0.02)
    assert not hidden[~ordinary].any()
    tracks = noised.seqs["text"].tracks
    for column, name in enumerate(("polarity", "pos")):
        assert np.array_equal(tracks[name], np.where(hidden, 0, tags[..., column]))
        assert np.array_equal(noised.targets[name], np.where(hidden, tags[..., column], IGNORE))
    most = mask().capacity(120)
    assert hidden.sum(1).max() <= most["mlm"]


def test_whole_words_are_hidden() -> None:
    rows = cells_of()
    hidden = mask()(rows, Draws(0, 0)).targets["mlm"] != IGNORE
    inside = ~rows.seqs["text"].tracks["word_start"][:, 2:-1]
    assert np.array_equal(hidden[:, 2:-1][inside], hidden[:, 1:-2][inside])


def test_tags_of_the_data_go_before_the_lexicon() -> None:
    given = np.zeros((50, 120), np.int64)
    given[:, 5:9] = 1
    noised = mask()(cells_of(polarity=given), Draws(0, 0))
    hidden = noised.targets["mlm"] != IGNORE
    assert np.array_equal(noised.seqs["text"].tracks["polarity"], np.where(hidden, 0, given))


def test_early_fusion_and_late_supervision() -> None:
    rating = np.repeat(np.arange(4000) % 6, 30).reshape(4000, 30)
    rating[rating == 5], rating[:, 0] = 0, 0  # cls has no mark
    rating[3::6, 20:] = 1  # two ratings in a row are none
    noised = mask()(cells_of(4000, 30, rating=rating), Draws(0, 0))
    shown, asked = noised.seqs["text"].tracks["rating"], noised.targets["rating"]
    assert (asked[:, 1:] == IGNORE).all()
    known = np.isin(np.arange(4000) % 6, [1, 2, 4])
    late = asked[:, 0] != IGNORE
    assert late[known].mean() == pytest.approx(0.2, abs=0.03)
    assert not late[~known].any()
    assert np.array_equal(asked[late, 0], (np.arange(4000) % 6)[late] - 1)
    assert (shown[late] == 0).all()
    early = known & ~late
    assert np.array_equal(shown[early], np.repeat((np.arange(4000) % 6)[early], 30).reshape(-1, 30))
    assert (shown[~known] == 0).all()
    none = mask()(cells_of(), Draws(0, 0))
    assert (none.targets["rating"] == IGNORE).all()
    assert not none.seqs["text"].tracks["rating"].any()


def test_same_rows_whatever_the_batch() -> None:
    rows = cells_of()
    seq = rows.seqs["text"]
    tracks = {"word_start": seq.tracks["word_start"][7:9]}
    part = Rows(rows.key[7:9], {"text": Seq(seq.ids[7:9], seq.length[7:9], tracks)})
    whole, again = mask()(rows, Draws(0, 1)), mask()(part, Draws(0, 1))
    assert np.array_equal(whole.seqs["text"].ids[7:9], again.seqs["text"].ids)
