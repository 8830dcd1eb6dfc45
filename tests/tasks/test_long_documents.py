"""Long documents in fine-tuning: the global tokens that each task states, evidence far from the
answer, which only a long model connects, candidates with a model made long.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plmctl
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.config.command import perform
from plmctl.core.batch import Rows
from plmctl.tasks.record import Example

KEYS = {"alpha": "red", "beta": "blue"}
THINGS = ["apple", "pear", "plum", "fig", "lime", "kiwi", "date", "nut"]
WORDS = ["the", "a", "of", "and", "to", "in", "it", "was", "for", "on", "as", "with", "by"]
FAR = 20  # words between the key and what it opens
MODEL = [
    "pattern=longformer",
    "pattern.parts.0.reach=2",
    "model.stack.layout='gf*2'",
    "tokenizer=word",
    "size.num_layers=2",
    "size.width=64",
    "size.num_heads=4",
    "size.inner_width=128",
    "model.initializer.std=0.2",
    "model.embedding.dropout=0",
]


def encode(task: str, example: Example, toy: Any, *words: str) -> Rows:
    words = (f"task={task}", "task.path=x", "checkpoint=null", *words)
    part = build(config.compose("finetune", None, list(words)).task, path="task")
    part.fit_labels([example]) if part.facts.has_classes and task != "classification" else None
    part.label_names = ["1", "2"]
    rows: Rows = part.encode([example], toy)
    return rows


def marked(rows: Rows, name: str = "text") -> list[list[int]]:
    """The positions of the global tokens of each row."""
    return [np.flatnonzero(row).tolist() for row in rows.seqs[name].tracks["global"]]


def test_each_task_states_its_global_tokens(toy: Any) -> None:
    text = {"text": "one two six ten cat dog"}
    row = encode("classification", Example("0", text, "1"), toy)
    assert marked(row) == [[0]]
    row = encode("regression", Example("0", text, "1"), toy)
    assert marked(row) == [[0]]
    fields = {"text": "one two", "choices": ["six ten", "cat"]}
    rows = encode("choice", Example("0", fields, "1"), toy)
    # [cls] one two [sep] six ten [sep], and [cls] one two [sep] cat [sep]
    assert marked(rows) == [[0, 4, 5, 6], [0, 4, 5]]
    fields = {"question": "one two", "context": text["text"], "answers": ["six"]}
    row = encode("squad", Example("0", fields, (8, 11)), toy)
    assert marked(row) == [[0, 1, 2]]
    fields = {"question": "one two", "candidates": ["cat", "dog"], "documents": ["six ten"]}
    row = encode("wikihop", Example("0", fields, "dog"), toy)
    assert marked(row) == [[0, 1, 2, 3, 4, 5, 6, 7]]  # up to the separator before the documents
    pair = Example("0", {"source": text["text"]}, ("six",))
    row = encode("translation", pair, toy, "model=encoder_decoder")
    assert marked(row, "source") == [[0]]


def far_question(draw: random.Random, number: int) -> dict[str, Any]:
    """A paragraph whose first word says which of two colours is meant, and at whose end, far
    behind, each colour has a thing.

        beta the of it ... with red fig blue plum      which? plum
    """
    key = draw.choice(list(KEYS))
    words, answer = [key, *draw.choices(WORDS, k=FAR)], ""
    colours = draw.sample(list(KEYS.values()), 2)
    for colour, thing in zip(colours, draw.sample(THINGS, 2), strict=True):
        words += [colour, thing]
        answer = thing if colour == KEYS[key] else answer
    context = " ".join(words)
    answers = [{"text": answer, "answer_start": context.index(f" {answer}") + 1}]
    question = {"id": str(number), "question": "which", "answers": answers}
    return {"context": context, "qas": [question]}


def write_far(folder: Path) -> None:
    draw = random.Random(0)
    for split, count in (("train", 600), ("dev", 100)):
        paragraphs = [far_question(draw, number) for number in range(count)]
        (folder / f"{split}.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


def finetune(folder: Path, *words: str) -> dict[str, float]:
    """The scores on dev of the model that a run ends with."""
    run = f"run.dir={folder}"
    train = ["train.precision=fp32", "train.threads=1", "train.batch_size=32", "optim.lr=1e-3"]
    words = ("checkpoint=null", *train, run, *words)
    assert perform(config.compose("finetune", None, list(words)).asked()) == 0
    result = json.loads((folder / "result.json").read_text())
    scores: dict[str, float] = result["metrics"]["dev"]
    return scores


@pytest.mark.slow
def test_evidence_far_behind(tmp_path: Path) -> None:
    """With a window of two tokens to either side, what the key says comes through the question,
    which is global. Rows that are too short for key and colours together cannot tell.
    """
    write_far(tmp_path)
    words = [*MODEL, "task=squad", f"task.path={tmp_path}", "task.max_query=4"]
    words += ["train.epochs=null", "train.steps=180", "train.eval_every=180"]
    long = finetune(tmp_path / "long", *words, "task.max_length=32")
    short = finetune(tmp_path / "short", *words, "task.max_length=20", "task.stride=8")
    assert long["exact"] > 95
    assert short["exact"] < 70  # one of two


def test_candidates_with_a_model_that_reads_all_documents(tmp_path: Path) -> None:
    draw = random.Random(0)
    questions = []
    for number in range(40):
        names = draw.sample(THINGS, 3)
        texts = [" ".join(draw.choices(WORDS, k=20)) for _ in range(3)]
        question = {"id": str(number), "query": "which", "candidates": names, "supports": texts}
        questions.append(question | {"answer": names[0]})
    (tmp_path / "train.json").write_text(json.dumps(questions))
    words = [*MODEL, "task=wikihop", f"task.path={tmp_path / 'train.json'}", "train.epochs=2"]
    scores = finetune(tmp_path / "run", *words, "task.max_length=40", "task.max_query=4")
    assert 0 <= scores["accuracy"] <= 1
    loaded = plmctl.load(tmp_path / "run")
    assert "choice" in loaded.model.heads
    cell = loaded.model.backbone.stack.blocks["g"][0].cell
    q = cell.qkv.weight[: len(cell.global_maps.q.weight)]
    assert not cell.global_maps.q.weight.equal(q)  # the maps of global tokens were trained


@pytest.mark.slow  # the next tests have the same task on short ones
def test_answers_in_several_places_of_a_long_document(tmp_path: Path) -> None:
    """The whole way: files, windows, the loss over all places, decoding, scores, a checkpoint."""
    draw, lines = random.Random(0), []
    for _ in range(40):
        thing, text = draw.choice(THINGS), draw.choices(WORDS, k=60)
        text[5], text[50] = thing, thing.upper()
        lines.append({"question": "which", "document": " ".join(text), "answers": [thing]})
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = [*MODEL, "task=triviaqa", f"task.path={tmp_path / 'train.jsonl'}", "train.epochs=2"]
    words += ["task.max_length=40", "task.stride=20", "task.windows=null", "task.max_query=4"]
    scores = finetune(tmp_path / "run", *words)
    assert 0 <= scores["exact"] <= scores["f1"] <= 100
    assert plmctl.load(tmp_path / "run").config["task"]["most_spans"] == 64


def test_published_settings_of_triviaqa() -> None:
    """allenai/longformer, cheatsheet.txt: the command of the large model."""
    spec = config.compose("finetune", None, ["task=triviaqa", "task.path=x", "checkpoint=null"])
    assert (spec.train.epochs, spec.train.batch_size, spec.optim["lr"]) == (4, 8, 3e-5)
    assert (spec.schedule["warmup_steps"], spec.task["max_length"]) == (1000, 4096)


def test_published_settings_of_hotpotqa() -> None:
    """Beltagy et al., 2020, app. D, text and table 14."""
    spec = config.compose("finetune", None, ["task=hotpotqa", "task.path=x", "checkpoint=null"])
    assert (spec.train.epochs, spec.train.batch_size, spec.optim["lr"]) == (5, 32, 3e-5)
    assert (spec.schedule["warmup_steps"], spec.task["max_length"]) == (1000, 4096)


@pytest.mark.parametrize("task", ["movie_reviews", "wikihop"])
def test_published_settings(task: str) -> None:
    """Beltagy et al., 2020, table 14: IMDB and WikiHop, base."""
    words = [f"task={task}", "task.path=x", "checkpoint=null"]
    spec = config.compose("finetune", None, words)
    assert (spec.train.epochs, spec.train.batch_size, spec.optim["lr"]) == (15, 32, 3e-5)
    assert spec.task["max_length"] == (2048 if task == "movie_reviews" else 4096)
