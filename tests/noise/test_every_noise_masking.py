"""What every masking noise promises, whatever it chooses: built from its conf/ file, on worded
rows, plain and packed.
"""

from __future__ import annotations

import numpy as np
import pytest

from plmctl.config.build import build, plain
from plmctl.config.recipes import conf_dir, load
from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.noise.base import Chain
from plmctl.noise.masking import Masking
from tests.noise.plain_rows import make_vocab
from tests.noise.worded import chosen_of, some, worded, words_of

BUDGETED = (
    "token_mask",
    "frequency_mask",
    "whole_word_mask",
    "ngram_mask",
    "span_mask",
    "span_mask_exact",
    "entity_mask",
    "unilm_mask",
)
NAMES = (*BUDGETED, "target_mask", "token_replace")


def made(name: str, **options: object) -> Masking:
    node = plain(load(conf_dir() / "noise" / f"{name.removesuffix('_exact')}.yaml"))
    if name == "span_mask_exact":
        node["sampler"]["_target_"] = "plmctl.noise.spans.Segmented"
    return build({**node, **options}, {"vocab": make_vocab()}, path="noise")


def equal(one: Rows, two: Rows) -> bool:
    return (
        np.array_equal(one.seqs["text"].ids, two.seqs["text"].ids)
        and all(np.array_equal(one.targets[name], two.targets[name]) for name in one.targets)
        and all(np.array_equal(one.spans[name], two.spans[name]) for name in one.spans)
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_same_bytes_whatever_the_batch(name, documents):
    rows = worded(48, 60, documents=documents)
    noise = Chain([made(name)])
    whole = noise(rows, Draws(0, 3))
    for part in np.array_split(np.random.default_rng(0).permutation(48), 5):
        noised = noise(some(rows, part), Draws(0, 3))
        wanted = some(whole, part)
        targets = {name: labels[part] for name, labels in whole.targets.items()}
        assert equal(noised, Rows(wanted.key, wanted.seqs, targets, spans=wanted.spans))
    assert not np.array_equal(noise(rows, Draws(0, 4)).seqs["text"].ids, whole.seqs["text"].ids)
    assert not np.array_equal(noise(rows, Draws(1, 3)).seqs["text"].ids, whole.seqs["text"].ids)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_specials_padding_and_what_is_not_asked_stay(name, documents):
    rows = worded(100, 80, lengths=[80, 30] * 50, documents=documents)
    before = rows.seqs["text"].ids.copy()
    noised = made(name)(rows, Draws(0, 0))
    after, length = noised.seqs["text"].ids, rows.seqs["text"].length
    assert np.array_equal(rows.seqs["text"].ids, before)  # the rows given are as they were
    assert after.dtype == before.dtype
    asked = noised.targets.get("mlm", noised.targets.get("replaced")) != IGNORE
    assert np.array_equal(after[~asked], before[~asked])
    assert not asked[np.arange(80) >= length[:, None]].any()
    if name != "target_mask":  # which asks for the end token
        assert (before[asked] >= 10).all()
    if "mlm" in noised.targets:
        assert np.array_equal(noised.targets["mlm"][asked], before[asked])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 0.9])
@pytest.mark.parametrize("name", NAMES)
def test_capacity_is_never_exceeded(name, rate):
    noise = made(name, rate=rate)
    for documents in (False, True):
        noised = noise(worded(80, 47, documents=documents), Draws(0, 0))
        assert set(noised.targets) == set(noise.capacity(47))
        for target, most in noise.capacity(47).items():
            assert (noised.targets[target] != IGNORE).sum(1).max() <= most


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BUDGETED)
def test_rate_holds_in_every_document_of_a_packed_row(name):
    rows = worded(300, 128, documents=True)
    chosen, document = (
        chosen_of(made(name)(rows, Draws(0, 0))),
        rows.seqs["text"].tracks["document"],
    )
    # SpanBERT's budget leaves special tokens out
    counted = rows.seqs["text"].ids >= (10 if "span" in name else 0)
    errors, tokens = [], []
    for row in range(300):
        for d in range(document[row].max() + 1):
            inside = (document[row] == d) & counted[row]
            errors.append(chosen[row, inside].sum() - 0.15 * inside.sum())
            tokens.append(inside.sum())
    assert np.abs(errors).max() < 4
    assert abs(np.sum(errors)) / np.sum(tokens) < 0.01  # a row's budget is rounded, SpanBERT's up


@pytest.mark.parametrize("name", ["whole_word_mask", "ngram_mask"])
def test_words_are_never_split(name):
    for documents in (False, True):
        rows = worded(100, 90, documents=documents)
        chosen = chosen_of(made(name, rate=0.4)(rows, Draws(0, 0)))
        for row in range(100):
            for word in words_of(rows, row):
                assert chosen[row, word].all() or not chosen[row, word].any()


@pytest.mark.parametrize("name", NAMES)
def test_static_masks_repeat(name):
    rows = worded(10, 60)
    at = lambda epoch: made(name, static=2)(rows, Draws(0, epoch))  # noqa: E731
    assert equal(at(0), at(2))
    assert not equal(at(0), at(1))


@pytest.mark.parametrize("name", NAMES)
def test_rows_with_little_or_nothing_to_choose(name):
    rows = worded(6, 12, lengths=[2, 3, 12, 1, 4, 12])
    seq = rows.seqs["text"]
    empty = rows.with_seq(
        "text", type(seq)(np.zeros_like(seq.ids), np.zeros_like(seq.length), dict(seq.tracks))
    )
    assert (made(name, rate=0.9)(rows, Draws(0, 0)).seqs["text"].ids[:2, 0] == 2).all()
    for noised in (
        made(name)(empty, Draws(0, 0)),
        made(name)(some(rows, np.zeros(0, int)), Draws(0, 0)),
    ):
        assert all((labels == IGNORE).all() for labels in noised.targets.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_source_is_changed_where_there_is_one(name):
    rows = worded(20, 40)
    pair = Rows(
        rows.key, {"source": rows.seqs["text"], "target": rows.seqs["text"]}, spans=rows.spans
    )
    noised = made(name)(pair, Draws(0, 0))
    assert noised.seqs["target"] is pair.seqs["target"]
    assert np.array_equal(noised.seqs["source"].ids, made(name)(rows, Draws(0, 0)).seqs["text"].ids)
