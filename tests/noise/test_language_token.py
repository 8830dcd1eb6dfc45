"""Texts that end with the token of their language, in source and target."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.base import Chain
from plmctl.noise.language_token import LanguageToken
from plmctl.noise.text_infill import TextInfill
from tests.noise.moving_rows import CLS, SEP, make_rows, make_vocab

V = make_vocab(unused=(50, 51, 52))


def in_languages(*, packed: bool) -> Rows:
    """Rows whose documents are in languages 0 to 2."""
    rows = make_rows(40, 50, packed=packed, short=True)
    seq = rows.seqs["text"]
    document = seq.tracks.get("document", np.zeros_like(seq.ids))
    language = np.where(seq.real, (document + np.arange(40)[:, None]) % 3, 0)
    return rows.with_seq("text", seq.with_tracks(language=language))


@pytest.mark.parametrize("packed", [False, True])
def test_each_document_ends_with_its_language(packed: bool) -> None:
    rows = in_languages(packed=packed)
    text = rows.seqs["text"]
    noised = LanguageToken(vocab=V)(rows, Draws(0, 0))
    for name in ("source", "target"):
        seq = noised.seqs[name]
        for r in range(40):
            own = text.tracks.get("document", np.zeros_like(text.ids))[r]
            edges = [0, *(np.flatnonzero(np.diff(own[: text.length[r]])) + 1), text.length[r]]
            for first, stop in pairwise(edges):
                before = text.ids[r, first:stop].tolist()
                language = 50 + int(text.tracks["language"][r, first])
                assert seq.ids[r, first:stop].tolist() == [*before[1:], language]
    assert "text" not in noised.seqs


def test_later_noise_leaves_the_language_alone() -> None:
    chain = Chain([LanguageToken(vocab=V), TextInfill(vocab=V, rate=0.35, mean_length=3.5)])
    noised = chain(in_languages(packed=False), Draws(0, 0))
    source, target = noised.seqs["source"], noised.seqs["target"]
    ends = (seq.ids[np.arange(40), seq.length - 1] for seq in (source, target))
    assert np.array_equal(*ends)
    assert (source.length < target.length).any()
    assert (target.ids[np.arange(40), target.length - 2] == SEP).all()


def test_what_is_missing_is_named() -> None:
    rows = in_languages(packed=False)
    with pytest.raises(ConfigError, match=r"tokenizer\.unused=3"):
        LanguageToken(vocab=make_vocab(unused=(50, 51)))(rows, Draws(0, 0))
    seq = rows.seqs["text"]
    plain = np.where(seq.ids == CLS, 210, seq.ids)
    bare = make_rows(40, 50, packed=False, short=True)
    bare = bare.with_seq("text", type(seq)(plain, seq.length, seq.tracks))
    with pytest.raises(ConfigError, match=r"format\.specials=true"):
        LanguageToken(vocab=V)(bare, Draws(0, 0))
