import threading
from dataclasses import replace

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.loader import Loader, RowSource, once
from plmctl.data.reader import RowReader
from plmctl.data.rows import join, make_blank
from plmctl.noise.base import Noise
from plmctl.noise.token_mask import TokenMask

torch = pytest.importorskip("torch")


def make_loader(
    toy,
    vocab,
    *,
    micro=4,
    batch=12,
    world=1,
    rank=0,
    fmt=None,
    seed=3,
    sources=("text",),
    **options,
):
    fmt = fmt or SentencePair(vocab=vocab, max_length=32, short_rate=0.1, random_rate=0.5)
    mask = TokenMask(vocab=vocab, rate=0.15)
    made = {
        name: RowSource(
            RowReader(toy, fmt, seed=seed + i, batch_size=batch, world=world, rank=rank),
            mask,
            weight=i + 1.0,
        )
        for i, name in enumerate(sources)
    }
    return Loader(made, micro_batch_size=micro, seed=seed, **options)


def cells_of(batches):
    """Everything of each row as bytes, in order, whatever the micro-batches."""
    found = []
    for batch in batches:
        hidden = torch.full((batch.text.ids.numel(),), IGNORE)
        hidden[batch.targets["mlm"].index[: batch.targets["mlm"].count]] = batch.targets["mlm"].ids[
            : batch.targets["mlm"].count
        ]
        hidden = hidden.view_as(batch.text.ids)
        found += [
            (int(k), *i.tolist(), *h.tolist(), int(p))
            for k, i, h, p in zip(
                batch.key, batch.text.ids, hidden, batch.labels["pair"], strict=True
            )
        ]
    return found


def updates(loader, count):
    with loader:
        return [cells_of(next(loader)) for _ in range(count)]


@pytest.mark.slow  # test_mixture.py has micro-batches
def test_micro_batches_threads_and_ranks_change_no_row(toy, vocab):
    count = 60  # over several epochs
    wanted = updates(make_loader(toy, vocab, prefetch=0), count)
    assert updates(make_loader(toy, vocab, micro=5, prefetch=3), count) == wanted
    assert updates(make_loader(toy, vocab, micro=1), count) == wanted
    ranks = [updates(make_loader(toy, vocab, world=3, rank=r), count) for r in range(3)]
    assert [a + b + c for a, b, c in zip(*ranks, strict=True)] == wanted


@pytest.mark.sampled(2)
@pytest.mark.parametrize("prefetch", [0, 4])
def test_resume_counts_consumed_updates_only(toy, vocab, prefetch):
    wanted = updates(make_loader(toy, vocab, prefetch=0), 40)
    for done in (0, 3, 19):
        loader = make_loader(toy, vocab, prefetch=prefetch)
        for _ in range(done):
            next(loader)
        state = loader.state_dict()
        assert state["step"] == done
        assert updates(loader, 3) == wanted[done : done + 3]
        again = make_loader(toy, vocab, prefetch=prefetch)
        next(again)  # loading restarts a running thread
        again.load_state_dict(state)
        assert updates(again, 5) == wanted[done : done + 5]


def test_micro_batch_sizes(toy, vocab):
    loader = make_loader(toy, vocab, micro=5, batch=12)
    assert [len(batch.key) for batch in next(loader)] == [5, 5, 2]
    loader.close()


@pytest.mark.slow  # test_mixture.py compares with the loop
def test_together_alternated_and_sampled(toy, vocab):
    with make_loader(toy, vocab, sources=("text", "triples")) as loader:
        assert [b.source for b in next(loader)] == ["text"] * 3 + ["triples"] * 3
    with make_loader(toy, vocab, sources=("text", "triples"), schedule="alternated") as loader:
        assert [{b.source for b in next(loader)} for _ in range(3)] == [
            {"text"},
            {"triples"},
            {"text"},
        ]
    with make_loader(
        toy, vocab, sources=("text", "triples"), schedule="sampled", prefetch=0, batch=1
    ) as loader:
        drawn = [next(loader)[0].source for _ in range(600)]
    assert abs(drawn.count("triples") / 600 - 2 / 3) < 3 * np.sqrt(2 / 9 / 600)
    with make_loader(
        toy, vocab, sources=("text", "triples"), schedule="sampled", batch=2, world=2, rank=1
    ) as loader:
        assert [next(loader)[0].source for _ in range(30)] == drawn[:30]
    with pytest.raises(ConfigError, match="together, alternated, sampled"):
        make_loader(toy, vocab, schedule="alternating")


class Broken(Noise):
    def __call__(self, rows, draws):
        raise ZeroDivisionError("deliberate")


def test_an_error_in_the_thread_reaches_the_consumer(toy, vocab):
    reader = RowReader(
        toy, Blocks(vocab=vocab, max_length=16, crossing=True, specials=False), seed=0, batch_size=2
    )
    loader = Loader({"text": RowSource(reader, Broken())}, micro_batch_size=2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="deliberate"):
            next(loader)
    loader.close()


def test_close_ends_the_thread(toy, vocab):
    before = threading.active_count()
    loader = make_loader(toy, vocab)
    next(loader)
    assert threading.active_count() == before + 1
    loader.close()
    assert threading.active_count() == before
    assert loader.waited > 0


def test_objective_labels(toy, vocab):
    def next_token(rows):
        ids, length = rows.seqs["text"].ids, rows.seqs["text"].length
        labels = np.full(ids.shape, IGNORE, np.int64)
        labels[:, :-1] = ids[:, 1:]
        labels[np.arange(ids.shape[1]) >= length[:, None] - 1] = IGNORE
        return {"clm": labels}

    fmt = Blocks(vocab=vocab, max_length=16, crossing=True, specials=False)
    reader = RowReader(toy, fmt, seed=0, batch_size=4)
    batch = next(
        Loader({"text": RowSource(reader)}, micro_batch_size=4, labels=next_token, prefetch=0)
    )[0]
    target = batch.targets["clm"]
    assert len(target.ids) == 4 * 16
    assert target.count == batch.counts["clm"] == batch.counts["tokens"] - 4
    index = target.index[: target.count]
    assert torch.equal(batch.text.ids.flatten()[index + 1], target.ids[: target.count])


@pytest.mark.parametrize("world", [1, 3])
def test_once_reads_every_row_once_in_fixed_shapes(toy, vocab, world):
    keys, tokens, masked = [], 0, 0
    for rank in range(world):
        loader = make_loader(toy, vocab, world=world, rank=rank)
        for batch in once(loader.sources["text"], batch_size=7):
            assert batch.text.ids.shape == (7, 32)
            assert len(batch.anchors) == len(batch.labels["pair"]) == 7
            blanks = batch.key < 0
            assert (batch.text.length[blanks] == 0).all()
            assert (batch.labels["pair"][blanks] == IGNORE).all()
            assert batch.counts["rows"] == batch.counts["pair"] == int((~blanks).sum())
            rows = batch.targets["mlm"].index[: batch.targets["mlm"].count] // 32
            assert not blanks[rows].any()
            keys += batch.key[~blanks].tolist()
            tokens, masked = tokens + batch.counts["tokens"], masked + batch.counts["mlm"]
    report = loader.sources["text"].reader.plan(0).report
    assert sorted(keys) == list(range(len(keys)))
    assert len(keys) == loader.sources["text"].reader.plan(0).rows
    assert tokens == report["laid_out"] + report["specials"]
    assert masked > 0


def small_rows():
    seq = Seq(
        np.array([[7, 8, 9], [5, 6, 0]], np.uint16),
        np.array([3, 2]),
        {"word_start": np.ones((2, 3), bool), "segment": np.zeros((2, 3), np.int8)},
    )
    return Rows(
        key=np.array([4, 9]),
        seqs={"text": seq},
        targets={"mlm": np.array([[IGNORE, 1, IGNORE], [2, IGNORE, IGNORE]])},
        anchors=np.array([[0, 0], [0, 2], [1, 0]]),
        labels={"pair": np.array([0, 1, IGNORE]), "score": np.array([0.5, 1.0, 2.0], np.float32)},
        spans={"entity": np.array([[1, 0, 2]])},
        values={"example": np.array([3, 4])},
    )


def test_collate():
    batch = collate(small_rows(), {"mlm": 2})
    assert batch.targets["mlm"].index.tolist() == [1, 3, 0, 0]
    assert batch.targets["mlm"].ids.tolist() == [1, 2, IGNORE, IGNORE]
    assert batch.counts == {"mlm": 2, "pair": 2, "score": 3, "tokens": 5, "rows": 2}
    assert (
        batch.text.ids.dtype == batch.text.length.dtype == batch.labels["pair"].dtype == torch.int64
    )
    assert batch.text.tracks["word_start"].dtype == torch.bool
    assert batch.text.tracks["segment"].dtype == torch.int64
    assert batch.labels["score"].dtype == torch.float32
    assert batch.spans["entity"].tolist() == [[1, 0, 2]]
    assert not batch.text.full
    assert set(collate(small_rows(), {}, keep=frozenset({"tracks.segment"})).text.tracks) == {
        "segment"
    }
    with pytest.raises(ValueError, match="promised at most 0"):
        collate(small_rows(), {"mlm": 0})


def test_full_batches_say_so():
    rows = small_rows()
    seq = rows.seqs["text"]
    assert collate(rows.with_seq("text", replace(seq, length=np.array([3, 3]))), {}).text.full
    marked = replace(seq, length=np.array([3, 3])).with_tracks(
        real=np.array([[True] * 3, [True, False, True]])
    )
    assert not collate(rows.with_seq("text", marked), {}).text.full


def test_join_and_blank():
    both = join([small_rows(), small_rows(), make_blank(small_rows(), 2)])
    assert both.key.tolist() == [4, 9, 4, 9, -1, -1]
    assert both.anchors.tolist() == [
        [0, 0],
        [0, 2],
        [1, 0],
        [2, 0],
        [2, 2],
        [3, 0],
        [4, 0],
        [4, 2],
        [5, 0],
        [5, 2],
    ]
    assert both.spans["entity"].tolist() == [[1, 0, 2], [3, 0, 2]]
    assert both.labels["pair"].tolist() == [0, 1, IGNORE, 0, 1, IGNORE, *[IGNORE] * 4]
    assert both.seqs["text"].length.tolist() == [3, 2, 3, 2, 0, 0]
    assert (both.targets["mlm"][4:] == IGNORE).all()


def pair_rows():
    """Rows to read and to write, without a text: what denoising and translation make."""
    source = Seq(
        np.array([[7, 8, 9, 3], [5, 6, 0, 0]], np.int32),
        np.array([4, 2]),
        {"sentence": np.array([[0, 0, 1, 1], [0, 0, 0, 0]])},
    )
    target = Seq(
        np.array([[7, 8], [5, 0]], np.int32),
        np.array([2, 1]),
        {"segment": np.array([[1, 1], [1, 0]], np.int8)},
    )
    return Rows(
        key=np.array([4, 9]),
        seqs={"source": source, "target": target},
        targets={
            "mlm": np.array([[IGNORE, 1, IGNORE, 2], [IGNORE] * 4]),
            "clm": np.array([[8, IGNORE], [IGNORE, IGNORE]]),
        },
        spans={"chosen": np.array([[0, 1, 1], [0, 3, 1], [1, 0, 2]])},
        values={"continues": np.array([True, False])},
    )


def test_any_sequences_are_joined_blanked_and_collated():
    rows = join([pair_rows(), make_blank(pair_rows(), 1)])
    batch = collate(rows, {"mlm": 3})
    assert batch.seqs["source"].ids.tolist() == [[7, 8, 9, 3], [5, 6, 0, 0], [7, 7, 7, 7]]
    assert batch.seqs["target"].length.tolist() == [2, 1, 0]
    assert batch.targets["mlm"].index.tolist() == [1, 3, *[0] * 7]
    # flattened in the width of what is written
    assert batch.targets["clm"].index.tolist() == [0] * 6
    assert batch.targets["clm"].ids.tolist() == [8, *[IGNORE] * 5]
    assert batch.values["continues"].tolist() == [True, False, False]
    assert batch.values["continues"].dtype == torch.bool
    assert batch.spans["chosen"].tolist() == [[0, 1, 1], [0, 3, 1], [1, 0, 2]]
    assert batch.counts == {"mlm": 2, "clm": 1, "tokens": 9, "rows": 2}
    assert batch.input == "source"
    moved = batch.to("meta")
    assert (
        moved.seqs["target"].tracks["segment"].device.type
        == moved.values["continues"].device.type
        == "meta"
    )


def test_characters_of_words():
    ids = np.arange(12).reshape(1, 3, 4)
    words = Seq(np.array([[5, 6, 0]]), np.array([2]))
    spelled = Seq(ids, np.array([2]), view=True)
    rows = Rows(key=np.array([3]), seqs={"text": words, "characters": spelled})
    batch = collate(join([rows, make_blank(rows, 2)]), {})
    assert batch.seqs["characters"].ids.shape == (3, 3, 4)
    assert batch.seqs["characters"].ids[0].tolist() == ids[0].tolist()
    assert batch.counts["tokens"] == 2  # not twice
    assert (
        collate(replace(rows, seqs={"characters": rows.seqs["characters"]}), {}).counts["tokens"]
        == 2
    )


def test_joined_rows_take_their_places_and_everything_moves_with_them():
    """The new rows are 9 of the second part, 4 of the first, 9 of the first, 4 of the second."""
    moved = join(
        [small_rows(), replace(small_rows(), key=np.array([14, 19]))],
        [np.array([1, 2]), np.array([3, 0])],
    )
    assert moved.key.tolist() == [19, 4, 9, 14]
    assert moved.seqs["text"].ids.tolist() == [[5, 6, 0], [7, 8, 9], [5, 6, 0], [7, 8, 9]]
    assert moved.seqs["text"].length.tolist() == [2, 3, 2, 3]
    assert moved.seqs["text"].tracks["word_start"].shape == (4, 3)
    assert moved.targets["mlm"][:, 0].tolist() == [2, IGNORE, 2, IGNORE]
    assert moved.anchors.tolist() == [[0, 0], [1, 0], [1, 2], [2, 0], [3, 0], [3, 2]]
    assert moved.labels["pair"].tolist() == [IGNORE, 0, 1, IGNORE, 0, 1]
    assert moved.spans["entity"].tolist() == [[0, 0, 2], [2, 0, 2]]
    assert moved.values["example"].tolist() == [4, 3, 4, 3]


def test_require_looks_where_the_name_says():
    batch = collate(pair_rows(), {})
    assert batch.require("source") is batch.seqs["source"]
    assert batch.require("tracks.sentence") is batch.seqs["source"].tracks["sentence"]
    assert batch.require("target.tracks.segment") is batch.seqs["target"].tracks["segment"]
    assert batch.require("targets.clm") is batch.targets["clm"]
    assert batch.require("values.continues") is batch.values["continues"]
    assert batch.require("spans.chosen") is batch.spans["chosen"]
    for name in (
        "text",
        "tracks.segment",
        "target.tracks.sentence",
        "other.tracks.sentence",
        "targets.plm",
        "values.prefix",
    ):
        with pytest.raises(ConfigError, match=f"no part of this run gives '{name}'"):
            batch.require(name)
    assert collate(small_rows(), {}).require("tracks.segment").tolist() == [[0, 0, 0], [0, 0, 0]]
