"""`plmctl data rarify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Batch, Count, Share, Whole
from plmctl.storage.resumable import hash_text, new_folder, write_folder

if TYPE_CHECKING:
    from plmctl.knowledge.substitutes import Substitutes
    from plmctl.tasks.sheet import Sheet


@dataclass(frozen=True)
class Rarify(TaskUser, Command):
    """Write a test set whose labels depend on rare words.

    The first call splits a labelled set. The second one, with a baseline that was trained on its
    part, finds the examples in which a frequent word decides. It puts a rare word there.
    """

    about = About(
        "data rarify",
        place=45,
        examples=(
            "plmctl data rarify task=sst2 task.path=glue/SST-2 substitutes=rare.tsv out=rarified",
            "plmctl data rarify checkpoint=runs/sst2 out=rarified",
        ),
        options="json print_config config_dir plugin",
        slots="task",
    )

    task: Any = None  # the labelled set; with checkpoint: that of the checkpoint
    # the baseline, fine-tuned on out/baseline; null: write the parts of the set
    checkpoint: str | None = None
    out: str = MISSING  # a new folder; with checkpoint, the folder that was written without it
    # a table: word, substitute, kind; null: synonyms of WordNet
    substitutes: str | None = None
    wordnet: str | None = None  # the folder of its dictionary; null: where it is installed
    # how often words stand in the text that contexts come from: a folder of plmctl data contexts
    counts: str | None = None
    least: Count = 10  # a substitute stands this often or more
    below: Count = 100  # a substitute stands fewer times than this
    # misspellings of each word that has a substitute, in addition to the substitutes
    misspellings: Whole = 0
    candidates: Share = 0.5  # share of the examples that are searched for rarified ones
    hidden: str = "[MASK]"  # text that replaces a word, as ordinary text
    hidden_share: Share = 0.1  # share of the words with substitutes that the baseline does not see
    replaced_share: Share = 0.1  # share of these words to replace for tested models
    most_words: Count = 5  # largest number of words to hide in an example, one after the other
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    seed: Whole = 0  # seed of the choices of examples and words

    def perform(self) -> Result:
        """Write the parts of the set, or with a baseline the rarified examples."""
        return self._split() if self.checkpoint is None else self._select(self.checkpoint)

    def _split(self) -> Result:
        from plmctl.datasets.opening import build_task
        from plmctl.datasets.rarify import (
            CANDIDATES,
            SUBSTITUTES,
            Replacing,
            need_sheet,
            split_rows,
        )
        from plmctl.knowledge.substitutes import spell_substitutes

        out = new_folder(self.out)
        task = build_task(self.task, self.plugins, "whose training set is it?")
        sheet = need_sheet(task)
        known = self._find_substitutes()
        rows = [row for row in sheet.rows if sheet.texts(row)]
        candidates, training = split_rows(len(rows), self.candidates, self.seed)
        if not candidates or not training:
            allowed = f"a share of the {len(rows)} examples that leaves some on both sides"
            raise ConfigError("candidates", self.candidates, allowed)
        numbered = [(n, rows[n]) for n in training]
        words, counts = spell_substitutes(known), {"training": len(training)}
        counts |= {"candidates": len(candidates), "words with substitutes": len(known)}
        with write_folder(out, self._describe_job(sheet, words), counts) as made:
            for name, hidden, share in (
                ("baseline", self.hidden, self.hidden_share),
                ("tested", None, self.replaced_share),
            ):
                replacing = Replacing(sheet, known, share, hidden, self.seed)
                file = f"{name}/train{sheet.kind}"
                made.write_rows(file, numbered, replacing, begin=sheet.head)
            lines = (sheet.line(rows[n]) for n in candidates)
            made.write(f"{CANDIDATES}{sheet.kind}", sheet.head + "".join(lines))
            made.write(SUBSTITUTES, words)
        return self.report({"out": self.out, **counts}, self._describe_parts(out, counts))

    def _describe_job(self, sheet: Sheet, substitutes: str) -> dict[str, Any]:
        """Everything that decides the parts of the set."""
        settings = ("candidates", "hidden", "hidden_share", "replaced_share", "seed")
        return {
            "made by": "plmctl data rarify",
            "train": hash_text("".join(map(sheet.line, sheet.rows))),
            "substitutes": hash_text(substitutes),
            **{name: self[name] for name in settings},
        }

    def _describe_parts(self, out: Path, counts: Mapping[str, int]) -> Iterator[str]:
        yield (
            f"{self.out}: {counts['training']:,} examples to train on,"
            f" {counts['candidates']:,} candidates;"
            f" {counts['words with substitutes']:,} words have substitutes"
        )
        files = spell_setting("task.path", out / "baseline")
        yield f"next: plmctl finetune {files} task.dev_share=0.1 ..."
        yield f"then: plmctl data rarify checkpoint=<that run> {spell_setting('out', self.out)}"

    def _find_substitutes(self) -> Substitutes:
        """Substitutes of a file, else of WordNet, and misspellings of the same words."""
        from plmctl.datasets.rarify import add_misspellings, find_rare_synonyms
        from plmctl.knowledge.substitutes import read_substitutes
        from plmctl.knowledge.words import WordCounts
        from plmctl.tasks.readers import files

        table = None if self.counts is None else WordCounts.read(self.counts)
        counts = {} if table is None else dict(zip(table.spellings, table.counts, strict=True))
        if self.substitutes is not None:
            known = read_substitutes(files.existing(self.substitutes), counts)
        elif not counts:
            fix = "counts=<folder of plmctl data contexts least=10>, or substitutes=<file>"
            raise ConfigError("counts", None, "says which words are rare", fix=fix)
        else:
            bounds = {"least": self.least, "below": self.below}
            known = find_rare_synonyms(counts, self.wordnet, **bounds)
        add_misspellings(known, self.misspellings, counts, self.seed)
        if not known:
            fix = "counts of a larger text, or substitutes="
            raise DataError("no word has a substitute", fix=fix)
        return known

    def _select(self, checkpoint: str) -> Result:
        from plmctl.datasets.opening import Taught
        from plmctl.datasets.rarify import CANDIDATES, SUBSTITUTES, need_sheet, write_rarified
        from plmctl.distill.rarification import rarify
        from plmctl.knowledge.substitutes import read_substitutes
        from plmctl.tasks.record import Example

        out = Path(self.out)
        found = sorted(out.glob(f"{CANDIDATES}.*"))
        if not found or not (out / SUBSTITUTES).is_file():
            fix = (
                "plmctl data rarify task=<name> task.path=<folder> out=<folder>, without checkpoint"
            )
            raise DataError("no candidates here", file=out, fix=fix)
        taught = Taught.open(checkpoint, self.plugins, device=self.device, path=str(found[0]))
        task = taught.task
        if task is None:
            allowed = "a model that was fine-tuned on the task"
            raise ConfigError("checkpoint", checkpoint, allowed)
        task.splits = task.splits.whole()
        sheet, examples = need_sheet(task), task.read("train")
        rows = [row for row in sheet.rows if sheet.texts(row)]
        if len(rows) != len(examples):
            raise DataError("some candidates cannot be read", file=found[0])

        def ask(some: list[Example], key: str) -> list[str]:
            answers = taught.predict(CANDIDATES, some, batch_size=self.batch_size)
            return [str(answer[key]) for answer in answers]

        made = rarify(
            [example.fields for example in examples],
            ask(examples, "gold"),
            lambda texts: ask([Example(str(n), dict(t)) for n, t in enumerate(texts)], "guess"),
            read_substitutes(out / SUBSTITUTES, {}),
            hidden=self.hidden,
            most=self.most_words,
            seed=self.seed,
        )
        write_rarified(out, sheet, rows, made)
        share = len(made) / len(rows)
        counts = {"rarified": len(made), "candidates": len(rows), "share": round(share, 6)}
        what = f"{len(made):,} rarified examples, {share:.1%} of the candidates"
        lines = [f"{out / 'tested'}: {what}"]
        if made:
            files = spell_setting("task.path", out / "tested")
            lines.append(f"next: plmctl finetune {files} checkpoint=<model> ...")
        return self.report({"out": self.out, **counts}, lines)
