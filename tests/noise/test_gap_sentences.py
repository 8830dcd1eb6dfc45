"""Gap sentences against a literal reading of the paper, sentence by sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.gap_sentences import GapSentences
from tests.noise.moving_rows import make_rows, make_vocab

V = make_vocab()
SENTENCES = (  # words, 200 and more
    (210, 211, 212, 213),
    (210, 210, 214),
    (215, 216),
    (211, 212, 214, 217, 218),
    (210, 211, 215),
)


def rouge(part: Sequence[int], rest: Sequence[int], *, unique: bool) -> float:
    """ROUGE1-F as the mean of precision and recall."""
    ours, theirs = Counter(part), Counter(rest)
    if unique:
        ours, theirs = Counter(set(part)), Counter(set(rest))
    shared = sum((ours & theirs).values())
    if not shared:
        return 0.0
    precision, recall = shared / sum(ours.values()), shared / sum(theirs.values())
    return 2 * precision * recall / (precision + recall)


def choose(sentences: Sequence[Sequence[int]], count: int, how: str, *, unique: bool) -> list[int]:
    """The sentences of a document that are written, best first."""
    numbers = range(len(sentences))

    def score(chosen: list[int]) -> float:
        part = [word for i in chosen for word in sentences[i]]
        rest = [word for i in numbers if i not in chosen for word in sentences[i]]
        return rouge(part, rest, unique=unique)

    if how == "ind":
        return sorted(numbers, key=lambda i: (-round(score([i]), 12), i))[:count]
    chosen: list[int] = []
    for _ in range(count):
        left = [i for i in numbers if i not in chosen]
        chosen.append(max(left, key=lambda i: (round(score([*chosen, i]), 12), -i)))
    return chosen


def row_of(sentences: Sequence[Sequence[int]]) -> Rows:
    """One row of sentences without special tokens, then two places of padding."""
    ids = np.array([[word for one in sentences for word in one] + [V.pad] * 2])
    number = [n for n, one in enumerate(sentences) for _ in one] + [0, 0]
    tracks = {"sentence": np.array([number]), "word_start": np.ones(ids.shape, bool)}
    return Rows(np.arange(1), {"text": Seq(ids, np.array([ids.shape[1] - 2]), tracks)})


def written(rows: Rows) -> tuple[list[int], list[int]]:
    """The real tokens of source and target."""
    seqs = (rows.seqs["source"], rows.seqs["target"])
    return tuple(seq.ids[0, : seq.length[0]].tolist() for seq in seqs)  # type: ignore[return-value]


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.79, 1.0])
@pytest.mark.parametrize("counts", ["orig", "uniq"])
@pytest.mark.parametrize("how", ["ind", "seq", "lead"])
def test_five_sentences_as_in_the_paper(how: str, counts: str, rate: float) -> None:
    how_chosen: Any = {"select": how, "counts": counts}
    noise = GapSentences(vocab=V, rate=rate, kept=0.0, **how_chosen)
    source, target = written(noise(row_of(SENTENCES), Draws(0, 0)))
    count = min(5, max(1, int(rate * 5)))
    unique = counts == "uniq"
    best = range(count) if how == "lead" else choose(SENTENCES, count, how, unique=unique)
    end = V.eos if V.eos is not None else V.sep
    assert target == [word for i in sorted(best) for word in SENTENCES[i]] + [end]
    shown = [[noise.mask] if i in best else one for i, one in enumerate(SENTENCES)]
    assert source == [word for one in shown for word in one] + [end]


def test_documents_choose_by_themselves_and_a_share_stays() -> None:
    """Packed rows with special tokens; random numbers of a row alone decide."""
    rows = make_rows(300, 60, packed=True, short=True)
    start = np.ones(rows.seqs["text"].ids.shape, bool)
    rows = rows.with_seq("text", rows.seqs["text"].with_tracks(word_start=start))
    noise = GapSentences(vocab=V, rate=0.34, select="random", kept=0.25)
    noised, text = noise(rows, Draws(3, 0)), rows.seqs["text"]
    source, target = noised.seqs["source"], noised.seqs["target"]
    assert not noised.values["cut"].any()
    hidden = total = 0
    for r in range(300):
        for d in range(text.tracks["document"][r].max() + 1):
            here = text.tracks["document"][r] == d
            number, ids = text.tracks["sentence"][r][here], text.ids[r][here]
            words = list(zip(number, ids, strict=True))
            groups = [[w for _, w in g if w >= 200] for _, g in groupby(words, key=lambda x: x[0])]
            groups = [group for group in groups if group]
            own = target.ids[r][target.tracks["document"][r] == d]
            count = min(len(groups), max(1, int(0.34 * len(groups) + 1e-9)))
            inside = tuple(own[own >= 200].tolist())
            chosen = [g for g in groups if ",".join(map(str, g)) in ",".join(map(str, inside))]
            assert len(chosen) >= count
            assert sum(map(len, chosen)) >= len(inside)
            hidden += int((source.ids[r][source.tracks["document"][r] == d] == noise.mask).sum())
            total += count
    assert 0.7 < hidden / total < 0.8
    again = noise(rows, Draws(3, 0)).seqs["target"].ids
    assert np.array_equal(again, target.ids)
    assert not np.array_equal(noise(rows, Draws(4, 0)).seqs["target"].ids, target.ids)


def test_pieces_of_a_word_count_together_and_a_long_target_is_cut() -> None:
    """Words 210 + 211 and 210 + 212 differ; a long target is cut, and counted."""
    sentences = ((210, 211, 213), (210, 212, 214), (213, 215, 216, 217))
    rows = row_of(sentences)
    start = rows.seqs["text"].tracks["word_start"].copy()
    start[0, [1, 4]] = False
    rows = rows.with_seq("text", rows.seqs["text"].with_tracks(word_start=start))
    noise = GapSentences(vocab=V, rate=0.4, kept=0.0)
    assert written(noise(rows, Draws(0, 0)))[1][:-1] == [210, 211, 213]
    cut = GapSentences(vocab=V, rate=0.4, kept=0.0, target_length=2)(rows, Draws(0, 0))
    assert (written(cut)[1], cut.values["cut"].tolist()) == ([210, 211], [2])


def test_signs_are_no_words() -> None:
    """210 is a full stop, which three sentences share."""
    texts = tuple("." if token == 210 else "a" for token in range(V.size))
    noise = GapSentences(vocab=make_vocab(texts=texts), rate=0.25, kept=0.0)
    sentences = ((210, 210, 211), (212, 213), (210, 210, 214), (213, 210, 215, 216))
    assert written(noise(row_of(sentences), Draws(0, 0)))[1][:-1] == [212, 213]


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"kept": 1.5}, {"select": "best"}, {"counts": "a"}])
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"noise.{next(iter(wrong))}"):
        GapSentences(**{"vocab": V, "rate": 0.3, **wrong})  # type: ignore[arg-type]
