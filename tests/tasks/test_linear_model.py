"""Linear models of words that are kept: the answers of the comparison, after a round trip."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from plmctl.core.errors import DataError
from plmctl.tasks.baselines import score_baselines
from plmctl.tasks.choices import Choice
from plmctl.tasks.classification import Classification
from plmctl.tasks.entity_typing import EntityTyping
from plmctl.tasks.linear_model import CARD, TENSORS, fit_models, is_linear, load_linear
from plmctl.tasks.regression import Regression
from tests.tasks.test_baselines import build, examples

CLASSES = examples(
    [
        ({"text": text}, label)
        for text, label in [
            ("a good film", "pos"),
            ("a dull, dull film", "neg"),
            ("这部电影很好", "pos"),
            ("这部电影很差", "neg"),
            ("fine", "pos"),
        ]
    ]
)
ENTITY = [{"start": 0, "end": 1, "id": "", "type": ""}]
SETS = examples(
    [({**each.fields, "entities": ENTITY}, [each.label, "any"]) for each in CLASSES[:4]]
)
CHOICES = examples(
    [
        ({"text": "it is", "choices": ["cold", "warm"]}, "1"),
        ({"text": "it is", "choices": ["warm", "cold", "好"]}, "0"),
    ]
)
NUMBERS = examples([({"text": word}, str(n)) for n, word in enumerate(["a b", "b c", "好 c"])])


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        (build(Classification, ["accuracy"]), CLASSES),
        (build(EntityTyping, ["f1"], threshold=0.5), SETS),
        (build(Regression, ["pearson"]), NUMBERS),
        (build(Choice, ["accuracy"]), CHOICES),
    ],
    ids=["classes", "sets", "numbers", "choices"],
)
def test_a_kept_model_gives_the_answers_of_the_comparison(
    task: Any, rows: Any, tmp_path: Path
) -> None:
    found = score_baselines(task, rows, {"dev": rows})
    assert [*found.linear] == ["words", "words and pairs"]
    for name, model in found.linear.items():
        model.save(tmp_path / name, {"seed": 3})
        assert is_linear(tmp_path / name)
        again, config = load_linear(tmp_path / name)
        assert config == {"seed": 3}
        predicted = again.answer(task, rows)
        assert predicted == found.predictions["dev"][name]
        scores = task.score(predicted)
        assert {metric: scores[metric] for metric in task.metrics} == found.scores["dev"][name]
        one_by_one = [row for each in rows for row in again.answer(task, [each])]
        assert one_by_one == predicted
        new = [replace(each, label=None) for each in rows]
        assert again.answer(task, new) == [{**row, "gold": None} for row in predicted]


def test_probabilities_are_the_softmax_of_weighted_counts() -> None:
    """A loop over the words of a text."""
    task = build(Classification, ["accuracy"])
    model = fit_models(task, CLASSES)["words"]
    asked = examples([({"text": "这部 film: dull, unknown"}, None)])
    (row,) = model.answer(task, asked)
    texts = [set(["a", "good", "film"]), {"a", "dull", "film"}, {*"这部电影很好"}]
    texts += [{*"这部电影很差"}, {"fine"}]
    weights = {
        word: count * (1 + math.log(6 / (1 + sum(word in text for text in texts))))
        for word, count in Counter(["这", "部", "film", "dull"]).items()
    }
    length = math.hypot(*weights.values())
    scores = model.constant.clone()
    for word, weight in weights.items():
        scores += weight / length * model.weights[model.counts.number[word]]
    powers = {name: math.exp(z) for name, z in zip(model.names, scores.tolist(), strict=True)}
    shares = {name: power / sum(powers.values()) for name, power in powers.items()}
    assert row["probabilities"] == pytest.approx(shares, rel=1e-5)
    assert row["guess"] == max(shares, key=shares.__getitem__)
    assert model.find_unread([*asked, *examples([({"text": "新 x"}, None)])]) == {1}


def test_files_of_two_models_are_refused(tmp_path: Path) -> None:
    models = fit_models(build(Classification, ["accuracy"]), CLASSES)
    for name, folder in (("words", "a"), ("words and pairs", "b")):
        models[name].save(tmp_path / folder, {})
    (tmp_path / "a" / CARD).write_bytes((tmp_path / "b" / CARD).read_bytes())
    with pytest.raises(DataError, match="not those of the features"):
        load_linear(tmp_path / "a")
    save_file({}, tmp_path / "b" / TENSORS)
    with pytest.raises(DataError, match="not those of the features"):
        load_linear(tmp_path / "b")
    (tmp_path / "b" / TENSORS).unlink()
    with pytest.raises(DataError, match=r"linear\.safetensors"):
        load_linear(tmp_path / "b")
    (tmp_path / "b" / CARD).write_text(json.dumps({"most": "x"}))
    with pytest.raises(DataError, match="damaged"):
        load_linear(tmp_path / "b")
