"""The texts that `plmctl generate` is given, and what the model reads of them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.errors import DataError, UsageError
from plmctl.core.terminal import remark
from plmctl.data.loader import collate
from plmctl.generation.decode import writer
from plmctl.run.build import build, locate
from plmctl.run.loading import Loaded
from plmctl.run.model_facts import reading
from plmctl.run.plugins import confirm, named
from plmctl.tasks.base import Example
from plmctl.tasks.generation import Generation
from plmctl.text.unknown import refuse_unknown, unknown_share

AHEAD = 16  # batches that are sorted by length together
MASKS = ("[MASK]", "<mask>")  # are understood whatever the tokenizer's own spelling


@dataclass(frozen=True)
class Prompt:
    """A text, where it stands, and its ids with the special tokens that the model expects
    around.
    """

    text: str
    ids: list[int]
    number: int  # of all texts, from 0
    cut: int = 0  # tokens that a task leaves out of a source that is too long


@dataclass(frozen=True)
class Reader:
    """Texts to prompts of one model: `kind` is "fill" (masks), "source" (of an encoder-decoder), or
    "text" (goes on).

    What was fine-tuned on a `task` that writes is given its sources as the task lays them out, cut
    where it cuts them.
    """

    loaded: Loaded
    kind: str
    source: str  # where texts come from, for messages
    task: Generation | None = None

    @classmethod
    def of(cls, loaded: Loaded, source: str, plugins: Sequence[str] = ()) -> Reader:
        """UsageError where the model can neither write nor fill."""
        backbone, heads = loaded.model.backbone, loaded.model.heads
        try:
            writer(loaded.model)
        except UsageError:
            if "mlm" not in heads or backbone.writes != "text" or loaded.vocab.mask is None:
                raise
            return cls(loaded, "fill", source)
        return cls(
            loaded,
            "source" if backbone.writes == "target" else "text",
            source,
            written_task(loaded, plugins),
        )

    @property
    def head(self) -> str | None:
        """The head that writes, where a task says which."""
        return None if self.task is None else self.task.head

    def all(self, lines: Iterator[str], max_new: int | None = None) -> Iterator[Prompt]:
        """The prompts of all lines, those of blank ones empty; then what there is to say.
        DataError where there is no text.
        """
        places, blank, full, cut = self.loaded.model.backbone.max_length, list[int](), 0, 0
        prompt = None
        for number, line in enumerate(lines):
            made = (
                self(line, number)
                if line.strip() or self.source == "prompt"
                else Prompt(line, [], number)
            )
            used = len(made.ids) if self.kind == "text" else 0
            full += max_new is not None and places is not None and used + max_new > places
            cut += made.cut > 0
            blank += [] if made.ids else [number + 1]
            prompt = made if made.ids else prompt
            yield made
        if prompt is None:
            raise DataError("there is no text in it", file=self.source, fix="a prompt on each line")
        if blank:
            note(
                f"{self.source}: {_counted(len(blank), 'blank line')} (the first is line"
                f" {blank[0]}), answered by nothing"
            )
        if cut and self.task is not None:
            note(
                f"{_counted(cut, 'source')} cut at the end, to"
                f" task.max_length={self.task.max_length}, as in fine-tuning"
            )
        if full:
            behind = ", prompt and text together" if self.kind == "text" else ""
            note(
                f"max_new={max_new} is more than the model has room for:"
                f" it has {places} places{behind}"
            )

    def __call__(self, text: str, number: int) -> Prompt:
        """DataError for a text that is empty, too long, or has no mask where masks are to be
        filled.
        """
        line = None if self.source == "prompt" else number + 1
        if not text.strip():
            raise DataError(
                "an empty prompt", file=self.source, line=line, fix="write at least a word"
            )
        prompt = self._asked(text, number)
        ids, vocab = prompt.ids, self.loaded.vocab
        share = unknown_share(ids, vocab)
        refuse_unknown(
            share, file=self.source, line=line, fix="a checkpoint whose tokenizer knows this text"
        )
        if self.kind == "fill" and vocab.mask not in ids:
            mask = self.loaded.tokenizer.roles.mask
            fix = (
                f"put {mask} where it should say a word;"
                " to write, take a decoder or an encoder-decoder"
            )
            raise DataError(
                "this model is an encoder: it fills masks, and writes no text",
                file=self.source,
                line=line,
                fix=fix,
            )
        places = self.loaded.model.backbone.max_length
        room = None if places is None else places - (self.kind == "text")
        if room is not None and len(ids) > room:
            told = f"the model has places for {places}" + (
                ", and one is to be written" if self.kind == "text" else ""
            )
            raise DataError(
                f"{len(ids)} tokens, but {told}",
                file=self.source,
                line=line,
                fix="a shorter prompt",
            )
        return prompt

    def batch(self, prompts: Sequence[Prompt]) -> Batch:
        """The prompts side by side, padded to the longest."""
        length = np.array([len(prompt.ids) for prompt in prompts])
        ids = np.full((len(prompts), int(length.max())), self.loaded.vocab.pad, np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt.ids)] = prompt.ids
        name = "source" if self.kind == "source" else "text"
        seq = Seq(ids, length)
        if self.task is not None and self.kind == "text":
            seq = seq.with_tracks(segment=np.full(ids.shape, self.task.segments[0], np.uint8))
        return collate(Rows(key=np.array([p.number for p in prompts]), seqs={name: seq}), {})

    def _asked(self, text: str, number: int) -> Prompt:
        if self.task is None:
            return Prompt(text, self._framed(self._encoded(text)), number)
        rows = self.task.encode([Example(str(number), {"source": text})], self.loaded.tokenizer)
        return Prompt(
            text, rows.seqs[self.kind].ids[0].tolist(), number, int(rows.values["cut"][0])
        )

    def _encoded(self, text: str) -> list[int]:
        """The ids of `text`, in which masks and sentinels may be spelled out."""
        tokenizer, vocab = self.loaded.tokenizer, self.loaded.vocab
        known = dict(zip(tokenizer.roles.sentinels, vocab.sentinels, strict=True))
        if vocab.mask is not None:
            known |= dict.fromkeys((*MASKS, str(tokenizer.roles.mask)), vocab.mask)
        if not known:
            return tokenizer.encode(text)
        ids: list[int] = []
        for part in re.split(
            f"({'|'.join(map(re.escape, sorted(known, key=len, reverse=True)))})", text
        ):
            if part in known:
                ids.append(known[part])
            elif part:
                ids += tokenizer.encode(
                    part.rstrip(" ") if self.kind == "fill" and tokenizer.kind != "char" else part
                )
        return ids

    def _framed(self, ids: list[int]) -> list[int]:
        """With the special tokens of the rows that the model was trained on; a text that goes on
        is not closed.
        """
        vocab, config = self.loaded.vocab, self.loaded.config
        rows: dict[str, Any] = config.get("format") or {}
        if self.kind == "text":
            prefix = "tracks.segment" in self.loaded.model.backbone.needs
            roles = (
                vocab.pair[: vocab.pair.index("B")]
                if prefix
                else vocab.single[: vocab.single.index("A") + 1]
            )
            roles = roles if prefix or rows.get("specials") else ("A",)
        else:
            roles = tuple(rows.get("source_template") or vocab.single)
        return [i for role in roles for i in (ids if role == "A" else [vocab.id(role)])]


def written_task(loaded: Loaded, plugins: Sequence[str] = ()) -> Generation | None:
    """The task that the checkpoint was fine-tuned on, if it is one that writes."""
    node = loaded.config.get("task") or {}
    confirm(named(node), plugins, of=loaded.source.folder)
    part = locate(node["_target_"], plugins) if node else None
    if not (isinstance(part, type) and issubclass(part, Generation)):
        return None
    unscored = {**node, "metrics": []}  # whose libraries may be missing here
    made: Generation = build(unscored, reading(loaded.config, plugins), plugins, path="task")
    return made


def note(text: str) -> None:
    remark(f"plmctl: {text}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def alike(
    prompts: Sequence[Prompt], batch_size: int, *, without: Container[int] = ()
) -> list[list[int]]:
    """The places of the prompts, but for those `without`, in batches of similar length, the
    longest first.
    """
    places = sorted(
        (n for n in range(len(prompts)) if n not in without), key=lambda n: -len(prompts[n].ids)
    )
    return [places[start : start + batch_size] for start in range(0, len(places), batch_size)]
