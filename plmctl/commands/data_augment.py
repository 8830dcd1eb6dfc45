"""`plmctl data augment`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser
from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Batch, Count, Share, Whole
from plmctl.storage.resumable import hash_file, new_folder

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Loaded
    from plmctl.datasets.augment import Augmentation


@dataclass(frozen=True)
class Augment(TaskUser, Command):
    """Write a larger training set: a masked language model replaces words.

    Every text is copied, and words of the copies are replaced (TinyBERT's data augmentation).
    """

    about = About(
        "data augment",
        place=30,
        examples=(
            (
                "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first"
                " copies=2 out=augmented"
            ),
            (
                "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first"
                " rate=0.2 candidates=5 out=augmented-less"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="task",
    )

    checkpoint: str = MISSING  # the model that writes: a run, a checkpoint or a Hugging Face folder
    task: Any = None
    out: str = MISSING  # a new folder, for task.path
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    # copies of each example, in addition to itself; TinyBERT: 10 to 30, more for fewer examples
    copies: Count = 20
    rate: Share = 0.4  # share of a copy's words to replace
    candidates: Count = 15  # words that one may be replaced by
    # a file of word vectors, for words of several pieces; null: those stay as they are
    vectors: str | None = None
    # in tagging, also words whose tag is not O: names may become what is none
    tagged_words: bool = False
    # words that stay as they are, one a line; null: English function words
    stop_words: str | None = None
    seed: Whole = 0  # seed of the words that are changed

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        out = new_folder(self.out)
        work, loaded = self._plan()
        work.write(out)
        before, counted = work.examples, work.counted
        if not counted["replaceable"]:
            what = f"no word of the {before:,} examples could be replaced"
            tags = "columns" in self.task and "tags" in self.task.columns and not self.tagged_words
            fix = "\n  fix: tagged_words=true, where no word has the tag O" if tags else ""
            raise UsageError(f"{what}; {self.out} is the training set as it was{fix}")
        found = {"out": self.out, "before": before, **counted}
        return self.report(found, self._describe(work, loaded))

    def _plan(self) -> tuple[Augmentation, Loaded]:
        """The augmentation, and the model that replaces words."""
        from plmctl.artifacts.identity import identity
        from plmctl.artifacts.loading import load
        from plmctl.datasets.augment import Augmentation, choose_sheet
        from plmctl.datasets.opening import build_task
        from plmctl.distill.augmentation import Augmenter
        from plmctl.knowledge.word_vectors import Neighbours
        from plmctl.tasks.readers.files import existing
        from plmctl.text.function_words import ENGLISH, read_words
        from plmctl.training.processes.world import device_of

        question, fix = "must be given: whose training set is it?", "task=sst2 task.path=<folder>"
        task = build_task(self.task, self.plugins, question, fix=fix)
        sheet = choose_sheet(task, self.task.get("name"), tagged_words=self.tagged_words)
        given = {"vectors": self.vectors, "stop_words": self.stop_words}
        read = {name: None if path is None else existing(path) for name, path in given.items()}
        stop = ENGLISH if read["stop_words"] is None else read_words(read["stop_words"])
        vectors = None if read["vectors"] is None else Neighbours.read(read["vectors"])
        device = device_of(self.device, "device")
        loaded = load(self.checkpoint, plugins=self.plugins)
        augmenter = Augmenter(
            model=loaded.model.to(device),
            tokenizer=loaded.tokenizer,
            candidates=self.candidates,
            stop=stop,
            vectors=vectors,
            batch_size=self.batch_size,
            device=device,
        )
        hashes = {name: None if file is None else hash_file(file) for name, file in read.items()}
        work = Augmentation(
            task=task,
            sheet=sheet,
            augmenter=augmenter,
            copies=self.copies,
            rate=self.rate,
            seed=self.seed,
            tagged_words=self.tagged_words,
            how={"model": identity(loaded.source), "candidates": self.candidates, **hashes},
        )
        return work, loaded

    def _describe(self, work: Augmentation, loaded: Loaded) -> Iterator[str]:
        from plmctl.datasets.after_writing import spell_next

        counted, several = work.counted, work.counted["of several tokens"]
        stayed = f"; {several:,} of several tokens stayed (vectors=<file> replaces them)"
        stayed = stayed if several and self.vectors is None else ""
        words, replaceable = counted["words"], counted["replaceable"]
        yield (
            f"{self.out}: {work.examples:,} examples became {counted['examples']:,}\n"
            f"  of {words:,} words but function words, {replaceable:,} may be replaced{stayed}"
        )
        named = [f"task={self.task.get('name')}", spell_setting("task.path", self.out)]
        yield spell_next(loaded, work.task, named, checkpoint=self.checkpoint)
