"""Words that rows read, against a loop over documents and their tokens."""

import itertools
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.data.counted_words import (
    FIELD,
    check_words,
    count_words,
    describe_repeats,
    mark_words,
    sum_words,
)
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.loader import Loader, RowSource
from plmctl.data.reader import RowReader
from plmctl.noise.base import Noise


@pytest.fixture
def shards(random_shards_of):
    """Documents of which some have fewer words than tokens, some more, and one has none."""
    made = random_shards_of(50, 5, longest=9)
    rng = np.random.default_rng(0)
    words = rng.integers(0, 40, len(made.documents) - 1)
    words[3] = 0
    made.counts = {"words": words, "characters": 6 * words}
    made.manifest = {"tokenizer": {"kind": "wordpiece"}, "settings": {"segment": None}}
    return made


def loop(shards):
    """The words of each token, by exact fractions of its document."""
    found = []
    for document, words in zip(shards.texts(), shards.counts["words"].tolist(), strict=True):
        size = sum(map(len, document))
        shares = [Fraction(words * k, size) for k in range(size + 1)]
        found += [int(b) - int(a) for a, b in itertools.pairwise(shares)]
    return found


def test_the_words_of_a_document_are_divided_among_its_tokens(shards, monkeypatch):
    assert mark_words(shards).tracks["words"].tolist() == loop(shards)
    monkeypatch.setattr("plmctl.data.counted_words.PART", 7)
    assert mark_words(shards).tracks["words"].tolist() == loop(shards)
    assert "words" not in shards.tracks  # the tokens that others read stay as they are


def test_an_epoch_has_exactly_the_words_of_the_text(shards, vocab):
    fmt = Blocks(vocab=vocab, max_length=24, crossing=True, specials=False)
    reader = RowReader(shards, fmt, seed=0, batch_size=4, wanted=frozenset({FIELD}))
    rows = sum_words(reader.rows(0, np.arange(reader.rows_per_epoch)))
    assert rows.values["words_read"].sum() == shards.counts["words"].sum() == count_words(shards)
    assert FIELD not in rows.names  # noise does not see the track
    assert shards.counts["words"].sum() > len(shards.ids) / 2


class Drop(Noise):
    """Leaves the first three tokens of each row."""

    def __call__(self, rows, draws):
        from dataclasses import replace

        seq = rows.seqs["text"]
        kept = replace(seq, ids=seq.ids[:, :3], length=np.minimum(seq.length, 3), tracks={})
        return rows.with_seq("text", kept)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("micro", [1, 5])
def test_words_are_those_before_noise_whatever_the_cut(shards, vocab, ranks, micro):
    fmt = SentencePair(vocab=vocab, max_length=32, short_rate=0.2, random_rate=0.5)
    totals = []
    for rank in range(ranks):
        reader = RowReader(
            shards,
            fmt,
            seed=0,
            batch_size=10,
            world=ranks,
            rank=rank,
            wanted=frozenset({FIELD, "tracks.segment"}),
        )
        source = RowSource(reader, Drop())
        with Loader({"text": source}, micro_batch_size=micro, prefetch=0) as loader:
            totals.append([sum(b.counts["words"] for b in next(loader)) for _ in range(9)])
    words = loop(shards)
    first = int(shards.ids[0])
    reader = RowReader(shards, fmt, seed=0, batch_size=10)
    position, expected = reader.position, []
    for _ in range(9):
        picks, position = reader.take(position)
        ids = np.concatenate([part.rows.seqs["text"].ids.ravel() for part in reader.parts(picks)])
        expected.append(sum(words[token - first] for token in ids.tolist() if token >= first))
    assert np.sum(totals, axis=0).tolist() == expected


def test_marked_words_count_where_a_segmenter_has_marked_them(shards):
    starts = np.arange(len(shards.ids)) % 3 == 0
    shards.tracks["word_start"] = starts
    assert mark_words(shards).tracks["words"].tolist() == starts.astype(int).tolist()
    assert count_words(shards) == starts.sum()
    # the track of a tokenizer of characters also marks signs, which are no words
    shards.manifest["tokenizer"]["kind"] = "char"
    assert mark_words(shards).tracks["words"].tolist() == loop(shards)
    shards.manifest["settings"]["segment"] = "jieba"
    assert count_words(shards) == starts.sum()


def test_a_text_without_spaces_has_no_words():
    counts = {"words": np.array([2]), "characters": np.array([80])}
    manifest = {"tokenizer": {"kind": "wordpiece"}}
    ids = np.arange(3)
    text = SimpleNamespace(counts=counts, manifest=manifest, tracks={}, given="zh.txt", ids=ids)

    def english(ids):
        return "one two"

    def chinese(ids):
        return "今天下雨。" if list(ids) == [0, 1, 2] else ""

    with pytest.raises(ConfigError, match=r"zh\.txt has 40 characters.*\n.*data\.segment=jieba"):
        check_words([text], english, "train.words", 1000)
    counts["characters"] = np.array([14])
    check_words([text], english, "train.words", 1000)
    with pytest.raises(ConfigError, match=r"zh\.txt has 7 characters"):  # short sentences
        check_words([text], chinese, "train.words", 1000)


def test_a_format_without_the_track_is_refused(random_shards_of, vocab):
    made = random_shards_of(4, 5)
    made.counts = {"words": np.ones(4, np.int64)}
    made.manifest = {"tokenizer": {"kind": "wordpiece"}}

    class Bare(Blocks):
        def rows(self, shards, plan, index, wanted=None):
            return super().rows(shards, plan, index, frozenset())

    reader = RowReader(
        made,
        Bare(vocab=vocab, max_length=8, crossing=True, specials=False),
        seed=0,
        batch_size=2,
        wanted=frozenset({FIELD}),
    )
    with pytest.raises(ConfigError, match=r"train\.words=null"):
        reader.rows(0, np.arange(1))


def test_repeats_are_described(shards):
    whole = count_words(shards)
    line = describe_repeats([shards, shards], 5 * whole)
    assert "2.50 times" in line
    assert f"{2 * whole:,} words" in line
    assert describe_repeats([shards], whole) == ""
