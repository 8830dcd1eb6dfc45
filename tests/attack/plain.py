"""Attacks written one text at a time, as loops over words: what the searches are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from plmctl.attack.word_text import WordText

Model = Callable[[str], np.ndarray]  # a text -> [K]
Words = Callable[[WordText, int], list[str]]
Allows = Callable[[WordText, WordText, int], bool]
Fits = Callable[[WordText, WordText], bool]


def choose(scores: Sequence[np.ndarray], gold: int) -> int:
    """Of texts that fool the model, else of all, the first with the least probability of gold."""
    fooling = [n for n, own in enumerate(scores) if int(own.argmax()) != gold]
    best = -1
    for n in fooling or range(len(scores)):
        if best < 0 or scores[n][gold] < scores[best][gold]:
            best = n
    return best


def attack_by_importance(
    text: str, gold: int, model: Model, words: Words, allows: Allows, fits: Fits
) -> tuple[str, bool, int]:
    """(the last text, whether it fools the model, different texts asked)."""
    asked = {text}

    def ask(changed: str) -> np.ndarray:
        asked.add(changed)
        return model(changed)

    first = WordText.of(text)
    start = ask(text)
    weights = {}
    for n in range(len(first)):
        if allows(first, first, n):
            without = ask(first.delete(n))
            weights[n] = start[gold] - without[gold]
            other = int(without.argmax())
            if other != gold:
                weights[n] += without[other] - start[other]
    now, least = first, float(start[gold])
    for n in sorted(weights, key=lambda n: weights[n], reverse=True):
        if not allows(first, now, n):
            continue
        changed = [now.replace(n, word) for word in words(now, n)]
        changed = [each for each in changed if fits(first, each)]
        if not changed:
            continue
        scores = [ask(each.text) for each in changed]
        best = choose(scores, gold)
        if int(scores[best].argmax()) != gold:
            return changed[best].text, True, len(asked)
        if scores[best][gold] < least:
            now, least = changed[best], float(scores[best][gold])
    return now.text, False, len(asked)


def attack_by_beam(
    text: str, gold: int, model: Model, words: Words, allows: Allows, fits: Fits, width: int
) -> tuple[str, bool, int]:
    """The same, by rounds over all words of the `width` best texts."""
    first = WordText.of(text)
    asked = {text}
    beam, best, least = [first], first, float(model(text)[gold])
    for _ in range(len(first)):
        changed: list[WordText] = []
        for now in beam:
            for n in range(len(now)):
                if allows(first, now, n):
                    for word in words(now, n):
                        other = now.replace(n, word)
                        if other not in changed and fits(first, other):
                            changed.append(other)
        if not changed:
            break
        scores = [model(each.text) for each in changed]
        asked.update(each.text for each in changed)
        top = choose(scores, gold)
        if int(scores[top].argmax()) != gold:
            return changed[top].text, True, len(asked)
        if scores[top][gold] < least:
            best, least = changed[top], float(scores[top][gold])
        order = sorted(range(len(changed)), key=lambda n: scores[n][gold])
        beam = [changed[n] for n in order[:width]]
    return best.text, False, len(asked)
