import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.data.formats.segments import Segments
from plmctl.data.reader import ReadPosition, RowReader

EOS, IGNORE = 5, -100


def make(vocab, length=16, streams=4, shuffled=False):
    return Segments(vocab=vocab, max_length=length, streams=streams, shuffled=shuffled)


def text_of(documents):
    return [t for d in documents for t in [t for s in d for t in s] + [EOS]]


def batches(reader, count):
    """The rows of `count` batches of one rank, and their keys."""
    position, found = ReadPosition(), []
    for _ in range(count):
        picks, position = reader.take(position)
        found.append(reader.rows(int(picks.epoch[0]), picks.index))
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("streams", [1, 4, 7])
@pytest.mark.parametrize("length", [5, 16, 100])
def test_streams_are_equal_parts_of_the_text(toy, vocab, streams, length):
    """The loop of the published code: cut the text in equal parts, step t takes tokens [tT,
    (t+1)T) of each.
    """
    text = text_of(toy.texts())
    each = len(text) // streams
    parts = [text[b * each : (b + 1) * each] for b in range(streams)]
    fmt = make(vocab, length, streams)
    steps = -(-each // length)
    reader = RowReader(toy, fmt, seed=0, batch_size=streams, input_length=length)
    assert reader.plan(0).rows == steps * streams
    for step, rows in enumerate(batches(reader, steps)):
        seq = rows.seqs["text"]
        assert rows.values["continues"].tolist() == [step > 0] * streams
        for b in range(streams):
            wanted = parts[b][step * length : (step + 1) * length]
            assert seq.ids[b, : seq.length[b]].tolist() == wanted
            following = (parts[b] + [IGNORE])[step * length + 1 : (step + 1) * length + 1]
            assert rows.targets["clm"][b].tolist() == following + [IGNORE] * (
                length - len(following)
            )


def test_report_counts_what_does_not_share_out(toy, vocab):
    plan = make(vocab, 16, 7).plan(toy, seed=0, epoch=0, input_length=16)
    report = plan.report
    assert report["tokens"] == report["laid_out"] + report["cut"]
    assert 0 < report["cut"] < 7
    assert report["laid_out"] + report["specials"] + report["padding"] == plan.rows * 16
    assert report["padding"] < 7 * 16


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_keep_their_streams(toy, vocab, world):
    fmt = make(vocab, 16, 8)
    alone = batches(RowReader(toy, fmt, seed=0, batch_size=8), 5)
    ranks = [
        batches(RowReader(toy, fmt, seed=0, batch_size=8, world=world, rank=r), 5)
        for r in range(world)
    ]
    for step, whole in enumerate(alone):
        shares = [rank[step].seqs["text"].ids for rank in ranks]
        assert np.array_equal(np.concatenate(shares), whole.seqs["text"].ids)


def test_epochs_start_anew(toy, vocab):
    fmt = make(vocab, 16, 4)
    reader = RowReader(toy, fmt, seed=0, batch_size=4)
    steps = reader.plan(0).rows // 4
    rows = batches(reader, steps + 2)
    assert [bool(r.values["continues"].all()) for r in rows] == [False] + [True] * (steps - 1) + [
        False,
        True,
    ]
    assert not rows[steps].values["continues"].any()
    assert np.array_equal(rows[0].seqs["text"].ids, rows[steps].seqs["text"].ids)
    assert fmt.copies == 1


def test_shuffled_documents_come_in_a_new_order_each_epoch(toy, vocab):
    fmt = make(vocab, 16, 1, shuffled=True)
    assert fmt.copies is None
    wanted = sorted(text_of([d]) for d in toy.texts())
    texts = []
    for epoch in (0, 1):
        plan = fmt.plan(toy, seed=3, epoch=epoch, input_length=16)
        seq = fmt.rows(toy, plan, np.arange(plan.rows)).seqs["text"]
        texts.append(seq.ids[seq.real].tolist())
        ends = np.flatnonzero(np.array(texts[-1]) == EOS) + 1
        assert sorted(part.tolist() for part in np.split(np.array(texts[-1]), ends[:-1])) == wanted
    assert texts[0] != texts[1]
    again = fmt.plan(toy, seed=3, epoch=1, input_length=16)
    assert np.array_equal(again.arrays["start"], plan.arrays["start"])


def test_targets_only_where_they_are_wanted(toy, vocab):
    fmt = make(vocab)
    plan = fmt.plan(toy, seed=0, epoch=0, input_length=16)
    assert not fmt.rows(toy, plan, np.arange(3), frozenset()).targets
    assert fmt.rows(toy, plan, np.arange(3), frozenset({"targets.clm"})).targets


def test_wrong_settings(vocab):
    with pytest.raises(ConfigError, match="streams"):
        make(vocab, streams=0)
    with pytest.raises(ConfigError, match="max_length"):
        make(vocab, length=0)
