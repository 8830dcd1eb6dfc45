"""Greedy and beam search write what `transformers` writes, hypothesis by hypothesis."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.generation.contrastive import Contrastive
from tests.generation import generation_peers as peers

pytest.importorskip("transformers")
COUNT = 24  # tests/generation/equality_table.py: 200


@pytest.fixture(scope="module", params=list(peers.PEERS))
def peer(request: pytest.FixtureRequest) -> peers.Peer:
    return peers.PEERS[request.param]()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", list(peers.SETTINGS))
def test_the_same_texts(peer: peers.Peer, name: str) -> None:
    search, settings = peers.SETTINGS[name]
    if "forced_bos_token_id" in settings and not peer.source:
        pytest.skip("transformers forces the first token of encoder-decoders only")
    given = peers.prompts(COUNT)
    ours = peers.written_by_ours(peer, given, search)
    theirs = peers.written_by_theirs(peer, given, settings)
    assert [[peers.cut(text.ids, peer.end) for text in texts] for texts in ours] == theirs


def read(peer: peers.Peer, source: list[int], texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """([N, V] probabilities after each text, [N, T, W] the published last states)."""
    ids = torch.tensor(texts)
    given = {"input_ids": torch.tensor([source] * len(ids)), "decoder_input_ids": ids}
    given = given if peer.source else {"input_ids": ids}
    out = peer.theirs(**given, output_hidden_states=True)
    states = out.decoder_hidden_states if peer.source else out.hidden_states
    return out.logits[:, -1].softmax(-1), states[-1]


@torch.no_grad()
def test_contrastive_search_compares_the_published_states(peer: peers.Peer) -> None:
    """Su et al. (2022), eq. 5, with every beginning read anew; `transformers` has it no more."""
    search, given = Contrastive(top_k=4, alpha=0.6), peers.prompts(3)
    for ids, (text,) in zip(given, peers.written_by_ours(peer, given, search), strict=True):
        begin = [peer.theirs.config.decoder_start_token_id] if peer.source else ids
        written: list[int] = []
        p = read(peer, ids, [begin])[0][0]
        while len(written) < peers.NEW and peer.end not in written:
            best = p.topk(4).indices.tolist()
            after, states = read(peer, ids, [[*begin, *written, token] for token in best])
            near = torch.cosine_similarity(states[:, :-1], states[:, -1:], -1).amax(1)
            place = int((0.4 * p[best] - 0.6 * near).argmax())
            written.append(best[place])
            p = after[place]
        assert text.ids == peers.cut(written, peer.end)


def test_some_texts_end_by_themselves(peer: peers.Peer) -> None:
    ours = peers.written_by_ours(peer, peers.prompts(60), peers.SETTINGS["beam 4"][0])
    assert 0.01 < np.mean([text.finished for texts in ours for text in texts]) < 0.9
