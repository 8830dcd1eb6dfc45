import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.data.formats.stream_pair import StreamPair

CLS, SEP, EOS = 2, 3, 5
T, R = 40, 16


def make(vocab, **options):
    settings = {
        "max_length": T,
        "reuse_length": R,
        "streams": 4,
        "random_rate": 0.5,
        "reversed": False,
    } | options
    return StreamPair(vocab=vocab, **settings)


def all_rows(fmt, shards, epoch=0):
    plan = fmt.plan(shards, seed=2, epoch=epoch, input_length=fmt.max_length)
    return plan, fmt.rows(shards, plan, np.arange(plan.rows))


def streams_of(shards, count, backward):
    """(tokens, sentence numbers) of each stream: documents closed by end-of-text, which belongs
    to the last sentence.
    """
    text, number = [], []
    for document in shards.texts():
        for sentence in document:
            text += sentence
            number += [number[-1] + 1 if number else 0] * len(sentence)
        text.append(EOS)
        number.append(number[-1])
    each = len(text) // count
    cut = [
        (text[b * each : (b + 1) * each], number[b * each : (b + 1) * each]) for b in range(count)
    ]
    return [(t[::-1], n[::-1]) for t, n in cut] if backward else cut


def trimmed(a, b):
    """Ends of (begin, end) stretches after taking tokens from the longer one's end, one by one."""
    (a0, a1), (b0, b1) = a, b
    while a1 - a0 + b1 - b0 > T - R - 3:
        if a1 - a0 > b1 - b0:
            a1 -= 1
        else:
            b1 -= 1
    return (a0, a1), (b0, b1)


def tails(text, number, begin, follows):
    """Every (A, B) that the published loop may draw after `begin`."""
    tot, end, cuts = T - R - 3, begin + 1, []
    while end < len(text):
        if number[end] != number[end - 1]:
            if end - begin >= tot:
                break
            cuts.append(end)
        end += 1
    if follows:
        return [trimmed((begin, c), (c, end)) for c in cuts]
    found = []
    for a_end in cuts or [end]:
        need = max(1, tot - (a_end - begin))
        for place in range(len(text) - need):
            b0, b1 = place, place + need
            while b0 > 0 and number[b0 - 1] == number[b0]:
                b0 -= 1
            while b1 < len(text) - 1 and number[b1 - 1] == number[b1]:
                b1 += 1
            found.append(trimmed((begin, a_end), (b0, b1)))
    return found


def check_row(ids, segment, label, text, number, step):
    """One row against the published rules, with the stream in its own direction of reading."""
    begin = step * R + R
    assert ids[:R] == text[step * R : begin]
    assert ids[-2:] == [SEP, CLS]
    sep = ids.index(SEP)
    assert segment == [0] * (sep + 1) + [1] * (T - sep - 2) + [2]
    found = [
        (text[a0:a1], text[b0:b1])
        for (a0, a1), (b0, b1) in set(tails(text, number, begin, label == 0))
    ]
    assert (ids[R:sep], ids[sep + 1 : -2]) in found


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_follow_the_published_rules(random_shards_of, vocab, reverse):
    shards = random_shards_of(25, 1, longest=12)
    plan, rows = all_rows(make(vocab, reversed=reverse), shards)
    halves = 2 if reverse else 1
    streams = [s for back in (False, True)[:halves] for s in streams_of(shards, 4 // halves, back)]
    steps = (len(streams[0][0]) - T) // R + 1
    assert plan.rows == 4 * steps
    seq = rows.seqs["text"]
    assert seq.full
    for row in range(plan.rows):
        step, b = divmod(row, 4)
        check_row(
            seq.ids[row].tolist(),
            seq.tracks["segment"][row].tolist(),
            int(rows.labels["pair"][row]),
            *streams[b],
            step,
        )
        assert rows.values["continues"][row] == (step > 0)
        assert rows.values["reversed"][row] == (reverse and b >= 2)
    assert rows.anchors.tolist() == [[r, T - 1] for r in range(plan.rows)]
    report = plan.report
    assert report["tokens"] + report["repeated"] == report["laid_out"] + report["cut"]


def test_half_of_the_pairs_are_random(shards_of, vocab):
    shards = shards_of([[5] * 300 for _ in range(40)])
    plan, rows = all_rows(make(vocab), shards)
    random = rows.labels["pair"].sum()
    assert abs(random - plan.rows / 2) < 4 * np.sqrt(plan.rows / 4)
    assert plan.report["random_pairs"] == random
    _, rows = all_rows(make(vocab, random_rate=0.0), shards)
    assert not rows.labels["pair"].any()


def test_without_a_sentence_end_b_is_random(shards_of, vocab):
    _, rows = all_rows(make(vocab, random_rate=0.0, streams=1), shards_of([[2000]]))
    assert rows.labels["pair"].all()


def test_word_starts_of_reversed_rows(shards_of, vocab):
    """A word of three tokens, read backwards, starts at its third."""
    shards = shards_of([[30] * 60])
    shards.tracks["word_start"] = np.arange(len(shards.ids)) % 3 == 0
    _, rows = all_rows(make(vocab, reversed=True, streams=2), shards)
    seq = rows.seqs["text"]
    for row in np.flatnonzero(rows.values["reversed"]):
        tokens = seq.ids[row].astype(int) - 10
        for place in range(T):
            before = tokens[place - 1] if place else -1
            if tokens[place] >= 0 and before >= 0:
                assert seq.tracks["word_start"][row, place] == (tokens[place] % 3 == 2)


def test_epochs_and_copies(toy, vocab):
    one, two = (all_rows(make(vocab), toy, epoch)[1].seqs["text"].ids for epoch in (0, 1))
    assert np.array_equal(one[:, :R], two[:, :R])
    assert not np.array_equal(one, two)
    assert make(vocab, copies=3).copies == 3


def test_some_rows_are_those_of_all(toy, vocab):
    fmt = make(vocab, reversed=True)
    plan, rows = all_rows(fmt, toy)
    some = fmt.rows(toy, plan, np.array([7, 2, 1]))
    assert np.array_equal(some.seqs["text"].ids, rows.seqs["text"].ids[[7, 2, 1]])


def test_wrong_settings(vocab, shards_of):
    for wrong in (
        {"reuse_length": T - 4},
        {"reversed": True, "streams": 3},
        {"random_rate": 2.0},
        {"copies": 0},
    ):
        with pytest.raises(ConfigError):
            make(vocab, **wrong)
    assert make(vocab).plan(shards_of([[30]]), seed=0, epoch=0, input_length=T).rows == 0
