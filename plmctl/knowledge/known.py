"""How much of a text a source of knowledge knows: a lexicon of another language, or vectors of
other entities, know nothing of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from plmctl.core.errors import DataError
from plmctl.text.vocab import Vocab

LITTLE = 0.01  # a share of which a model learns little


@dataclass(frozen=True)
class TextSample:
    """A part of a text.

    Args:
        ids: [N] tokens, in their order.
        documents: [m] the document of each mention.
        entities: [m] the entity of each mention, by its id.
        others: the ids of further marks, by their name.
    """

    vocab: Vocab
    ids: np.ndarray
    documents: np.ndarray
    entities: np.ndarray
    others: Mapping[str, np.ndarray] = field(default_factory=dict)

    def find_ids(self, marks: str) -> np.ndarray:
        """[m] the ids of marks of this name."""
        return self.entities if marks == "entity" else self.others.get(marks, np.zeros(0, np.int64))

    @cached_property
    def words(self) -> Counter[str]:
        """How often each word stands in it; none where tokens have no spelling."""
        if not self.vocab.texts or not len(self.ids):
            return Counter()
        begins = np.flatnonzero(self.vocab.word_start[self.ids])
        words = (
            "".join(self.vocab.texts[token] for token in part.tolist())
            for part in np.split(self.ids, begins)[1:]
        )
        return Counter(word for word in words if any(map(str.isalpha, word)))

    def count_words(self, is_known: Callable[[str], object]) -> tuple[int, int]:
        """(words that are known, all words), each as often as it stands there."""
        known = sum(count for word, count in self.words.items() if is_known(word))
        return known, self.words.total()


def describe_known(known: int, total: int, what: str, *, fix: str, file: object = None) -> str:
    """A line on how much is known.

    Args:
        known: things that are known.
        total: things that could be.
        what: "words are in the lexicon": what they are, and what is known.
        fix: The settings that could be given instead.
        file: The file without knowledge.

    Raises:
        DataError: nothing is known.
    """
    if not known:
        raise DataError(f"none of {total:,} {what}", file=file, fix=fix)
    share = known / total
    little = ": a model learns little of them" if share < LITTLE else ""
    return f"{known:,} of {total:,} {what} ({share:.1%}){little}"
