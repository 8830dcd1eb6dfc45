"""Questions in HotpotQA's layout, generated."""

from __future__ import annotations

import random
from typing import Any

THINGS = ["apple", "pear", "plum", "fig", "lime", "kiwi", "date", "nut"]
TOWNS = ["Rome", "Oslo", "Lima", "Bonn", "Cork", "Graz", "Bern", "York"]
RIVERS = ["Rhine", "Loire", "Volga", "Tagus", "Oder", "Seine"]
WORDS = ["the", "a", "of", "and", "to", "in", "it", "was", "for", "on", "as", "with", "by"]


def make_question(draw: random.Random, number: int) -> dict[str, Any]:
    """A thing grows in a town, and the paragraph of the town says on which river it lies; two more
    paragraphs say the same of another town. Every fourth question has the answer yes or no.
    """
    things, towns, rivers = draw.sample(THINGS, 2), draw.sample(TOWNS, 2), draw.sample(RIVERS, 2)
    context = []
    for thing, town, river in zip(things, towns, rivers, strict=True):
        context.append([thing, [f"The {thing} grows in {town}.", _noise(draw)]])
        context.append([town, [_noise(draw), f" {town} lies on the {river}."]])
    draw.shuffle(context)
    question, answer = f"On which river is the town of the {things[0]}?", rivers[0]
    if number % 4 == 3:
        answer = draw.choice(["yes", "no"])
        question = f"Is {rivers[answer == 'no']} the river of the {things[0]}?"
    return {
        "_id": f"q{number}",
        "question": question,
        "answer": answer,
        "type": "bridge",
        "level": "easy",
        "context": context,
        "supporting_facts": [[things[0], 0], [towns[0], 1]],
    }


def _noise(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=6)) + "."


def make_questions(count: int) -> list[dict[str, Any]]:
    """So many questions, the same in every run."""
    draw = random.Random(0)
    return [make_question(draw, number) for number in range(count)]
