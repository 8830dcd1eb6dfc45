"""Questions in rows of their own, as data sets are downloaded; questions that are cut, and those
without an answer where version 1 cannot score them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.errors import DataError
from plmctl.tasks import inference
from plmctl.tasks.check import check_task
from plmctl.tasks.readers.squad import MISPLACED, SquadFiles
from plmctl.text.vocab import Vocab
from plmctl.use.predict import ScoreTable, Told
from tests.command import plmctl

CONTEXT = "The Normans came from Denmark in the 10th century."
ASKED = [("q1", "Where from?", ["Denmark"]), ("q2", "Why?", []), ("q3", "When?", ["10th century"])]


def nested() -> dict[str, Any]:
    qas = [
        {
            "id": name,
            "question": question,
            "answers": [{"text": t, "answer_start": CONTEXT.index(t)} for t in answers],
        }
        for name, question, answers in ASKED
    ]
    return {"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}


def flat(kind: str) -> list[dict[str, Any]]:
    rows = []
    for name, question, answers in ASKED:
        starts = [CONTEXT.index(text) for text in answers]
        both = zip(answers, starts, strict=True)
        found: Any = {"text": answers, "answer_start": starts}
        if kind == "records":
            found = [{"text": text, "answer_start": start} for text, start in both]
        rows.append({"id": name, "context": CONTEXT, "question": question, "answers": found})
    return rows


def write(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    lines = content if isinstance(content, list) and name.endswith("l") else [content]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def read(file: Path) -> list[tuple[str, dict[str, Any], Any]]:
    examples = SquadFiles(splits={}).read_file(file, {})
    return [(e.id, dict(e.fields), e.label) for e in examples]


@pytest.mark.parametrize("kind", ["lists", "records"])
def test_rows_of_questions_are_read_as_the_nested_layout(kind: str, tmp_path: Path) -> None:
    wanted = read(write(tmp_path, "nested.json", nested()))
    rows = flat(kind)
    assert read(write(tmp_path, "flat.jsonl", rows)) == wanted
    assert read(write(tmp_path, "list.json", rows)) == wanted
    assert read(write(tmp_path, "data.json", {"version": "1", "data": rows})) == wanted
    lines = tmp_path / "lines.json"  # JSON lines by another name
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(lines) == wanted
    inner = nested()  # lists of answers inside the nested layout
    for qa, row in zip(inner["data"][0]["paragraphs"][0]["qas"], flat("lists"), strict=True):
        qa["answers"] = row["answers"]
    assert read(write(tmp_path, "inner.json", inner)) == wanted


def test_rows_that_are_wrong_are_named(tmp_path: Path) -> None:
    rows = flat("lists")
    rows[0]["answers"] = {"text": ["Denmark"], "answer_start": []}
    with pytest.raises(DataError, match=r"a.jsonl:1: 1 texts of answers, and 0 starts"):
        read(write(tmp_path, "a.jsonl", rows))
    rows[0] = {"question": "x", "context": CONTEXT, "answers": {"text": []}}
    with pytest.raises(DataError, match=r"a.jsonl:1: no row of a question: 'answers'"):
        read(write(tmp_path, "a.jsonl", rows))
    rows[0]["answers"] = {"text": ["Rome"], "answer_start": [3]}
    assert read(write(tmp_path, "a.jsonl", rows))[0][0] == "0"  # its number, without an id
    assert read(write(tmp_path, "a.jsonl", rows))[0][2] == MISPLACED


def make(path: Path, *words: str, task: str = "squad") -> Any:
    own = [f"task={task}", f"task.path={path}", "checkpoint=null", *words]
    node = compose("finetune", None, own).task
    return build(node, {"pooling": "first", "sees_later": True}, path="task")


@pytest.mark.parametrize("task", ["squad", "cmrc2018"])
def test_questions_without_an_answer_are_told_under_version_1(task: str, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        write(tmp_path, f"{split}.jsonl", flat("lists"))
    own = make(tmp_path, task=task) if task == "squad" else make(tmp_path, "task.version=1")
    examples = own.read("dev")
    line = own.describe_scoring(examples)
    assert line.startswith("1 of 3 questions have no answer, for which version 1 always counts 0")
    assert "task=squad_v2" in line
    assert own.describe_scoring([e for e in examples if e.fields["answers"]]) == ""
    assert make(tmp_path, task="squad_v2").describe_scoring(examples) == ""
    findings = check_task(own, None).findings
    assert {f.verdict for f in findings if f.found.endswith(line)} == {"look"}


def test_training_and_evaluation_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for split in ("train", "dev"):
        write(tmp_path, f"{split}.jsonl", flat("lists"))
    words = ["task=squad", "task.path=.", "task.max_length=40", "task.max_query=2"]
    small = ["checkpoint=null", "size=tiny", "size.width=16", "size.num_heads=2", "run.dir=r"]
    plmctl("finetune", *words, *small, "train.epochs=null", "train.steps=1", "train.device=cpu")
    assert "dev: 1 of 3 questions have no answer" in caplog.text
    assert "of 3 questions are cut to max_query, by" in caplog.text
    assert "nothing is cut" not in caplog.text
    found = json.loads(plmctl("eval", "checkpoint=r", "--json", "device=cpu"))
    assert "1 of 3 questions have no answer" in found["remarks"]["scored"]
    texts = {name for name, value in found.items() if isinstance(value, str)}
    assert texts == {"task", "checkpoint", "predictions", "file"}  # names, no sentences
    assert "are cut to max_query" in found["remarks"]["cut"]


class Letters:
    """A tokenizer of letters."""

    def __init__(self) -> None:
        roles = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4, "bos": None, "eos": None}
        special, starts = np.arange(300) < 5, np.ones(300, dtype=bool)
        self.vocab = Vocab(size=300, **roles, special=special, word_start=starts)

    def encode(self, text: str) -> list[int]:
        return [5 + min(ord(letter), 200) for letter in text]

    def encode_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        return self.encode(text), [(n, n + 1) for n in range(len(text))]


@pytest.mark.parametrize(("most", "cut"), [(4, 8), (5, 6), (11, 0)])
def test_tokens_of_cut_questions_are_counted_once(most: int, cut: int, tmp_path: Path) -> None:
    """A passage of several windows has its question in each of them."""
    task = make(write(tmp_path, "train.jsonl", flat("lists")), f"task.max_query={most}")
    task.max_length, task.stride = 30, 8
    examples = task.splits.reader.read_file(tmp_path / "train.jsonl", {})
    rows = task.encode(examples, Letters())
    lost = sum(max(0, len(question) - most) for _, question, _ in ASKED)
    assert lost == cut
    counted = rows.values.get("question_cut")
    assert (0 if counted is None else int(counted.sum())) == cut
    assert ("max_query" in inference.describe_truncation(rows)) == (cut > 0)


def test_documents_beyond_the_windows_that_are_read_are_cut(tmp_path: Path) -> None:
    task = make(write(tmp_path, "train.jsonl", flat("lists")), "task.max_query=11")
    task.max_length, task.stride, task.windows = 30, 8, 1
    rows = task.encode(task.splits.reader.read_file(tmp_path / "train.jsonl", {}), Letters())
    read = [30 - 3 - len(question) for _, question, _ in ASKED]
    assert rows.values["cut"].tolist() == [len(CONTEXT) - each for each in read]


def test_json_has_numbers_and_their_sentences_beside_them() -> None:
    extra = {"task": "squad", "rows": 3, "cut": Told("2 rows are cut", 2), "read": Told("as lines")}
    table = ScoreTable("squad", {"dev": {"f1": 0.5}}, extra)
    assert table.to_json() == {
        "task": "squad",
        "rows": 3,
        "cut": 2,
        "remarks": {"cut": "2 rows are cut", "read": "as lines"},
        "metrics": {"dev": {"f1": 0.5}},
    }
