"""HotpotQA from files to scores: a small Longformer learns a handful of questions by heart, is
scored again, answers new ones, and goes on after a stop; a plain encoder reads rows that are cut.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import plmctl
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError
from plmctl.runs.resume import resume_spec
from tests.tasks.hotpot_questions import make_questions

SMALL = [
    "task=hotpotqa",
    "checkpoint=null",
    "tokenizer=word",
    "size.num_layers=2",
    "size.width=64",
    "size.num_heads=4",
    "size.inner_width=128",
    "model.initializer.std=0.2",
    "model.embedding.dropout=0",
    "task.max_length=128",
    "train.precision=fp32",
    "train.threads=1",
    "train.batch_size=6",
    "train.epochs=null",
    "train.eval_every=40",
    "schedule.warmup_steps=5",
    "optim.lr=2e-3",
]
LONG = ["pattern=longformer", "pattern.parts.0.reach=3", "model.stack.layout='gf*2'"]


def run(verb: str, *words: str, **flags: Any) -> int:
    return perform(config.compose(verb, None, list(words)).asked(**flags))


def scores_of(folder: Path) -> dict[str, float]:
    scores: dict[str, float] = json.loads((folder / "result.json").read_text())["metrics"]["dev"]
    return scores


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same six questions to learn and to be scored."""
    folder = tmp_path_factory.mktemp("questions")
    for name in ("hotpot_train_v1.1.json", "hotpot_dev_distractor_v1.json"):
        (folder / name).write_text(json.dumps(make_questions(6)))
    return folder


@pytest.fixture(scope="module")
def long(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Longformer that has learned them."""
    folder = tmp_path_factory.mktemp("runs") / "long"
    words = [*SMALL, *LONG, f"task.path={questions}", f"run.dir={folder}", "train.steps=40"]
    assert run("finetune", *words) == 0
    return folder


def test_a_long_model_learns_answers_and_evidence(long: Path) -> None:
    scores = scores_of(long)
    assert {scores[name] for name in ("joint_f1", "joint_em", "em", "sp_em")} == {100.0}
    loaded = plmctl.load(long)
    assert {"span", "question_type", "sentence", "paragraph"} <= set(loaded.model.heads)
    tokens = loaded.model.backbone.embedding.token
    assert tokens.vocab_size == loaded.tokenizer.vocab.size + 5  # the marks


def test_scored_again_and_written_for_the_leader_board(long: Path, tmp_path: Path) -> None:
    out = f"out={tmp_path}"
    assert run("eval", f"checkpoint={long}", out)  # the metrics
    saved = (long / "predictions" / "dev.jsonl").read_text()
    assert (tmp_path / "dev.jsonl").read_text() == saved
    assert run("eval", f"checkpoint={long}", out, submission=True) == 0
    content = json.loads((tmp_path / "hotpot_dev_pred.json").read_text())
    questions = make_questions(6)
    assert content["answer"] == {each["_id"]: each["answer"] for each in questions}
    facts = {name: sorted(map(tuple, facts)) for name, facts in content["sp"].items()}
    wanted = {each["_id"]: sorted(map(tuple, each["supporting_facts"])) for each in questions}
    assert facts == wanted


def test_new_questions_are_answered(long: Path, tmp_path: Path) -> None:
    """From a file of the published layout without answers, and from lines."""
    bare = [{name: q[name] for name in ("_id", "question", "context")} for q in make_questions(2)]
    (tmp_path / "new.json").write_text(json.dumps(bare, indent=1))
    title, sentences = bare[0]["context"][0]
    typed = [bare[0]["question"], title, "".join(sentences)]
    (tmp_path / "new.txt").write_text("\t".join(typed) + "\n")
    found = {}
    for name in ("new.json", "new.txt"):
        words = [f"checkpoint={long}", f"input={tmp_path / name}", f"out={tmp_path}"]
        run("eval", *words)
        lines = (tmp_path / "new.jsonl").read_text().splitlines()
        found[name] = [json.loads(line) for line in lines]
    for question, answer in zip(make_questions(2), found["new.json"], strict=True):
        assert (answer["id"], answer["guess"]) == (question["_id"], question["answer"])
        assert answer["context"] == question["context"]
        assert not any(name.startswith("gold") for name in answer)
    (typed_one,) = found["new.txt"]
    assert {title for title, _ in typed_one["facts"]} == {title}


def test_a_plain_encoder_whose_rows_are_cut(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, f"task.path={questions}", f"run.dir={tmp_path / 'run'}", "train.steps=2"]
    assert run("finetune", *words, "task.max_length=40") == 0
    assert "6 of 6 rows are cut to max_length" in capsys.readouterr().err
    assert 0 <= scores_of(tmp_path / "run")["joint_f1"] <= 100


def test_a_model_that_reads_characters_has_no_room_for_new_tokens(questions: Path) -> None:
    words = [*SMALL, "model=bilm", "model.words.filters=[[1,8]]", "size.num_heads=1"]
    with pytest.raises(ConfigError, match="task='hotpotqa': one that adds no tokens: this model"):
        run("finetune", *words[:4], *words[-3:], f"task.path={questions}")


@pytest.mark.slow  # test_finetune_command.py resumes
def test_resume_goes_on_bit_for_bit(questions: Path, tmp_path: Path) -> None:
    steady = ("schedule=constant", "schedule.warmup_steps=0")

    def finetune(name: str, steps: int) -> None:
        words = [*SMALL, *LONG, f"task.path={questions}", f"run.dir={tmp_path / name}"]
        assert run("finetune", *words, f"train.steps={steps}", *steady) == 0

    finetune("whole", 4)
    finetune("parts", 2)
    more = ("train.steps=4", f"run.dir={tmp_path / 'parts'}")
    assert perform(resume_spec(Provenance("finetune", overrides=more, resume=True))) == 0
    whole, parts = (
        (tmp_path / name / "checkpoints" / "step-4" / "model.safetensors").read_bytes()
        for name in ("whole", "parts")
    )
    assert whole == parts
