"""Dataset rarification (Schick and Schütze, 2020, sec. 4.2): a test set whose labels depend on rare
words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plmctl.knowledge.substitutes import Substitute, Substitutes
from plmctl.knowledge.words import plain_words
from plmctl.text.letters import compose

Texts = Mapping[str, str]  # by role: text, text2
Predict = Callable[[Sequence[Texts]], list[str]]  # the label of each example


@dataclass(frozen=True)
class Rarified:
    """An example whose label its rare words decide.

    Args:
        number: The number of the original example.
    """

    number: int
    texts: dict[str, str]
    substitutes: dict[str, Substitute]


def find_places(texts: Texts, known: Substitutes) -> list[tuple[str, int, int, str]]:
    """(role, start, end, word) of all words of the texts that have substitutes, in order."""
    return [
        (role, match.start(), match.end(), compose(match[0].lower()))
        for role, text in texts.items()
        for match in plain_words().finditer(text)
        if compose(match[0].lower()) in known
    ]


def replace_words(texts: Texts, words: Mapping[str, str]) -> dict[str, str]:
    """The texts with these words replaced by others wherever they occur."""

    def spell(text: str) -> str:
        return plain_words().sub(lambda match: words.get(compose(match[0].lower()), match[0]), text)

    return {role: spell(text) for role, text in texts.items()}


def replace_share(
    texts: Texts, known: Substitutes, share: float, draws: np.random.Generator, hidden: str | None
) -> dict[str, str]:
    """The texts with a share of the words that have substitutes replaced: by `hidden`, or if that
    is None by one of their substitutes.
    """
    changed = dict(texts)
    for role, start, end, word in reversed(find_places(texts, known)):
        if draws.random() < share:
            own = known[word]
            new = own[int(draws.integers(len(own)))].word if hidden is None else hidden
            changed[role] = changed[role][:start] + new + changed[role][end:]
    return changed


def rarify(
    examples: Sequence[Texts],
    labels: Sequence[str],
    predict: Predict,
    known: Substitutes,
    *,
    hidden: str,
    most: int,
    seed: int,
) -> list[Rarified]:
    """The examples that a model labels rightly, but no longer once words with substitutes are
    hidden: random substitutes replace these words.

    The words of an example are hidden one after the other in their order, until the label is no
    longer predicted. All words that were hidden by then are replaced. (Schick and Schütze, 2020,
    arXiv:1910.07181, sec. 4.2; how several words are treated is ours.)

    Args:
        examples: candidates, which the model has not been trained on.
        predict: the model, which was trained on texts with some hidden words.
        hidden: The token that replaces a hidden word in the text.
    """
    words = [
        list(dict.fromkeys(word for *_, word in find_places(texts, known)))[:most]
        for texts in examples
    ]
    numbers = [number for number, own in enumerate(words) if own]
    right = predict([examples[number] for number in numbers])
    left = [n for n, label in zip(numbers, right, strict=True) if label == labels[n]]
    flipped: dict[int, int] = {}  # example -> how many of its words were hidden
    for count in range(1, most + 1):
        left = [n for n in left if n not in flipped and len(words[n]) >= count]
        shown = [replace_words(examples[n], dict.fromkeys(words[n][:count], hidden)) for n in left]
        for number, label in zip(left, predict(shown) if shown else [], strict=True):
            if label != labels[number]:
                flipped[number] = count
    rarified = []
    for number in sorted(flipped):
        draws = np.random.default_rng([seed, number])
        chosen = {
            word: known[word][int(draws.integers(len(known[word])))]
            for word in words[number][: flipped[number]]
        }
        spelled = {word: substitute.word for word, substitute in chosen.items()}
        texts = replace_words(examples[number], spelled)
        rarified.append(Rarified(number, texts, chosen))
    return rarified
