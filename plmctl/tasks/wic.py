"""Word in Context (Pilehvar and Camacho-Collados, 2019): does a word mean the same in two
sentences?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts.word_in_context import WordInContextRows


@dataclass(frozen=True, kw_only=True)
class WicSettings(ClassificationSettings):
    """Settings of Word in Context: those of classification; its files have no columns."""

    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]


@part_of("task")
class WordInContext(Classification):
    """Predicts whether a word has one sense in two sentences, from `[h_row; h_1; h_2]`. The first
    is the state of the row (one state, or several by the pooling of the model), the others are the
    mean states of the word in each sentence.

    `loss = -log softmax(head([h_row; h_1; h_2]))[label]` (Wang et al., 2019, SuperGLUE,
    arXiv:1905.00537, sec. 4.1, for BERT). A sentence that is cut before its word gives the state at
    its end.
    """

    fields = WordInContextRows.fields
    facts = replace(Classification.facts, typed=WordInContextRows.typed)

    Settings = WicSettings

    def lay_out(self, own: WicSettings) -> WordInContextRows:
        return WordInContextRows()
