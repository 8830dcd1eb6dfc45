"""The published rules of evaluate-v1.1 and evaluate-v2.0, case by case, and the threshold search
against trying all of them.
"""

import json
import random
import re
import string

import pytest

from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.scores import squad as squad


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # punctuation goes before articles: "cat's" is one word
        ("The  Cat's an a hat.", "cats hat"),
        ("a-b", "ab"),  # the hyphen is deleted, not blanked, so no article is left standing alone
        ("Another theme", "another theme"),  # articles only as whole words
        ("“Quoted” – text", "“quoted” – text"),  # Unicode punctuation stays
        ("the", ""),
        ("The.A", "thea"),  # punctuation is deleted first
    ],
)
def test_normalisation(text, expected):
    assert squad.normalise(text) == expected


@pytest.mark.parametrize(
    ("gold", "guess", "version", "expected"),
    [
        ("the black cat", "black cat sat", 2, 0.8),  # P = 2/3, R = 1
        ("cat cat", "cat", 2, 2 / 3),  # multisets: one of two
        ("cat", "dog", 2, 0.0),
        ("the", "a", 2, 1.0),  # both normalise to nothing
        ("the", "a", 1, 0.0),
        ("the", "cat", 2, 0.0),
    ],
)
def test_f1(gold, guess, version, expected):
    assert squad.f1(gold, guess, version=version) == pytest.approx(expected)


def test_version_1_takes_the_best_gold_and_counts_a_missing_guess_as_zero():
    found = squad.score_v1([{"golds": ["x y", "x"], "guess": "x"}, {"golds": ["z"], "guess": None}])
    assert found == {"f1": 50.0, "exact": 50.0}
    assert squad.score_v1([{"golds": ["the"], "guess": "a"}]) == {"f1": 0.0, "exact": 100.0}
    assert squad.score_v1([]) == {"f1": 0.0, "exact": 0.0}


def test_version_2_compares_no_empty_golds_and_leaves_missing_guesses_out():
    predictions = [
        {"golds": ["the", "x"], "guess": "x", "null_odds": -1.0},
        # every gold normalises to nothing: answerable, and wrongly refused
        {"golds": ["the"], "guess": "y", "null_odds": 3.0},
        {"golds": ["x"], "guess": None, "null_odds": 0.0},
        {"golds": [], "guess": "z", "null_odds": -2.0},  # unanswerable, wrongly answered
    ]
    found = squad.score_v2(predictions)
    assert found["exact"] == found["f1"] == pytest.approx(100 / 3)
    assert found["HasAns_f1"] == 50.0
    assert found["NoAns_f1"] == 0.0


def words(text):
    """What evaluate-v2.0 compares, in its own order: lower case, no punctuation, no articles,
    single spaces.
    """
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in re.sub(r"\b(a|an|the)\b", " ", kept).split() if word]


def overlap(gold, guess):
    gold, guess = words(gold), words(guess)
    if not gold or not guess:
        return float(gold == guess)
    rest, same = list(gold), 0
    for word in guess:
        if word in rest:
            rest.remove(word)
            same += 1
    return (
        0.0
        if not same
        else 2 * (same / len(guess)) * (same / len(gold)) / (same / len(guess) + same / len(gold))
    )


def official(data, guesses, odds, threshold):
    """The definition of evaluate-v2.0: a question has an answer if its list is not empty,
    whatever is written there.
    """
    raw, has = {"exact": {}, "f1": {}}, {}
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                has[qa["id"]] = bool(qa["answers"])
                golds = [one["text"] for one in qa["answers"] if words(one["text"])] or [""]
                guess = guesses[qa["id"]]
                raw["exact"][qa["id"]] = max(float(words(gold) == words(guess)) for gold in golds)
                raw["f1"][qa["id"]] = max(overlap(gold, guess) for gold in golds)
    found = {}
    for name, scores in raw.items():
        kept = {
            key: float(not has[key]) if odds[key] > threshold else score
            for key, score in scores.items()
        }
        groups = {
            "": list(has),
            "HasAns_": [k for k in has if has[k]],
            "NoAns_": [k for k in has if not has[k]],
        }
        for part, keys in groups.items():
            found[f"{part}{name}"] = 100 * sum(kept[key] for key in keys) / len(keys)
        score = best = sum(not there for there in has.values())
        found[f"best_{name}_threshold"] = 0.0
        for key in sorted(odds, key=lambda key: odds[key]):
            score += scores[key] if has[key] else -1 if guesses[key] else 0
            if score > best:
                best, found[f"best_{name}_threshold"] = score, odds[key]
        found[f"best_{name}"] = 100 * best / len(scores)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_version_2_is_the_definition_of_the_official_script(seed, tmp_path):
    """Golds among which "a", "the" and "!!!" stand alone or beside others, on a file read as any
    other.
    """
    draw, context = random.Random(seed), "the cat sat on a mat !!!"
    golds = ["the", "a", "!!!", "cat", "the cat", "cat sat", "mat"]
    questions = []
    for n in range(60):
        texts = draw.choice([[], [draw.choice(golds)], draw.choices(golds, k=3)])
        answers = [{"text": text, "answer_start": context.index(text)} for text in texts]
        questions.append(
            {"id": str(n), "question": "?", "is_impossible": not texts, "answers": answers}
        )
    # as some conversions write it
    questions[0] |= {"is_impossible": True, "answers": [{"text": "", "answer_start": -1}]}
    data = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    examples = SquadFiles(splits={"dev": ["dev.json"]}).read(str(tmp_path), "dev", {})
    assert examples[0].label is None
    guesses = {
        one.id: draw.choice(["cat", "the", "", "a cat sat", "!!!", "dog"]) for one in examples
    }
    odds = {one.id: draw.choice([draw.uniform(-3, 3), 1.0]) for one in examples}
    rows = [
        {"golds": one.fields["answers"], "guess": guesses[one.id], "null_odds": odds[one.id]}
        for one in examples
    ]
    threshold = draw.uniform(-2, 2)
    assert squad.score_v2(rows, threshold=threshold) == pytest.approx(
        official(data, guesses, odds, threshold)
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(25))
def test_the_best_threshold_equals_trying_every_one(seed):
    draw = random.Random(seed)
    predictions = [
        {
            "golds": draw.choice([[], ["x"], ["x y"]]),
            "guess": draw.choice(["x", "x y", "q"]),
            "null_odds": draw.uniform(-3, 3),
        }
        for _ in range(12)
    ]
    found = squad.score_v2(predictions)
    tried = [float("-inf")] + [p["null_odds"] for p in predictions]
    for name in ("f1", "exact"):
        assert found[f"best_{name}"] == pytest.approx(
            max(squad.score_v2(predictions, threshold=t)[name] for t in tried)
        )
        if found[f"best_{name}_threshold"] in tried:
            again = squad.score_v2(predictions, threshold=found[f"best_{name}_threshold"])[name]
            assert again == pytest.approx(found[f"best_{name}"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Unicode punctuation too, where there are Chinese characters
        ("1995年，在《北京》。", "1995 年 在 北 京"),
        ("GPT-2 模型", "gpt2 模 型"),
        ("the 猫", "the 猫"),  # no articles
    ],
)
def test_chinese_characters_are_tokens(text, expected):
    assert squad.normalise(text) == expected


def test_a_chinese_answer_is_right_in_part():
    characters = {"overlap": "characters"}
    assert squad.f1("北京市海淀区", "海淀区", **characters) == pytest.approx(2 * 3 / 9)
    assert squad.f1("北京", "上海", **characters) == 0
    assert squad.exact("《北京》", "北京。", **characters) == 1
    assert squad.exact("《北京》", "北京。") == 0  # evaluate-v1.1
    assert squad.f1("东西南北", "北南西东", **characters) == 1
    assert squad.f1("东西南北", "北南西东", overlap="run") == 1 / 4
    found = squad.score_v1([{"golds": ["北京市", "北京"], "guess": "北京人"}], overlap="run")
    assert found == {"f1": pytest.approx(80.0), "exact": 0.0}
