"""The answers of a model to prompts, in their order: the texts that it writes, or the masks that it
fills.

Each prompt gives `search.count` texts, best first, a line each; or as JSON

    {"prompt": ..., "texts": [{"text": ..., "score": ..., "finished": ...}, ...]}

(finished: it ended by itself), or from a masked language model

    {"prompt": ..., "text": ..., "masks": [[{"token": ..., "probability": ...}, ...], ...]}

A blank line of a file gives a blank line, or an empty record, so that line n answers line n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch

from plmctl.core.rounding import round_floats
from plmctl.core.terminal import tell
from plmctl.generation.decode import Draft, generate
from plmctl.generation.fill import Candidates, fill
from plmctl.generation.prompts import AHEAD, Prompt, PromptReader, batch_by_length
from plmctl.generation.search import Hypothesis, Search

Answer = dict[str, Any]  # the record above


class Answerer(Protocol):
    """Answers prompts in batches."""

    def answer(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """The answer to each prompt."""

    def blank(self, prompt: Prompt) -> Answer:
        """The answer to a blank line."""

    def spell(self, answer: Answer) -> str:
        """An answer as a person reads it."""
        ...


def answer_in_order(
    prompts: Iterator[Prompt], answerer: Answerer, batch_size: int, *, one_by_one: bool = False
) -> Iterator[Answer]:
    """Yield the answer to every prompt as soon as possible: batches have similar lengths, answers
    come in the order of the prompts.
    """
    while some := list(islice(prompts, 1 if one_by_one else AHEAD * batch_size)):
        answers_by_index = {
            index: answerer.blank(prompt) for index, prompt in enumerate(some) if not prompt.ids
        }
        following = 0
        for indices in batch_by_length(some, batch_size, without=answers_by_index) or [[]]:
            if indices:
                answers = answerer.answer([some[index] for index in indices])
                answers_by_index |= dict(zip(indices, answers, strict=True))
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
    weights: str = "fp32"  # fp32, int8, int4, w8a8: the numbers of the weights
    draft: Draft | None = None

    def answer(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """The texts of each prompt."""
        pairs = zip(prompts, self._write(prompts), strict=True)
        return [self.record(prompt, texts) for prompt, texts in pairs]

    def blank(self, prompt: Prompt) -> Answer:
        """A record without texts."""
        return self.record(prompt, [])

    def spell(self, answer: Answer) -> str:
        """A line for each text; for a prompt without texts, as many blank lines."""
        lines = [text["text"].replace("\n", "\\n") for text in answer["texts"]]
        return "\n".join(lines or [""] * self.search.count)

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
        if self.draft is not None and len(prompts) > 1:
            return [texts for prompt in prompts for texts in self._write([prompt], **more)]
        return generate(
            self.reader.model,
            self.reader.batch(prompts).to(self.device),
            vocab=self.reader.vocab,
            search=self.search,
            head=self.reader.head,
            max_new=self.max_new,
            keys=[prompt.number for prompt in prompts],
            weights=self.weights,
            draft=self.draft,
            opening=self.reader.opening,
            **more,
        )

    def record(self, prompt: Prompt, texts: Sequence[Hypothesis]) -> Answer:
        """The answer with these texts."""
        records = [
            {
                "text": self.reader.spell(prompt, text.ids),
                "score": round_floats(text.score),
                "finished": text.finished,
            }
            for text in texts
        ]
        return {"prompt": prompt.text, "texts": records}


@dataclass(frozen=True)
class MaskAnswers:
    """The `top` likeliest tokens at each mask of a prompt."""

    reader: PromptReader
    top: int
    device: torch.device

    def answer(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """Each prompt with its masks filled, and the candidates of each mask."""
        batch, vocab = self.reader.batch(prompts).to(self.device), self.reader.vocab
        candidates = fill(
            self.reader.model, batch, mask=vocab.id("mask"), top=self.top, size=vocab.size
        )
        pairs = zip(prompts, candidates, strict=True)
        return [self._record(prompt, masks) for prompt, masks in pairs]

    def blank(self, prompt: Prompt) -> Answer:
        """A record without masks."""
        return {"prompt": prompt.text, "text": "", "masks": []}

    def spell(self, answer: Answer) -> str:
        """The text, and a line for each mask."""
        rows = [
            f"  mask {n}: " + ", ".join(f"{c['token']} {c['probability']:.3f}" for c in some)
            for n, some in enumerate(answer["masks"], 1)
        ]
        return "\n".join([answer["text"], *rows])

    def _record(self, prompt: Prompt, masks: Sequence[Candidates]) -> Answer:
        tokenizer, best = self.reader.tokenizer, iter([some[0][0] for some in masks])
        mask = self.reader.vocab.mask
        text = tokenizer.decode([next(best) if i == mask else i for i in prompt.ids])
        spelled = [
            [
                {"token": tokenizer.pieces([i])[0], "probability": round_floats(share)}
                for i, share in candidates
            ]
            for candidates in masks
        ]
        return {"prompt": prompt.text, "text": text, "masks": spelled}


def trim_incomplete(text: str) -> str:
    """`text` without the end of a character whose bytes are not complete yet."""
    return text.rstrip("\ufffd")
