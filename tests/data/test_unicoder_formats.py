"""Unicoder's rows (Huang et al., 2019): documents that alternate between languages, by a loop over
sentences; translations and wrong ones, each sentence once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.data.formats.base import count_lost
from plmctl.data.formats.cross_lingual import CrossLingual
from plmctl.data.formats.paraphrase_pair import ParaphrasePair
from plmctl.data.formats.text_pair import TextPair
from tests.data.test_parallel_formats import CLS, SEP, accounted, real


@pytest.fixture
def parallel(shards_of: Any) -> Any:
    """Documents end at pairs without words; one side may be empty, and a sentence too long."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(1, 12, (60, 2)).tolist()
    for place, pair in ((20, [0, 0]), (21, [0, 0]), (33, [0, 5]), (40, [60, 3]), (50, [0, 0])):
        pairs[place] = pair
    made = shards_of([list(pair) for pair in pairs])
    made.pairs = True
    return made


def alternate(pairs: list[list[list[int]]], room: int, epoch: int) -> list[list[tuple[int, int]]]:
    """Rows of (token, language), by hand."""
    rows: list[list[tuple[int, int]]] = []
    row: list[tuple[int, int]] = []
    number = 0  # of the next sentence in its document
    for a, b in [*pairs, [[], []]]:
        if not a and not b:
            rows, row, number = [*rows, row], [], 0
            continue
        if not a or not b:
            continue
        side = (number + epoch) % 2
        words = [(token, side) for token in (a, b)[side][:room]]
        number += 1
        if len(row) + len(words) > room:
            rows, row = [*rows, row], []
        row = row + words
    return [row for row in rows if row]


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_sentences_alternate_between_languages(parallel: Any, vocab: Any, epoch: int) -> None:
    fmt = CrossLingual(vocab=vocab, max_length=32)
    plan = fmt.plan(parallel, seed=1, epoch=epoch, input_length=30)
    rows = fmt.rows(parallel, plan, np.arange(plan.rows))
    report = plan.report
    read = report["laid_out"] + report["cut"] + report["in_the_next_epoch"]
    assert report["tokens"] == read + report["dropped"]
    assert report["dropped"] == 5
    assert count_lost(plan) == report["cut"] + 5
    wanted = alternate(parallel.texts(), 28, epoch)
    text = rows.seqs["text"]
    assert real(text) == [[CLS, *(token for token, _ in row), SEP] for row in wanted]
    for row, tokens in enumerate(wanted):
        own = text.tracks["language"][row, 1 : len(tokens) + 1].tolist()
        assert own == [language for _, language in tokens]
    assert any(len({language for _, language in row}) == 2 for row in wanted)
    assert plan.report["cut"] == (32 if epoch % 2 else 0)
    some = fmt.rows(parallel, plan, np.array([3, 0]))
    assert np.array_equal(some.seqs["text"].ids, text.ids[[3, 0]])
    assert fmt.languages(parallel) == 2


def test_special_tokens_have_the_language_beside_them(parallel: Any, vocab: Any) -> None:
    fmt = CrossLingual(vocab=vocab, max_length=32)
    plan = fmt.plan(parallel, seed=1, epoch=1, input_length=32)
    language = fmt.rows(parallel, plan, np.arange(1)).seqs["text"].tracks["language"][0]
    assert language[0] == language[1] == 1


@pytest.mark.parametrize("packed", [True, False])
def test_every_sentence_stands_once_beside_a_translation(
    parallel: Any, vocab: Any, packed: bool
) -> None:
    fmt = ParaphrasePair(vocab=vocab, max_length=50, packed=packed)
    usual = TextPair(vocab=vocab, max_length=50, packed=packed)
    pairs = [(a, b) for a, b in parallel.texts() if a and b and len(a) + len(b) <= 46]
    translation = {tuple(a): tuple(b) for a, b in pairs}
    plan = fmt.plan(parallel, seed=1, epoch=0, input_length=50)
    rows = fmt.rows(parallel, plan, np.arange(plan.rows))
    accounted(plan)
    text = rows.seqs["text"]
    assert rows.anchors is not None
    labels, lengths = rows.labels["pair"], Counter()
    seen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for (row, column), label in zip(rows.anchors, labels, strict=True):
        ids = text.ids[row, column:].tolist()
        assert ids[0] == CLS
        end = ids.index(SEP)
        a, rest = tuple(ids[1:end]), ids[end + 2 :]
        b = tuple(rest[: rest.index(SEP)])
        assert label == (translation[a] != b)
        lengths[label, abs(len(b) - len(translation[a]))] += 1
        seen.append((a, b))
        second = text.tracks["position"][row, column + end + 1]
        assert second == 0
        assert text.tracks["language"][row, column + end + 1] == 1
    assert sorted(a for a, _ in seen) == sorted(translation)
    assert sorted(b for _, b in seen) == sorted(translation.values())
    assert 15 <= labels.sum() <= 45
    assert plan.report["wrong_pairs"] == labels.sum()
    near = sum(count for (label, apart), count in lengths.items() if label and apart <= 1)
    assert near >= 0.85 * labels.sum()  # all but the longest, and a few gaps
    again = fmt.plan(parallel, seed=1, epoch=0, input_length=50)
    other = fmt.plan(parallel, seed=1, epoch=1, input_length=50)
    assert np.array_equal(again.arrays["start"], plan.arrays["start"])
    assert not np.array_equal(other.arrays["start"], plan.arrays["start"])
    right = ParaphrasePair(vocab=vocab, max_length=50, packed=packed, wrong_rate=0.0)
    same = right.plan(parallel, seed=1, epoch=0, input_length=50)
    plain = usual.plan(parallel, seed=1, epoch=0, input_length=50)
    assert np.array_equal(same.arrays["start"], plain.arrays["start"])
    assert not same.arrays["pair"].any()


def test_a_single_pair_has_nobody_to_exchange_with(shards_of: Any, vocab: Any) -> None:
    made = shards_of([[3, 4]])
    made.pairs = True
    fmt = ParaphrasePair(vocab=vocab, max_length=50, packed=False, wrong_rate=1.0)
    plan = fmt.plan(made, seed=0, epoch=0, input_length=50)
    assert plan.arrays["pair"].tolist() == [0]


def test_what_is_refused(random_shards_of: Any, vocab: Any) -> None:
    for fmt in (
        CrossLingual(vocab=vocab, max_length=50),
        ParaphrasePair(vocab=vocab, max_length=50, packed=True),
    ):
        with pytest.raises(DataError, match="reads parallel text"):
            fmt.plan(random_shards_of(5), seed=0, epoch=0, input_length=50)
    with pytest.raises(ConfigError, match="a probability"):
        ParaphrasePair(vocab=vocab, max_length=50, packed=True, wrong_rate=2.0)
    with pytest.raises(ConfigError, match="more than the 2 special tokens"):
        CrossLingual(vocab=vocab, max_length=2)
