"""Marked spans are hidden whole, by the lottery of BERT's whole-word code or before all else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import IGNORE
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.noise.entity_mask import EntityMask
from plmctl.noise.masking import Shuffled
from plmctl.noise.units import find_spans, find_units, scatter_spans
from plmctl.noise.whole_word_mask import WholeWordMask
from tests.noise.test_whole_word_mask import literal
from tests.noise.worded import chosen_of, worded


def units_of(rows, row: int) -> list[list[int]]:
    """Spans and the single ordinary tokens outside them."""
    inside: dict[int, list[int]] = {}
    for r, start, length, _ in rows.spans["entity"].tolist():
        if r == row:
            inside |= {
                at: list(range(start, start + length)) for at in range(start, start + length)
            }
    seq = rows.seqs["text"]
    found = [inside.get(at, [at]) for at in range(int(seq.length[row])) if seq.ids[row, at] >= 10]
    return [unit for at, unit in enumerate(found) if at == 0 or unit is not found[at - 1]]


@pytest.mark.parametrize("rate", [0.15, 0.6])
def test_lottery_equals_the_literal_loop(vocab_of, rate):
    lengths = np.random.default_rng(0).integers(4, 90, 120).tolist()
    rows, draws = worded(120, 90, lengths=lengths), Draws(3, 1)
    chosen = chosen_of(EntityMask(vocab=vocab_of(), rate=rate)(rows, draws))
    barred = np.full((120, 90), ~np.uint32(0))
    units = [units_of(rows, row) for row in range(120)]
    for row, listed in enumerate(units):
        barred[row, [unit[0] for unit in listed]] = 0
    order = Shuffled(rows, draws.child("select"), barred)
    for row, listed in enumerate(units):
        place, allowed = order.gather(row * 90 + np.arange(90))
        by_start = {unit[0]: unit for unit in listed}
        shuffled = [by_start[at] for at in (place[allowed] - row * 90).tolist()]
        wanted = literal(shuffled, max(1, round(rate * lengths[row])))
        assert set(np.flatnonzero(chosen[row]).tolist()) == wanted, row


@pytest.mark.parametrize("share", [None, 0.0, 0.5, 1.0])
def test_spans_stay_whole_and_have_their_share(vocab_of, share):
    rows = worded(400, 128)
    chosen = chosen_of(EntityMask(vocab=vocab_of(), rate=0.15, span_share=share)(rows, Draws(0, 0)))
    in_spans = np.zeros(400, int)
    for row, start, length, _ in rows.spans["entity"].tolist():
        hidden = chosen[row, start : start + length]
        assert hidden.all() or not hidden.any()
        in_spans[row] += hidden.sum()
    assert (chosen.sum(1) == 19).mean() > 0.99
    marked = np.bincount(rows.spans["entity"][:, 0], rows.spans["entity"][:, 2], minlength=400)
    # a span is as likely as any unit, so spans get nearly their share of the tokens
    if share is None:
        assert in_spans.mean() == pytest.approx(
            19 * marked.mean() / 125, rel=0.15
        )  # a little less: at the end a single token fits more often
    else:
        most = np.rint(share * 19)
        assert (in_spans <= most).all()
        enough = marked > most + 4
        assert in_spans[enough].mean() > most - 0.5  # but for a token that no span is left for


def test_spans_at_random_places(vocab_of):
    """As many and as long in each stretch, apart from each other, anywhere."""
    rows, starts = worded(300, 60, documents=True), []
    spans = find_spans(rows, "entity")
    tokens = find_units(rows, vocab_of(), words=False)
    stretch_of = tokens.stretch[tokens.of_slot]  # of each slot
    for seed in range(3):
        moved = scatter_spans(rows, spans, vocab_of(), Draws(seed, 0))
        covered = np.zeros(300 * 60, int)
        for (row, start, size, _), old in zip(moved.tolist(), spans.tolist(), strict=True):
            at = row * 60 + start
            covered[at : at + size] += 1
            assert (row, size) == (old[0], old[2])
            assert set(stretch_of[at : at + size]) == {stretch_of[row * 60 + old[1]]}
        assert covered.max() == 1
        starts.append(moved[:, 1])
    assert (starts[0] == starts[1]).mean() < 0.5
    noise = EntityMask(vocab=vocab_of(), rate=0.3, control="random")
    chosen = chosen_of(noise(rows, Draws(0, 0)))
    hidden = [chosen[row, at : at + size] for row, at, size, _ in spans.tolist() if size > 1]
    assert any(part.any() and not part.all() for part in hidden)  # the true ones are cut
    assert (chosen == chosen_of(noise(rows, Draws(0, 0)))).all()


def test_places_of_single_tokens_are_alike(vocab_of):
    """With no spans at all it is token masking."""
    rows = worded(2000, 34)
    ids = np.where(np.arange(34) % 33 == 0, 2, np.maximum(rows.seqs["text"].ids, 10))
    rows = replace(
        rows.with_seq("text", replace(rows.seqs["text"], ids=ids)),
        spans={"entity": np.zeros((0, 4), np.int64)},
    )
    for share in (None, 0.5):
        chosen = chosen_of(
            EntityMask(vocab=vocab_of(), rate=0.15, span_share=share)(rows, Draws(0, 0))
        )
        assert (chosen.sum(1) == 5).all()
        assert stats.chisquare(chosen.sum(0)[1:-1]).pvalue > 1e-3


def test_the_first_of_two_names_wins(vocab_of):
    rows = worded(200, 40)
    ids = np.where(np.arange(40) % 39 == 0, 2, np.maximum(rows.seqs["text"].ids, 10))

    def table(start, length):
        return np.stack(
            [np.arange(200), *np.full((2, 200), [[start], [length]]), np.arange(200)], 1
        )

    rows = replace(
        rows.with_seq("text", replace(rows.seqs["text"], ids=ids)),
        spans={"entity": table(5, 3), "phrase": table(4, 3)},
    )
    for names, whole in [(["entity", "phrase"], slice(5, 8)), (["phrase", "entity"], slice(4, 7))]:
        mask = EntityMask(vocab=vocab_of(), rate=0.3, spans=names)
        assert mask.reads == {"input", "spans.entity", "spans.phrase"}
        hidden = chosen_of(mask(rows, Draws(0, 0)))[:, whole]
        assert (hidden.all(1) | ~hidden.any(1)).all()
        assert hidden.any()


def test_whole_words_outside_spans(vocab_of):
    rows = worded(100, 64)
    mask = EntityMask(vocab=vocab_of(), rate=0.3, words=True)
    assert "tracks.word_start" in mask.reads
    chosen, start = chosen_of(mask(rows, Draws(0, 0))), rows.seqs["text"].tracks["word_start"]
    inside = np.zeros((100, 65), bool)
    for row, at, length, _ in rows.spans["entity"].tolist():
        inside[row, at : at + length] = True
    ordinary = rows.seqs["text"].ids >= 10
    for row, at in np.argwhere(
        ordinary[:, 1:] & ordinary[:, :-1] & ~start[:, 1:] & ~inside[:, 1:-1] & ~inside[:, :-2]
    ).tolist():
        assert chosen[row, at] == chosen[row, at + 1]


def test_wrong_settings_and_missing_spans(vocab_of):
    for options, message in [({"span_share": 1.5}, "span_share")]:
        with pytest.raises(ConfigError, match=message):
            EntityMask(vocab=vocab_of(), rate=0.15, **options)
    with pytest.raises(
        DataError, match=r"no spans 'phrase' in these rows, only entity.*\n.*data.spans=\[phrase\]"
    ):
        EntityMask(vocab=vocab_of(), rate=0.15, spans=["phrase"])(worded(2, 40), Draws(0, 0))


def test_without_spans_it_masks_tokens_or_words(vocab_of):
    """The first two stages of the paper (sec. 3.2)."""
    rows, draws = worded(60, 80), Draws(0, 0)
    words = EntityMask(vocab=vocab_of(), rate=0.15, spans=[], words=True)
    assert not any(name.startswith("spans.") for name in words.reads)
    wanted = WholeWordMask(vocab=vocab_of(), rate=0.15)(rows, draws)
    assert np.array_equal(words(rows, draws).seqs["text"].ids, wanted.seqs["text"].ids)
    tokens = EntityMask(vocab=vocab_of(), rate=0.15, spans=[])(rows, draws).targets["mlm"]
    assert ((tokens != IGNORE).sum(1) == 12).all()
