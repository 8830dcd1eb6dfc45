"""Scores that are counts, on 500 random cases each, beside what the official scripts count, written
from their definitions: CoNLL-2005's srl-eval, CoNLL-2018's evaluation, subtask 1 of SemEval-2014,
TriviaQA's evaluation, SuperGLUE's MultiRC.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from fractions import Fraction
from typing import Any

import pytest

from plmctl.tasks.aspect_tagging import score_terms
from plmctl.tasks.dependency import score_trees
from plmctl.tasks.scores import trivia as matching
from plmctl.tasks.srl import score_arguments
from tests.tasks.readers.test_conllu import make_task

CASES = 500


def divide(part: int, whole: int) -> float:
    return float(Fraction(part, whole)) if whole else 0.0


def list_arguments(tags: list[str]) -> list[tuple[str, list[int]]]:
    """(name, its words) of each argument: props in brackets, where C-X goes on with the last X."""
    pieces: list[tuple[str, list[int]]] = []
    for word, tag in enumerate(tags):
        if tag == "O":
            continue
        kind, _, name = tag.partition("-")
        goes_on = kind == "I" and word and tags[word - 1] in (f"B-{name}", f"I-{name}")
        if goes_on:
            pieces[-1][1].append(word)
        else:
            pieces.append((name, [word]))
    whole: list[tuple[str, list[int]]] = []
    for name, words in pieces:
        base = name[2:] if name.startswith("C-") else None
        heads = [own for own in whole if own[0] == base]
        if heads:
            heads[-1][1].extend([-1, *words])  # a gap: parts are compared, too
        else:
            whole.append((name, words))
    return [own for own in whole if own[0] != "V"]


def test_arguments_of_predicates() -> None:
    rng = random.Random(0)
    names = ["O", "B-V", "I-V", "B-A0", "I-A0", "B-A1", "I-A1", "B-C-A1", "I-C-A1", "B-AM-TMP"]
    right = present = guessed = 0
    pairs = []
    for _ in range(CASES):
        gold = [rng.choice(names) for _ in range(rng.randint(1, 8))]
        guess = [tag if rng.random() < 0.7 else rng.choice(names) for tag in gold]
        pairs.append((gold, guess))
        own, found = list_arguments(gold), list_arguments(guess)
        present, guessed = present + len(own), guessed + len(found)
        for each in own:
            if each in found:
                found.remove(each)
                right += 1
    found_scores = score_arguments(pairs)
    assert found_scores["precision"] == divide(right, guessed)
    assert found_scores["recall"] == divide(right, present)
    assert found_scores["f1"] == divide(2 * right, present + guessed)


@pytest.mark.parametrize("punctuation", [True, False])
def test_heads_and_relations(punctuation: bool) -> None:
    """LAS compares relations without what stands behind their colon."""
    rng = random.Random(1)
    relations = ["nsubj", "nsubj:pass", "obj", "obl:tmod", "obl", "punct"]
    rows: list[dict[str, Any]] = []
    counts: dict[str, int] = defaultdict(int)
    for _ in range(CASES):
        size = rng.randint(1, 7)
        gold: dict[str, Any] = {
            "heads": [rng.randint(0, size) for _ in range(size)],
            "relations": [rng.choice(relations) for _ in range(size)],
            "upos": [rng.choice(["NOUN", "VERB", "PUNCT"]) for _ in range(size)],
        }
        guess: dict[str, Any] = {
            "heads": [h if rng.random() < 0.6 else rng.randint(0, size) for h in gold["heads"]],
            "relations": [r if rng.random() < 0.6 else rng.choice(relations)
                          for r in gold["relations"]],
        }  # fmt: skip
        rows.append({"gold": gold, "guess": guess})
        for n in range(size):
            if punctuation or gold["upos"][n] != "PUNCT":
                head = gold["heads"][n] == guess["heads"][n]
                plain = [re.sub(":.*", "", side["relations"][n]) for side in (gold, guess)]
                counts["words"] += 1
                counts["uas"] += head
                counts["las"] += head and plain[0] == plain[1]
                counts["full_las"] += head and gold["relations"][n] == guess["relations"][n]
    found = score_trees(rows, punctuation=punctuation)
    for name in ("uas", "las", "full_las"):
        assert found[name] == divide(counts[name], counts["words"])


def test_terms_of_aspects() -> None:
    rng = random.Random(2)
    places = [(start, start + size) for start in range(0, 12, 3) for size in (2, 5)]
    pairs = []
    right = present = guessed = 0
    for _ in range(CASES):
        gold, guess = ([list(rng.choice(places)) for _ in range(rng.randint(0, 4))] for _ in "ab")
        pairs.append((gold, guess))
        own = [g for n, g in enumerate(gold) if g not in gold[:n]]
        theirs = [g for n, g in enumerate(guess) if g not in guess[:n]]
        right += sum(each in own for each in theirs)
        present, guessed = present + len(own), guessed + len(theirs)
    found = score_terms(pairs)
    assert found["term_precision"] == divide(right, guessed)
    assert found["term_recall"] == divide(right, present)
    assert found["term_f1"] == divide(2 * right, present + guessed)


def clean_trivia(text: str) -> list[str]:
    """The words that TriviaQA's script compares: underscores first, then letters one by one."""
    kept = "".join(" " if c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~‘’´" else c for c in text.lower())
    return [word for word in re.sub(r"\b(a|an|the)\b", " ", kept).split(" ") if word]


@pytest.mark.parametrize(
    ("gold", "guess", "same"),
    [
        ("The Beatles", "beatles!", True),
        ("U.S. Army", "u s army", True),
        ("rock’n’roll", "rock n roll", True),
        ("snake_case", "snake case", True),
        ("“Help”", "Help", False),  # double quotation marks of printing are letters
        ("€5", "5", False),
        ("the a an", "", True),
        ("A-Team", "Team", True),
        ("Thea", "a", False),
        ("café", "cafe", False),
    ],
)
def test_names_as_triviaqa_compares_them(gold: str, guess: str, same: bool) -> None:
    assert matching.exact(gold, guess) == same
    assert (clean_trivia(gold) == clean_trivia(guess)) == same


def test_answers_of_triviaqa() -> None:
    rng = random.Random(3)
    pieces = ["The", "a", "an", "Ring", "ring", "U.S.", "“x”", "€5", "o’clock", "under_score", "-"]
    for _ in range(CASES):
        gold, guess = (" ".join(rng.choices(pieces, k=rng.randint(0, 5))) for _ in "ab")
        own, theirs = clean_trivia(gold), clean_trivia(guess)
        assert matching.exact(gold, guess) == (own == theirs)
        left, same = list(own), 0
        for word in theirs:
            if word in left:
                left.remove(word)
                same += 1
        if same:
            precision, recall = same / len(theirs), same / len(own)
            assert matching.f1(gold, guess) == (2 * precision * recall) / (precision + recall)
        else:
            assert matching.f1(gold, guess) == 0


def test_answers_of_multirc() -> None:
    """F1a of right answers over all answers, and the share of questions answered without fault."""
    rng = random.Random(4)
    rows = []
    for question in range(CASES):
        for answer in range(rng.randint(1, 5)):
            gold = rng.choice(["wrong", "right"])
            guess = gold if rng.random() < 0.7 else rng.choice(["wrong", "right"])
            own = {"id": f"{question}.{answer}", "bundle": f"0.{question}"}
            rows.append({**own, "gold": gold, "guess": guess})
    both = sum(row["gold"] == row["guess"] == "right" for row in rows)
    either = sum((row["gold"] == "right") + (row["guess"] == "right") for row in rows)
    whole: dict[str, bool] = {}
    for row in rows:
        whole[row["bundle"]] = whole.get(row["bundle"], True) and row["gold"] == row["guess"]
    found = make_task("multirc", "x").score(rows)
    assert found["f1"] == divide(2 * both, either)
    assert found["exact"] == divide(sum(whole.values()), CASES)
