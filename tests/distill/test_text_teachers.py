"""Multilingual distillation against loops over texts, and from a teacher with another tokenizer to
a student.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plmctl.artifacts.loading import load
from plmctl.config.compose import composed
from plmctl.config.spec import Provenance
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.distill.base import Measures
from plmctl.distill.distillation import Distillation
from plmctl.distill.logits import LogitMSE, SoftTargets
from plmctl.distill.teachers import TextVectors
from plmctl.models.base import Model
from plmctl.runs import side_by_side
from plmctl.runs.distill_words import as_training
from plmctl.runs.distilling import distill
from plmctl.runs.text_teachers import Lessons
from plmctl.tasks import batches
from plmctl.tasks.scores.translation_matching import match, score_matches
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.device.precision import choose
from tests.interop.publishing import publish
from tests.objectives.contrastive import encoder
from tests.tasks.test_sentence_tasks import make_task

PAIRS = [
    ("a cat sat", ["die katze"]),
    ("the dog ran", ["der hund", "le chien"]),
    ("one mat", ["die katze"]),  # the same translation as another sentence
    ("it sat", ["es sass"]),
]
TINY = ["size=tiny", "size.inner_width=16", "size.num_heads=2", "size.num_layers=1"]
TINY += ["size.width=8", "tokenizer.vocab_size=28", "task=sentence_translations"]
TINY += [
    "distill=vectors",
    "task.max_length=16",
    "train.steps=2",
    "train.precision=fp32",
    "train.threads=1",
]


def write(file: Path, times: int = 1) -> Path:
    lines = [json.dumps({"source": s, "target": t}) + "\n" for s, t in PAIRS * times]
    file.write_text("".join(lines))
    return file


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Model, Batch, list[list[int]]]:
    """(task, student, batch of all rows, numbers of the rows of each example)."""
    file = write(tmp_path_factory.mktemp("pairs") / "train.jsonl")
    task = make_task("sentence_translations", file, "task.temperature=0.1")
    words = [" ".join([source, *targets]) for source, targets in PAIRS]
    tokenizer = Tokenizer.train(words, kind="wordpiece", vocab_size=40)
    batch = batches.collate(task.encode(task.read("train"), tokenizer), np.arange(9))
    model = Model(backbone=encoder(0.0).backbone, heads={}).eval()
    return task, model, batch, [[0, 1], [2, 3, 4], [5, 6], [7, 8]]


def pool(model: Model, batch: Batch) -> list[Tensor]:
    """The mean of the states of the tokens of each row."""
    states, length = model(batch).last, batch.text.length
    return [states[n, : length[n]].mean(0) for n in range(len(length))]


def test_a_student_learns_the_vector_of_the_source(lesson: Any) -> None:
    task, model, batch, rows = lesson
    torch.manual_seed(1)
    vectors = torch.randn(4, 8, dtype=torch.float64)
    measures = Measures.of(model, "the teacher")
    made: Any = {"objective": task, "model": model, "student": Measures.of(model, "the student")}
    made["teacher"] = TextVectors(vectors=vectors, measures=measures)
    objective = Distillation(**made, signals={"vectors": LogitMSE(weight=1.0)}, hard=0.0)
    assert objective.counts(batch) == {"vectors/translation": 9}

    def update(loss: Tensor) -> float:
        for weights, gradient in zip(learnt, torch.autograd.grad(loss, learnt), strict=True):
            weights.data -= 0.3 * gradient
        return float(loss.detach())

    def mean_square() -> Tensor:
        """The released code: nn.MSELoss over all texts, the teacher's vectors repeated."""
        own = pool(model, batch)
        both = [(own[n], vectors[e]) for e, numbers in enumerate(rows) for n in numbers]
        return nn.MSELoss()(*map(torch.stack, zip(*both, strict=True)))

    learnt = list(model.parameters())
    start = {name: weights.clone() for name, weights in model.state_dict().items()}
    name = "vectors/translation"
    found = [update(objective(model, batch).terms[name].total / 9) for _ in range(10)]
    model.load_state_dict(start)
    wanted = [update(mean_square()) for _ in range(10)]
    model.load_state_dict(start)
    assert found == pytest.approx(wanted, rel=1e-9)
    assert found[-1] < 0.9 * found[0]
    soft = SoftTargets(weight=1.0, temperature=1.0)
    with pytest.raises(ConfigError, match="compares probabilities"):
        Distillation(**made, signals={"soft": soft}, hard=0.0)


def test_without_a_teacher_a_pair_is_nearer_than_others(lesson: Any) -> None:
    task, model, batch, rows = lesson
    own = pool(model, batch)
    pairs = [(own[numbers[0]], own[numbers[1]]) for numbers in rows]

    def rank(numbers: list[tuple[Tensor, Tensor]]) -> float:
        total = 0.0
        for i, (u, v) in enumerate(numbers):
            # the pairs 0 and 2 have one translation: no negatives of each other
            others = [w for j, (_, w) in enumerate(numbers) if j != i and {i, j} != {0, 2}]
            e = [
                math.exp(float(torch.cosine_similarity(u, w, dim=0).detach()) / 0.1)
                for w in (v, *others)
            ]
            total -= math.log(e[0] / sum(e))
        return total

    output = task.loss(task.logits(model, batch), batch)
    wanted = rank(pairs) + rank([(v, u) for u, v in pairs])
    assert float(output.terms["translation"].total.detach()) == pytest.approx(wanted, rel=1e-9)
    assert output.terms["translation"].count == 8


def test_translations_are_matched_both_ways() -> None:
    first = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    second = np.array([[3.0, 0.1], [5.0, 5.0], [0.0, 1.0], [-1.0, -1.0]])
    there, back = match(first, second)
    assert there.tolist() == [0, 2, 1, 0]  # of a vector without length the first
    assert back.tolist() == [0, 2, 1, 3]  # the last one has no nearer one than zeros
    rows = [
        {"gold": str(n), "guess": str(there[n]), "back": str(back[n])} for n in range(len(first))
    ]
    names = ["accuracy", "to_target", "to_source"]
    assert score_matches(rows, names) == {"accuracy": 0.375, "to_target": 0.25, "to_source": 0.5}


def test_bad_translations(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"source": "a cat"}\n')
    task = make_task("sentence_translations", tmp_path / "a.jsonl")
    with pytest.raises(DataError, match="without translation"):
        task.encode(task.splits.reader.read_file(tmp_path / "a.jsonl", task.columns,
                                                 labelled=False), None)  # fmt: skip
    with pytest.raises(ValueError, match="no tab between"):
        task.parse("a cat", 1)
    assert task.texts(task.parse("a cat\tdie katze", 1)) == ["a cat", "die katze"]
    with pytest.raises(ConfigError, match=r"task\.temperature"):
        make_task("sentence_translations", "x", "task.temperature=0")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A BERT of `transformers` of width 16 and its folder."""
    model, folder = publish(tmp_path_factory.mktemp("teachers") / "bert", "BertModel")
    words = sorted({word for source, _ in PAIRS for word in source.split()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokens += [f"w{n}" for n in range(40 - len(tokens))]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return model, folder


def test_a_teacher_embeds_texts_by_its_own_tokenizer(teacher: tuple[Any, Path]) -> None:
    model, folder = teacher
    texts = [source for source, _ in PAIRS] * 2
    lines: list[str] = []
    lessons = Lessons(texts, choose("fp32", torch.device("cpu")))
    found = lessons.embed(load(folder), "the teacher", lines.append).vectors
    vocab = {word: n for n, word in enumerate((folder / "vocab.txt").read_text().split())}
    for text, vector in zip(texts, found, strict=True):
        ids = torch.tensor([[vocab[word] for word in ("[CLS]", *text.split(), "[SEP]")]])
        with torch.no_grad():
            wanted = model(ids).last_hidden_state[0].mean(0)
        torch.testing.assert_close(vector, wanted, rtol=1e-4, atol=1e-5)
    assert lines == ["the teacher embeds 8 texts, pooling mean"]


def test_from_a_teacher_with_another_tokenizer_to_a_student(
    teacher: tuple[Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "ENOUGH", 0.0)
    monkeypatch.setattr(side_by_side, "ROUNDS", 2)
    path = f"task.path=[{write(tmp_path / 'train.jsonl', 4)},{write(tmp_path / 'dev.jsonl')}]"
    words = [*TINY, path, f"teacher={teacher[1]}", f"run.dir={tmp_path / 'student'}"]

    def learn(*more: str) -> int:
        return distill(composed(as_training(Provenance("distill", None, (*words, *more)))).spec)

    with pytest.raises(UsageError, match=r"as the student's; it has 16\n.*columns=16"):
        learn()
    with pytest.raises(UsageError, match=r"teacher_cache.*embeds each text once"):
        learn("heads.sentence.columns=16", f"teacher_cache={tmp_path}")
    assert learn("heads.sentence.columns=16") == 0
    result = json.loads((tmp_path / "student" / "result.json").read_text())
    assert {"accuracy", "to_target", "to_source"} <= set(result["distillation"]["teacher"])
    assert load(tmp_path / "student").tokenizer.vocab.size == 28
