"""The published rules of evaluate-v1.1 and evaluate-v2.0, case by case, and the threshold search against trying all of them."""

import random

import pytest

from plmctl.tasks import squad_score as squad


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat's an a hat.", "cats hat"),  # punctuation goes before articles: "cat's" is one word
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


def test_version_2_drops_empty_golds_and_leaves_missing_guesses_out():
    predictions = [
        {"golds": ["the", "x"], "guess": "x", "null_odds": -1.0},
        {"golds": ["the"], "guess": "y", "null_odds": 3.0},  # every gold empty: unanswerable, and rightly refused
        {"golds": ["x"], "guess": None, "null_odds": 0.0},
        {"golds": [], "guess": "z", "null_odds": -2.0},  # unanswerable, wrongly answered
    ]
    found = squad.score_v2(predictions)
    assert found["exact"] == found["f1"] == pytest.approx(100 * 2 / 3)
    assert found["HasAns_f1"] == 100.0
    assert found["NoAns_f1"] == 50.0


@pytest.mark.parametrize("seed", range(25))
def test_the_best_threshold_equals_trying_every_one(seed):
    draw = random.Random(seed)
    predictions = [
        {"golds": draw.choice([[], ["x"], ["x y"]]), "guess": draw.choice(["x", "x y", "q"]), "null_odds": draw.uniform(-3, 3)}
        for _ in range(12)
    ]
    found = squad.score_v2(predictions)
    tried = [float("-inf")] + [p["null_odds"] for p in predictions]
    for name in ("f1", "exact"):
        assert found[f"best_{name}"] == pytest.approx(max(squad.score_v2(predictions, threshold=t)[name] for t in tried))
        if found[f"best_{name}_threshold"] in tried:
            again = squad.score_v2(predictions, threshold=found[f"best_{name}_threshold"])[name]
            assert again == pytest.approx(found[f"best_{name}"])
