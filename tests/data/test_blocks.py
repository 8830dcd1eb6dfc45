import bisect
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.packing import best_fit_decreasing, cut_chunks

CLS, SEP, EOS, PAD = 2, 3, 5, 0


def all_rows(fmt, shards, length, epoch=0):
    plan = fmt.plan(shards, seed=1, epoch=epoch, input_length=length)
    return plan, fmt.rows(shards, plan, np.arange(plan.rows))


def loop_best_fit(sizes, capacity):
    """Algorithm 1 of the paper, literally: decreasing sizes, each into the row with the least
    room that still fits.
    """
    rows: list[list[int]] = []
    for size in sorted(sizes, reverse=True):
        fitting = [row for row in rows if sum(row) + size <= capacity]
        if fitting:
            min(fitting, key=lambda row: capacity - sum(row)).append(size)
        else:
            rows.append([size])
    return rows


@pytest.mark.parametrize("capacity", [7, 16, 40])
def test_packing_equals_the_loop(capacity):
    for seed in range(8):
        size = np.random.default_rng(seed).integers(1, capacity + 1, 150)
        order, row_start = best_fit_decreasing(size, capacity)
        assert sorted(order.tolist()) == list(range(150))
        mine = [int(size[order[a:b]].sum()) for a, b in pairwise(row_start)]
        wanted = [sum(row) for row in loop_best_fit(size.tolist(), capacity)]
        # among rows with the same room left the choice is free
        assert Counter(mine) == Counter(wanted)


def test_packing_of_nothing_and_of_one():
    assert best_fit_decreasing(np.array([], int), 4)[1].tolist() == [0]
    assert best_fit_decreasing(np.array([4]), 4)[1].tolist() == [0, 1]


def test_chunks():
    start, size = cut_chunks(np.array([0, 3, 10]), 3)
    assert start.tolist() == [0, 3, 6, 9]
    assert size.tolist() == [3, 3, 3, 1]


@pytest.mark.parametrize("length", [5, 16, 64])
def test_crossing_is_the_stream_cut_into_blocks(toy, vocab, length):
    plan, rows = all_rows(
        Blocks(vocab=vocab, max_length=length, crossing=True, specials=False), toy, length
    )
    stream = [
        token for document in toy.texts() for token in [t for s in document for t in s] + [EOS]
    ]
    wanted = [stream[i : i + length] for i in range(0, len(stream), length)]
    seq = rows.seqs["text"]
    assert [seq.ids[r, : seq.length[r]].tolist() for r in range(plan.rows)] == wanted
    assert (seq.ids[-1, seq.length[-1] :] == PAD).all()
    assert set(seq.tracks) == {"word_start", "sentence"}
    check_report(plan, toy, seq)


def check_report(plan, shards, seq):
    report = plan.report
    assert report["tokens"] + report["repeated"] == report["laid_out"] + report["cut"]
    assert (
        report["laid_out"] + report["specials"] + report["padding"]
        == plan.rows * plan.width
        == seq.ids.size
    )
    real = np.arange(seq.ids.shape[1]) < seq.length[:, None]
    assert (seq.ids[real] >= 10).sum() == report["laid_out"]
    assert ((seq.ids < 10) & real).sum() == report["specials"]


@pytest.mark.parametrize("specials", [True, False])
@pytest.mark.parametrize("length", [8, 33, 128])
def test_packed_documents(toy, vocab, length, specials):
    plan, rows = all_rows(
        Blocks(vocab=vocab, max_length=length, crossing=False, specials=specials), toy, length
    )
    seq = rows.seqs["text"]
    found = []
    for r in range(plan.rows):
        document, position = seq.tracks["document"][r], seq.tracks["position"][r]
        assert (document[seq.length[r] :] == -1).all()
        for d in range(document.max() + 1):
            inside = document == d
            assert position[inside].tolist() == list(range(inside.sum()))
            found.append(seq.ids[r, inside].tolist())
    around = 2 if specials else 0
    wanted = []
    for document in toy.texts():
        tokens = [t for s in document for t in s] + ([] if specials else [EOS])
        parts = [tokens[i : i + length - around] for i in range(0, len(tokens), length - around)]
        wanted += [[CLS, *part, SEP] if specials else part for part in parts]
    # each chunk of each document exactly once, none cut further
    assert sorted(found) == sorted(wanted)
    check_report(plan, toy, seq)
    assert plan.report["cut"] == 0


def test_packing_pads_little(random_shards_of, vocab):
    shards = random_shards_of(800)
    plan, _ = all_rows(
        Blocks(vocab=vocab, max_length=256, crossing=False, specials=True), shards, 256
    )
    assert plan.report["padding"] / (plan.rows * 256) < 0.01


def test_rows_do_not_depend_on_the_batch(toy, vocab):
    fmt = Blocks(vocab=vocab, max_length=32, crossing=False, specials=True)
    plan, whole = all_rows(fmt, toy, 32)
    picked = np.array([5, 0, 3])
    some = fmt.rows(toy, plan, picked)
    assert np.array_equal(some.seqs["text"].ids, whole.seqs["text"].ids[picked])
    for name, track in some.seqs["text"].tracks.items():
        assert np.array_equal(track, whole.seqs["text"].tracks[name][picked]), name
    assert some.key.tolist() == picked.tolist()


def test_full_flag_and_word_starts(shards_of, vocab):
    shards = shards_of([[8], [3]])
    fmt = Blocks(vocab=vocab, max_length=10, crossing=False, specials=True)
    plan, rows = all_rows(fmt, shards, 10)
    lengths = rows.seqs["text"].length
    assert sorted(lengths.tolist()) == [5, 10]
    assert not rows.seqs["text"].full
    assert fmt.rows(shards, plan, np.flatnonzero(lengths == 10)).seqs["text"].full
    assert np.array_equal(
        rows.seqs["text"].tracks["word_start"], vocab.word_start[rows.seqs["text"].ids]
    )


def test_word_starts_of_the_shards_come_first(shards_of, vocab):
    shards = shards_of([[8], [3]])
    shards.tracks["word_start"] = np.arange(11) % 3 == 0
    _, rows = all_rows(
        Blocks(vocab=vocab, max_length=14, crossing=False, specials=True), shards, 14
    )
    ids, found = rows.seqs["text"].ids, rows.seqs["text"].tracks["word_start"]
    tokens = ids >= 10
    assert np.array_equal(found[tokens], shards.tracks["word_start"][ids[tokens] - 10])
    assert np.array_equal(found[~tokens], vocab.word_start[ids[~tokens]])


def test_empty_documents_and_input_length(shards_of, vocab):
    shards = shards_of([[4], [], [0, 5, 0], []])
    for fmt in (
        Blocks(vocab=vocab, max_length=64, crossing=True, specials=False),
        Blocks(vocab=vocab, max_length=64, crossing=False, specials=False),
    ):
        plan, rows = all_rows(fmt, shards, 6)
        assert rows.seqs["text"].ids.shape[1] == 6
        assert (rows.seqs["text"].ids == EOS).sum() == 2
        check_report(plan, shards, rows.seqs["text"])


def test_wrong_settings(vocab):
    with pytest.raises(ConfigError, match=r"format\.specials"):
        Blocks(vocab=vocab, max_length=8, crossing=True, specials=True)
    with pytest.raises(ConfigError, match="more than the 2 special tokens"):
        Blocks(vocab=vocab, max_length=2, crossing=False, specials=True)


def test_plan_is_found_by_bisection_too(toy, vocab):
    """Row r of the crossing format begins r * length tokens into the stream, wherever that is."""
    fmt = Blocks(vocab=vocab, max_length=16, crossing=True, specials=False)
    plan = fmt.plan(toy, seed=0, epoch=0, input_length=16)
    ends = np.cumsum([sum(map(len, d)) + 1 for d in toy.texts()]).tolist()
    for r in range(plan.rows):
        document = bisect.bisect_right(ends, r * 16)
        token = r * 16 - document
        first = int(fmt.rows(toy, plan, np.array([r])).seqs["text"].ids[0, 0])
        assert first in (EOS, int(toy.ids[min(token, len(toy.ids) - 1)]))
