"""`plmctl data mine`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.core.values import Batch, Count, Whole
from plmctl.storage.resumable import hash_text, new_folder, write_folder

if TYPE_CHECKING:
    from plmctl.datasets.mine import Search
    from plmctl.tasks.ranking import RankingTask

SPLITS = ("train", "dev")


@dataclass(frozen=True)
class Mine(TaskUser, Command):
    """Find hard negatives for questions, by BM25 or by a bi-encoder.

    Encoders learn from them with task=bi_encoder, cross_encoder or sentence_triplets.
    """

    about = About(
        "data mine",
        place=29,
        examples=(
            (
                "plmctl data mine task=bi_encoder task.path=questions.jsonl"
                " task.columns.query=question task.columns.positive=answers"
                " task.columns.negatives=null out=mined"
            ),
            (
                "plmctl data mine task=bi_encoder task.path=questions.jsonl"
                " task.columns.query=question task.columns.positive=answers"
                " task.columns.negatives=null negatives=1 out=mined-one"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="task",
    )

    # a ranking task, the source of the questions; null: the task of checkpoint
    task: Any = None
    # a run of task=bi_encoder, by which texts are found; null: BM25
    checkpoint: str | None = None
    out: str = MISSING  # a new folder, for task.path
    # best wrong texts that are skipped for each question: they may answer the question, too
    negatives: Count = 4
    # so many of the best wrong texts are passed over: they may answer the question, too
    skipped: Whole = 0
    batch_size: Batch = 32  # texts that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one

    def perform(self) -> Result:
        """Write train.jsonl, and dev.jsonl where there is one: query, positive and negatives."""
        from plmctl.datasets.mine import Mining

        out = new_folder(self.out)
        task, search, model = self._open()
        splits = {split: task.read(split) for split in SPLITS if task.splits.has(split)}
        texts = {split: task.read_corpus(split) for split in splits}
        job = {
            "made by": "plmctl data mine",
            "model": model,
            "negatives": self.negatives,
            "skipped": self.skipped,
            "train": hash_text(repr((splits, texts))),
        }
        found: dict[str, dict[str, int]] = {}
        with write_folder(out, job, found) as made:
            for split, examples in splits.items():
                numbers = found.setdefault(split, {"questions": 0, "negatives": 0})
                mining = Mining(search, texts[split], self.negatives, self.skipped, numbers)
                size = len(examples)  # a model reads all texts of the corpus once
                made.write_rows(f"{split}.jsonl", examples, mining, together=size)
        return self.report({"out": self.out, "splits": found}, self._describe(out, found))

    def _open(self) -> tuple[RankingTask, Search, str]:
        """The source of the questions, what finds texts for them, and its name."""
        from plmctl.artifacts.identity import identity
        from plmctl.datasets.opening import Taught, build_task
        from plmctl.probes.ranking import search_corpus
        from plmctl.tasks.search import search_words

        if self.checkpoint is None:
            question, fix = "whose questions are they?", "task=bi_encoder task.path=<its files>"
            task = build_task(self.task, self.plugins, question, fix=fix)
            return self._check(task), search_words, "bm25"
        taught = Taught.open(self.checkpoint, self.plugins, device=self.device)
        if taught.task is None or not taught.task.facts.ranks or taught.task.first is not None:
            allowed = "null: BM25, or a run of plmctl finetune task=bi_encoder"
            raise ConfigError("checkpoint", self.checkpoint, allowed, fix="leave it out")
        task = taught.task
        if self.task is not None:
            task = build_task(self.task, self.plugins, "", given=taught.given)
        search = partial(
            search_corpus,
            taught.loaded,
            taught.task,
            batch_size=self.batch_size,
            precision=taught.precision,
        )
        return self._check(task), search, identity(taught.loaded.source)

    def _check(self, task: Any) -> RankingTask:
        from plmctl.tasks.task import as_task

        known = as_task(task)
        if known is None or not known.facts.ranks:
            name = (self.task or {}).get("name", "...")
            raise ConfigError("task", name, "a task of ranking", fix="task=bi_encoder")
        return cast("RankingTask", known)

    def _describe(self, out: Path, found: dict[str, dict[str, int]]) -> Iterator[str]:
        for split, counts in found.items():
            asked = counted(counts["questions"], "question")
            yield f"{out / split}.jsonl: {asked} with {counted(counts['negatives'], 'negative')}"
        words = f"{spell_setting('task.path', out)} task.negatives={self.negatives}"
        yield f"next: plmctl finetune task=bi_encoder {words} checkpoint=<a run>"
