"""The answers of a model to prompts, in their order: the texts that it writes, or the masks that it
fills.

Each prompt gives `search.count` texts, best first, a line each; or as JSON

    {"prompt": ..., "texts": [{"text": ..., "score": ..., "finished": ...}, ...]}

(finished: it ended by itself), or from a masked language model

    {"prompt": ..., "text": ..., "masks": [[{"token": ..., "probability": ...}, ...], ...]}

A blank line of a file gives a blank line, or an empty record, so that line n answers line n.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch

from plmctl.core.rounding import round_floats
from plmctl.core.terminal import tell
from plmctl.generation.decode import generate
from plmctl.generation.fill import Candidates, fill
from plmctl.generation.prompts import AHEAD, Prompt, PromptReader, batch_by_length
from plmctl.generation.search import Hypothesis, Search


class Answerer(Protocol):
    """Answers prompts in batches, each with one text, plain or as JSON."""

    def answer(self, prompts: Sequence[Prompt]) -> list[str]:
        """The answer to each prompt."""

    def blank(self, prompt: Prompt) -> str:
        """The answer to a blank line."""
        ...


def answer_in_order(
    prompts: Iterator[Prompt], answerer: Answerer, batch_size: int
) -> Iterator[str]:
    """Yield the answer to every prompt as soon as possible: batches have similar lengths, answers
    come in the order of the prompts.
    """
    interactive = sys.stdin is not None and sys.stdin.isatty()
    while some := list(islice(prompts, 1 if interactive else AHEAD * batch_size)):
        answers_by_index = {
            index: answerer.blank(prompt) for index, prompt in enumerate(some) if not prompt.ids
        }
        following = 0
        for indices in batch_by_length(some, batch_size, without=answers_by_index) or [[]]:
            if indices:
                texts = answerer.answer([some[index] for index in indices])
                answers_by_index |= dict(zip(indices, texts, strict=True))
            while following in answers_by_index:
                yield answers_by_index[following]
                following += 1


@dataclass(frozen=True)
class TextAnswers:
    """The texts that `search` writes after each prompt."""

    reader: PromptReader
    search: Search
    max_new: int | None
    device: torch.device
    as_json: bool

    def answer(self, prompts: Sequence[Prompt]) -> list[str]:
        """The texts of each prompt, one a line, or as one JSON record."""
        texts = self._write(prompts)
        return [self._line(*pair) for pair in zip(prompts, texts, strict=True)]

    def blank(self, prompt: Prompt) -> str:
        """As many blank lines as texts, or a record without any."""
        return _json(prompt, texts=[]) if self.as_json else "\n" * (self.search.count - 1)

    def stream(self, prompt: Prompt) -> None:
        """One prompt to the terminal, token by token; a beam's text at its end."""
        shown, ids = "", list[int]()

        def show(tokens: list[int]) -> None:
            nonlocal shown
            ids.extend(tokens)
            text = trim_incomplete(self.reader.spell(prompt, ids))
            # otherwise a later token has changed the spelling of an earlier one: shown at the end
            if text.startswith(shown):
                tell(text[len(shown) :], end="")
                shown = text

        ((hypothesis,),) = self._write([prompt], watch=show)
        final = self.reader.spell(prompt, hypothesis.ids)
        tell(final[len(shown) :] if final.startswith(shown) else f"\n{final}")

    def _write(self, prompts: Sequence[Prompt], **more: Any) -> list[list[Hypothesis]]:
        return generate(
            self.reader.model,
            self.reader.batch(prompts).to(self.device),
            vocab=self.reader.vocab,
            search=self.search,
            head=self.reader.head,
            max_new=self.max_new,
            keys=[prompt.number for prompt in prompts],
            **more,
        )

    def _line(self, prompt: Prompt, texts: Sequence[Hypothesis]) -> str:
        written = [(self.reader.spell(prompt, text.ids), text) for text in texts]
        if not self.as_json:
            return "\n".join(words.replace("\n", "\\n") for words, _ in written)
        records = [
            {"text": words, "score": round_floats(text.score), "finished": text.finished}
            for words, text in written
        ]
        return _json(prompt, texts=records)


@dataclass(frozen=True)
class MaskAnswers:
    """The `top` likeliest tokens at each mask of a prompt."""

    reader: PromptReader
    top: int
    device: torch.device
    as_json: bool

    def answer(self, prompts: Sequence[Prompt]) -> list[str]:
        """Each prompt with its masks filled, and the candidates of each mask."""
        batch, vocab = self.reader.batch(prompts).to(self.device), self.reader.vocab
        candidates = fill(
            self.reader.model, batch, mask=vocab.id("mask"), top=self.top, size=vocab.size
        )
        return [self._line(*pair) for pair in zip(prompts, candidates, strict=True)]

    def blank(self, prompt: Prompt) -> str:
        """A blank line, or a record without masks."""
        return _json(prompt, text="", masks=[]) if self.as_json else ""

    def _line(self, prompt: Prompt, masks: Sequence[Candidates]) -> str:
        tokenizer, best = self.reader.tokenizer, iter([some[0][0] for some in masks])
        mask = self.reader.vocab.mask
        text = tokenizer.decode([next(best) if i == mask else i for i in prompt.ids])
        spelled: list[list[dict[str, Any]]] = [
            [
                {"token": tokenizer.pieces([i])[0], "probability": round_floats(share)}
                for i, share in candidates
            ]
            for candidates in masks
        ]
        if self.as_json:
            return _json(prompt, text=text, masks=spelled)
        rows = [
            f"  mask {n}: " + ", ".join(f"{c['token']} {c['probability']:.3f}" for c in some)
            for n, some in enumerate(spelled, 1)
        ]
        return "\n".join([text, *rows])


def trim_incomplete(text: str) -> str:
    """`text` without the end of a character whose bytes are not complete yet."""
    return text.rstrip("\ufffd")


def _json(prompt: Prompt, **fields: Any) -> str:
    return json.dumps({"prompt": prompt.text, **fields}, ensure_ascii=False)
