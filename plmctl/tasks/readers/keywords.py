"""Tables whose text is a list of keywords, as that of CSL."""

from __future__ import annotations

from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.readers.tables import TEXTS, Table


@part_of("reader")
class KeywordTable(Table):
    """A table as `Table` reads it, in which a text may be a list of keywords in JSON. A space
    stands between two (CSL; CLUEbenchmark/CLUE, classifier_utils.py).
    """

    def cell(self, role: str, value: Any) -> Any:
        listed = role in TEXTS and isinstance(value, list)
        if listed and value and all(isinstance(word, str) for word in value):
            return " ".join(value)
        return super().cell(role, value)
