"""The language of a document."""

from __future__ import annotations

from collections.abc import Collection

from plmctl.cleaning.languages import LANGUAGES
from plmctl.cleaning.rule import Drop, TextRule, find_beyond
from plmctl.cleaning.text_view import TextView
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import Rate


@part_of("rule")
class KeepLanguages(TextRule):
    """Only documents in some languages, told apart by letters and function words.

    Differs: FineWeb asks fastText's classifier (Penedo et al., 2024, arXiv:2406.17557, sec. 3.1).

    Args:
        keep: Codes of languages: [en, zh].
        least: The least certainty.
    """

    def __init__(self, *, keep: Collection[str], least: Rate | None = 0.65) -> None:
        for code in keep:
            if code not in LANGUAGES:
                allowed = f"some of {', '.join(LANGUAGES)}{nearest(code, LANGUAGES)}"
                raise ConfigError("keep", code, allowed, fix="rule.language.keep=[en]")
        self.keep, self.least = frozenset(keep), least

    def apply(self, view: TextView) -> TextView | Drop:
        code, share = view.language
        if code not in self.keep:
            return Drop(f"language {code}", share)
        return find_beyond("uncertain language", share, least=self.least) or view
