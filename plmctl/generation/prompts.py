"""The prompts of `plmctl generate`, and their ids for the model."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import DataError
from plmctl.core.terminal import WARN, remark, remark_once
from plmctl.models.base import Model
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import KNOWING, refuse_unknown, unknown_share
from plmctl.text.vocab import Vocab

AHEAD = 16  # batches that are sorted by length together
MASKS = ("[MASK]", "<mask>")  # are recognised whatever the tokenizer's own spelling


@dataclass(frozen=True)
class Prompt:
    """A text, its number, and its ids with the special tokens that the model expects."""

    text: str
    ids: list[int]
    number: int  # number among all texts, from 0
    cut: int = 0  # tokens that a task leaves out of a source that is too long


class WritingTask(Protocol):
    """The part of a task that writes (`tasks.generation.Generation`) which prompts use."""

    max_length: int  # tokens of a source
    max_target: int  # most tokens of the written text

    def encode_source(self, text: str, tokenizer: Tokenizer) -> tuple[list[int], int]:
        """(the ids of a source as in training, how many tokens were cut off)."""
        ...

    def add_tracks(self, source: Seq) -> Seq:
        """Sources alone, with the tracks that they have in training."""
        ...


@dataclass(frozen=True)
class PromptReader:
    """Makes prompts of texts, for one model.

    Args:
        kind: "fill" (masks), "source" (of an encoder-decoder), or "text" (is continued).
        source: The source of the texts, for messages.
        template: Roles of special tokens around a text, which is "A".
        task: A task that writes, on which the model was fine-tuned: it encodes the sources.
        head: The name of the head that writes, if a task names it.
        opening: The first tokens of every text that is written; none: as the model forces.
    """

    model: Model
    tokenizer: Tokenizer
    kind: str
    source: str
    template: Sequence[str] = ("A",)
    task: WritingTask | None = None
    head: str | None = None
    opening: tuple[int, ...] = ()

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of the tokenizer."""
        return self.tokenizer.vocab

    def all(self, lines: Iterator[str], max_new: int | None = None) -> Iterator[Prompt]:
        """Yield the prompts of all lines, empty ones for blank lines, and report cut and blank
        lines at the end; DataError if there is no text.
        """
        positions, blank, full, cut = self.model.backbone.max_target, list[int](), 0, 0
        prompt = None
        for number, line in enumerate(lines):
            current = (
                self(line, number)
                if line.strip() or self.source == "prompt"
                else Prompt(line, [], number)
            )
            used = len(current.ids) if self.kind == "text" else 0
            full += max_new is not None and positions is not None and used + max_new > positions
            cut += current.cut > 0
            blank += [] if current.ids else [number + 1]
            prompt = current if current.ids else prompt
            yield current
        if prompt is None:
            raise DataError("there is no text in it", file=self.source, fix="a prompt on each line")
        if blank:
            note(
                f"{self.source}: {_pluralise(len(blank), 'blank line')} (the first is line"
                f" {blank[0]}), without an answer"
            )
        if cut and self.task is not None:
            note(
                f"{_pluralise(cut, 'source')} cut at the end, to"
                f" task.max_length={self.task.max_length}, as in fine-tuning"
            )
        if full:
            behind = ", prompt and text together" if self.kind == "text" else ""
            note(
                f"max_new={max_new} is more than the model has room for:"
                f" it has {positions} positions{behind}"
            )

    def __call__(self, text: str, number: int) -> Prompt:
        """Make a prompt; DataError for a text that is empty, too long, or has no mask to fill."""
        line = None if self.source == "prompt" else number + 1
        if not text.strip():
            raise DataError(
                "an empty prompt", file=self.source, line=line, fix="write at least a word"
            )
        prompt = self._encode_prompt(text, number)
        ids, vocab = prompt.ids, self.vocab
        share = unknown_share(ids, vocab)
        refuse_unknown(share, file=self.source, line=line, fix=KNOWING)
        if self.kind == "fill" and vocab.mask not in ids:
            mask = self.tokenizer.roles.mask
            fix = (
                f"put {mask} where it should say a word;"
                " to write, take a decoder or an encoder-decoder"
            )
            problem = f"no {mask} in it: this model fills masks, and writes no text"
            raise DataError(problem, file=self.source, line=line, fix=fix)
        positions = self.model.backbone.max_length
        room = None if positions is None else positions - (self.kind == "text")
        if room is not None and len(ids) > room:
            limit = f"the model has {positions} positions" + (
                ", and needs one to write" if self.kind == "text" else ""
            )
            problem = f"{len(ids)} tokens, but {limit}"
            raise DataError(problem, file=self.source, line=line, fix="a shorter prompt")
        return prompt

    def batch(self, prompts: Sequence[Prompt]) -> Batch:
        """The prompts as a batch, padded to the longest."""
        length = np.array([len(prompt.ids) for prompt in prompts])
        ids = np.full((len(prompts), int(length.max())), self.vocab.pad, np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt.ids)] = prompt.ids
        name = "source" if self.kind == "source" else "text"
        seq = Seq(ids, length)
        if self.task is not None:
            seq = self.task.add_tracks(seq)
        return collate(Rows(key=np.array([p.number for p in prompts]), seqs={name: seq}), {})

    def _encode_prompt(self, text: str, number: int) -> Prompt:
        if self.task is not None:
            ids, cut = self.task.encode_source(text, self.tokenizer)
            return Prompt(text, ids, number, cut)
        ids = self._encode_text(text)
        framed = (ids if role == "A" else [self.vocab.id(role)] for role in self.template)
        return Prompt(text, [i for part in framed for i in part], number)

    def _encode_text(self, text: str) -> list[int]:
        """The ids of `text`, in which masks and sentinels may be spelled out."""
        tokenizer, vocab = self.tokenizer, self.vocab
        known = dict(zip(tokenizer.roles.sentinels, vocab.sentinels, strict=True))
        if vocab.mask is not None:
            known |= dict.fromkeys((*MASKS, str(tokenizer.roles.mask)), vocab.mask)
        self._warn_of_special(text, known)
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

    def _warn_of_special(self, text: str, known: Container[str]) -> None:
        """Say which special tokens in a text are read as its words."""
        tokenizer = self.tokenizer
        for token in (*tokenizer.roles.tokens, *MASKS):
            if token in known or token not in text or token.isalnum():
                continue
            ids = tokenizer.encode(token)
            if len(ids) != 1 or not self.vocab.special[ids[0]]:
                read = " ".join(tokenizer.show(ids))
                remark_once(f"plmctl: {token} in a prompt is read as words: {read}", WARN)

    def spell(self, prompt: Prompt, ids: Sequence[int]) -> str:
        """The written tokens as text, with sentinels; decoded together with a prompt that they
        continue, so that a space between words stays.
        """
        tokenizer, vocab = self.tokenizer, self.vocab
        if self.task is not None:
            return tokenizer.decode(list(ids)).strip()
        if self.kind == "text" and "tracks.segment" not in self.model.backbone.needs:
            before, both = tokenizer.decode(prompt.ids), tokenizer.decode([*prompt.ids, *ids])
            if both.startswith(before):
                return both[len(before) :]
        spelled = dict(zip(vocab.sentinels, tokenizer.roles.sentinels, strict=True))
        parts = [(first, list(some)) for first, some in groupby(ids, key=spelled.get)]
        return " ".join(name or tokenizer.decode(some) for name, some in parts)


def note(text: str) -> None:
    """Print a remark of plmctl to standard error."""
    remark(f"plmctl: {text}")


def _pluralise(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def batch_by_length(
    prompts: Sequence[Prompt], batch_size: int, *, without: Container[int] = ()
) -> list[list[int]]:
    """The indices of the prompts, except those in `without`, in batches of similar length, the
    longest first.
    """
    indices = sorted(
        (n for n in range(len(prompts)) if n not in without), key=lambda n: -len(prompts[n].ids)
    )
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]
