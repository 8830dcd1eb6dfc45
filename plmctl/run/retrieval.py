"""`plmctl data retrieve`: passages for questions, from which a reader and a ranker learn."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.core.terminal import counted, remark, tell
from plmctl.run.linked import Retrieve
from plmctl.storage.journal import open_journal
from plmctl.storage.resumable import new_folder
from plmctl.tasks import files
from plmctl.tasks.retrieval import (
    OpenQuestion,
    Retrieved,
    Retriever,
    measure_recall,
    read_passages,
    read_questions,
)

SPLITS = ("train", "dev", "test")
RANKS = (1, 5, 20, 100)  # at which recall is said


def retrieve(spec: Retrieve) -> int:
    """Write `out` and say what was found."""
    out = new_folder(spec.out).absolute()
    given = {name: getattr(spec, name) for name in SPLITS if getattr(spec, name)}
    if not given:
        raise ConfigError("train", None, "questions are needed", fix="train=<questions.jsonl>")
    questions = {name: read_questions(files.existing(place)) for name, place in given.items()}
    retriever = Retriever(read_passages(spec.text, spec.words), k1=spec.k1, b=spec.b)
    job = {"text": spec.text, "words": spec.words, "top": spec.top, "k1": spec.k1, "b": spec.b}
    recall: dict[str, Any] = {}
    with open_journal(out, {**job, **given}, tell=lambda line: remark(f"plmctl: {line}")) as work:
        for name, asked in questions.items():
            found = list(retriever.find(asked, spec.top))
            ranks = [k for k in RANKS if k < spec.top] + [spec.top]
            recall[name] = {"questions": len(found), **measure_recall(found, ranks)}
            write_split(work.folder, name, found)
        passages = {"passages": len(retriever.passages)}
        record = json.dumps({**job, **given, **passages, "recall": recall}, indent=1)
        (work.folder / "made.json").write_text(record + "\n", encoding="utf-8")
        work.finish(out)
    _show(spec, out, recall, len(retriever.passages))
    return 0


def _show(spec: Retrieve, out: Path, recall: dict[str, Any], passages: int) -> None:
    if spec.provenance.json:
        tell(json.dumps({"out": spec.out, "passages": passages, **recall}))
        return
    tell(f"{spec.out}: {counted(passages, 'passage')} searched")
    for name, found in recall.items():
        shares = ", ".join(
            f"{key} {value:.1%}" for key, value in found.items() if key != "questions"
        )
        tell(f"  {name}: {counted(found['questions'], 'question')}, {shares}")
    reader = ["task=triviaqa", f"task.path={out}", "task.reader.folder=", "task.windows=null"]
    tell(f"next: {shlex.join(['plmctl', 'finetune', *reader, 'checkpoint=<a run>'])}")


def write_split(folder: Path, name: str, found: Sequence[Retrieved]) -> None:
    """Write the questions with their passages, and beside them pairs for a ranker."""
    lines = ({**_about(each.question), "document": each.passages} for each in found)
    _write(folder / f"{name}.jsonl", (json.dumps(line, ensure_ascii=False) for line in lines))
    pairs = folder / "pairs"
    pairs.mkdir(exist_ok=True)
    rows = (
        "\t".join((_flat(each.question.question), _flat(text), str(int(holds))))
        for each in found
        for text, holds in zip(each.passages, each.places, strict=True)
    )
    _write(pairs / f"{name}.tsv", ["text\ttext2\tlabel", *rows])


def _about(question: OpenQuestion) -> dict[str, Any]:
    about: dict[str, Any] = question._asdict()
    return about | {"answers": list(question.answers)}


def _flat(text: str) -> str:
    return " ".join(text.split())


def _write(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
