"""Rows that lose their masks again and are read from left to right."""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.by_segment import BySegment
from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import IGNORE
from plmctl.core.draws import Draws
from plmctl.core.problems import PartContext
from plmctl.models.base import Backbone
from plmctl.noise.base import Chain
from plmctl.noise.causal_rows import CausalRows
from plmctl.noise.token_mask import TokenMask
from tests.noise.plain_rows import make_vocab
from tests.noise.test_every_noise_masking import made
from tests.noise.worded import worded

TWO = BySegment(parts=[Full(), Full(), Causal()])


@pytest.mark.parametrize("name", ["token_mask", "span_mask", "unilm_mask"])
@pytest.mark.parametrize("documents", [False, True])
def test_a_causal_row_is_the_row_before_noise(name, documents):
    rows, mask = worded(60, 40, documents=documents), made(name)
    masked = Chain([mask])(rows, Draws(0, 1))
    both = Chain([mask, CausalRows(share=0.5)])(rows, Draws(0, 1))
    causal = both.values["causal"]
    assert 15 < causal.sum() < 45
    clean, seq = rows.seqs["text"].ids, both.seqs["text"]
    assert np.array_equal(seq.ids[causal], clean[causal])
    assert (both.targets["mlm"][causal] == IGNORE).all()
    assert np.array_equal(seq.ids[~causal], masked.seqs["text"].ids[~causal])
    assert np.array_equal(both.targets["mlm"][~causal], masked.targets["mlm"][~causal])
    own = rows.seqs["text"].tracks["segment"]
    assert (seq.tracks["segment"] == np.where(causal[:, None], 2, own)).all()
    if "chosen" in masked.spans:
        left = masked.spans["chosen"][~causal[masked.spans["chosen"][:, 0]]]
        assert np.array_equal(both.spans["chosen"], left)


@pytest.mark.parametrize(
    ("share", "least", "most"), [(0.0, 0, 0), (0.25, 200, 300), (1.0, 1000, 1000)]
)
def test_the_share_of_causal_rows(share, least, most):
    rows = worded(1000, 10)
    noise = Chain([made("token_mask"), CausalRows(share=share)])
    assert least <= noise(rows, Draws(3, 0)).values["causal"].sum() <= most


def test_segments_of_pairs_stay_in_rows_with_masks():
    rows = worded(8, 12)
    own = (np.arange(12) > 5).astype(np.int8) * np.ones((8, 1), np.int8)
    rows = rows.with_seq("text", rows.seqs["text"].with_tracks(segment=own))
    noise = Chain([TokenMask(vocab=make_vocab(), rate=0.15), CausalRows(share=0.5)])
    both = noise(rows, Draws(0, 0))
    causal = both.values["causal"]
    assert 0 < causal.sum() < 8
    assert np.array_equal(both.seqs["text"].tracks["segment"][~causal], own[~causal])


def problems(pattern, segments=0):
    backbone = Backbone()
    backbone.pattern, backbone.embedding = pattern, Backbone()
    if segments:
        backbone.embedding.segment = type("Table", (), {"num_embeddings": segments})()
    return [
        str(each)
        for each in CausalRows(share=0.5).problems(
            "noise.causal_rows", PartContext(backbone=backbone)
        )
    ]


def test_a_pattern_in_which_causal_rows_look_ahead_is_refused():
    assert problems(TWO) == []
    assert problems(Causal()) == []
    (message,) = problems(Full())
    assert "pattern=two_modes" in message
    (message,) = problems(TWO, segments=2)
    assert "model.embedding.segments=0" in message
    assert problems(TWO, segments=3) == []
