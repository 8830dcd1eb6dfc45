"""Rules for a changed text that depend on its words alone."""

from __future__ import annotations

from collections.abc import Collection

from plmctl.attack.base import Constraint
from plmctl.attack.word_text import WordText
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.text.function_words import ENGLISH


@part_of("constraint")
class ChangedOnce(Constraint):
    """A word that was changed stays as it is then."""

    def allows(self, first: WordText, now: WordText, number: int) -> bool:
        return first.word(number) == now.word(number)


@part_of("constraint")
class KeepStopWords(Constraint):
    """Stop words stay (Jin et al., 2020, arXiv:1907.11932, algorithm 1).

    Args:
        words: in lower case; None: English words that carry grammar.
    """

    def __init__(self, *, words: Collection[str] | None = None) -> None:
        self.words = ENGLISH if words is None else frozenset(words)

    def allows(self, first: WordText, now: WordText, number: int) -> bool:
        return first.word(number).lower() not in self.words


@part_of("constraint")
class ShareChanged(Constraint):
    """At most `share` of the words are changed, and one in any case.

    (TextBugger and others bound it: Li et al., 2019, arXiv:1812.05271.)
    """

    def __init__(self, *, share: float) -> None:
        if not 0 < share <= 1:
            raise ConfigError("share", share, "more than 0, at most 1", fix="constraint.share=0.3")
        self.share = share

    def allows(self, first: WordText, now: WordText, number: int) -> bool:
        changed = first.differing(now)
        return number in changed or len(changed) < max(1, int(self.share * len(first)))
