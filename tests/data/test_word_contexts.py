"""format=word_contexts: rows against a loop over the sentences, groups against their definition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.data.formats.word_contexts import ContextLayout, WordContexts
from plmctl.data.shards import SpanTrack
from plmctl.knowledge.words import MODES, SLOTS

CLS, SEP, MASK, COLON, QUOTE = 2, 3, 4, 7, 8


@pytest.fixture
def marked(shards_of, vocab):
    """Documents of several words: each sentence has one mark, of one token, but those of word 5 of
    two; and a vocabulary with marks.
    """
    rng = np.random.default_rng(0)
    counts = {3: 7, 5: 4, 6: 1, 9: 250, 2: 120}
    lengths = [rng.integers(4, 30, count).tolist() for count in counts.values()]
    shards = shards_of(lengths, first=20)
    start, length, word = [], [], []
    sentence = 0
    for number, count in counts.items():
        for _ in range(count):
            begin, end = shards.sentences[sentence : sentence + 2]
            size = 2 if number == 5 else 1
            start.append(int(rng.integers(begin, end - size + 1)))
            length.append(size)
            word.append(number)
            sentence += 1
    shards.spans["word"] = SpanTrack(np.array(start), np.array(length, np.int32), np.array(word))
    return shards, replace(vocab, texts=("",) * 7 + (":", '"')), counts


def place_by_cutting(left: list[int], right: list[int], room: int) -> tuple[list[int], list[int]]:
    """One token less, at the end that is farther from the mask, until the row has room."""
    left, right = list(left), list(right)
    while len(left) + len(right) > room:
        if len(left) > len(right) + room % 2:
            left.pop(0)
        else:
            right.pop()
    return left, right


BEFORE = {
    **{mode: [CLS] for mode in ("context", "shallow", "replace")},
    "add": [CLS, SEP, COLON],
    "add_quotes": [CLS, QUOTE, SEP, QUOTE, COLON],
}
# released code: tokens beside the words of a context, without the mask: 3, 5, 7 with it
TAKEN = {**dict.fromkeys(("context", "shallow", "replace"), 3), "add": 5, "add_quotes": 7}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", sorted(set(MODES) - {"form"}))
@pytest.mark.parametrize("length", [10, 16, 40])
def test_rows_equal_the_loop(marked, mode, length):
    shards, vocab, _ = marked
    fmt = WordContexts(vocab=vocab, max_length=length, mode=mode)
    assert fmt.layout.room == length - TAKEN[mode]
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=length)
    rows = fmt.rows(shards, plan, np.arange(plan.rows))
    sentences = [ids for document in shards.texts() for ids in document]
    seq, spans = rows.seqs["text"], shards.spans["word"]
    for row in range(plan.rows):
        token = int(rows.labels["token"][row])
        sentence = next(ids for ids in sentences if token in ids)
        at = sentence.index(token)
        left, right = place_by_cutting(sentence[:at], sentence[at + 1 :], fmt.layout.room)
        before = BEFORE[mode]
        assert seq.ids[row, : seq.length[row]].tolist() == [*before, *left, MASK, *right, SEP]
        assert (seq.ids[row, seq.length[row] :] == 0).all()
        assert rows.anchors[row].tolist() == [row, len(before) + len(left)]
        number = int(np.flatnonzero(shards.ids[spans.start] == token)[0])
        assert rows.labels["word"][row] == spans.id[number]
        if mode in SLOTS:
            assert seq.ids[row, SLOTS[mode]] == SEP
    assert (rows.values["mode"] == MODES.index(mode)).all()


def test_groups_of_an_epoch(marked):
    shards, vocab, counts = marked
    fmt = WordContexts(vocab=vocab, max_length=32, fewest=4, most=9)
    plans = [fmt.plan(shards, seed=0, epoch=epoch, input_length=32) for epoch in (0, 0, 1)]
    assert all(
        np.array_equal(plans[0].arrays[key], plans[1].arrays[key]) for key in ("span", "group")
    )
    assert not np.array_equal(plans[0].arrays["span"][:20], plans[2].arrays["span"][:20])
    span, group = plans[0].arrays["span"], plans[0].arrays["group"]
    assert (np.diff(group) >= 0).all()  # neighbours
    uses, taken = Counter(), {}
    for number in range(int(group[-1]) + 1):
        own = span[group == number]
        (word,) = set(shards.spans["word"].id[own].tolist())
        assert len(set(own.tolist())) == len(own)  # no context twice in a group
        assert min(4, counts[word]) <= len(own) <= 9
        uses[word] += 1
        taken.setdefault(word, []).append(own)
    # word 5 has two tokens; max(1, min(count // 100, 5)) groups of each other word
    assert uses == {word: max(1, min(counts[word] // 100, 5)) for word in counts if word != 5}
    assert plans[0].report["several_tokens"] == 1
    first, second = taken[9]
    assert not set(first.tolist()) & set(second.tolist())  # there are enough for both


def test_rows_of_letters_have_no_context(marked):
    shards, vocab, _ = marked
    fmt = WordContexts(vocab=vocab, max_length=10, mode="form")
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=10)
    rows = fmt.rows(shards, plan, np.arange(plan.rows))
    assert plan.rows == 5  # 3, 6, 2 once, 9 twice
    assert rows.seqs["text"].ids[:, :3].tolist() == [[CLS, MASK, SEP]] * 5
    assert len(set(rows.values["group"].tolist())) == 5


def test_mistakes(marked, vocab):
    shards, known, _ = marked
    with pytest.raises(ConfigError, match="a mode without :"):
        ContextLayout.of(vocab, "add", 64)
    with pytest.raises(ConfigError, match="at least 6"):
        ContextLayout.of(known, "add", 5)
    with pytest.raises(ConfigError, match="1 to format"):
        WordContexts(vocab=known, max_length=64, fewest=4, most=3)
    fmt = WordContexts(vocab=known, max_length=64, span="entity")
    with pytest.raises(DataError, match=r"no marks spans.entity"):
        fmt.plan(shards, seed=0, epoch=0, input_length=64)
    shards.spans["word"] = shards.spans["word"]._replace(length=np.full(382, 2))
    fmt = WordContexts(vocab=known, max_length=64)
    with pytest.raises(DataError, match="none of the words"):
        fmt.check(shards, fmt.plan(shards, seed=0, epoch=0, input_length=64))
