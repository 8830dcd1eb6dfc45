"""The scores of answers beside the definitions of the official scripts (evaluate-v1.1,
evaluate-v2.0, CMRC 2018's): fifty cases by hand, and 150 random sets of questions each.
"""

from __future__ import annotations

import itertools
import random
import re
import string
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from plmctl.tasks.scores import cmrc_text
from plmctl.tasks.scores import squad as squad

# golds, guess -> exact of 2.0, tokens shared with the best gold, tokens of the guess, of that gold;
# zeros for the tokens of either side: it is empty
BY_HAND: list[tuple[list[str], str, int, int, int, int]] = [
    (["cat"], "cat", 1, 1, 1, 1),
    (["cat"], "Cat", 1, 1, 1, 1),
    (["cat"], "the cat", 1, 1, 1, 1),
    (["cat"], "a cat!", 1, 1, 1, 1),
    (["cat"], "an cat.", 1, 1, 1, 1),
    (["cat"], " cat ", 1, 1, 1, 1),
    (["cat"], "\tcat\n", 1, 1, 1, 1),
    (["cat"], "cats", 0, 0, 1, 1),
    (["cat"], "c-a-t", 1, 1, 1, 1),  # hyphens are deleted
    (["a-b"], "ab", 1, 1, 1, 1),
    (["a b"], "b", 1, 1, 1, 1),  # "a" is an article here
    (["The A"], "", 1, 0, 0, 0),  # both are nothing
    (["the"], "a", 1, 0, 0, 0),
    (["the"], "cat", 0, 0, 1, 0),
    (["the", "cat"], "cat", 1, 1, 1, 1),  # the first is no answer to compare with
    (["!!!"], "", 1, 0, 0, 0),
    (["!!!", "?"], "dog", 0, 0, 1, 0),
    (["..."], "the", 1, 0, 0, 0),
    (["another"], "other", 0, 0, 1, 1),  # articles only as whole words
    (["theory"], "ory", 0, 0, 1, 1),
    (["“cat”"], "cat", 0, 0, 1, 1),  # only ASCII punctuation is deleted
    (["“cat”"], "“cat”", 1, 1, 1, 1),
    (["5–7"], "57", 0, 0, 1, 1),
    (["5-7"], "57", 1, 1, 1, 1),
    (["$5.00"], "500", 1, 1, 1, 1),
    (["5,000"], "5000", 1, 1, 1, 1),
    (["U.S."], "US", 1, 1, 1, 1),
    (["it's"], "its", 1, 1, 1, 1),
    (["Beyoncé"], "beyoncé", 1, 1, 1, 1),
    (["Beyoncé"], "beyonce", 0, 0, 1, 1),
    (["İ"], "i̇", 1, 1, 1, 1),  # the lower case has two code points
    (["black cat"], "cat", 0, 1, 1, 2),
    (["black cat"], "cat black", 0, 2, 2, 2),
    (["black cat"], "the black black cat", 0, 2, 3, 2),
    (["cat cat"], "cat", 0, 1, 1, 2),
    (["cat cat"], "cat cat cat", 0, 2, 3, 2),
    (["x y z"], "y", 0, 1, 1, 3),
    (["x y z", "y"], "y", 1, 1, 1, 1),
    (["x y z", "x"], "z", 0, 1, 1, 3),  # the best gold counts
    (["x y", "x y z w"], "x y z", 0, 3, 3, 4),
    (["1066"], "1066", 1, 1, 1, 1),
    (["1066"], "in 1066", 0, 1, 2, 1),
    (["in the year 1066"], "the year 1066", 0, 2, 2, 3),
    (["北京"], "北京", 1, 1, 1, 1),
    (["北京"], "京", 0, 0, 1, 1),  # no spaces: one word
    (["授時暦"], "授時", 0, 0, 1, 1),
    (["x\u00a0y"], "x y", 1, 2, 2, 2),  # every white space
    (["the.cat"], "thecat", 1, 1, 1, 1),
    (["an a the cat"], "cat", 1, 1, 1, 1),
    (["x_y"], "xy", 1, 1, 1, 1),
    ([""], "", 1, 0, 0, 0),
    (["`cat`"], "cat", 1, 1, 1, 1),
]


def test_there_are_fifty() -> None:
    assert len(BY_HAND) >= 50


@pytest.mark.parametrize("case", BY_HAND, ids=[f"{each[:2]}" for each in BY_HAND])
def test_by_hand(case: tuple[list[str], str, int, int, int, int]) -> None:
    golds, guess, exact, same, of_guess, of_gold = case
    row = {"golds": golds, "guess": guess, "null_odds": 0.0}
    both_empty = of_guess == of_gold == 0
    wanted = 100 * 2 * same / max(1, of_guess + of_gold)
    second = squad.score_v2([row])
    assert second["exact"] == second["HasAns_exact"] == 100 * exact
    assert second["f1"] == pytest.approx(100 if both_empty else wanted)
    # 1.1 compares with every gold, and gives nothing for nothing
    first = squad.score_v1([row])
    assert first["exact"] == 100 * exact
    assert first["f1"] == pytest.approx(wanted)


def compare(kind: int, gold: str, guess: str) -> tuple[int, float]:
    """(exact, F1) as both scripts define them, apart from the empty side."""
    sides = []
    for text in (gold, guess):
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        text = re.sub(r"\b(a|an|the)\b", " ", text)
        sides.append(" ".join(text.split()))
    left, right = (side.split() for side in sides)
    same = sum((Counter(right) & Counter(left)).values())
    exact = int(sides[0] == sides[1])
    if kind == 2 and not (left and right):
        return exact, int(left == right)
    if not same:
        return exact, 0
    precision, recall = 1.0 * same / len(right), 1.0 * same / len(left)
    return exact, (2 * precision * recall) / (precision + recall)


Rows = list[dict[str, Any]]


def official_1(rows: Rows) -> dict[str, float]:
    """A question without a guess has a score of 0."""
    exact = shared = 0.0
    for row in rows:
        if row["guess"] is not None:
            found = [compare(1, gold, row["guess"]) for gold in row["golds"]]
            exact += max(each[0] for each in found)
            shared += max(each[1] for each in found)
    return {"exact": 100.0 * exact / len(rows), "f1": 100.0 * shared / len(rows)}


def official_2(rows: Rows, threshold: float) -> dict[str, float]:
    """By questions, in dictionaries; without a guess a question is in no total, and still among
    those that an empty answer would fit.
    """
    has = {n: bool(row["golds"]) for n, row in enumerate(rows)}
    odds = {n: row["null_odds"] for n, row in enumerate(rows)}
    result: dict[str, float] = {}
    for place, name in enumerate(("exact", "f1")):
        raw: dict[int, float] = {}
        for n, row in enumerate(rows):
            golds = [gold for gold in row["golds"] if compare(2, gold, "")[0] == 0] or [""]
            if row["guess"] is not None:
                raw[n] = max(compare(2, gold, row["guess"])[place] for gold in golds)
        kept = {n: float(not has[n]) if odds[n] > threshold else raw[n] for n in raw}
        result[name] = 100.0 * sum(kept.values()) / len(kept)
        for part, wanted in (("HasAns", True), ("NoAns", False)):
            own = [kept[n] for n in kept if has[n] == wanted]
            result[f"{part}_{name}"] = 100.0 * sum(own) / len(own) if own else 0.0
        score: float = sum(1 for n in has if not has[n])
        best, result[f"best_{name}_threshold"] = score, 0.0
        for n in sorted(odds, key=lambda key: odds[key]):
            if n not in raw:
                continue
            score += raw[n] if has[n] else -1 if rows[n]["guess"] else 0
            if score > best:
                best, result[f"best_{name}_threshold"] = score, odds[n]
        result[f"best_{name}"] = 100.0 * best / len(raw)
    return result


WORDS = ["a", "the", "an", "cat", "Cat.", "black", "!!", "sat", "on", "mat", "北京", "it's", "“x”"]


def draw_rows(draw: random.Random, *, empty: bool) -> Rows:
    def text(least: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(least, 4)))

    return [
        {
            "golds": [text(1) for _ in range(draw.randint(0 if empty else 1, 3))],
            "guess": draw.choice([text(0), text(1), None]) if n else text(1),
            "null_odds": draw.choice([draw.uniform(-3, 3), 0.0, 1.0]),
        }
        for n in range(draw.randint(1, 12))
    ]


def test_150_random_sets_of_version_1() -> None:
    draw = random.Random(0)
    for _ in range(150):
        rows = draw_rows(draw, empty=False)
        assert squad.score_v1(rows) == official_1(rows)  # to the last digit


def test_150_random_sets_of_version_2_with_thresholds() -> None:
    draw = random.Random(1)
    for _ in range(150):
        rows, threshold = draw_rows(draw, empty=True), draw.choice([-1.0, 0.0, 0.5, 1.0])
        assert squad.score_v2(rows, threshold=threshold) == official_2(rows, threshold)


def test_golds_that_are_nothing_are_answers_all_the_same() -> None:
    """evaluate-v2.0: a question has an answer where its list is not empty."""
    found = squad.score_v2([{"golds": ["the"], "guess": "", "null_odds": 2.0}], threshold=1.0)
    assert (found["HasAns_exact"], found["exact"], found["best_exact"]) == (0.0, 0.0, 100.0)
    assert squad.score_v2([{"golds": [], "guess": "", "null_odds": 2.0}])["NoAns_exact"] == 100.0


# --- CMRC 2018

POINTS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")  # "……" is in the list as a pair


def cut(text: str, split_words: Callable[[str], list[str]]) -> list[str]:
    found: list[str] = []
    kept = strip(text)
    for chinese, run in itertools.groupby(kept, key=lambda c: "\u4e00" <= c <= "\u9fa5"):
        letters = "".join(run)
        found += list(letters) if chinese else split_words(letters)
    return found


def strip(text: str) -> str:
    return "".join(c for c in text.lower().strip() if c not in POINTS)


def official_cmrc(rows: Rows, split_words: Callable[[str], list[str]]) -> dict[str, float]:
    exact = shared = 0.0
    for row in rows:
        if row["guess"] is None:
            continue
        exact += any(strip(gold) == strip(row["guess"]) for gold in row["golds"])
        scores = []
        for gold in row["golds"]:
            left, right = cut(gold, split_words), cut(row["guess"], split_words)
            longest = 0
            for a, b in itertools.product(range(len(left)), range(len(right))):
                size = 0
                while left[a + size : a + size + 1] == right[b + size : b + size + 1] != []:
                    size += 1
                longest = max(longest, size)
            if not longest:
                scores.append(0.0)
                continue
            precision, recall = 1.0 * longest / len(right), 1.0 * longest / len(left)
            scores.append((2 * precision * recall) / (precision + recall))
        shared += max(scores)
    return {"exact": 100.0 * exact / len(rows), "f1": 100.0 * shared / len(rows)}


@pytest.fixture(scope="module")
def penn() -> Callable[[str], list[str]]:
    nltk = pytest.importorskip("nltk.tokenize.destructive")
    split: Callable[[str], list[str]] = nltk.NLTKWordTokenizer().tokenize
    return split


PIECES = [
    *"北京市海淀区，。《》…「」（）·",
    *["gpt", "-2", " 3.5", "%", "1,000", ", ", ". ", ".", "..", "can't", "(", ")", '"', "'s", "o'"],
    *["'tis", " 'twas ", "cannot", "gonna ", "wanna", "''", "—", "&", "$", "?", "a", " ", "Å"],
    *["they'll ", "d'ye", "'", "[", "x;", "U.S.", "ISN'T", "«", "»", "‘", "‘a", "’"],
]


def test_words_between_chinese_characters_are_those_of_the_penn_treebank(
    penn: Callable[[str], list[str]],
) -> None:
    draw = random.Random(2)
    for _ in range(3000):
        text = "".join(draw.choices(PIECES, k=draw.randint(1, 8)))
        assert cmrc_text.split(text) == cut(text, penn), text


def test_150_random_sets_of_cmrc(penn: Callable[[str], list[str]]) -> None:
    draw = random.Random(3)
    for _ in range(150):
        rows: Rows = [
            {
                "golds": ["".join(draw.choices(PIECES, k=draw.randint(1, 6))) for _ in range(3)],
                "guess": draw.choice([None, "".join(draw.choices(PIECES, k=draw.randint(0, 6)))]),
            }
            for _ in range(draw.randint(1, 6))
        ]
        for row in rows[::2]:
            row["guess"] = draw.choice(row["golds"])[draw.randint(0, 2) :]
        assert squad.score_v1(rows, overlap="run") == official_cmrc(rows, penn)


@pytest.mark.parametrize(
    ("gold", "guess", "exact", "shared"),
    [
        ("《北京》", "北京。", 1, 1.0),
        ("北京市海淀区", "海淀区", 0, 2 * 3 / 9),
        ("东西南北", "北南西东", 0, 2 * 1 / 8),
        ("北 京", "北京", 0, 1.0),  # texts are compared with their spaces, tokens are not
        ("GPT-2 模型", "gpt2模型", 0, 1.0),
        ("GPT-2模型", "gpt2模型", 1, 1.0),
        ("北京…", "北京", 0, 2 * 2 / 5),  # one character of an ellipsis is not deleted
        ("（1995年）", "1995年", 1, 1.0),
        ("(1995年)", "1995年", 0, 2 * 2 / 6),  # ASCII brackets are tokens
        ("91,098人", "91098人", 0, 2 * 1 / 4),
        ("the 猫", "猫", 0, 2 * 1 / 3),  # no articles
        ("，。", "，。", 1, 0.0),  # nothing is shared by nothing
        ("北京", "", 0, 0.0),
    ],
)
def test_cmrc_by_hand(gold: str, guess: str, exact: int, shared: float) -> None:
    found = squad.score_v1([{"golds": [gold], "guess": guess}], overlap="run")
    assert found == {"exact": 100.0 * exact, "f1": pytest.approx(100 * shared)}
