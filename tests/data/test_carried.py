"""Tracks and spans of the shards in the rows of every format, against a loop over tokens."""

import numpy as np
import pytest

from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.carried import count_lost_spans
from plmctl.data.formats.full_sentences import FullSentences
from plmctl.data.formats.prefix import Prefix
from plmctl.data.formats.segments import Segments
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.formats.stream_pair import StreamPair
from plmctl.data.shards import SpanTrack

FIRST = 10  # token t of the shards has the id FIRST + t


def formats(vocab):
    pair = {"vocab": vocab, "max_length": 40, "short_rate": 0.2}
    return {
        "blocks": Blocks(vocab=vocab, max_length=24, crossing=False, specials=True),
        "crossing": Blocks(vocab=vocab, max_length=24, crossing=True, specials=False),
        "full_sentences": FullSentences(vocab=vocab, max_length=24, crossing=True),
        "doc_sentences": FullSentences(vocab=vocab, max_length=24, crossing=False, packed=True),
        "sentence_pair": SentencePair(**pair, random_rate=0.5),
        "sentence_structure": SentencePair(**pair, random_rate=0.3, swap_rate=0.3, packed=True),
        "prefix": Prefix(**pair, target_length=20),
        "segments": Segments(vocab=vocab, max_length=24, streams=4, shuffled=True),
        "stream_pair": StreamPair(
            vocab=vocab, max_length=40, reuse_length=16, streams=4, random_rate=0.5, reversed=True
        ),
    }


def marked(count, seed=0):
    """Spans of 1 to 6 tokens with gaps between; ids by number."""
    rng = np.random.default_rng(seed)
    gap, length = rng.integers(0, 9, count), rng.integers(1, 7, count)
    start = np.cumsum(gap + length) - length
    return SpanTrack(start.astype(np.int64), length.astype(np.int32), np.arange(count) + 1000)


def laid(fmt, shards, wanted=None):
    plan = fmt.plan(shards, seed=1, epoch=0, input_length=fmt.max_length)
    return plan, fmt.rows(shards, plan, np.arange(plan.rows), wanted)


@pytest.fixture
def shards(random_shards_of):
    made = random_shards_of(60, 3, longest=12)
    made.tracks["sense"] = np.arange(len(made.ids), dtype=np.int32) * 3 + 1
    spans = marked(400)
    inside = spans.start + spans.length <= len(made.ids)
    made.spans["entity"] = SpanTrack(*(x[inside] for x in spans))
    return made


NAMES = [
    "blocks",
    "crossing",
    "full_sentences",
    "doc_sentences",
    "sentence_pair",
    "sentence_structure",
    "prefix",
    "segments",
    "stream_pair",
]


@pytest.mark.parametrize("name", NAMES)
def test_tracks_go_with_their_tokens(shards, vocab, name):
    plan, rows = laid(formats(vocab)[name], shards)
    seq = rows.seqs["text"]
    text = seq.ids >= FIRST
    assert np.array_equal(seq.tracks["sense"][text], shards.tracks["sense"][seq.ids[text] - FIRST])
    assert (seq.tracks["sense"][~text] == 0).all()
    report = plan.report
    assert text.sum() == report["laid_out"]
    assert (
        report["tokens"] + report["repeated"]
        == report["laid_out"] + report["cut"] + report["dropped"]
    )
    assert report["laid_out"] + report["specials"] + report["padding"] == seq.ids.size


@pytest.mark.parametrize("name", NAMES)
def test_sentences_are_numbered_where_they_change(shards, vocab, name):
    _, rows = laid(formats(vocab)[name], shards)
    seq = rows.seqs["text"]
    sentence_of = np.repeat(np.arange(len(shards.sentences) - 1), np.diff(shards.sentences))
    assert ((seq.tracks["sentence"] == -1) == ~seq.real).all()
    for ids, length, number in zip(seq.ids, seq.length, seq.tracks["sentence"], strict=True):
        place = np.flatnonzero(ids[:length] >= FIRST)
        if not len(place):
            continue
        token = ids[place].astype(int) - FIRST
        true, found = sentence_of[token], number[place]
        step = np.abs(np.diff(token)) == 1
        # neighbours in the text that are neighbours in the row
        joined = step & (np.diff(place) == 1)
        assert np.array_equal(np.diff(found)[joined] != 0, np.diff(true)[joined] != 0)
        assert len(set(zip(true.tolist(), found.tolist(), strict=True))) == len(set(found.tolist()))
        assert set(number[:length].tolist()) == set(range(number.max() + 1))


@pytest.mark.parametrize("name", NAMES)
def test_spans_go_with_their_tokens_and_are_dropped_when_cut(shards, vocab, name):
    plan, rows = laid(formats(vocab)[name], shards)
    seq, table = rows.seqs["text"], rows.spans["entity"]
    assert table.dtype == np.int64
    entity = shards.spans["entity"]
    token = np.where(seq.ids >= FIRST, seq.ids.astype(int) - FIRST, -1)
    wanted = []
    for r, row in enumerate(token):
        at = {}
        for place, t in enumerate(row.tolist()):
            at.setdefault(t, []).append(place)
        for start, length, name_ in zip(*(x.tolist() for x in entity), strict=True):
            for place in at.get(start, []):
                for step in (1, -1):
                    places = [place + step * i for i in range(length)]
                    inside = min(places) >= 0 and max(places) < len(row)
                    if inside and [row[p] for p in places] == list(range(start, start + length)):
                        wanted.append((r, min(places), length, name_))
                        break
    assert sorted(map(tuple, table.tolist())) == sorted(wanted)
    assert plan.report.get("entity_spans_lost", 0) == len(entity.start) - len(
        {w[3] for w in wanted}
    )


def test_only_what_is_wanted_is_made(shards, vocab):
    for fmt in formats(vocab).values():
        _, rows = laid(fmt, shards, frozenset({"tracks.sentence"}))
        assert {"sentence"} == set(rows.seqs["text"].tracks) & {"sentence", "word_start", "sense"}
        assert not rows.spans
        _, rows = laid(fmt, shards, frozenset({"spans.entity", "tracks.sense"}))
        assert {"sense"} == set(rows.seqs["text"].tracks) & {"sentence", "word_start", "sense"}
        assert len(rows.spans["entity"])


def test_formats_provide_what_they_lay(shards, vocab):
    assert list(formats(vocab)) == NAMES
    for name, fmt in formats(vocab).items():
        _, rows = laid(fmt, shards)
        given = {
            "text",
            *(f"tracks.{x}" for x in rows.seqs["text"].tracks),
            *(f"labels.{x}" for x in rows.labels),
        }
        given |= {f"values.{x}" for x in rows.values} | {f"targets.{x}" for x in rows.targets}
        given |= {"anchors"} if rows.anchors is not None else set()
        assert given - {"tracks.sense"} == fmt.provides, name


def test_spans_at_the_edges_of_pieces():
    spans = {"entity": SpanTrack(np.array([0, 4, 8]), np.array([3, 4, 2]), np.array([1, 2, 3]))}

    def lost(*pieces: tuple[int, int]) -> dict[str, int]:
        return count_lost_spans(spans, *(np.array(x) for x in zip(*pieces, strict=True)))

    assert lost((0, 10)) == {}
    assert lost((0, 3), (3, 5), (8, 2)) == {}
    assert lost((0, 2), (2, 8)) == {"entity_spans_lost": 1}
    assert lost((0, 5), (5, 4)) == {"entity_spans_lost": 2}
    assert lost((0, 4), (0, 4)) == {"entity_spans_lost": 2}
