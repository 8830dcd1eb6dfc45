"""Batches by tokens: the rule as a loop, every row once, the processes together, and a resume."""

import numpy as np
import pytest

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.seq2seq import Seq2Seq
from plmctl.data.loader import Loader, RowSource
from plmctl.data.token_batches import TokenBatchReader, plan_by_tokens
from plmctl.tasks.batches import Batches

TOKENS = 90


def batches_by_loop(lengths, tokens, multiple=8):
    """The sizes of the batches of fairseq's rule, one row after the other."""
    made, batch = [], []
    for length in sorted(lengths):
        if (len(batch) + 1) * max([*batch, length]) > tokens:
            n = len(batch)
            cut = max(multiple * (n // multiple), n % multiple)
            made.append(batch[:cut])
            batch = batch[cut:]
        batch.append(length)
    return [*made, batch]


@pytest.mark.parametrize("tokens", [20, 90, 400])
def test_batches_are_those_of_a_loop_over_the_sorted_rows(tokens):
    lengths = np.random.default_rng(tokens).integers(1, 20, 300)
    plans = [plan_by_tokens(lengths, tokens, draws=Draws(1, epoch)) for epoch in (0, 1)]
    for made in plans:
        wanted = batches_by_loop(lengths.tolist(), tokens)
        assert sorted(sorted(lengths[batch].tolist()) for batch in made) == sorted(wanted)
        assert sorted(np.concatenate(made).tolist()) == list(range(300))
    assert [b.tolist() for b in plans[0]] != [b.tolist() for b in plans[1]]


@pytest.mark.parametrize(
    ("lengths", "tokens", "sizes"),
    [((3, 3, 4, 5, 5, 6, 7, 8), 20, [2, 2, 4]), ((2,) * 13, 20, [5, 8])],
)
def test_published_examples(lengths, tokens, sizes):
    made = plan_by_tokens(np.array(lengths), tokens, draws=Draws(0, 0))
    assert sorted(map(len, made)) == sizes


def test_neighbours_stay_together_and_count_with_all_their_rows():
    rng = np.random.default_rng(4)
    length, size = rng.integers(2, 12, 90), rng.integers(1, 5, 90)
    counts = set()
    for epoch in range(4):
        made = plan_by_tokens(length, TOKENS, draws=Draws(0, epoch), size=size)
        assert all(size[batch].sum() * length[batch].max() <= TOKENS for batch in made)
        counts.add(len(made))
    assert len(counts) == 1  # an epoch has always as many updates


def rows_of(lengths):
    """Rows whose target, the second sequence, is the longer one of every second row."""
    short = np.maximum(1, lengths // 2)
    odd = np.arange(len(lengths)) % 2 == 1
    sides = {"source": np.where(odd, short, lengths), "target": np.where(odd, lengths, short)}
    ids = np.ones((len(lengths), int(lengths.max())), np.int64)
    seqs = {name: Seq(ids, length) for name, length in sides.items()}
    return Rows(key=np.arange(len(lengths)), seqs=seqs)


def test_tasks_share_a_batch_and_resume_in_the_middle_of_an_epoch():
    rows = rows_of(np.random.default_rng(2).integers(1, 30, 60))
    settings = {"batch_size": 4, "micro_batch_size": None, "seed": 7, "batch_tokens": TOKENS}
    whole = Batches(rows, **settings)
    ranks = [Batches(rows, **settings, world=2, rank=rank) for rank in (0, 1)]
    seen, updates = [], whole.updates_per_epoch
    for number in range(2 * updates):
        (batch,) = next(whole)
        assert len(batch.key) * max(seq.ids.shape[1] for seq in batch.seqs.values()) <= TOKENS
        parts = [part for stream in ranks for part in next(stream) if not part.spare]
        assert [key for part in parts for key in part.key.tolist()] == batch.key.tolist()
        seen.append(batch.key.tolist())
        if number == updates // 2:
            other = Batches(rows, **settings)
            other.load_state_dict(whole.state_dict())
    rest = seen[updates // 2 + 1 :]
    assert [next(other)[0].key.tolist() for _ in rest] == rest
    assert sorted(key for keys in seen[:updates] for key in keys) == list(range(60))
    with pytest.raises(ConfigError, match=f"at least {rows.seqs['source'].ids.shape[1]}"):
        Batches(rows, **{**settings, "batch_tokens": 3})


@pytest.fixture
def parallel(shards_of):
    sizes = np.random.default_rng(0).integers(1, 14, (70, 2)).tolist()
    shards = shards_of([list(pair) for pair in sizes])
    shards.pairs = True
    return shards


def reader_of(shards, vocab, *, world=1, rank=0):
    fmt = Seq2Seq(vocab=vocab, max_length=20, target_length=20, truncated=True)
    settings = {"seed": 3, "batch_size": 4, "world": world, "rank": rank}
    return TokenBatchReader(shards, fmt, tokens=TOKENS, **settings)


def loader_of(reader):
    return Loader({"text": RowSource(reader, cut=True)}, micro_batch_size=TOKENS, prefetch=0)


def test_parallel_text_is_cut_to_its_longest_row_shared_and_resumed(parallel, vocab):
    reader = reader_of(parallel, vocab)
    whole = loader_of(reader)
    ranks = [loader_of(reader_of(parallel, vocab, world=3, rank=rank)) for rank in range(3)]
    seen, updates = [], int(reader.updates_per_epoch)
    for number in range(2 * updates):
        (batch,) = next(whole)
        longest = [int(seq.length.max()) for seq in batch.seqs.values()]
        assert [seq.ids.shape[1] for seq in batch.seqs.values()] == longest
        assert len(batch.key) * max(longest) <= TOKENS
        parts = [part for loader in ranks for part in next(loader) if not part.spare]
        assert [key for part in parts for key in part.key.tolist()] == batch.key.tolist()
        seen.append(batch.key.tolist())
        if number == updates // 2:
            other = loader_of(reader_of(parallel, vocab))
            other.load_state_dict(whole.state_dict())
    rest = seen[updates // 2 + 1 :]
    assert [next(other)[0].key.tolist() for _ in rest] == rest
    assert sorted(key for keys in seen[:updates] for key in keys) == list(range(70))


def test_a_format_that_fills_its_rows_is_refused(random_shards_of, vocab):
    fmt = Blocks(vocab=vocab, max_length=32, crossing=False, specials=True)
    with pytest.raises(ConfigError, match="Blocks fills all rows to the same length") as raised:
        TokenBatchReader(random_shards_of(30), fmt, tokens=640, seed=0, batch_size=20)
    assert raised.value.fix == "train.batch_tokens=null train.batch_size=20"
