"""Any number of labels a text: scores by scikit-learn, the loss by a loop, thresholds by a search,
tables in every layout.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.tasks.answers.label_loss import EachLabelLoss
from plmctl.tasks.baselines import score_baselines
from plmctl.tasks.calibration import LabelDecision, apply_decision, fit_decision
from plmctl.tasks.fitted_rows import FittedRows
from plmctl.tasks.readers.label_table import LabelTable
from plmctl.tasks.record import Example
from plmctl.tasks.scores import label_sets as multilabel_score
from plmctl.tasks.scores.metrics import is_larger_better
from plmctl.tasks.unlabelled import read_unlabelled
from tests.command import plmctl

NAMES = ["cheap", "fast", "loud", "new"]
SPLITS = {"train": ["train.*"], "dev": ["dev.*"]}


def make(*words: str, path: object = "x") -> Any:
    own = ["task=multilabel", f"task.path={path}", "checkpoint=null", *words]
    return build(config.compose("finetune", None, own).task, {"pooling": "first"}, path="task")


def draw(seed: int, rows: int = 60) -> list[list[str]]:
    rng = random.Random(seed)
    return [[name for name in NAMES if rng.random() < 0.35] for _ in range(rows)]


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    gold, guess = draw(seed), draw(seed + 100)
    tables = [
        np.array([[name in own for name in NAMES] for own in side], int) for side in (gold, guess)
    ]
    found = multilabel_score.score_sets(gold, guess, NAMES)
    for kind, average in (("micro", "micro"), ("macro", "macro"), ("example", "samples")):
        *values, _ = sklearn.precision_recall_fscore_support(
            *tables, average=average, zero_division=0
        )
        for part, value in zip(("precision", "recall", "f1"), values, strict=True):
            assert found[f"{kind}_{part}"] == pytest.approx(value, abs=1e-12)
    assert found["subset_accuracy"] == pytest.approx(sklearn.accuracy_score(*tables))
    assert found["hamming_loss"] == pytest.approx(sklearn.hamming_loss(*tables))
    assert set(found) == set(multilabel_score.NAMES)
    assert set(multilabel_score.score_sets([], [], NAMES).values()) == {0.0}


def test_a_score_comes_from_predictions_alone() -> None:
    task = make("task.metrics=[hamming_loss,micro_f1]")
    known = {"cheap": 0.9, "fast": 0.2}
    rows = [
        {"id": "0", "gold": ["cheap", "rare"], "guess": ["cheap"], "probabilities": known},
        {"id": "1", "gold": [], "guess": ["cheap"], "probabilities": known},
    ]
    scores = task.score(rows)
    # cheap, fast and rare, of two examples: rare is missed, and cheap is wrong once
    assert scores["hamming_loss"] == pytest.approx(2 / 6)
    assert scores["micro_f1"] == pytest.approx(2 / 4)
    assert scores["constant_hamming_loss"] == pytest.approx(2 / 6)  # nothing, or always cheap
    assert not is_larger_better(task.metrics[0])
    assert is_larger_better(make().metrics[0])


LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 60.0, -0.3], [0.0, 0.0, 0.0]])
LABELS = torch.tensor([[1, 0, 0], [0, 1, 1], [IGNORE, IGNORE, IGNORE]])


@pytest.mark.parametrize("weights", [{}, {"a": 3.0, "c": 0.25}])
@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_a_loop(
    weights: dict[str, float], gamma: float, smoothing: float
) -> None:
    total = 0.0
    for scores, gold in zip(LOGITS.tolist()[:2], LABELS.tolist()[:2], strict=True):
        for name, score, there in zip("abc", scores, gold, strict=True):
            log_yes, log_no = -math.log1p(math.exp(-score)), -math.log1p(math.exp(score))
            log_q, other = (log_yes, log_no) if there else (log_no, log_yes)
            each = -(1 - smoothing / 2) * log_q - smoothing / 2 * other
            weight = weights.get(name, 1.0) if there else 1.0
            total += weight * (1 - math.exp(log_q)) ** gamma * each / 3
    loss = EachLabelLoss(weights, gamma, smoothing)
    logits = LOGITS.clone().requires_grad_()
    found = loss.add_up(logits, LABELS, ["a", "b", "c"])
    assert found.item() == pytest.approx(total, rel=1e-5)
    found.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert not logits.grad[2].any()


def test_the_plain_loss_and_that_of_weights_are_torchs() -> None:
    wanted = F.binary_cross_entropy_with_logits(
        LOGITS[:2], LABELS[:2].float(), pos_weight=torch.tensor([2.0, 1.0, 5.0]), reduction="none"
    )
    found = EachLabelLoss({"a": 2.0, "c": 5.0}, 0.0, 0.0).add_up(LOGITS, LABELS, list("abc"))
    assert found.item() == pytest.approx(wanted.mean(-1).sum().item())


def test_balanced_weights_make_both_sides_of_a_label_count_the_same() -> None:
    loss = EachLabelLoss("balanced", 0.0, 0.0)
    loss.fit_sets([["a"], ["a", "b"], ["a"], []], ["a", "b"])
    assert loss.weights == {"a": 1 / 3, "b": 3.0}
    task = make("task.class_weights={nwe: 2.0}")
    with pytest.raises(ConfigError, match=r"task.class_weights='nwe'.*did you mean 'new'"):
        task.fit_labels([Example("0", {"text": "x"}, NAMES)])


def examples(rows: Sequence[tuple[str, list[str]]]) -> list[Example]:
    return [Example(str(n), {"text": text}, label) for n, (text, label) in enumerate(rows)]


def test_targets_and_guesses(toy: Any) -> None:
    task = make("task.threshold={fast: 0.2, new: 0.9}")
    train = examples([("a car", ["fast", "new"]), ("a pen", ["cheap"]), ("a day", [])])
    task.fit_labels(train)
    assert task.names == ["cheap", "fast", "new"]
    rows = task.encode(train, toy)
    assert rows.labels["types"].tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]
    logits = np.array([[0.1, -1.0, 2.0], [-0.1, -2.0, 2.5], [-9.0, -9.0, -9.0]])
    found = task.predict({"types": logits}, rows, train)
    # 0.52 > 0.5, 0.27 > 0.2, 0.88 < 0.9; 0.12 < 0.2, 0.92 > 0.9
    assert [each["guess"] for each in found] == [["cheap", "fast"], ["new"], []]
    assert found[0]["probabilities"]["fast"] == pytest.approx(1 / (1 + math.e))
    task.fit_labels(examples([("a cat", ["loud"])]))
    assert task.remarks[0].startswith("1 labels do not occur in training, such as loud")
    with pytest.raises(ConfigError, match="did you mean 'cheap'"):
        make("task.threshold={cheep: 0.4}").fit_labels(train)
    with pytest.raises(ConfigError, match=r"task.threshold.fast=1.5"):
        make("task.threshold={fast: 1.5}")


def predictions(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for own in draw(seed):
        known = {
            name: min(0.99, round(rng.random() * 0.3 + 0.1 * n + 0.2 * (name in own), 3))
            for n, name in enumerate(NAMES[:3])
        }
        gold = [name for name in own if name != "new"]
        guess = [name for name, p in known.items() if p > 0.5]
        rows.append({"id": "0", "gold": gold, "guess": guess, "probabilities": known})
    return rows


def test_one_threshold_for_all_has_the_best_first_metric() -> None:
    task, rows = make("task.metrics=[macro_f1]"), predictions(1)
    found = fit_decision(task, rows, ["threshold"], origin=FittedRows("dev"))

    def score(threshold: float) -> float:
        own = LabelDecision(threshold=threshold)
        return float(task.score(apply_decision(task, rows, own))["macro_f1"])

    assert isinstance(found.threshold, float)
    assert score(found.threshold) == pytest.approx(max(score(n / 500) for n in range(1, 500)))


def test_each_label_has_the_threshold_of_its_best_f1() -> None:
    task, rows = make("task.metrics=[macro_f1]"), predictions(2)
    rows = [{**row, "probabilities": {**row["probabilities"], "new": 0.7}} for row in rows]
    found = fit_decision(task, rows, ["thresholds"], origin=FittedRows("dev"))
    assert isinstance(found.threshold, dict)
    assert found.threshold["new"] == 0.5  # no row has it
    assert found.describe().startswith("thresholds of 4 labels, from ")

    def f1(name: str, threshold: float) -> float:
        gold = [name in row["gold"] for row in rows]
        guess = [row["probabilities"][name] > threshold for row in rows]
        right = sum(g and p for g, p in zip(gold, guess, strict=True))
        return 2 * right / (sum(gold) + sum(guess)) if right else 0.0

    for name in NAMES[:3]:
        best = max(f1(name, n / 500) for n in range(1, 500))
        assert f1(name, found.threshold[name]) == pytest.approx(best)
    together = fit_decision(task, rows, ["threshold"], origin=FittedRows("dev"))
    each, all_ = (
        task.score(apply_decision(task, rows, own))["macro_f1"] for own in (found, together)
    )
    assert each > all_
    with pytest.raises(UsageError, match=r"one for all.*\n  fix: 'calibrate=\[thresholds\]'"):
        fit_decision(task, rows, ["threshold", "thresholds"], origin=FittedRows("dev"))
    one = [{"gold": "a", "guess": "a", "probabilities": {"a": 0.7, "b": 0.3}}]
    with pytest.raises(UsageError, match=r"guesses one label.*\n  fix: 'calibrate=\[threshold\]'"):
        fit_decision(task, one, ["thresholds"], origin=FittedRows("dev"))


LAYOUTS = {
    "train.jsonl": [
        '{"text": "a car", "labels": ["fast", "new", "fast"]}',
        '{"text": "a day", "labels": []}',
        '{"text": "a pen", "labels": "cheap, new"}',
    ],
    "train.csv": ["labels,text", '"fast, new",a car', ",a day", '"cheap,new",a pen'],
    "train.tsv": ["text\tlabels", "a car\tfast,new", "a day\t", "a pen\tcheap , new"],
}


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_layouts(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("\n".join(LAYOUTS[name]) + "\n")
    found = LabelTable(splits=SPLITS).read(tmp_path, "train", {"text": "text", "labels": "labels"})
    assert [each.label for each in found] == [["fast", "new"], [], ["cheap", "new"]]
    assert [each.fields for each in found] == [{"text": f"a {x}"} for x in ("car", "day", "pen")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.tsv", "text\tlabels\na\tb,,c\n", r"train.tsv:2.*a label without a name in 'b,,c'"),
        ("train.jsonl", '{"text": "a", "labels": [["b"]]}\n', "a list of other things than labels"),
        ("train.jsonl", '{"text": "a", "labels": null}\n', "train.jsonl:1.*the label is empty"),
        (
            "train.jsonl",
            '{"text": "a", "label": ["b"]}\n',
            r"labels; .*\n  fix: task.columns.labels=label$",
        ),
        ("train.tsv", "text\tlabels\na\n", "train.tsv:2.*1 column where 2 are needed"),
        (
            "train.csv",
            "text,tags\na,b\n",
            r"found text, tags\n.*\n  fix: task.columns.labels=COLUMN",
        ),
        (
            "train.csv",
            "text,label\na,b\n",
            r"\(did you mean 'label'\?\)\n.*\n  fix: task.columns.labels=label$",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        LabelTable(splits=SPLITS).read(tmp_path, "train", {"text": "text", "labels": "labels"})


def test_a_separator_and_texts_without_labels(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a car\tfast|new\na pen\tcheap\n")
    task = make("task.columns={text: 0, labels: 1}", "task.reader.separator=|", path=tmp_path)
    assert [each.label for each in task.read("train")] == [["fast", "new"], ["cheap"]]
    (tmp_path / "more.jsonl").write_text('{"text": "a bus"}\n')
    _, found = read_unlabelled(make(path=tmp_path), str(tmp_path / "more.jsonl"))
    assert [each.label for each in found] == [None]
    with pytest.raises(ConfigError, match="separator"):
        LabelTable(splits=SPLITS, separator="")


def test_baselines_stand_beside_it() -> None:
    task = make()
    rows = [("a fast car", ["fast"]), ("a new pen", ["new"]), ("a fast new bus", ["fast", "new"])]
    found = score_baselines(task, examples(rows * 4), {"dev": examples(rows)}).scores["dev"]
    assert found["words"]["micro_f1"] == 1.0
    assert found["most frequent in train"]["micro_f1"] == pytest.approx(2 * 2 / (3 + 4))


@pytest.mark.slow  # thresholds are compared in the next tests
def test_it_is_learned_and_each_threshold_is_kept(tmp_path: Path) -> None:
    words = {"fast": "quick", "new": "fresh", "cheap": "thrifty"}
    rng = random.Random(0)
    for name, count in (("train", 96), ("dev", 24)):
        rows = []
        for n in range(count):
            own = [label for label in words if rng.random() < 0.4]
            text = " ".join(["thing", str(n), *(words[label] for label in own)])
            rows.append(json.dumps({"text": text, "labels": own}))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    run = tmp_path / "run"
    small = ["size=tiny", "tokenizer=word", "tokenizer.vocab_size=64", "train.precision=fp32"]
    more = ["optim.lr=2e-3", "train.epochs=6", "train.batch_size=8", "task.max_length=16"]
    plmctl("finetune", "task=multilabel", f"task.path={tmp_path}", "checkpoint=null", *small, *more,
           "task.class_weights=balanced", f"run.dir={run}")  # fmt: skip
    before = json.loads(plmctl("eval", f"checkpoint={run}", "--json"))["metrics"]["dev"]
    found = json.loads(plmctl("eval", f"checkpoint={run}", "calibrate=[thresholds]", "--json"))
    after = found["metrics"]["dev"]
    assert after["macro_f1"] >= before["macro_f1"] > before["constant_micro_f1"]
    assert found["remarks"]["decision"].startswith("thresholds of 3 labels")
    assert found["remarks"]["loss"] == "loss of the answers without the decision"
    assert found["remarks"]["log loss"] == f"{found['log loss']:.4f}"  # thresholds leave it
    (tmp_path / "new.txt").write_text("a quick thing\n")
    plmctl("eval", f"checkpoint={run}", f"input={tmp_path}/new.txt", f"out={tmp_path}/out.jsonl")
    (row,) = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert set(row["probabilities"]) == {*words}
    assert isinstance(row["guess"], list)
