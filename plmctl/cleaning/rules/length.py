"""The length of a document."""

from __future__ import annotations

from plmctl.cleaning.rule import Drop, TextRule, find_beyond
from plmctl.cleaning.text_view import TextView
from plmctl.core.parts import part_of
from plmctl.core.values import Whole


@part_of("rule")
class DocumentLength(TextRule):
    """Neither too few words nor too many (Gopher; Rae et al., 2021, arXiv:2112.11446, table A1).

    Args:
        least: The least number of words; in scripts without spaces, of characters.
        most: The largest number.
    """

    def __init__(self, *, least: Whole | None = 50, most: Whole | None = 100_000) -> None:
        self.least, self.most = least, most

    def apply(self, view: TextView) -> TextView | Drop:
        count = len(view.words)
        few = find_beyond("few words", count, least=self.least)
        return few or find_beyond("many words", count, most=self.most) or view
