"""Streams read from both ends, against lists: what comes next in each direction, from batch to
batch.
"""

from __future__ import annotations

import pytest

from plmctl.data.formats.segments import Segments
from plmctl.data.reader import RowReader
from tests.data.test_segments import batches, text_of

IGNORE = -100


@pytest.mark.sampled(3)
@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("length", [5, 16])
def test_the_reverse_is_the_stream_from_its_end(toy, vocab, streams, length):
    text = text_of(toy.texts())
    each = len(text) // streams
    fmt = Segments(vocab=vocab, max_length=length, streams=streams, shuffled=False, both=True)
    steps = -(-each // length)
    found = [[] for _ in range(streams)]
    asked = [[] for _ in range(streams)]
    for rows in batches(
        RowReader(toy, fmt, seed=0, batch_size=streams, input_length=length), steps
    ):
        seq, target = rows.seqs["reverse"], rows.targets["backward"]
        assert rows.seqs["text"].ids.shape == seq.ids.shape
        for b in range(streams):
            assert (target[b, seq.length[b] :] == IGNORE).all()
            found[b] += seq.ids[b, : seq.length[b]].tolist()
            asked[b] += target[b, : seq.length[b]].tolist()
    for b in range(streams):
        wanted = text[b * each : (b + 1) * each][::-1]
        assert found[b] == wanted
        assert asked[b] == [*wanted[1:], IGNORE]


def test_only_where_it_is_asked_for(toy, vocab):
    plain = Segments(vocab=vocab, max_length=8, streams=2, shuffled=False)
    assert "reverse" not in plain.provides
    both = Segments(vocab=vocab, max_length=8, streams=2, shuffled=True, both=True)
    assert {"reverse", "targets.backward"} <= both.provides
