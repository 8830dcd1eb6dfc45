"""Greedy and beam search write what `transformers` writes, hypothesis by hypothesis."""

from __future__ import annotations

import generation_peers as peers
import pytest

pytest.importorskip("transformers")
COUNT = 40  # tests/generation/equality_table.py: 200


@pytest.fixture(scope="module", params=list(peers.PEERS))
def peer(request: pytest.FixtureRequest) -> peers.Peer:
    return peers.PEERS[request.param]()


@pytest.mark.parametrize("name", list(peers.SETTINGS))
def test_the_same_texts(peer: peers.Peer, name: str) -> None:
    search, settings = peers.SETTINGS[name]
    if "forced_bos_token_id" in settings and not peer.source:
        pytest.skip("transformers forces the first token of encoder-decoders only")
    given = peers.prompts(COUNT)
    ours = peers.written_by_ours(peer, given, search)
    theirs = peers.written_by_theirs(peer, given, settings)
    assert [[peers.cut(text.ids, peer.end) for text in texts] for texts in ours] == theirs
    ends = [text.finished for texts in ours for text in texts]
    assert any(ends)
    assert not all(ends)
