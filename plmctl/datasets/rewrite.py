"""A training set with targets that a teacher wrote (Kim and Rush, 2016), as a folder of files.

It has train.jsonl and the other splits of the task unchanged, under the names of the task's
columns. `task.path=<folder>` trains on it; in pretraining, so does `data.path=<folder>/train.jsonl
data.fields=[source,target]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import ConfigError
from plmctl.distill.sequence import Pick
from plmctl.generation.decode import generate
from plmctl.generation.prompts import AHEAD, PromptReader, batch_by_length
from plmctl.generation.search import Hypothesis, Search
from plmctl.storage.resumable import hash_text, write_folder
from plmctl.tasks.generation import Generation
from plmctl.tasks.readers import files
from plmctl.tasks.record import Example
from plmctl.use.prompting import build_writing_task, make_prompt_reader


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """A teacher, the examples of a task, and how it writes them.

    Args:
        reader: The teacher, and how it reads a source.
        pick: Chooses the text of `search` that the student learns.
        max_new: The most tokens of a text.
        how: Further facts that decide the texts (the identity of the teacher, the search).
    """

    reader: PromptReader
    task: Generation
    search: Search
    pick: Pick
    max_new: int
    batch_size: int
    device: torch.device
    how: Mapping[str, Any]
    counted: dict[str, int] = field(
        default_factory=lambda: {
            "as the reference": 0,
            "cut at max_new": 0,
            "empty, so the reference": 0,
        }
    )

    @cached_property
    def examples(self) -> list[Example]:
        """The examples of the training split, with checked labels."""
        examples = self.task.read("train")
        self.task.fit_labels(examples)
        return examples

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of the columns: as in the task, if they have names."""
        return {
            role: name if isinstance(name := self.task.columns[role], str) else role
            for role in ("source", "target")
        }

    @cached_property
    def job(self) -> dict[str, Any]:
        """Everything that decides the bytes of `train.jsonl`."""
        return {
            "made by": "plmctl data rewrite",
            **self.how,
            "max_new": self.max_new,
            "columns": self.names,
            "train": hash_text("".join(map(self._line, self.examples))),
        }

    @property
    def identity(self) -> str:
        """A hash of everything that decides the bytes of the folder."""
        others = {name: hash_text(str(text)) for name, text in self._others.items()}
        return hash_text(json.dumps({**self.job, **others}, sort_keys=True))

    def write(self, out: Path) -> None:
        """Write the folder `out`, which appears when it is complete."""
        self.reader.model.to(self.device)
        together = AHEAD * self.batch_size
        with write_folder(out, self.job, self.counted) as made:
            made.write_rows(
                "train.jsonl", self.examples, self._rewrite, together=together, what="sources"
            )
            for name, content in self._others.items():
                made.write(name, content)

    def _rewrite(self, some: Sequence[Example], first: int) -> Iterator[str]:
        reader = self.reader
        prompts = [
            reader(str(example.fields["source"]), first + n) for n, example in enumerate(some)
        ]
        texts: dict[int, list[Hypothesis]] = {}
        for indices in batch_by_length(prompts, self.batch_size):
            written = generate(
                reader.model,
                reader.batch([prompts[n] for n in indices]).to(self.device),
                vocab=reader.vocab,
                search=self.search,
                head=reader.head,
                max_new=self.max_new,
                keys=[prompts[n].number for n in indices],
                opening=reader.opening,
            )
            texts |= dict(zip(indices, written, strict=True))
        for n, example in enumerate(some):
            words = [reader.spell(prompts[n], text.ids).strip() for text in texts[n]]
            yield self._line(replace(example, label=(self._choose(words, texts[n], example),)))

    def _choose(self, words: Sequence[str], texts: Sequence[Hypothesis], example: Example) -> str:
        """The target of the student: the teacher's text, or the reference if that is empty."""
        references = [str(text) for text in example.label or ()]
        text = self.pick(words, references)
        self.counted["empty, so the reference"] += text is None
        self.counted["as the reference"] += text in references
        self.counted["cut at max_new"] += (
            text is not None and not texts[list(words).index(text)].finished
        )
        return references[0] if text is None else text

    def _line(self, example: Example) -> str:
        row = {self.names["source"]: example.fields["source"]}
        references = list(example.label or ())
        if references:
            row[self.names["target"]] = references[0] if len(references) == 1 else references
        return json.dumps(row, ensure_ascii=False) + "\n"

    @cached_property
    def _others(self) -> dict[str, Path | str]:
        """The other splits, which stay unchanged."""
        # a single file is every split
        single = files.is_single(self.task.splits.path)
        others = ("dev",) if single else self.task.splits.reader.splits
        present: Iterable[str] = (
            split for split in others if split != "train" and self.task.splits.has(split)
        )
        return {
            f"{split}.jsonl": "".join(map(self._line, self.task.read(split))) for split in present
        }


def choose_task(loaded: Loaded, node: Any = None) -> Generation:
    """The task of a node, else the task on which the teacher was fine-tuned; ConfigError if it
    writes no texts.
    """
    node = loaded.own_task() if node is None else node
    if not node:
        what, fix = "must be given: whose sources are they?", "task=translation task.path=<folder>"
        raise ConfigError("task", ..., what, fix=fix)
    task = build_writing_task(loaded, node)
    if task is None:
        allowed = "a task whose targets are texts: translation, summarization, seq2seq"
        raise ConfigError("task", node.get("name"), allowed)
    return task


def choose_reader(loaded: Loaded, checkpoint: str) -> PromptReader:
    """How the teacher reads a source; ConfigError for a model that does not write one text for
    another.
    """
    reader = make_prompt_reader(loaded, "train")
    if reader.kind == "source" or (reader.kind == "text" and reader.task is not None):
        return reader
    what = "a decoder that was fine-tuned on no task that writes"
    if reader.kind == "fill":
        what = "an encoder, which fills masks"
    tasks = "translation, summarization, seq2seq"
    fix = f"checkpoint=<a run of an encoder-decoder, or of a finetune on {tasks}>"
    allowed = f"a teacher that writes one text for another; this is {what}"
    raise ConfigError("checkpoint", checkpoint, allowed, fix=fix)
