"""Greedy and beam search write what `transformers` writes, hypothesis by hypothesis."""

from __future__ import annotations

import numpy as np
import pytest

from tests.generation import generation_peers as peers

pytest.importorskip("transformers")
COUNT = 24  # tests/generation/equality_table.py: 200


@pytest.fixture(scope="module", params=list(peers.PEERS))
def peer(request: pytest.FixtureRequest) -> peers.Peer:
    return peers.PEERS[request.param]()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", list(peers.SETTINGS))
def test_the_same_texts(peer: peers.Peer, name: str) -> None:
    search, settings = peers.SETTINGS[name]
    if "forced_bos_token_id" in settings and not peer.source:
        pytest.skip("transformers forces the first token of encoder-decoders only")
    given = peers.prompts(COUNT)
    ours = peers.written_by_ours(peer, given, search)
    theirs = peers.written_by_theirs(peer, given, settings)
    assert [[peers.cut(text.ids, peer.end) for text in texts] for texts in ours] == theirs


def test_some_texts_end_by_themselves(peer: peers.Peer) -> None:
    ours = peers.written_by_ours(peer, peers.prompts(60), peers.SETTINGS["beam 4"][0])
    assert 0.01 < np.mean([text.finished for texts in ours for text in texts]) < 0.9
