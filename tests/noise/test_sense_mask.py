"""SenseBERT's masking: how many words of one sense are chosen, and which words are asked for
their senses.
"""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.knowledge.senses import Senses
from plmctl.noise.sense_mask import SenseMask
from plmctl.noise.sense_words import SenseWords
from tests.noise.plain_rows import make_rows, make_vocab, mark_words

V = 200
WORDS = {"clear": 1, "vague": 3, "clearly": 8}


@part_of("senses")
class Marked(Senses):
    names = tuple("abcd")

    def of_word(self, word: str) -> int:
        return WORDS.get(word, 0)


def texts() -> tuple[str, ...]:
    """10..29 have one sense, 30..59 two, others none; from 150 on tokens continue words."""
    words = ["clear" if 10 <= n < 30 else "vague" if 30 <= n < 60 else "none" for n in range(V)]
    return (*[""] * 10, *words[10:150], *["ly"] * 50)


VOCAB = make_vocab(V, eos=None, word_start=np.arange(V) < 150, texts=texts())
BITS = Marked().of_vocab(VOCAB)


def cells_of(n: int = 40, width: int = 100, high: int = V, *, documents: bool = False) -> Rows:
    two = np.repeat(np.arange(2), [30, width - 30])[None].repeat(n, 0)
    return mark_words(
        make_rows(n, width, high=high), VOCAB, **({"document": two} if documents else {})
    )


def mask(**settings: object) -> SenseMask:
    return SenseMask(vocab=VOCAB, senses=Marked(), rate=0.15, **settings)


def clear_words(rows: Rows) -> np.ndarray:
    """[n, T] bool: words of one token and one sense, as a loop."""
    ids, starts = rows.seqs["text"].ids, rows.seqs["text"].tracks["word_start"]
    found = np.zeros(ids.shape, bool)
    for row, column in np.ndindex(*ids.shape):
        goes_on = column + 1 < ids.shape[1] and not starts[row, column + 1]
        goes_on &= ids[row, min(column + 1, ids.shape[1] - 1)] >= 10
        found[row, column] = 10 <= ids[row, column] < 30 and not goes_on
    return found


@pytest.mark.parametrize("high", [V, 150, 40])
def test_how_many_words_of_one_sense_are_chosen(high: int) -> None:
    """At least min(half of them, 40% of the budget), sec. 3.5; the rest comes from all tokens."""
    rows = cells_of(high=high)
    noised = mask()(rows, Draws(0, 0))
    asked, clear = noised.targets["mlm"] != IGNORE, clear_words(rows)
    assert (asked.sum(1) == 15).all()
    sure = np.rint(np.minimum(0.5 * clear.sum(1), 0.4 * 15))
    chosen = (asked & clear).sum(1)
    assert (chosen >= sure).all()
    # what is beyond that comes by chance: the same share of the clear words as of other tokens
    rest = (98 - sure).clip(1)
    expected = (sure + (15 - sure) * (clear.sum(1) - sure) / rest).sum()
    assert chosen.sum() == pytest.approx(expected, rel=0.1)


def test_without_favour_it_is_bert() -> None:
    rows = cells_of()
    noised = mask(clear_share=0.0)(rows, Draws(0, 0))
    asked = noised.targets["mlm"] != IGNORE
    share = (asked & clear_words(rows)).sum() / asked.sum()
    assert share == pytest.approx(clear_words(rows).sum() / (40 * 98), abs=0.03)


def test_each_document_has_its_own_share() -> None:
    rows = cells_of(documents=True)
    asked = mask()(rows, Draws(0, 0)).targets["mlm"] != IGNORE
    assert (asked.sum(1) == 15).all()
    assert set(asked[:, :30].sum(1).tolist()) <= {4, 5}


def test_whole_words() -> None:
    rows = cells_of()
    asked = mask(words=True)(rows, Draws(0, 0)).targets["mlm"] != IGNORE
    starts = rows.seqs["text"].tracks["word_start"]
    inside = ~starts[:, 1:-1]
    inside[:, 0] = False  # behind cls, a piece begins a word of its own
    assert np.array_equal(asked[:, 1:-1][inside], asked[:, :-2][inside])


def test_same_words_whatever_the_batch() -> None:
    rows = cells_of()
    whole = mask()(rows, Draws(0, 1)).targets["mlm"]
    seq = rows.seqs["text"]
    part = Rows(
        rows.key[7:9],
        {"text": Seq(seq.ids[7:9], seq.length[7:9], {"word_start": seq.tracks["word_start"][7:9]})},
    )
    assert np.array_equal(mask()(part, Draws(0, 1)).targets["mlm"], whole[7:9])


@pytest.mark.parametrize("average", [False, True])
def test_which_words_are_asked_for_their_senses(average: bool) -> None:
    """As a loop over words: all tokens are predicted, and the word has senses."""
    rows = cells_of()
    noised = mask(words=average)(rows, Draws(0, 0))
    noise = SenseWords(vocab=VOCAB, senses=Marked(), average=average)
    found = noise(noised, Draws(0, 0))
    assert found.seqs is noised.seqs
    wanted = []
    ids, asked = rows.seqs["text"].ids, noised.targets["mlm"] != IGNORE
    for row in range(len(ids)):
        column = 1
        while column < 99:
            end = column + 1
            while end < 99 and ids[row, end] >= 150:
                end += 1
            word = "".join(VOCAB.texts[token] for token in ids[row, column:end])
            begins = ids[row, column] < 150
            if asked[row, column:end].all() and begins and (average or end == column + 1):
                bits = WORDS.get(word, 0)
                wanted += [[row, column, end - column, bits]] if bits else []
            column = end
    assert found.spans["senses"].tolist() == wanted
    assert len({bits for *_, bits in wanted}) == 2 + average  # "clearly" is of two tokens
