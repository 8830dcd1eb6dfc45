import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.base import Chain
from plmctl.noise.entity_mask import EntityMask
from plmctl.noise.masking import NoiseBudget, Spans, expand_runs
from plmctl.noise.ngram_mask import NgramMask
from plmctl.noise.token_mask import TokenMask
from plmctl.noise.unilm_mask import UnilmMask
from plmctl.noise.whole_word_mask import WholeWordMask


def chosen_of(rows: Rows) -> np.ndarray:
    return rows.targets["mlm"] != IGNORE


@pytest.mark.parametrize("width", [8, 100, 128, 512, 1000])
@pytest.mark.parametrize("limit", [None, 20])
def test_exact_budget_of_bert(cells_of, vocab_of, width, limit):
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, width + 1, 60)
    rows = cells_of(60, width, lengths=lengths.tolist())
    noised = TokenMask(vocab=vocab_of(), rate=0.15, max_predictions=limit)(rows, Draws(0, 0))
    wanted = [min(limit or width, max(1, round(n * 0.15)), n - 2) for n in lengths.tolist()]
    assert chosen_of(noised).sum(1).tolist() == wanted


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.3])
@pytest.mark.parametrize("kind", ["tokens", "words", "ngrams", "units", "unilm"])
def test_the_ceiling_is_of_ordinary_tokens(cells_of, vocab_of, kind, rate):
    """SpanBERT's budget, `ceil(rate * len)` without [CLS] and [SEP], of every sampler."""
    given = {"vocab": vocab_of(), "rate": rate, "selection": "ceiling"}
    noise = {
        "tokens": lambda: TokenMask(**given),
        "words": lambda: WholeWordMask(**given),
        "ngrams": lambda: NgramMask(**given, max_words=1),
        "units": lambda: EntityMask(**given, spans=[]),
        "unilm": lambda: UnilmMask(**given, ngram_share=0.0),
    }[kind]()
    lengths = np.arange(3, 100)
    rows = cells_of(len(lengths), 100, lengths=lengths.tolist())
    if kind != "tokens":  # every token is a word
        text = rows.seqs["text"]
        starts = np.ones(text.ids.shape, bool)
        rows = rows.with_seq("text", text.with_tracks(word_start=starts))
    found = chosen_of(noise(rows, Draws(1, 0))).sum(1)
    assert found.tolist() == [math.ceil(rate * (n - 2) - 1e-9) for n in lengths.tolist()]


def test_only_ordinary_tokens_and_labels_only_there(cells_of, vocab_of):
    rows = cells_of(200, 64, lengths=[40, 64] * 100)
    noised = TokenMask(vocab=vocab_of(), rate=0.3)(rows, Draws(0, 0))
    before, after, chosen = rows.seqs["text"].ids, noised.seqs["text"].ids, chosen_of(noised)
    assert (before[chosen] >= 10).all()
    assert np.array_equal(noised.targets["mlm"][chosen], before[chosen])
    assert np.array_equal(after[~chosen], before[~chosen])
    assert not np.shares_memory(before, after)
    assert rows.targets == {}


def test_shares_and_uniform_places(cells_of, vocab_of):
    rows = cells_of(3000, 64)
    noised = TokenMask(vocab=vocab_of(), rate=0.15)(rows, Draws(4, 0))
    before, after, chosen = rows.seqs["text"].ids, noised.seqs["text"].ids, chosen_of(noised)
    total = chosen.sum()
    masked, kept = (after[chosen] == 4).sum(), (after[chosen] == before[chosen]).sum()
    assert abs(masked / total - 0.8) < 3 * np.sqrt(0.16 / total) + 0.1 / 1000
    assert abs(kept / total - 0.1) < 3 * np.sqrt(0.09 / total) + 0.1 / 1000
    places = chosen.sum(0)
    assert places[0] == places[-1] == 0
    assert stats.chisquare(places[1:-1]).pvalue > 1e-4
    # whether one token is chosen says nothing about its neighbour beyond the fixed total
    both = (chosen[:, 1:-2] & chosen[:, 2:-1]).mean()
    share = total / 3000 / 62
    assert abs(both - share * (total / 3000 - 1) / 61) < 4 * np.sqrt(share**2 / (3000 * 60))
    replaced = after[chosen & (after != before) & (after != 4)]
    assert replaced.min() < 10  # specials too, as in BERT
    assert stats.chisquare(np.bincount(replaced // 100, minlength=10)).pvalue > 1e-4


def test_roberta_options(cells_of, vocab_of):
    rows = cells_of(4000, 20)
    mask = TokenMask(
        vocab=vocab_of(),
        rate=0.17,
        selection="probabilistic",
        random_specials=False,
        choose_specials=True,
    )
    noised = mask(rows, Draws(0, 0))
    counts = chosen_of(noised).sum(1)
    assert set(counts.tolist()) == {3, 4}  # floor(3.4 + u)
    assert abs(counts.mean() - 3.4) < 3 * np.sqrt(0.24 / 4000)
    assert chosen_of(noised)[:, 0].any()
    before, after = rows.seqs["text"].ids, noised.seqs["text"].ids
    changed = after[(after != before) & (after != 4)]
    assert changed.min() >= 10
    assert mask.capacity(20) == {"mlm": 4}
    rare = TokenMask(vocab=vocab_of(), rate=0.01, selection="probabilistic")(
        cells_of(50, 20), Draws(0, 0)
    )
    assert chosen_of(rare).sum() < 50


def test_packed_rows_hold_the_rate_per_document(cells_of, vocab_of):
    rows = cells_of(300, 128, lengths=[128, 100] * 150, documents=True)
    noised = TokenMask(vocab=vocab_of(), rate=0.15)(rows, Draws(0, 0))
    chosen, document = chosen_of(noised), rows.seqs["text"].tracks["document"]
    assert chosen[0::2].sum(1).max() <= 19  # round(128 * 0.15)
    errors = []
    for r in range(300):
        for d in range(document[r].max() + 1):
            inside = document[r] == d
            share = inside.sum() * [19, 15][r % 2] / [128, 100][r % 2]
            found = chosen[r, inside].sum()
            assert found <= np.ceil(share)
            assert found >= min(np.floor(share), inside.sum() - 2)
            errors.append(found - share)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors)) + 0.02
    assert not chosen[document == -1].any()
    assert (rows.seqs["text"].ids[chosen] >= 10).all()


def test_long_packed_rows(cells_of, vocab_of):
    """From 2049 tokens on documents, columns and random bits no longer fit into 32 bits."""
    rows = cells_of(4, 4096, documents=True)
    noised = TokenMask(vocab=vocab_of(), rate=0.15)(rows, Draws(0, 0))
    assert chosen_of(noised).sum(1).tolist() == [614] * 4
    assert (rows.seqs["text"].ids[chosen_of(noised)] >= 10).all()


def test_packed_row_of_one_document_has_the_exact_budget(cells_of, vocab_of):
    rows = cells_of(40, 50, lengths=[50, 33] * 20)
    seq = rows.seqs["text"]
    document = np.where(seq.real, 0, -1)
    packed = rows.with_seq("text", seq.with_tracks(document=document))
    mask = TokenMask(vocab=vocab_of(), rate=0.15)
    assert np.array_equal(
        chosen_of(mask(rows, Draws(1, 1))).sum(1), chosen_of(mask(packed, Draws(1, 1))).sum(1)
    )


@pytest.mark.parametrize("documents", [False, True])
def test_same_bytes_whatever_the_batch(cells_of, vocab_of, documents):
    rows = cells_of(64, 40, documents=documents)
    mask = Chain([TokenMask(vocab=vocab_of(), rate=0.2)])
    whole = mask(rows, Draws(0, 3))
    for part in np.array_split(np.random.default_rng(0).permutation(64), 5):
        seq = rows.seqs["text"]
        some = replace(
            rows,
            key=rows.key[part],
            seqs={
                "text": replace(
                    seq,
                    ids=seq.ids[part],
                    length=seq.length[part],
                    tracks={k: v[part] for k, v in seq.tracks.items()},
                )
            },
        )
        noised = mask(some, Draws(0, 3))
        assert np.array_equal(noised.seqs["text"].ids, whole.seqs["text"].ids[part])
        assert np.array_equal(noised.targets["mlm"], whole.targets["mlm"][part])


def test_fresh_every_epoch_or_static(cells_of, vocab_of):
    rows = cells_of(20, 50)
    fresh, static = (
        TokenMask(vocab=vocab_of(), rate=0.2),
        TokenMask(vocab=vocab_of(), rate=0.2, static=3),
    )
    at = lambda mask, epoch: mask(rows, Draws(0, epoch)).targets["mlm"]  # noqa: E731
    assert not np.array_equal(at(fresh, 0), at(fresh, 3))
    assert np.array_equal(at(static, 0), at(static, 3))
    assert not np.array_equal(at(static, 0), at(static, 1))
    assert np.array_equal(at(static, 1), at(fresh, 1))


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5])
@pytest.mark.parametrize("selection", ["exact", "probabilistic"])
def test_capacity_is_never_exceeded(cells_of, vocab_of, rate, selection):
    mask = TokenMask(vocab=vocab_of(), rate=rate, selection=selection)
    for documents in (False, True):
        rows = cells_of(200, 47, documents=documents)
        assert chosen_of(mask(rows, Draws(0, 0))).sum(1).max() <= mask.capacity(47)["mlm"]


def test_rows_without_candidates(cells_of, vocab_of):
    rows = cells_of(3, 10, lengths=[2, 3, 10])
    counts = chosen_of(TokenMask(vocab=vocab_of(), rate=0.9)(rows, Draws(0, 0))).sum(1)
    assert counts.tolist() == [0, 1, 8]


def test_spans_and_runs():
    assert expand_runs(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    row, position = Spans(np.array([1, 2]), np.array([4, 0]), np.array([2, 1])).tokens()
    assert row.tolist() == [1, 1, 2]
    assert position.tolist() == [4, 5, 0]


def test_wrong_settings(vocab_of):
    for options, message in [
        ({"rate": 1.5}, "0 < rate < 1"),
        ({"rate": 0.1, "selection": "exakt"}, "exact, probabilistic"),
        ({"rate": 0.1, "max_predictions": 0}, "at least 1"),
        ({"rate": 0.1, "mask_share": 0.9, "random_share": 0.2}, "mask_share"),
        ({"rate": 0.1, "static": 0}, "static"),
    ]:
        with pytest.raises(ConfigError, match=message):
            TokenMask(vocab=vocab_of(), **options)
    with pytest.raises(ConfigError, match="mask token"):
        TokenMask(vocab=vocab_of(mask=None), rate=0.1)


def test_declares_what_it_reads_and_writes(vocab_of):
    mask = TokenMask(vocab=vocab_of(), rate=0.15, max_predictions=20)
    assert mask.writes == {"targets.mlm"}
    assert mask.reads == {"input"}
    assert mask.capacity(512) == {"mlm": 20}
    assert mask.capacity(64) == {"mlm": 10}
    assert mask.input_length(64) == 64
    assert NoiseBudget(rate=0.15, max_predictions=None, selection="exact").capacity(2) == 1
