"""TinyBERT's data augmentation (Jiao et al., 2020): copies of a text with words replaced by likely
ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from plmctl.core.collate import collate
from plmctl.core.errors import UsageError
from plmctl.generation.fill import fill
from plmctl.heads.base import heads_about
from plmctl.knowledge.word_vectors import Neighbours
from plmctl.models.base import Model
from plmctl.tasks.layouts import encode
from plmctl.text.letters import JOINTS, compose, find_words, is_word
from plmctl.text.tokenizer import Tokenizer

_ROOM = 512  # tokens of a row, where the model itself has no bound


@dataclass(frozen=True)
class ReplaceableWord:
    """A word of a text, and the words that may replace it."""

    start: int  # position of its first character
    end: int
    words: list[str]


@dataclass(frozen=True)
class _Masked:
    """A word of one token that the model predicts."""

    text: int  # number of the text
    start: int
    end: int
    row: encode.Row


class Augmenter:
    """Finds replacements for every word of a text.

    For a word of one token: the `candidates` likeliest complete words at its position in the pair
    `text with [MASK] there, text`. For a word of several tokens: the `candidates` nearest by
    `vectors`; without vectors it stays. Words of `stop` and words with other characters than
    letters stay. (arXiv:1909.10351, algorithm 1; huawei-noah/Pretrained-Language-Model,
    TinyBERT/data_augmentation.py.) Differs: letters of any script count, not only a to z;
    punctuation is no candidate; of a text that is too long for a row with two copies, only the
    surroundings of the word are read.
    """

    def __init__(
        self,
        *,
        model: Model,
        tokenizer: Tokenizer,
        candidates: int,
        stop: Collection[str],
        vectors: Neighbours | None = None,
        batch_size: int = 32,
        device: torch.device | str = "cpu",
    ) -> None:
        if (
            not heads_about(model, "text")
            or tokenizer.vocab.mask is None
            or model.backbone.writes != "text"
        ):
            raise UsageError(
                "words are replaced by a masked language model: this one has no head that predicts"
                " masked tokens, or no mask token\n  fix: checkpoint=<a run or a Hugging Face"
                " folder of BERT, RoBERTa or the like, with its head>"
            )
        self.model, self.tokenizer, self.candidates, self.stop = model, tokenizer, candidates, stop
        self.vectors, self.batch_size, self.device = vectors, batch_size, device
        # counts over all texts so far
        self.seen = {"words": 0, "replaceable": 0, "of several tokens": 0}

    def __call__(
        self, texts: Sequence[str], stay: Sequence[Sequence[tuple[int, int]]] = ()
    ) -> list[list[ReplaceableWord]]:
        """The replaceable words of each text, from left to right; `stay`: for each text, spans of
        characters that stay.
        """
        masked: list[_Masked] = []
        several_tokens: list[tuple[int, re.Match[str]]] = []
        for number, text in enumerate(texts):
            ids, spans = self.tokenizer.encode_offsets(text)
            left = stay[number] if stay else ()
            for word in find_words(text, joints=JOINTS, without="_"):
                if not is_word(word[0]) or compose(word[0].lower()) in self.stop:
                    continue
                if any(start < word.end() and end > word.start() for start, end in left):
                    continue
                self.seen["words"] += 1
                tokens = [
                    index
                    for index, (start, end) in enumerate(spans)
                    if start < word.end() and end > word.start()
                ]
                if len(tokens) == 1 and spans[tokens[0]] == word.span():
                    masked.append(_Masked(number, *word.span(), self._row(ids, tokens[0])))
                else:
                    several_tokens.append((number, word))
        replaceable: list[list[ReplaceableWord]] = [[] for _ in texts]
        for one, words in zip(masked, self._find_likely([one.row for one in masked]), strict=True):
            replaceable[one.text].append(ReplaceableWord(one.start, one.end, words))
        nearest = self._find_nearest({word[0] for _, word in several_tokens})
        for number, word in several_tokens:
            replaceable[number].append(ReplaceableWord(*word.span(), nearest.get(word[0], [])))
        self.seen["of several tokens"] += len(several_tokens)
        kept = [
            sorted((slot for slot in slots if slot.words), key=lambda slot: slot.start)
            for slots in replaceable
        ]
        self.seen["replaceable"] += sum(map(len, kept))
        return kept

    def _row(self, ids: Sequence[int], position: int) -> encode.Row:
        """The text with a mask at `position`, then the text; of a long text only what is around
        that position.
        """
        vocab, limit = self.tokenizer.vocab, self.model.backbone.max_length or _ROOM
        half = (limit - encode.specials(vocab, pair=True)) // 2
        first = min(max(0, position - half // 2), max(0, len(ids) - half))
        text = list(ids[first : first + half])
        hidden = [vocab.id("mask") if first + n == position else i for n, i in enumerate(text)]
        return encode.lay_out(hidden, text, vocab, max_length=limit, pooling="first")

    def _find_likely(self, rows: Sequence[encode.Row]) -> list[list[str]]:
        """The likeliest words at the mask of each row."""
        vocab = self.tokenizer.vocab
        order = sorted(range(len(rows)), key=lambda n: len(rows[n].ids))
        words_of_rows: list[list[str]] = [[] for _ in rows]
        for start in range(0, len(order), self.batch_size):
            some = order[start : start + self.batch_size]
            rows_of_batch = encode.pad([rows[n] for n in some], vocab, example=range(len(some)))
            batch = collate(rows_of_batch, {}).to(self.device)
            top = min(self.candidates, vocab.size)
            for n, masks in zip(
                some,
                fill(self.model, batch, mask=vocab.id("mask"), top=top, size=vocab.size),
                strict=True,
            ):
                tokens = [i for i, _ in masks[0] if vocab.word_start[i] and not vocab.special[i]]
                words = [self.tokenizer.decode([i]).strip() for i in tokens]
                words_of_rows[n] = [word for word in words if is_word(word)]
        return words_of_rows

    def _find_nearest(self, words: Collection[str]) -> Mapping[str, list[str]]:
        return (
            {}
            if self.vectors is None
            else self.vectors.find_nearest(sorted(words), self.candidates)
        )


def make_copies(
    texts: Mapping[str, str],
    slots: Mapping[str, Sequence[ReplaceableWord]],
    *,
    count: int,
    rate: float,
    draws: np.random.Generator,
) -> list[dict[str, str]]:
    """Up to `count` other versions of an example's texts: each word is replaced with probability
    `rate` by a drawn one.

    Copies equal to another one, or to the original, are left out.
    """
    copies: dict[tuple[str, ...], dict[str, str]] = {}
    for _ in range(count):
        copy = {
            role: replace_words(text, slots.get(role, ()), rate=rate, draws=draws)
            for role, text in texts.items()
        }
        if copy != dict(texts):
            copies.setdefault(tuple(copy.values()), copy)
    return list(copies.values())


def replace_words(
    text: str, slots: Sequence[ReplaceableWord], *, rate: float, draws: np.random.Generator
) -> str:
    """`text` with some of its words replaced."""
    parts, offset = list[str](), 0
    for slot, chance, share in zip(
        slots, draws.random(len(slots)), draws.random(len(slots)), strict=True
    ):
        if chance < rate:
            parts += [text[offset : slot.start], slot.words[int(share * len(slot.words))]]
            offset = slot.end
    return "".join([*parts, text[offset:]])
