"""Templates, truncation against the loop it replaces, padding."""

from dataclasses import replace
from itertools import product

import pytest

from plmctl.core.errors import ConfigError
from plmctl.tasks.layouts import encode


def test_bert_pair(toy):
    row = encode.lay_out([10, 11], [12], toy.vocab, max_length=16, pooling="first")
    assert (row.ids, row.a_start, row.b_start, row.anchor, row.cut) == (
        [2, 10, 11, 3, 12, 3],
        1,
        4,
        0,
        0,
    )
    rows = encode.pad(
        [row, encode.lay_out([10], None, toy.vocab, max_length=16, pooling="first")],
        toy.vocab,
        example=[0, 1],
    )
    assert rows.seqs["text"].ids.tolist() == [[2, 10, 11, 3, 12, 3], [2, 10, 3, 0, 0, 0]]
    assert rows.seqs["text"].tracks["segment"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]
    assert rows.anchors.tolist() == [[0, 0], [1, 0]]
    assert rows.seqs["text"].length.tolist() == [6, 3]


def test_roberta_and_gpt_pairs(roberta_toy, gpt_toy):
    assert encode.lay_out([10], [12], roberta_toy.vocab, max_length=16, pooling="first").ids == [
        2,
        10,
        3,
        3,
        12,
        3,
    ]
    row = encode.lay_out([10], [12], gpt_toy.vocab, max_length=16, pooling="last")
    assert (row.ids, row.anchor) == ([2, 10, 2, 12, 2], 4)


@pytest.mark.parametrize("room", range(2, 12))
def test_truncation_equals_berts_loop(room):
    for a, b in product(range(9), range(9)):
        left, right = list(range(a)), list(range(b))
        while len(left) + len(right) > room:
            (left if len(left) > len(right) else right).pop()
        assert encode.longest_first(a, b, room) == (len(left), len(right)), (a, b)


def test_truncation_is_counted(toy):
    row = encode.lay_out([9] * 10, [8] * 3, toy.vocab, max_length=9, pooling="first")
    assert (row.ids, row.cut) == ([2, 9, 9, 9, 3, 8, 8, 8, 3], 7)
    with pytest.raises(ConfigError, match="too short for 3 special tokens"):
        encode.lay_out([9], [8], toy.vocab, max_length=4, pooling="first")


def test_an_empty_text_still_has_a_token(toy):
    assert encode.lay_out(
        [], None, replace(toy.vocab, single=("A",)), max_length=8, pooling="last"
    ).ids == [1]


def test_the_anchor_of_a_decoder_is_the_last_token_that_is_not_padding(gpt_toy):
    """As GPT2ForSequenceClassification looks for it, whether or not the end of the text is the
    padding, too.
    """
    vocab = gpt_toy.vocab
    end = vocab.eos
    row = encode.lay_out([7, 8], None, vocab, max_length=9, pooling="last")
    assert (row.ids, row.anchor) == ([end, 7, 8, end], 3)
    row = encode.lay_out([7, 8], None, replace(vocab, pad=end), max_length=9, pooling="last")
    assert (row.ids, row.anchor) == ([end, 7, 8, end], 2)
    assert (
        encode.lay_out([], None, replace(vocab, pad=end), max_length=9, pooling="last").anchor == 0
    )


def test_xlnets_last_token_stands_for_a_row_in_a_segment_of_its_own(toy):
    vocab = replace(toy.vocab, single=("A", "sep", "cls"), pair=("A", "sep", "B", "sep", "cls"))
    pair = encode.lay_out([10, 11], [12], vocab, max_length=16, pooling="first")
    single = encode.lay_out([10], None, vocab, max_length=16, pooling="first")
    rows = encode.pad([pair, single], vocab, example=[0, 1])
    assert rows.seqs["text"].ids.tolist() == [[10, 11, 3, 12, 3, 2], [10, 3, 2, 0, 0, 0]]
    assert rows.seqs["text"].tracks["segment"].tolist() == [[0, 0, 0, 1, 1, 2], [0, 0, 2, 0, 0, 0]]
    assert rows.anchors.tolist() == [[0, 5], [1, 2]]


def test_the_anchor_is_that_of_published_classifiers(toy):
    """XLM, whose `cls` is the token at the end, reads the first state; mBART reads `</s>` before
    the language.
    """
    xlm = replace(toy.vocab, cls=3, bos=2, single=("bos", "A", "sep"))
    assert encode.lay_out([7, 8], None, xlm, max_length=9, pooling="first").anchor == 0
    for end in ("eos", "sep"):
        mbart = replace(toy.vocab, eos=3, single=("A", end, "mask"))
        row = encode.lay_out([7, 8], None, mbart, max_length=9, pooling="last")
        assert (row.ids, row.anchor) == ([7, 8, 3, toy.vocab.mask], 2)
