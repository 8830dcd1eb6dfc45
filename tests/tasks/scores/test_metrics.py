"""Every score against an independent scorer, and its value where the formula has none."""

import random
import warnings

import numpy as np
import pytest

from plmctl.tasks.scores import metrics

CLASSES = ["a", "b", "c"]


def _labels(seed: int, n: int, classes: list[str]) -> tuple[list[str], list[str]]:
    draw = random.Random(seed)
    return [draw.choice(classes) for _ in range(n)], [draw.choice(classes) for _ in range(n)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("classes", [CLASSES[:2], CLASSES])
def test_classification_scores_equal_sklearn(seed, classes):
    from sklearn import metrics as sk

    gold, guess = _labels(seed, 37, classes)
    assert metrics.accuracy(gold, guess) == pytest.approx(sk.accuracy_score(gold, guess), abs=1e-12)
    assert metrics.matthews(gold, guess) == pytest.approx(
        sk.matthews_corrcoef(gold, guess), abs=1e-12
    )
    assert metrics.macro_f1(gold, guess) == pytest.approx(
        sk.f1_score(gold, guess, average="macro"), abs=1e-12
    )
    if len(classes) == 2:
        assert metrics.f1(gold, guess, positive="b") == pytest.approx(
            sk.f1_score(gold, guess, pos_label="b"), abs=1e-12
        )


@pytest.mark.parametrize("unit", [1.0, 2.0**40, 1e80, 1e160, 1e295, 1e-170, 1e-290])
def test_pearson_does_not_depend_on_the_unit(unit):
    gold, guess = [1.0, 2.0, 4.0, 3.5], [0.5, 1.0, 1.5, 3.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = metrics.pearson([unit * each for each in gold], guess)
        assert found == pytest.approx(metrics.pearson(gold, guess), abs=1e-12)
        assert metrics.pearson(guess, [unit * each for each in gold]) == pytest.approx(found)


@pytest.mark.parametrize("seed", range(20))
def test_correlations_equal_scipy(seed):
    from scipy import stats

    draw = np.random.default_rng(seed)
    gold = draw.integers(0, 6, 41).astype(float)  # many ties
    guess = np.where(draw.random(41) < 0.3, 2.0, gold + draw.normal(size=41))
    assert metrics.pearson(gold, guess) == pytest.approx(stats.pearsonr(gold, guess)[0], abs=1e-12)
    assert metrics.spearman(gold, guess) == pytest.approx(
        stats.spearmanr(gold, guess)[0], abs=1e-12
    )


def test_constant_and_empty_input_score_zero_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.matthews(["1", "0"], ["1", "1"]) == 0.0
        assert (
            metrics.matthews([], [])
            == metrics.accuracy([], [])
            == metrics.macro_f1([], [])
            == metrics.majority([])
            == 0.0
        )
        assert metrics.f1(["0", "0"], ["0", "0"], positive="1") == 0.0
        for correlation in (metrics.pearson, metrics.spearman):
            assert correlation([1.0, 2.0], [3.0, 3.0]) == 0.0
            assert correlation([1.0, 2.0], [float("nan"), 3.0]) == 0.0
            assert correlation([], []) == 0.0
            assert correlation([1.0], [1.0]) == 0.0
        assert metrics.entity_scores([["O"]], [["O"]]) == {
            "f1": 0.0,
            "precision": 0.0,
            "recall": 0.0,
        }


TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("tags", [TAGS, [*TAGS, "E-PER", "S-PER", "E-LOC", "S-LOC"]])
def test_entity_f1_equals_seqeval(seed, tags):
    from seqeval.metrics import f1_score, precision_score, recall_score

    draw = random.Random(seed)
    gold = [[draw.choice(tags) for _ in range(draw.randint(1, 12))] for _ in range(15)]
    guess = [
        [tag if draw.random() < 0.7 else draw.choice(tags) for tag in sentence] for sentence in gold
    ]
    found = metrics.entity_scores(gold, guess)
    assert found["f1"] == pytest.approx(f1_score(gold, guess), abs=1e-12)
    assert found["precision"] == pytest.approx(precision_score(gold, guess), abs=1e-12)
    assert found["recall"] == pytest.approx(recall_score(gold, guess), abs=1e-12)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        # IOB1: an I- after O begins an entity
        (["I-PER", "I-PER", "O", "I-PER"], {("PER", 0, 1), ("PER", 3, 3)}),
        # IOB1: B- parts neighbours of one type
        (["I-PER", "B-PER", "I-PER"], {("PER", 0, 0), ("PER", 1, 2)}),
        (["B-PER", "I-LOC"], {("PER", 0, 0), ("LOC", 1, 1)}),  # a change of type begins an entity
        (["B-X-Y", "I-X-Y"], {("X-Y", 0, 1)}),  # the type may hold hyphens
        (
            ["S-PER", "B-PER", "I-PER", "E-PER", "E-PER"],
            {("PER", 0, 0), ("PER", 1, 3), ("PER", 4, 4)},
        ),
    ],
)
def test_entities_of_one_sentence(tags, expected):
    assert metrics.entities(tags) == expected


def test_majority():
    assert metrics.majority(["a", "b", "a"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_constant_answer_is_the_best_of_all_of_them(seed):
    draw = random.Random(seed)
    gold = [
        [draw.choice([*TAGS, "B-PER", "B-PER"]) for _ in range(draw.randint(1, 4))]
        for _ in range(12)
    ]
    tried = [
        metrics.entity_scores(gold, [[tag] * len(sentence) for sentence in gold]) for tag in TAGS
    ]
    found = metrics.constant_entity_scores(gold)
    assert found == {
        name: pytest.approx(max(one[name] for one in tried))
        for name in ("f1", "precision", "recall")
    }
    flat = [tag for sentence in gold for tag in sentence]
    assert metrics.constant(metrics.accuracy, flat) == pytest.approx(metrics.majority(flat))
    assert metrics.constant(metrics.matthews, flat) == 0.0
    assert (
        metrics.constant_entity_scores([["O", "O"]])["f1"]
        == metrics.constant(metrics.accuracy, [])
        == 0.0
    )
