"""Vectors of words by BERTRAM (Schick and Schütze, 2020): from their letters and contexts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole
from plmctl.data.formats.word_contexts import ContextLayout
from plmctl.distill.word_vectors import WordsToAdd, WordVectors
from plmctl.heads.mimic import MimicHead
from plmctl.knowledge.contexts import Context
from plmctl.knowledge.words import Mode
from plmctl.models.base import Model
from plmctl.objectives.mimic import Groups, make_vectors
from plmctl.text.tokenizer import Tokenizer


@part_of("word_vectors")
@dataclass(frozen=True, kw_only=True)
class Mimicked(WordVectors):
    """The vectors of words from the head `mimic` of a run of BERTRAM, in the mode of the run; a
    word without contexts has the vector of its letters.

    Contexts of a word are read in equal parts of at most `together`, and the vectors of the parts
    are averaged. (Schick and Schütze, 2020, arXiv:1910.07181; timoschick/bertram,
    `split_contexts`.)

    Args:
        together: contexts that are read at the same time.
        mode: The mode of the run.
        max_length: The longest row of the run.
        control: `shuffled`: every word is read with the contexts of another one, and with its own
            letters.
        seed: The seed of the control.
    """

    together: Count
    mode: Mode
    max_length: int
    control: Literal["none", "shuffled"] = "none"
    seed: Whole = 0

    def check_heads(self, heads: Collection[str]) -> None:
        if "mimic" not in heads:
            fix = "checkpoint=<a run of plmctl pretrain bertram>, or word_vectors=pieces"
            raise ConfigError("checkpoint", ..., "a model with the head mimic", fix=fix)

    @torch.no_grad()
    def make(self, model: Model, tokenizer: Tokenizer, wanted: WordsToAdd) -> Tensor:
        self.check_heads([*model.heads])
        head = model.heads["mimic"]
        assert isinstance(head, MimicHead)
        known = wanted.contexts
        if self.control == "shuffled":
            known = shuffle_contexts(known, seed=self.seed)
        vectors = []
        for word in wanted.words:
            contexts = known.get(word, ())
            if not contexts or self.mode == "form":
                vectors.append(head.form([word])[0])
                continue
            parts = [
                self._read(model, tokenizer, word, part) for part in _split(contexts, self.together)
            ]
            vectors.append(torch.stack(parts).mean(0))
        return torch.stack(vectors)

    def _read(
        self, model: Model, tokenizer: Tokenizer, word: str, contexts: Sequence[Context]
    ) -> Tensor:
        """[d] the vector of a word by some of its contexts."""
        layout = ContextLayout.of(tokenizer.vocab, self.mode, self.max_length)
        laid_out = [layout.lay_out(*split_context(tokenizer, context)) for context in contexts]
        length = np.array([len(ids) for ids, _ in laid_out])
        ids = np.full((len(laid_out), int(length.max())), tokenizer.vocab.pad, np.int64)
        for row, (own, _) in enumerate(laid_out):
            ids[row, : len(own)] = own
        anchors = np.array([(row, place) for row, (_, place) in enumerate(laid_out)])
        rows = Rows(np.arange(len(ids)), {"text": Seq(ids, length)}, anchors=anchors)
        device = model.backbone.token_embedding.weight.device
        assert isinstance(device, torch.device)
        batch = collate(rows, {}).to(device)
        groups = Groups.of(torch.zeros(len(ids), dtype=torch.long, device=device))
        return make_vectors(model, batch, [word], groups, mode=self.mode)[0]


def shuffle_contexts(
    contexts: Mapping[str, Sequence[Context]], *, seed: int
) -> dict[str, Sequence[Context]]:
    """Each word with the contexts of another one, those of the next in a random order."""
    words = sorted(contexts)
    order = [words[n] for n in np.random.default_rng(seed).permutation(len(words))]
    return {word: contexts[other] for word, other in zip(order, order[1:] + order[:1], strict=True)}


def split_context(tokenizer: Tokenizer, context: Context) -> tuple[list[int], list[int]]:
    """The ids before and behind the word of a context."""
    ids, spans = tokenizer.encode_offsets(context.text)
    left = [i for i, (_, end) in zip(ids, spans, strict=True) if end <= context.start]
    right = [i for i, (start, _) in zip(ids, spans, strict=True) if start >= context.end]
    return left, right


def _split(contexts: Sequence[Context], together: int) -> Iterator[Sequence[Context]]:
    """Equal parts of at most `together`."""
    parts = -(-len(contexts) // together)
    for part in range(parts):
        yield contexts[part * len(contexts) // parts : (part + 1) * len(contexts) // parts]
