"""A task of four values: a YAML names reader, layout, answer and scores, of plug-ins, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.loading import load
from plmctl.config.build import build, plain
from plmctl.config.compose import compose
from plmctl.tasks.answers.choice import ChoiceAnswer
from plmctl.tasks.answers.classes import ClassAnswer
from plmctl.tasks.answers.label_sets import SetAnswer
from plmctl.tasks.answers.number import NumberAnswer
from plmctl.tasks.classification import Classification
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.use.asked_task import choose_task
from tests.command import plmctl

PLUGIN = '''
import numpy as np
import torch
from torch.nn import functional as F

from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.scores.base import Scores


@part_of("answer")
class Share(Answer):
    """A number between 0 and 1: cross-entropy of both."""

    facts = TaskFacts(
        needs=frozenset({"text", "labels.share"}), head="share", outputs=1, chooses=False
    )
    fields = {"labels.share": Field("[N]", "float", "a share")}

    def gold(self, example):
        return float(example.label)

    def number(self, examples, names):
        return {"share": np.array([self.gold(each) for each in examples], dtype=np.float32)}

    def loss(self, logits, batch, names):
        wanted = batch.require("labels.share")
        total = F.binary_cross_entropy_with_logits(logits.float(), wanted, reduction="sum")
        return Output({"share": Term(total)})

    def predict(self, logits, rows, examples, names):
        shares = torch.from_numpy(logits[encode.firsts(rows)]).sigmoid().tolist()
        return [
            {"id": each.id, "gold": each.label and self.gold(each), "guess": share}
            for each, share in zip(examples, shares, strict=True)
        ]


@part_of("scores")
class Distance(Scores):
    def check(self, names):
        return list(names)

    def __call__(self, predictions, names):
        apart = [1 - abs(each["gold"] - each["guess"]) for each in predictions]
        return dict.fromkeys(names, sum(apart) / len(apart))
'''
YAML = """# @package _global_
# shares: a share for each text
defaults: [parts/bert, parts/four_values, parts/table, _self_]
task:
  name: shares
  layout: {_target_: plmctl.tasks.layouts.texts.TextRows}
  answer: {_target_: own_shares.Share}
  scores: {_target_: own_shares.Distance}
  metrics: [nearness]
heads:
  share: {_target_: plmctl.heads.classify.Classify, dropout: 0.0, dense: false}
"""


# a name, and what its YAML has instead of a part of shares: nothing, another answer or layout
OTHERS = [
    ("portions", "", ""),
    ("answer", "own_shares.Share", "plmctl.tasks.answers.classes.ClassAnswer"),
    ("layout", "texts.TextRows", "choices.ChoiceRows"),
]
FAMILIES = {
    **dict.fromkeys(("classification", "relation", "wic", "tree_classification"), ClassAnswer),
    **{"regression": NumberAnswer, "choice": ChoiceAnswer},
    **dict.fromkeys(("multilabel", "figer"), SetAnswer),
}


def make(kind: str, *words: str) -> Task:
    asked = [f"task={kind}", "task.path=x", "checkpoint=null", *words]
    part: Task = build(compose("finetune", None, asked).task, path="task")
    return part


def test_families_are_values() -> None:
    """Families have the methods of `Task`, and other values."""
    for kind, answer in FAMILIES.items():
        task = make(kind)
        assert type(task.answer) is answer
        for method in ("encode", "logits", "loss", "predict", "score", "fit_labels", "parse"):
            assert getattr(type(task), method) is getattr(Task, method), (kind, method)


def test_an_answer_and_scores_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files, none of them a task: it trains, and evaluates its run to the same digits."""
    (tmp_path / "conf/task").mkdir(parents=True)
    (tmp_path / "own_shares.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "conf/task/shares.yaml").write_text(YAML, encoding="utf-8")
    rows = [{"text": f"text {'good ' * (n % 5)}", "label": n % 5 / 4} for n in range(40)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "train.jsonl").write_text(lines, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    own = ["--plugin", "own_shares", "--config-dir", "conf"]
    small = ["size=tiny", "tokenizer=word", "tokenizer.vocab_size=64", "task.max_length=16"]
    words = ["task=shares", "task.path=train.jsonl", "task.dev_share=0.3", "checkpoint=null"]
    plmctl("finetune", *words, *small, "train.epochs=1", "run.dir=run", *own)
    trained = json.loads(Path("run/result.json").read_text(encoding="utf-8"))["metrics"]["dev"]
    assert 0 < trained["nearness"] < 1
    again = json.loads(plmctl("eval", "checkpoint=run", "--json", *own))
    assert again["metrics"]["dev"]["nearness"] == trained["nearness"]
    (tmp_path / "new.txt").write_text("good text\n", encoding="utf-8")
    plmctl("eval", "checkpoint=run", "input=new.txt", "out=new.jsonl", *own)
    (guess,) = map(json.loads, Path("new.jsonl").read_text(encoding="utf-8").splitlines())
    assert 0 < guess["guess"] < 1
    for name, old, new in OTHERS:
        file = tmp_path / f"conf/task/{name}.yaml"
        file.write_text(YAML.replace("name: shares", f"name: {name}").replace(old, new), "utf-8")
        asked = ("eval", "checkpoint=run", f"task={name}", "task.path=train.jsonl", "split=train")
        told = plmctl(*asked, *own, code=0 if name == "portions" else 2)
        assert (f"run was fine-tuned on shares, whose {name} is" in told) == (name != "portions")


def test_a_table_task_is_the_family_of_its_values() -> None:
    """The same answer as `task=classification`: facts, names, labels, loss, and predictions."""
    family = make("classification", "task.class_weights=balanced")
    target = "plmctl.tasks.table_task.TableTask"
    words = ["task=classification", "task.path=x", "checkpoint=null"]
    node = plain(compose("finetune", None, words).task)
    for flat in ("_target_", "class_weights", "focal_gamma", "label_smoothing"):
        node.pop(flat)
    parts = {
        "layout": "layouts.texts.TextRows",
        "answer": "answers.classes.ClassAnswer",
        "scores": "scores.labels.LabelScores",
    }
    node |= {name: {"_target_": f"plmctl.tasks.{part}"} for name, part in parts.items()}
    node["answer"]["class_weights"] = "balanced"
    task: Task = build({"_target_": target, **node}, path="task")
    examples = [Example(str(n), {"text": "a"}, "yn"[n % 3 == 0], place="x") for n in range(6)]
    for each in (family, task):
        each.fit_labels(examples)
    assert isinstance(family, Classification)
    assert task.facts == family.facts
    assert task.names == family.names == ["n", "y"]
    assert task.decided == {
        f"answer.{name}" if name == "class_weights" else name: value
        for name, value in family.decided.items()
    }
    logits = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    assert task.decided["answer.class_weights"] == {"n": 1.5, "y": 0.75}
    rows: Any = type("R", (), {"values": {"example": np.arange(6)}})()
    assert task.answer
    found = task.answer.predict(logits.numpy(), rows, examples, task.names)
    shares = logits.double().softmax(-1)
    for n, each in enumerate(found):
        assert each["guess"] == task.names[int(logits[n].argmax())]
        assert list(each["probabilities"].values()) == pytest.approx(shares[n].tolist())
    scores = task.score(found)
    right = [each["guess"] == example.label for each, example in zip(found, examples, strict=True)]
    assert scores["accuracy"] == sum(right) / 6


LAYOUT = '''
from plmctl.core.parts import part_of
from plmctl.tasks.layouts.texts import TextRows


@part_of("layout")
class LastWords(TextRows):
    """A row with the last words of a text, behind which its beginning is cut."""

    def __init__(self, *, words: int) -> None:
        super().__init__()
        self.words = words

    def encode(self, examples, tokenizer, rows):
        kept = [" ".join(each.fields["text"].split()[-self.words :]) for each in examples]
        shorter = [replace(each, fields={"text": text}) for each, text in zip(examples, kept)]
        return super().encode(shorter, tokenizer, rows)
'''.replace("\nfrom plmctl.core", "\nfrom dataclasses import replace\n\nfrom plmctl.core", 1)
ENDINGS = """# @package _global_
# endings: a class for the end of a text
defaults: [parts/bert, parts/four_values, parts/table, _self_]
task:
  name: endings
  layout: {_target_: own_rows.LastWords, words: 2}
  answer: {_target_: plmctl.tasks.answers.classes.ClassAnswer}
  scores: {_target_: plmctl.tasks.scores.labels.LabelScores}
  metrics: [accuracy]
heads:
  class: {_target_: plmctl.heads.classify.Classify, dropout: 0.0, dense: false}
"""
WORDS = """# @package _global_
# names: a tag for each word, of ready parts
defaults: [parts/bert, parts/four_values, _self_]
task:
  name: names
  columns: {tokens: tokens, tags: tags}
  reader:
    _target_: plmctl.tasks.readers.conll.Columns
    splits: {train: [train.jsonl], dev: [dev.jsonl]}
  layout: {_target_: plmctl.tasks.layouts.sentence_rows.SentenceRows, joiner: null}
  answer: {_target_: plmctl.tasks.answers.tags.TagAnswer}
  scores: {_target_: plmctl.tasks.scores.tags.TagScores}
  metrics: [f1, accuracy]
heads:
  pooler: null
  tag: {_target_: plmctl.heads.tag.Tag, dropout: 0.1}
"""
SMALL = ["size=tiny", "tokenizer=char", "tokenizer.vocab_size=64", "task.max_length=32"]
SHORT = ["checkpoint=null", "train.epochs=null", "train.steps=1", "train.threads=1"]


def test_a_layout_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that differ in what its rows lack have the same probabilities."""
    (tmp_path / "conf/task").mkdir(parents=True)
    (tmp_path / "own_rows.py").write_text(LAYOUT, encoding="utf-8")
    (tmp_path / "conf/task/endings.yaml").write_text(ENDINGS, encoding="utf-8")
    rows = [f"{n} words before the end {'ab'[n % 2]}\t{n % 2}\n" for n in range(20)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    own = ["--plugin", "own_rows", "--config-dir", "conf"]
    words = ["task=endings", "task.path=train.tsv", "task.dev_share=0.5", "run.dir=run"]
    plmctl("finetune", *words, *SMALL, *SHORT, *own)
    Path("new.txt").write_text("one end a\nmany more before the end a\nthe end b\n", "utf-8")
    plmctl("eval", "checkpoint=run", "input=new.txt", "out=new.jsonl", *own)
    lines = Path("new.jsonl").read_text(encoding="utf-8").splitlines()
    one, many, other = (json.loads(line)["probabilities"] for line in lines)
    assert one == many != other


def test_words_are_tagged_by_ready_parts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A YAML without Python has the numbers of `task=tagging`; eval knows its settings."""
    (tmp_path / "conf/task").mkdir(parents=True)
    (tmp_path / "conf/task/names.yaml").write_text(WORDS, encoding="utf-8")
    rows = [{"tokens": ["Ann", "saw", "Bo"], "tags": ["B-P", "O", "B-P"]}] * 6
    for split in ("train", "dev"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = {}
    for kind, smooth in (
        ("names", "task.answer.label_smoothing"),
        ("tagging", "task.label_smoothing"),
    ):
        words = [f"task={kind}", "task.path=.", f"run.dir={kind}", "task.metrics=[f1,accuracy]"]
        columns = ["task.columns={tokens: tokens, tags: tags}"]
        alike = ["optim.lr=1e-3", "train.batch_size=4", f"{smooth}=0.1"]
        plmctl("finetune", *words, *columns, *alike, *SMALL, *SHORT, "--config-dir", "conf")
        result = json.loads(Path(kind, "result.json").read_text(encoding="utf-8"))
        found[kind] = result["metrics"]["dev"]
    assert found["names"] == found["tagging"]
    again = json.loads(plmctl("eval", "checkpoint=names", "--json", "--config-dir", "conf"))
    assert again["metrics"]["dev"]["f1"] == found["names"]["f1"]
    loaded, asked = load(Path("names")), ["task=names", "task.path=.", "checkpoint=names"]
    node = compose("eval", None, asked, config_dirs=["conf"]).task
    kept = choose_task(loaded.source, node, ["task.path"], checkpoint="names")
    assert kept["layout"]["joiner"] == " "  # as training found it
    assert kept["answer"]["label_smoothing"] == 0.1  # as training had it
