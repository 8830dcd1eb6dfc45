"""`plmctl data retrieve`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.core.values import Count, Rate
from plmctl.storage.resumable import new_folder, write_folder

if TYPE_CHECKING:
    from plmctl.datasets.retrieve import Rank

SPLITS = ("train", "dev", "test")
# settings that decide the passages, with the text and the questions
DECIDING = ("words", "top", "k1", "b", "ranker", "pool", "ranker_weight")
RANKS = (1, 5, 20, 100)  # ranks whose recall is printed


@dataclass(frozen=True)
class Retrieve(Command):
    """Find passages of a text for open-domain questions, by BM25.

    A reader learns from them with task=triviaqa, a ranker with task=pair_classification.
    """

    about = About(
        "data retrieve",
        place=28,
        examples=(
            (
                "plmctl data retrieve text=README.md train_questions=questions.jsonl"
                " dev_questions=questions.jsonl out=found"
            ),
            (
                "plmctl data retrieve text=README.md dev_questions=questions.jsonl top=3"
                " words=20 out=found-less"
            ),
        ),
        options="json print_config config_dir plugin",
    )

    text: str = MISSING  # that is searched: file, folder or pattern
    # questions: .jsonl of id, question, answers, or SQuAD's .json
    train_questions: str | None = None
    dev_questions: str | None = None  # those of dev, in the same form
    test_questions: str | None = None  # those of test
    out: str = MISSING  # a new folder, for task=triviaqa
    words: Count = 100  # largest number of words in a passage
    top: Count = 10  # passages of a question
    # a run of task=pair_classification on pairs/ of an earlier start: passages are ordered anew
    ranker: str | None = None
    pool: Count = 50  # passages of a question that it reads
    ranker_weight: Rate = 0.5  # weight of the ranker's score; BM25 has the rest
    k1: float = 0.9  # BM25's k1: how soon further occurrences of a word count no more
    b: float = 0.4  # how much long passages count less

    def perform(self) -> Result:
        """Write passages for the questions of each split."""
        from plmctl.datasets.retrieve import spell_pairs, spell_questions
        from plmctl.tasks.readers import files
        from plmctl.tasks.retrieval import Retriever, measure_recall, read_passages, read_questions

        out = new_folder(self.out).absolute()
        given = {name: file for name in SPLITS if (file := self[f"{name}_questions"])}
        if not given:
            setting = "train_questions"
            fix = f"{setting}=<questions.jsonl>"
            raise ConfigError(setting, None, "questions are needed", fix=fix)
        questions = {name: read_questions(files.existing(place)) for name, place in given.items()}
        rank = self._choose_rank()
        retriever = Retriever(read_passages(self.text, self.words), k1=self.k1, b=self.b)
        ranks = [k for k in RANKS if k < self.top] + [self.top]
        job = {name: self[name] for name in ("text", *DECIDING)} | given
        recall: dict[str, Any] = {}
        with write_folder(out, job) as made:
            for name, asked in questions.items():
                found = rank(retriever.find(asked, self.pool if self.ranker else self.top))
                recall[name] = {"questions": len(found), **measure_recall(found, ranks)}
                made.write(f"{name}.jsonl", "".join(spell_questions(found)))
                made.write(f"pairs/{name}.tsv", "".join(spell_pairs(found)))
            passages = len(retriever.passages)
            made.record = {"passages": passages, "recall": recall}
        said = {"out": self.out, "passages": passages, **recall}
        return self.report(said, self._describe(out, recall, passages))

    def _choose_rank(self) -> Rank:
        """Orders passages anew, by the model `ranker`; without one, nothing changes."""
        from plmctl.datasets.opening import Taught
        from plmctl.datasets.retrieve import Ranker
        from plmctl.tasks.task import as_task

        if self.ranker is None:
            return list
        taught = Taught.open(self.ranker, self.plugins)
        task = as_task(taught.task)
        if task is None or sorted(task.label_names or []) != ["0", "1"]:
            allowed = "a run of task=pair_classification on the pairs/ of plmctl data retrieve"
            raise ConfigError("ranker", self.ranker, allowed)
        return Ranker(taught, weight=self.ranker_weight, top=self.top)

    def _describe(
        self, out: Path, recall: Mapping[str, Mapping[str, Any]], passages: int
    ) -> Iterator[str]:
        yield f"{self.out}: {counted(passages, 'passage')} searched"
        for name, found in recall.items():
            shares = ", ".join(
                f"{key} {value:.1%}" for key, value in found.items() if key != "questions"
            )
            yield f"  {name}: {counted(found['questions'], 'question')}, {shares}"
        files = spell_setting("task.path", out)
        reader = f"task=triviaqa {files} task.reader.folder= task.windows=null"
        yield f"next: plmctl finetune {reader} checkpoint=<a run>"
