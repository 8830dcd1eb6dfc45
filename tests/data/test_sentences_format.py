"""format=sentences against a loop over the sentences."""

import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.data.formats.sentences import Sentences

CLS, SEP, PAD = 2, 3, 0


def laid(shards, vocab, length, least, input_length=None):
    fmt = Sentences(vocab=vocab, max_length=length, min_tokens=least)
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=input_length or length)
    return plan, fmt.rows(shards, plan, np.arange(plan.rows))


@pytest.mark.parametrize("least", [1, 4])
@pytest.mark.parametrize(("length", "input_length"), [(8, 8), (20, 20), (20, 16), (64, 64)])
def test_equals_the_loop(random_shards_of, vocab, length, input_length, least):
    shards = random_shards_of(25)
    wanted, cut, dropped = [], 0, 0
    for sentence in [sentence for document in shards.texts() for sentence in document]:
        if len(sentence) < least:
            dropped += len(sentence)
            continue
        cut += max(0, len(sentence) - (input_length - 2))
        wanted.append([CLS, *sentence[: input_length - 2], SEP])
    plan, rows = laid(shards, vocab, length, least, input_length)
    seq = rows.seqs["text"]
    assert [ids[:n].tolist() for ids, n in zip(seq.ids, seq.length, strict=True)] == wanted
    assert seq.ids.shape[1] == input_length
    assert (seq.ids[~seq.real] == PAD).all()
    assert rows.anchors.tolist() == [[row, 0] for row in range(len(wanted))]
    report = plan.report
    assert (report["cut"], report["dropped"]) == (cut, dropped)
    assert (
        report["tokens"]
        == report["laid_out"] + report["cut"] + report["dropped"]
        == len(shards.ids)
    )
    assert report["laid_out"] + report["specials"] + report["padding"] == seq.ids.size


def test_any_rows_in_any_order_and_sentences_without_tokens(shards_of, vocab):
    shards = shards_of([[3, 0, 5], [2], [7, 1]])
    fmt = Sentences(vocab=vocab, max_length=10, min_tokens=2)
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=10)
    whole = fmt.rows(shards, plan, np.arange(plan.rows)).seqs["text"]
    assert whole.length.tolist() == [5, 7, 4, 9]
    some = fmt.rows(shards, plan, np.array([3, 0])).seqs["text"]
    assert np.array_equal(some.ids, whole.ids[[3, 0]])
    other = fmt.plan(shards, seed=5, epoch=3, input_length=10)
    assert all(np.array_equal(plan.arrays[name], other.arrays[name]) for name in plan.arrays)


def test_nothing_is_left(shards_of, vocab):
    plan, rows = laid(shards_of([[1, 2], [1]]), vocab, 10, 3)
    assert plan.rows == 0
    assert plan.report["dropped"] == 4
    assert rows.anchors.shape == (0, 2)


def test_wrong_lengths(vocab):
    with pytest.raises(ConfigError, match="at least 7: the special tokens and min_tokens=5"):
        Sentences(vocab=vocab, max_length=6, min_tokens=5)
    with pytest.raises(ConfigError, match="at least 1"):
        Sentences(vocab=vocab, max_length=6, min_tokens=0)
