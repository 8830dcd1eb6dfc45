"""Attacks against TextAttack's: the texts that it makes of 100 texts, which `text_attack.py` has
stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from plmctl.attack.base import AttackSearch, Place, WordCandidates
from plmctl.attack.beam import AttackBeam
from plmctl.attack.constraints import ChangedOnce, KeepStopWords
from plmctl.attack.importance import ByImportance
from plmctl.attack.neighbours import NearWords
from plmctl.attack.slips import LetterSlips
from plmctl.attack.together import attack_together
from plmctl.attack.word_text import WordText
from tests.attack.text_attack import (
    COUNT,
    LEAST,
    STOP_WORDS,
    STORE,
    make_texts,
    make_vectors,
    score,
)

pytestmark = pytest.mark.parity
WANTED = json.loads(STORE.read_text(encoding="utf-8"))


class Sorted(WordCandidates):
    """Of texts that are equally good TextAttack takes the first by the alphabet."""

    def __init__(self, own: WordCandidates) -> None:
        self.own = own

    def propose(self, places: Sequence[Place]) -> list[list[str]]:
        return [sorted(words) for words in self.own.propose(places)]


def make_neighbours() -> NearWords:
    part = NearWords.__new__(NearWords)  # of vectors that are no model's
    part.count, part.least, part.table, part.known = COUNT, LEAST, make_vectors(), {}
    return part


def attack(search: AttackSearch, candidates: WordCandidates, count: int) -> list[list[Any]]:
    """(how it ended, texts asked, the last text) of each text."""
    texts = make_texts()[:count]
    before = score(texts)
    constraints = [ChangedOnce(), KeepStopWords(words=STOP_WORDS)]
    found = attack_together(
        [
            search.search(WordText.of(text), int(own.argmax()), own, constraints)
            for text, own in zip(texts, before, strict=True)
        ],
        score=lambda items: list(score([text for _, text in items])),
        propose=Sorted(candidates).propose,
        keep=lambda pairs: [True] * len(pairs),
    )
    return [[end.fooled, queries + 1, end.text.text] for end, queries in found]


@pytest.mark.parametrize(
    ("name", "search", "candidates"),
    [
        ("letters", ByImportance(), LetterSlips(seed=0)),
        ("neighbours", ByImportance(), make_neighbours()),
        ("greedy", AttackBeam(width=1), LetterSlips(seed=0)),
        ("beam", AttackBeam(width=3), LetterSlips(seed=0)),
    ],
)
def test_texts_end_as_in_textattack(
    name: str, search: AttackSearch, candidates: WordCandidates
) -> None:
    some = 40 if isinstance(search, AttackBeam) else 100  # of 100 that are stored
    found, wanted = attack(search, candidates, some), WANTED[name][:some]
    assert len(found) == len(wanted) == some
    assert [row[0] for row in found] == [result == "fooled" for result, *_ in wanted]
    for (fooled, queries, text), (_, theirs, their_text) in zip(found, wanted, strict=True):
        # a beam of TextAttack ends with the texts of its last round, ours with the best of all
        if fooled or isinstance(search, ByImportance):
            assert text == their_text
        # of texts that two words of a text make, it counts each
        assert queries == theirs or (isinstance(search, AttackBeam) and queries < theirs)
    assert {row[0] for row in found} == {True, False}
