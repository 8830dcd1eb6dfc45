import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.reader import ReadPosition, RowReader


@pytest.fixture
def blocks(vocab):
    return Blocks(vocab=vocab, max_length=32, crossing=False, specials=True)


def pairs_format(vocab):
    return SentencePair(vocab=vocab, max_length=32, short_rate=0.1, random_rate=0.5)


def pairs(picks):
    return list(zip(picks.epoch.tolist(), picks.index.tolist(), strict=True))


def stream(reader, batches, position=None):
    """(epoch, row) in the order of reading."""
    position, found = position or ReadPosition(), []
    for _ in range(batches):
        picks, position = reader.take(position)
        found += pairs(picks)
    return found, position


@pytest.mark.parametrize("batch_size", [1, 7, 500])
def test_every_row_once_an_epoch_over_epoch_ends(toy, vocab, batch_size):
    reader = RowReader(toy, pairs_format(vocab), seed=5, batch_size=batch_size)
    rows = [reader.plan(epoch).rows for epoch in range(3)]
    assert len(set(rows)) > 1  # epochs of this format differ in length
    found, _ = stream(reader, -(-sum(rows) // batch_size))
    wanted = [(epoch, int(row)) for epoch in range(3) for row in reader.order(epoch)]
    assert found[: sum(rows)] == wanted
    assert [sorted(r for e, r in wanted if e == epoch) for epoch in range(3)] == [
        list(range(n)) for n in rows
    ]
    assert wanted[: rows[0]] != sorted(wanted[: rows[0]])


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_share_each_global_batch(toy, blocks, world):
    alone = RowReader(toy, blocks, seed=1, batch_size=11)
    ranks = [
        RowReader(toy, blocks, seed=1, batch_size=11, world=world, rank=r) for r in range(world)
    ]
    position = ReadPosition()
    for _ in range(12):
        whole, after = alone.take(position)
        shares = [rank.take(position) for rank in ranks]
        assert {p for _, p in shares} == {after}
        assert [pair for picks, _ in shares for pair in pairs(picks)] == pairs(whole)
        position = after


def test_resume_at_any_place_with_other_batches_and_ranks(toy, vocab):
    reader = RowReader(toy, pairs_format(vocab), seed=5, batch_size=10)
    rows = reader.plan(0).rows
    whole, _ = stream(reader, 3 * rows // 10)
    for done in (0, 1, rows // 10, rows // 10 + 1, 2 * rows // 10):
        _, position = stream(reader, done)
        reader.position = position
        state = reader.state_dict()
        other = RowReader(toy, pairs_format(vocab), seed=5, batch_size=5)
        other.load_state_dict(state)
        found, _ = stream(other, 6, other.position)
        assert found == whole[done * 10 : done * 10 + 30]


def test_rows_are_a_function_of_epoch_and_index(toy, vocab):
    one, two = (RowReader(toy, pairs_format(vocab), seed=5, batch_size=4) for _ in range(2))
    two.plan(3)
    assert np.array_equal(
        one.rows(1, np.array([4, 2])).seqs["text"].ids,
        two.rows(1, np.array([4, 2])).seqs["text"].ids,
    )


def test_seed_epoch_and_stage_change_the_order(toy, blocks):
    reader = RowReader(toy, blocks, seed=1, batch_size=4)
    others = [
        RowReader(toy, blocks, seed=2, batch_size=4),
        RowReader(toy, blocks, seed=1, batch_size=4, stage=1),
    ]
    for order in [reader.order(1), *(other.order(0) for other in others)]:
        assert not np.array_equal(order, reader.order(0))
    assert np.array_equal(RowReader(toy, blocks, seed=1, batch_size=9).order(0), reader.order(0))


def test_copies_repeat_the_plan(toy, vocab):
    fmt = SentencePair(vocab=vocab, max_length=32, short_rate=0.1, random_rate=0.5, copies=2)
    reader = RowReader(toy, fmt, seed=1, batch_size=4)
    assert reader.plan(0).rows == reader.plan(2).rows
    some = np.arange(9)
    assert np.array_equal(
        reader.rows(1, some).seqs["text"].ids, reader.rows(3, some).seqs["text"].ids
    )
    assert not np.array_equal(reader.order(1), reader.order(3)[: len(reader.order(1))])


def test_a_new_stage_starts_afresh(toy, blocks):
    first = RowReader(toy, blocks, seed=1, batch_size=4)
    _, first.position = stream(first, 3)
    second = RowReader(toy, blocks, seed=1, batch_size=4, stage=1)
    second.load_state_dict(first.state_dict())
    assert second.position == ReadPosition(0, 0)


def test_other_data_are_refused(toy, blocks, vocab, random_shards_of):
    state = RowReader(toy, blocks, seed=1, batch_size=4).state_dict()
    longer = Blocks(vocab=vocab, max_length=64, crossing=False, specials=True)
    with pytest.raises(DataError, match="fingerprint differ"):
        RowReader(toy, longer, seed=1, batch_size=4).load_state_dict(state)
    with pytest.raises(DataError, match="seed differ"):
        RowReader(toy, blocks, seed=2, batch_size=4).load_state_dict(state)
    changed = random_shards_of(60)
    changed.fingerprint = "another corpus"
    with pytest.raises(DataError, match="other rows"):
        RowReader(changed, blocks, seed=1, batch_size=4).load_state_dict(state)


@pytest.mark.parametrize("lengths", [[], [[]], [[0]], [[], [0, 0]]])
def test_a_corpus_without_rows_is_refused(shards_of, vocab, blocks, lengths):
    for fmt in (
        blocks,
        pairs_format(vocab),
        Blocks(vocab=vocab, max_length=32, crossing=True, specials=False),
    ):
        with pytest.raises(DataError, match=r"max_length=32") as caught:
            RowReader(shards_of(lengths), fmt, seed=0, batch_size=2)
        assert "data.path" in str(caught.value)


def test_a_corpus_shorter_than_a_row_is_refused_for_training_only(shards_of, blocks):
    with pytest.raises(DataError, match="is filled by 20 tokens in 2 documents"):
        RowReader(shards_of([[10], [10]]), blocks, seed=0, batch_size=2)
    assert (
        RowReader(shards_of([[10], [10]]), blocks, seed=0, batch_size=2, allow_short=True)
        .plan(0)
        .rows
        == 1
    )


def test_once_gives_every_row_in_order_and_as_many_batches_on_each_rank(toy, blocks):
    rows = RowReader(toy, blocks, seed=1, batch_size=4).plan(0).rows
    for world in (1, 2, 3):
        ranks = [
            RowReader(toy, blocks, seed=1, batch_size=4, world=world, rank=r).once(4)
            for r in range(world)
        ]
        assert len({len(batches) for batches in ranks}) == 1
        found = [int(i) for step in zip(*ranks, strict=True) for index in step for i in index]
        assert found == list(range(rows))
