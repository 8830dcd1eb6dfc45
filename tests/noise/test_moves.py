"""What every noise that moves tokens must keep: tracks, spans and anchors, documents, special
tokens, the clean target.
"""

from dataclasses import replace

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.data.rows import join
from plmctl.noise.autoencode import Autoencode
from plmctl.noise.base import Chain, Noise, split_source
from plmctl.noise.document_rotate import DocumentRotate
from plmctl.noise.factorization_order import FactorizationOrder
from plmctl.noise.masking import share_out
from plmctl.noise.moves import keep_tokens, move_tokens, permute
from plmctl.noise.sentence_permute import SentencePermute
from plmctl.noise.sequence_span import SequenceSpan
from plmctl.noise.span_sentinel import SpanSentinel
from plmctl.noise.text_infill import TextInfill
from plmctl.noise.token_delete import TokenDelete
from plmctl.noise.token_mask import TokenMask
from plmctl.noise.token_shuffle import TokenShuffle
from plmctl.noise.word_blank import WordBlank
from plmctl.noise.word_drop import WordDrop
from plmctl.noise.word_shuffle import WordShuffle
from tests.noise.moving_rows import (
    CLS,
    EOS,
    MASK,
    SEP,
    assert_equal_rows,
    check_followed,
    check_moved,
    make_rows,
    make_vocab,
    numbered,
    some,
)

V = make_vocab()
MOVING: dict[str, Noise] = {
    "autoencode": Autoencode(),
    "text_infill": TextInfill(vocab=V, rate=0.3, mean_length=3.0),
    "text_infill exact": TextInfill(vocab=V, rate=0.3, mean_length=3.0, selection="exact"),
    "text_infill tokens": TextInfill(vocab=V, rate=0.3, mean_length=0.5, whole_words=False),
    "token_delete": TokenDelete(vocab=V, rate=0.3),
    "sentence_permute": SentencePermute(vocab=V, rate=1.0),
    "document_rotate": DocumentRotate(vocab=V, rate=0.7),
    "word_drop": WordDrop(vocab=V, rate=0.3),
    "word_blank": WordBlank(vocab=V, rate=0.3),
    "word_shuffle": WordShuffle(vocab=V, distance=3),
    "span_sentinel": SpanSentinel(vocab=V, rate=0.15, mean_length=3.0),
    "token_shuffle": TokenShuffle(vocab=V, rate=0.05),
    "sentence_permute, text_infill": Chain(
        [SentencePermute(vocab=V, rate=1.0), TextInfill(vocab=V, rate=0.3, mean_length=3.0)]
    ),
    "text_infill, document_rotate": Chain(
        [TextInfill(vocab=V, rate=0.3, mean_length=3.0), DocumentRotate(vocab=V, rate=1.0)]
    ),
    "word_shuffle, word_drop, word_blank": Chain(
        [
            WordShuffle(vocab=V, distance=3),
            WordDrop(vocab=V, rate=0.1),
            WordBlank(vocab=V, rate=0.1),
        ]
    ),
}
REST: dict[str, Noise] = {
    "sequence_span": SequenceSpan(vocab=V, rate=0.5, edge_share=0.2),
    "factorization_order": FactorizationOrder(vocab=V, context=6, block=16),
    "factorization_order exact": FactorizationOrder(vocab=V, context=6, selection="exact"),
}
NEW = frozenset({MASK, EOS, *V.sentinels})
SHAPES = {
    "plain": {},
    "short": {"short": True},
    "packed": {"packed": True},
    "packed, short": {"packed": True, "short": True},
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MOVING)
def test_all_that_belongs_to_a_token_moves_with_it(name, shape):
    for width in (12, 60):
        rows = make_rows(30, width, **SHAPES[shape])
        noised = MOVING[name](rows, Draws(1, 2))
        if name == "span_sentinel":  # rows of tiny documents lose their end: see its own test
            rows = numbered(some(rows, np.flatnonzero(noised.values["cut"] == 0)))
            noised = MOVING[name](rows, Draws(1, 2))
        assert noised.seqs[noised.input].ids.shape[1] == width or name == "span_sentinel"
        check_moved(rows.seqs["text"], noised.seqs[noised.input], NEW)
        check_followed(rows, noised, noised.input, NEW, strict="," not in name)
        assert "word_start" in noised.seqs[noised.input].tracks
        if name not in ("span_sentinel", "token_shuffle"):
            assert noised.seqs["target"] is rows.seqs["text"]
            assert "text" not in noised.seqs


@pytest.mark.sampled(5)
@pytest.mark.parametrize("shape", ["short", "packed, short"])
@pytest.mark.parametrize("name", MOVING | REST)
def test_same_bytes_whatever_the_batch(name, shape):
    noise = (MOVING | REST)[name]
    rows = make_rows(40, 50, **SHAPES[shape])
    whole = noise(rows, Draws(0, 3))
    for part in np.array_split(np.random.default_rng(0).permutation(40), 3):
        assert_equal_rows(noise(some(rows, part), Draws(0, 3)), some(whole, part))
    assert_equal_rows(noise(rows, Draws(0, 3)), whole)
    other = noise(rows, Draws(0, 4))
    if name != "autoencode":
        assert any(
            not np.array_equal(other.seqs[k].ids, x.ids) for k, x in whole.seqs.items()
        ) or not np.array_equal(
            other.seqs[whole.input].tracks["order"], whole.seqs[whole.input].tracks["order"]
        )


@pytest.mark.parametrize("name", MOVING | REST)
def test_the_rows_given_are_not_changed(name):
    rows, again = make_rows(6, 40, packed=True), make_rows(6, 40, packed=True)
    (MOVING | REST)[name](rows, Draws(0, 0))
    assert_equal_rows(rows, again)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MOVING | REST)
def test_rows_of_hardly_any_tokens(name):
    """Rows of special tokens only, of one word, of nothing, and no rows at all."""
    ids = np.array(
        [
            [CLS, SEP, 0, 0, 0],
            [CLS, 300, SEP, 0, 0],
            [CLS, 300, 301, SEP, 0],
            [0] * 5,
            [300, 301, 302, 303, 304],
        ]
    )
    length = np.array([2, 3, 4, 0, 5])
    tracks = {"word_start": np.ones((5, 5), bool), "sentence": np.zeros((5, 5), np.int32)}
    for part in (slice(0, 5), slice(0, 1), slice(3, 4), slice(0, 0)):
        seq = Seq(ids[part].astype(np.int32), length[part], {k: x[part] for k, x in tracks.items()})
        rows = Rows(np.arange(5)[part], {"text": seq})
        for epoch in range(20):
            noised = (MOVING | REST)[name](rows, Draws(0, epoch))
            after = noised.seqs[noised.input]
            for r in range(len(seq.ids)):
                frame = [t for t in after.ids[r, : after.length[r]].tolist() if t in (CLS, SEP)]
                assert frame == [t for t in seq.ids[r].tolist() if t in (CLS, SEP)]


def test_targets_move_with_their_tokens():
    rows = TokenMask(vocab=V, rate=0.2)(Autoencode()(make_rows(30, 50), Draws(0, 0)), Draws(0, 0))
    origin, length = rows.seqs["source"].tracks["origin"], rows.seqs["source"].length
    for noise in (
        WordShuffle(vocab=V, distance=3),
        TokenDelete(vocab=V, rate=0.3),
        TextInfill(vocab=V, rate=0.3, mean_length=3),
    ):
        noised = noise(rows, Draws(0, 1))
        seq = noised.seqs["source"]
        for r, c in np.argwhere(noised.targets["mlm"] != IGNORE):
            assert c < seq.length[r]
            assert (
                noised.targets["mlm"][r, c]
                == rows.targets["mlm"].ravel()[seq.tracks["origin"][r, c]]
            )
        lost = (rows.targets["mlm"] != IGNORE).sum() - (noised.targets["mlm"] != IGNORE).sum()
        gone = set(origin[rows.targets["mlm"] != IGNORE].tolist()) - set(
            seq.tracks["origin"].ravel().tolist()
        )
        assert lost >= len(gone)
    assert length.max() == 50


def test_prefix_counts_what_is_left_of_it():
    rows = make_rows(20, 40)
    rows = replace(rows, values={"prefix": np.full(20, 15)})
    keep = np.random.default_rng(0).random((20, 40)) < 0.7
    noised = keep_tokens(rows, keep, pad=0)
    assert noised.values["prefix"].tolist() == keep[:, :15].sum(1).tolist()


def test_positions_that_restart_without_documents():
    """A translation pair: positions begin anew at the second sentence."""
    rows = make_rows(1, 9)
    seq = rows.seqs["text"].with_tracks(position=np.array([[0, 1, 2, 3, 0, 1, 2, 3, 4]]))
    noised = keep_tokens(
        rows.with_seq("text", seq), np.array([[1, 0, 1, 1, 1, 0, 0, 1, 1]], bool), pad=0
    )
    assert noised.seqs["text"].tracks["position"][0, :6].tolist() == [0, 1, 2, 0, 1, 2]


def test_wider_and_narrower_rows():
    rows = make_rows(2, 10)
    take = np.array([0, 1, 2, 10, 11])
    noised = move_tokens(rows, take, np.array([3, 2]), pad=0, width=4)
    assert noised.seqs["text"].ids.shape == (2, 4)
    assert noised.seqs["text"].ids[1].tolist() == [*rows.seqs["text"].ids[1, :2].tolist(), 0, 0]
    with pytest.raises(AssertionError, match="longer than the rows are wide"):
        move_tokens(rows, take, np.array([3, 2]), pad=0, width=2)


def test_permuted_is_a_bijection_of_slots():
    rows = make_rows(3, 8)
    take = np.concatenate([np.random.default_rng(r).permutation(8) + 8 * r for r in range(3)])
    after = permute(rows, take)
    assert np.array_equal(after.seqs["text"].tracks["origin"].ravel(), take)
    assert_equal_rows(permute(after, np.argsort(take)), rows_without_broken_spans(rows, after))


def rows_without_broken_spans(rows: Rows, after: Rows) -> Rows:
    left = {tuple(x) for x in after.spans["entity"][:, [0, 3]].tolist()}
    keep = np.array([(r, i) in left for r, _, _, i in rows.spans["entity"].tolist()])
    return replace(rows, spans={"entity": rows.spans["entity"][keep]})


def test_shared_out_by_size():
    rng = np.random.default_rng(0)
    row = np.sort(rng.integers(0, 50, 300))
    size, total = rng.integers(0, 40, 300), rng.integers(0, 30, 50)
    found = share_out(total, size, row, rng.random(50))
    whole = np.bincount(row, weights=size, minlength=50)
    assert np.array_equal(
        np.bincount(row, weights=found, minlength=50), np.where(whole > 0, total, 0)
    )
    assert (np.abs(found - total[row] * size / whole[row]) < 1 + 1e-6).all()


@pytest.mark.parametrize("name", MOVING | REST)
def test_batches_of_source_and_target(name):
    """What comes of it can be joined and collated, whatever the two lengths."""
    noise = Chain(
        [(MOVING | REST)[name], *([TokenMask(vocab=V, rate=0.1)] if name == "autoencode" else [])]
    )
    rows = make_rows(6, 40, packed=True, short=True)
    made = join([noise(rows, Draws(0, 0)), noise(rows, Draws(0, 1))])
    batch = collate(made, noise.capacity(40))
    for key, seq in made.seqs.items():
        assert np.array_equal(batch.seqs[key].ids.numpy(), seq.ids)
    assert batch.counts["tokens"] == sum(int(seq.length.sum()) for seq in made.seqs.values())
    flat = made.seqs[made.input].ids.size
    for key, labels in made.targets.items():
        assert batch.targets[key].count == (labels != IGNORE).sum()
        assert int(batch.targets[key].index.max()) < flat


def test_denoising_wants_clean_text():
    rows = TokenMask(vocab=V, rate=0.2)(make_rows(3, 20), Draws(0, 0))
    with pytest.raises(ConfigError, match=r"targets\.mlm[\s\S]*autoencode first"):
        split_source(rows)
    chain = Chain([Autoencode(), TokenMask(vocab=V, rate=0.2)])
    assert chain.writes == {"source", "target", "targets.mlm"}
    assert chain.removes == {"text"}
    noised = chain(make_rows(3, 20), Draws(0, 0))
    assert (noised.seqs["source"].ids != noised.seqs["target"].ids).any()
    twice = Chain([WordDrop(vocab=V, rate=0.1), WordBlank(vocab=V, rate=0.1)])
    assert twice.reads == {"input", "tracks.word_start"}
