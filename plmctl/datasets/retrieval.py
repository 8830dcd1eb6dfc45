"""`plmctl data retrieve`: passages for questions, from which a reader and a ranker learn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from plmctl.artifacts.loading import load
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.config.linked import Retrieve
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted, remark, tell
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit
from plmctl.storage.journal import open_journal
from plmctl.storage.resumable import new_folder
from plmctl.tasks import inference
from plmctl.tasks.readers import files
from plmctl.tasks.record import Example
from plmctl.tasks.retrieval import (
    OpenQuestion,
    Retrieved,
    Retriever,
    measure_recall,
    read_passages,
    read_questions,
    rerank,
)
from plmctl.tasks.task import as_task
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of
from plmctl.use.predict import predict

SPLITS = ("train", "dev", "test")
# what decides the passages, beside the text and the questions
DECIDING = ("words", "top", "k1", "b", "ranker", "pool", "ranker_weight")
RANKS = (1, 5, 20, 100)  # at which recall is said


def retrieve(spec: Retrieve) -> int:
    """Write `out` and say what was found."""
    out = new_folder(spec.out).absolute()
    given = {name: file for name in SPLITS if (file := getattr(spec, f"{name}_questions"))}
    if not given:
        setting = "train_questions"
        raise ConfigError(setting, None, "questions are needed", fix=f"{setting}=<questions.jsonl>")
    questions = {name: read_questions(files.existing(place)) for name, place in given.items()}
    rank = make_ranker(spec)
    retriever = Retriever(read_passages(spec.text, spec.words), k1=spec.k1, b=spec.b)
    job = {name: getattr(spec, name) for name in ("text", *DECIDING)}
    recall: dict[str, Any] = {}
    with open_journal(out, {**job, **given}, tell=lambda line: remark(f"plmctl: {line}")) as work:
        for name, asked in questions.items():
            found = rank(retriever.find(asked, spec.pool if spec.ranker else spec.top))
            ranks = [k for k in RANKS if k < spec.top] + [spec.top]
            recall[name] = {"questions": len(found), **measure_recall(found, ranks)}
            write_split(work.folder, name, found)
        passages = {"passages": len(retriever.passages)}
        record = json.dumps({**job, **given, **passages, "recall": recall}, indent=1)
        write_text(work.folder / "made.json", record + "\n")
        work.finish(out)
    _show(spec, out, recall, len(retriever.passages))
    return 0


def make_ranker(spec: Retrieve) -> Callable[[Iterable[Retrieved]], list[Retrieved]]:
    """What orders passages anew, by the model `ranker`; without one, nothing changes.

    Raises:
        ConfigError: it tells no two classes of pairs apart, called 0 and 1.
    """
    if spec.ranker is None:
        return list
    loaded = load(spec.ranker, plugins=spec.plugins)
    node = loaded.own_task()
    given = {"vocab": loaded.vocab, **reading(loaded.config, spec.plugins)}
    task = as_task(build(node, given, spec.plugins, path="task")) if node else None
    if task is None or sorted(task.label_names or []) != ["0", "1"]:
        allowed = "a run of task=pair_classification on the pairs/ of plmctl data retrieve"
        raise ConfigError("ranker", spec.ranker, allowed)
    precision = choose("fp32", device_of("auto", "device"))
    loaded.model.to(precision.device)

    def ask(each: Retrieved) -> Retrieved:
        examples = [
            Example(str(n), {"text": each.question.question, "text2": text})
            for n, text in enumerate(each.passages)
        ]
        split = inference.encode_split(task, "test", examples, loaded.tokenizer)
        rows, _ = predict(loaded.model, task, split, precision=precision)
        chances = [row["probabilities"]["1"] for row in rows]
        return rerank(each, chances, weight=spec.ranker_weight, top=spec.top)

    return lambda found: [ask(each) for each in found]


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
    reader = (
        f"task=triviaqa {spell_setting('task.path', out)} task.reader.folder= task.windows=null"
    )
    tell(f"next: plmctl finetune {reader} checkpoint=<a run>")


def write_split(folder: Path, name: str, found: Sequence[Retrieved]) -> None:
    """Write the questions with their passages, and beside them pairs for a ranker."""
    lines = (
        {**_about(each.question), "document": each.passages, "scores": each.scores}
        for each in found
    )
    _write(folder / f"{name}.jsonl", (json.dumps(line, ensure_ascii=False) for line in lines))
    pairs = folder / "pairs"
    admit(pairs).mkdir(exist_ok=True)
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
    write_text(file, "".join(f"{line}\n" for line in lines))
