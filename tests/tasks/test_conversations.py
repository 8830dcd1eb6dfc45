"""CoQA and QuAC: files, turns before a question, labels of windows, losses, choices, broken files,
and both as commands.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.config.command import perform
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks import batches
from plmctl.tasks.capabilities import submit
from plmctl.tasks.ensemble import join
from plmctl.tasks.layouts.turns import encode_turns, parse_turns
from plmctl.tasks.readers.coqa import find_best_part
from plmctl.tasks.record import Example
from tests.tasks.conversations import make_coqa, make_quac

TEXTS = [f"The black cat number {n} sat on a mat ; it ran home , and slept ." for n in range(3)]
SMALL = ("task.max_length=20", "task.stride=4", "task.max_query=4", "task.max_history=3")
TINY = ["tokenizer=word", "size=tiny", "size.width=16", "size.inner_width=16", "size.num_layers=1"]
TINY += ["size.num_heads=2", *SMALL, "train.steps=2", "train.epochs=null", "train.precision=fp32"]
TINY += ["train.threads=1", "checkpoint=null"]
MAKE = {"coqa": make_coqa, "coqa_rationale": make_coqa, "quac": make_quac}


def find(name: str, folder: Path, *words: str) -> Any:
    told = [f"task={name}", f"task.path={folder}", "checkpoint=null", *SMALL, *words]
    return build(config.compose("finetune", None, told).task, {"pooling": "first"}, path="task")


def write(name: str, folder: Path, texts: list[str] = TEXTS) -> Path:
    for split in ("train", "dev"):
        own = texts if split == "train" else [text.replace("cat", "dog") for text in texts]
        (folder / f"{split}.json").write_text(json.dumps(MAKE[name](own)))
    return folder


def test_files_of_coqa(tmp_path: Path) -> None:
    first, second, third, _, other, *_ = find("coqa", write("coqa", tmp_path)).read("train")
    assert first.fields["answers"] == ["BLACK CAT", "it", "it"]
    assert first.label == ("span", (4, 13), (4, 13))
    assert (second.label, third.label) == (("no", None, (4, 13)), ("unknown", None, None))
    assert third.fields["history"] == ["Is it question 1?", "BLACK CAT", "Is it question 2?", "no"]
    assert other.fields["history"] == []  # another story
    assert (first.slices, other.slices) == (("wikipedia",), ("cnn",))


def test_files_of_quac(tmp_path: Path) -> None:
    first, second, *_ = find("quac", write("quac", tmp_path)).read("train")
    assert first.fields["context"] == TEXTS[0]  # without CANNOTANSWER
    assert (first.label, second.label) == ((4, 13), None)
    assert second.fields["answers"] == ["CANNOTANSWER", "CANNOTANSWER"]
    assert second.fields["history"] == ["Is it question 0?", "black cat"]
    assert (first.fields["yes_no"], second.fields["followup"]) == ("y", "n")


@pytest.mark.parametrize(
    ("text", "answer", "wanted"),
    [
        ("She lived in London, and worked", "in london", "in London,"),
        ("a small white cat", "The Cat", "cat"),
        ("he had three dogs and one cat", "three cats", "three"),
        (" it rained. ", "sun", "it rained."),  # no word in common: all of it
        ("one two one", "one", "one"),  # the first of equals
        ("yes she did, yes", "she did", "she did,"),
    ],
)
def test_the_best_part_of_a_rationale(text: str, answer: str, wanted: str) -> None:
    start, end = find_best_part(text, answer)
    assert text[start:end] == wanted
    assert answer != "one" or start == 0


def test_the_last_turns_stand_before_a_question(toy: Any) -> None:
    said = ["one two", "three", "four", "five six"]
    example = Example("0", {"history": said, "question": "seven", "context": "eight"})
    for turns, most, wanted in (
        (0, 9, ""),
        (1, 9, "four five six"),
        (2, 99, "one two three four five six"),
        (2, 2, "one two three four five six"),
        (2, 0, "one two three four five six"),
    ):
        found = encode_turns(example, toy, turns=turns, most=most)
        tokens = toy.encode(wanted)
        assert found == tokens[max(0, len(tokens) - most) :]


def test_turns_that_are_typed() -> None:
    typed = parse_turns("who\tAda\twhere\tAda lived there", 3)
    assert typed.fields["history"] == ["who", "Ada"]
    assert (typed.fields["question"], typed.fields["context"]) == ("where", "Ada lived there")
    with pytest.raises(ValueError, match="found 3 columns"):
        parse_turns("who\tAda\tAda lived there", 1)


def test_rows_of_coqa(tmp_path: Path, toy: Any) -> None:
    """The question and the last tokens of its turns, then a window, labelled by what is in it."""
    task = find("coqa", write("coqa", tmp_path))
    examples = task.read("train")[:4]
    rows = task.encode(examples, toy)
    text, labels = rows.seqs["text"], rows.labels
    answer = toy.encode("black cat")  # the second to fourth token of the story
    for row, (_, start, length, first) in enumerate(rows.spans["window"].tolist()):
        number = int(rows.values["example"][row])
        said = [t for turn in examples[number].fields["history"] for t in toy.encode(turn)]
        asked = said[-3:] + toy.encode(examples[number].fields["question"])[:4]
        assert text.ids[row, 1 : start - 1].tolist() == asked
        here = first <= 1 and first + length >= 4
        part = first <= 3  # of the rationale
        kind = ("span", "no", "unknown", "yes")[number]
        span = labels["span"][row].tolist()
        if kind == "span" and here:
            assert text.ids[row, span[0] : span[1] + 1].tolist() == answer
        else:
            assert span == [0, 0]
        wanted = {"span": 0, "no": 2 * part, "yes": 1 * part, "unknown": 3}[kind]
        assert labels["kind"][row] == wanted
        why = labels["rationale"][row].tolist()
        assert (why == [-1, -1]) == (kind == "unknown" or not part)


def test_the_losses_of_coqa_in_loops(tmp_path: Path, toy: Any) -> None:
    task = find("coqa_rationale", write("coqa", tmp_path), "task.weights.rationale=0.5")
    rows = task.encode(task.read("train")[:4], toy)
    labels = {**rows.labels, "span": rows.labels["span"].copy()}
    for name in ("span", "kind", "rationale"):  # of an answer that is not where the file says
        labels[name] = labels[name].copy()
        labels[name][0] = IGNORE
    batch = batches.collate(
        rows.__class__(**{**vars(rows), "labels": labels}), np.arange(len(rows.key))
    )
    n, length = batch.text.ids.shape
    generator = torch.Generator().manual_seed(0)
    logits = {
        name: torch.randn(n, size, generator=generator)
        for name, size in (("start", length), ("end", length), ("kind", 3), ("rationale", length))
    }
    span = tags = 0.0
    for row in range(1, n):
        kind = int(labels["kind"][row])
        for side, name in enumerate(("start", "end")):
            scores = [*logits[name][row].tolist(), *logits["kind"][row].tolist()]
            at = length + kind - 1 if kind else int(labels["span"][row, side])
            span -= math.log(math.exp(scores[at]) / sum(map(math.exp, scores))) / 2
        first, last = labels["rationale"][row].tolist()
        place = [p for p in range(length) if batch.text.tracks["segment"][row, p] == 1]
        of_row = [
            math.log1p(math.exp(z if not first <= p <= last else -z))
            for p, z in enumerate(logits["rationale"][row].tolist())
            if p in place
        ]
        tags += sum(of_row) / len(of_row)
    output = task.loss(logits, batch)
    assert output.terms["span"].total.item() == pytest.approx(span, rel=1e-5)
    assert output.terms["rationale"].total.item() == pytest.approx(tags, rel=1e-5)
    assert (output.terms["span"].weight, output.terms["rationale"].weight) == (1, 0.5)
    assert task.counts(batch) == {"span": n - 1, "rationale": n - 1}
    plain = find("coqa", tmp_path)
    assert set(plain.loss(logits, batch).terms) == {"span"}


def test_coqa_chooses_the_larger_score(tmp_path: Path, toy: Any) -> None:
    task = find("coqa", write("coqa", tmp_path))
    examples = task.read("train")[:3]
    rows = task.encode(examples, toy)
    shape = rows.seqs["text"].ids.shape
    logits = {side: np.zeros(shape, np.float32) for side in ("start", "end")}
    logits["kind"] = np.full((shape[0], 3), -9, np.float32)
    for row, example in enumerate(rows.values["example"].tolist()):
        if example == 0 and rows.labels["span"][row, 0]:
            for side, name in enumerate(("start", "end")):
                logits[name][row, rows.labels["span"][row, side]] = 5
            logits["kind"][row, 0] = 4.9
        if example == 1:
            logits["kind"][row, 1] = 1.0 if row % 2 else -1
        if example == 2:
            logits["kind"][row, 2] = 1.0
    found = task.predict(logits, rows, examples)
    assert [each["guess"] for each in found] == ["black cat", "no", "unknown"]
    assert [each["kind"] for each in found] == ["span", "no", "unknown"]
    assert task.score(found[1:]) == {"f1": 100.0, "em": 100.0}
    written = json.loads(submit(task, found))
    assert written[1] == {"id": "story0", "turn_id": 2, "answer": "no"}


def test_quac_labels_and_choices(tmp_path: Path, toy: Any) -> None:
    task = find("quac", write("quac", tmp_path))
    examples = task.read("train")[:2]
    rows = task.encode(examples, toy)
    number, span = rows.values["example"], rows.labels["span"]
    here = (span[:, 0] > 0) | (number == 1)
    assert (rows.labels["yes_no"] == np.where(here, np.array([0, 2])[number], IGNORE)).all()
    assert (rows.labels["followup"] == np.where(here, np.array([1, 2])[number], IGNORE)).all()
    shape = rows.seqs["text"].ids.shape
    logits = {side: np.zeros(shape, np.float32) for side in ("start", "end")}
    for side, name in enumerate(("start", "end")):
        logits[name][np.arange(shape[0]), span[:, side]] = np.where(span[:, side], 9, 1)
        logits[name][number == 1, 0] = 9
    draw = np.random.default_rng(0)
    acts = {
        name: draw.normal(size=(shape[0], 3)).astype(np.float32) for name in ("yes_no", "followup")
    }
    found = task.predict(logits | acts, rows, examples)
    assert [each["guess"] for each in found] == ["black cat", "CANNOTANSWER"]
    for example in range(2):
        for name, kinds in (("yes_no", "ynx"), ("followup", "ymn")):
            own = F.log_softmax(torch.from_numpy(acts[name][number == example]), -1).mean(0)
            assert found[example][name] == kinds[int(own.argmax())]
    assert task.score(found)["f1"] == task.score(found)["heq_d"] == 100
    line = json.loads(submit(task, found))
    assert line["qid"] == ["C_0_q#0", "C_0_q#1"]
    assert line["best_span_str"] == ["black cat", "CANNOTANSWER"]


def test_the_losses_of_quac_have_weights(tmp_path: Path, toy: Any) -> None:
    task = find("quac", write("quac", tmp_path), "task.weights={span:1,yes_no:0.5,followup:0}")
    rows = task.encode(task.read("train"), toy)
    batch = batches.collate(rows, np.arange(len(rows.key)))
    n, length = batch.text.ids.shape
    draws = torch.Generator().manual_seed(0)
    sizes = {"start": length, "end": length, "yes_no": 3, "followup": 3}
    logits = {name: torch.randn(n, size, generator=draws) for name, size in sizes.items()}
    terms = task.loss(logits, batch).terms
    assert {name: term.weight for name, term in terms.items()} == {
        "span": 1,
        "yes_no": 0.5,
        "followup": 0,
    }
    gold = rows.labels["yes_no"]
    wanted = -sum(
        logits["yes_no"][row].log_softmax(0)[gold[row]].item()
        for row in range(n)
        if gold[row] != IGNORE
    )
    assert terms["yes_no"].total.item() == pytest.approx(wanted, rel=1e-5)


def test_unknown_weights_are_refused(tmp_path: Path) -> None:
    for name in ("coqa", "quac"):
        with pytest.raises(ConfigError, match=r"task.weights='spam'"):
            find(name, tmp_path, "+task.weights.spam=1")


Change = Callable[[dict[str, Any]], object]
COQA: dict[str, Change] = {
    "must have 'story'": lambda story: story.pop("story"),
    "'data.0.questions' must be a list": lambda story: story.update(questions=3),
    "must have 'turn_id'": lambda story: story["questions"][1].pop("turn_id"),
    "must have 'span_start'": lambda story: story["answers"][0].pop("span_start"),
    "span_start": lambda story: story["answers"][0].update(span_start="four"),
    "story story0, turn 1: its span is 4..9999": lambda story: story["answers"][0].update(
        span_end=9999
    ),
    "turn 1: its span is 9..4": lambda story: story["answers"][0].update(span_start=9, span_end=4),
    "4 questions, and 3 in answers": lambda story: story["answers"].pop(),
    "4 questions, and 3 in 0": lambda story: story["additional_answers"]["0"].pop(),
    "turn 2: its answer has turn_id 7": lambda story: story["answers"][1].update(turn_id=7),
    "must have 'input_text'": lambda story: story["additional_answers"]["1"][2].pop("input_text"),
    "no questions": lambda story: story.update(questions=[], answers=[], additional_answers={}),
}
QUAC: dict[str, Change] = {
    "must have 'context'": lambda section: section.pop("context"),
    "must have 'id'": lambda section: section.pop("id"),
    "qas' must be a list": lambda section: section.update(qas={"a": 1}),
    "must have 'question'": lambda section: section["qas"][0].pop("question"),
    "must have 'answer_start'": lambda section: section["qas"][0]["answers"][0].pop("answer_start"),
    "question C_0_q#0: an answer without yesno": lambda section: section["qas"][0].pop("yesno"),
    "question C_0_q#1: an answer without followup": lambda section: section["qas"][1].pop(
        "followup"
    ),
    "must be one of y, n, x": lambda section: section["qas"][0].update(yesno="maybe"),
    "must be one of y, m, n": lambda section: section["qas"][0].update(followup="x"),
    "not in QuAC's layout: 'data.0.paragraphs.0.qas.0": lambda section: section["qas"][0][
        "orig_answer"
    ].update(text=["a"]),
    "no questions": lambda section: section.update(qas=[]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "message", "change"),
    [("coqa", *each) for each in COQA.items()] + [("quac", *each) for each in QUAC.items()],
)
def test_broken_files(name: str, message: str, change: Change, tmp_path: Path) -> None:
    content = copy.deepcopy(MAKE[name](TEXTS[:1]))
    place = content["data"][0] if name == "coqa" else content["data"][0]["paragraphs"][0]
    change(place)
    (tmp_path / "train.json").write_text(json.dumps(content))
    task = find(name, tmp_path)
    with pytest.raises(DataError) as refused:
        task.read("train")
    assert message in str(refused.value)
    assert "train.json" in str(refused.value)
    assert "fix:" in str(refused.value)


@pytest.mark.parametrize("name", ["coqa", "quac"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"{", "not JSON"),
        (b"[]", "layout: must be a mapping"),
        (b'{"data": []}', "no questions"),
        (b"id\tstory\n1\tx\n", "not JSON"),
        ('{"data": "é"}'.encode("latin-1"), "UTF-8"),
        ('{"data": "a"}'.encode("utf-16"), "UTF-"),
    ],
)
def test_files_that_are_none(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.json").write_bytes(content)
    with pytest.raises(DataError, match=message) as refused:
        find(name, tmp_path).read("train")
    assert "train.json" in str(refused.value)


def test_answers_that_stand_elsewhere_leave_training(tmp_path: Path) -> None:
    content = make_coqa(TEXTS[:1])
    content["data"][0]["answers"][0]["span_text"] = "white dog"
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text(json.dumps(content))
    task = find("coqa", tmp_path)
    assert [len(task.read(split)) for split in ("train", "dev")] == [3, 4]
    assert list(task.splits.reader.skipped.values()) == [1]
    assert "of 1 questions the answer does not stand" in " ".join(task.remarks)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["coqa_rationale", "quac"])
def test_as_commands(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = write(name, tmp_path)
    words = [f"task={name}", f"task.path={folder}", f"run.dir={run}", *TINY]
    assert perform(config.compose("finetune", None, words)) == 0
    scores = json.loads((run / "result.json").read_text())["metrics"]["dev"]
    assert 0 <= scores["f1"] <= 100
    assert ({"f1/cnn", "f1/wikipedia"} <= set(scores)) == (name != "quac")
    saved = (run / "predictions" / "dev.jsonl").read_text()
    again = config.compose("eval", None, [f"checkpoint={run}", f"out={tmp_path / 'out'}"])
    assert perform(again)  # the metrics
    assert (tmp_path / "out" / "dev.jsonl").read_text() == saved
    (tmp_path / "new.txt").write_text("who\tit\twhere\tthe black cat sat on a mat\n")
    asked = [f"checkpoint={run}", f"input={tmp_path / 'new.txt'}", f"out={tmp_path / 'new'}"]
    perform(config.compose("eval", None, asked))
    (answer,) = map(json.loads, (tmp_path / "new" / "new.jsonl").read_text().splitlines())
    assert isinstance(answer["guess"], str)
    assert not any(key.startswith("gold") for key in answer)


def test_answers_of_coqa_are_joined_with_yes_and_no(tmp_path: Path) -> None:
    """yes has .6 and .3, the span .4 and .7 of two members: .45 against .55."""
    task = find("coqa", write("coqa", tmp_path))
    example = task.read("train")[0]
    base = {"id": "q", "golds": ["cat"], "guess": "cat", "null_odds": 0.0}
    members = [
        [
            task._choose(
                {**base, "n_best": [{"text": "cat", "score": math.log(span)}]},
                np.log([yes, 1e-9, 1e-9]),
                example,
            )
        ]
        for yes, span in ((0.6, 0.4), (0.3, 0.7))
    ]
    assert [own["guess"] for (own,) in members] == ["yes", "cat"]
    (found,) = join(task, members, votes=False)
    assert (found["guess"], found["kind"]) == ("cat", "span")
    assert math.exp(found["n_best"][0]["score"]) == pytest.approx(0.55, abs=1e-6)
    (voted,) = join(task, [*members, members[0]], votes=True)
    assert (voted["guess"], voted["kind"]) == ("yes", "yes")
    assert task.score([found])["em"] == 100


def test_answers_and_acts_of_quac_are_joined(tmp_path: Path) -> None:
    task = find("quac", write("quac", tmp_path))
    acts = [{"y": 0.9, "n": 0.05, "x": 0.05}, {"y": 0.1, "n": 0.6, "x": 0.3}]
    more = [{"y": 0.5, "m": 0.5, "n": 0.0}, {"y": 0.0, "m": 0.4, "n": 0.6}]
    members = [
        [
            task._decide(
                {"id": "q", "golds": ["cat"], "guess": "cat", "null_odds": null,
                 "n_best": [{"text": "cat", "score": 0.0}], "dialogue": "d"},
                {"yes_no": yes_no, "followup": followup},
            )
        ]
        for null, yes_no, followup in zip((-1.0, 3.0), acts, more, strict=True)
    ]  # fmt: skip
    assert [own["guess"] for (own,) in members] == ["cat", "CANNOTANSWER"]
    (found,) = join(task, members, votes=False)
    empty = sum(1 / (1 + math.exp(-odds)) for odds in (-1.0, 3.0)) / 2
    assert found["null_odds"] == pytest.approx(math.log(empty / (1 - empty)))
    assert found["guess"] == "CANNOTANSWER"
    assert (found["yes_no"], found["followup"]) == ("y", "m")
