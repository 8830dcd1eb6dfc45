"""Lexical relation classification (Lauscher et al., 2020, LIBERT): do two words stand in a
relation, or was one of them exchanged for a similar one?
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Seq
from plmctl.core.parts import Opens, part_of
from plmctl.heads.base import head_of
from plmctl.knowledge.known import TextSample, describe_known
from plmctl.knowledge.vector_files import confirm
from plmctl.knowledge.word_pairs import PairTable, WordPairs
from plmctl.knowledge.word_vectors import Neighbours
from plmctl.models.base import Model
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output
from plmctl.text.template import find_wraps
from plmctl.text.vocab import Vocab


@part_of("objective")
class LexicalRelation(Objective):
    """`- sum over rows "cls w1 sep w2 sep" of log p(related | pooled state)`, three rows for each
    pair (w1, w2) of `spans.lexical`: the pair itself, (w1, w2') and (w1', w2).

    `w1'` is the word of the update that is nearest to w1 by cosine; w1 and w2 are left out, and so
    are words in any relation to w2. w2' is found likewise. (Lauscher et al., 2020,
    arXiv:1909.02339, sec. 3.2: the sum with the losses of masked tokens and of segments, all with
    weight 1.) Differs: without `vectors`, which the paper takes from other embeddings, words are as
    near as the model's own embeddings of their tokens.

    Args:
        pairs: the lexicon, the same as that of the noise.
        vectors: a file of word vectors, as GloVe's; None: the model's own.
    """

    opens: ClassVar[Opens] = {"vectors": confirm}
    holds_cells = True
    facts = Facts(
        needs=frozenset({"text", "spans.lexical"}),
        heads=frozenset({"pooler", "lexical"}),
        terms=frozenset({"lexical"}),
        shares=True,
    )

    def __init__(self, *, vocab: Vocab, pairs: WordPairs, vectors: str | None = None) -> None:
        super().__init__()
        self.vocab, self.pairs, self.vectors = vocab, pairs, vectors

    @cached_property
    def table(self) -> PairTable:
        """The words and pairs that the vocabulary can spell."""
        return self.pairs.of_vocab(self.vocab)

    @cached_property
    def static(self) -> dict[int, np.ndarray]:
        """{number of a word: its vector}, of those in the file."""
        if self.vectors is None:
            return {}
        words = {word: n for n, word in enumerate(self.table.words)}
        read = Neighbours.read(Path(self.vectors).expanduser(), limit=1 << 30, among=words.keys())
        return {words[word]: read.unit[number] for word, number in read.number.items()}

    def describe_known(self, text: TextSample) -> str:
        """How many words of the lexicon have a vector in the file, if one is named."""
        if self.vectors is None:
            return ""
        what, fix = "words of the lexicon have a vector", "vectors of words in its language"
        known, total = len(self.static), len(self.table.words)
        return describe_known(known, total, what, file=self.vectors, fix=fix)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"lexical": 3 * len(batch.spans.get("lexical", ()))}

    def share(self, batch: Batch) -> dict[str, Tensor]:
        spans = batch.spans.get("lexical")
        return {} if spans is None else {"lexical": spans[:, 3]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        count = self.counts(batch)["lexical"]
        if not count:
            return Output({})
        own = batch.spans["lexical"][:, 3]
        pairs, every = (
            self.table.pairs[numbers.cpu().numpy()]  # [m, 2]
            for numbers in (own, batch.shared.get("lexical", own))
        )
        rows = self.choose_rows(pairs, self.embed(model, np.unique(every)))
        asked = self.lay_out(rows, batch.key.device)
        pooled = model.heads["pooler"](model(asked).last[:, 0])
        labels = torch.zeros(len(rows), dtype=torch.int64, device=batch.key.device)
        labels[: len(pairs)] = 1
        total, right = head_of(model, "lexical").loss(pooled, labels)
        return make_output("lexical", total, right, count, answers=labels)

    def embed(self, model: Model, words: np.ndarray) -> dict[int, np.ndarray]:
        """The vector of each word, by its number; 0 for one that the file does not have."""
        if self.vectors is not None:
            width = len(next(iter(self.static.values()), np.zeros(1)))
            return {n: self.static.get(n, np.zeros(width)) for n in words.tolist()}
        table: Any = model.backbone.token_embedding
        weight: Tensor = table.weight.detach()
        own = {n: weight[torch.tensor(self.table.ids[n])].float().mean(0) for n in words.tolist()}
        return {n: vector.cpu().numpy() for n, vector in own.items()}

    def choose_rows(self, pairs: np.ndarray, vectors: dict[int, np.ndarray]) -> np.ndarray:
        """[3 m, 2] numbers of words: the m pairs, those with another second word, those with
        another first one.
        """
        others = np.array(sorted(vectors))  # all words of the update
        space = np.stack([vectors[n] for n in others.tolist()])
        norms = np.linalg.norm(space, axis=1, keepdims=True)
        space = space / np.where(norms > 0, norms, 1)
        first, second = pairs.T
        return np.concatenate(
            [
                pairs,
                np.stack([first, self._replace(second, first, others, space)], 1),
                np.stack([self._replace(first, second, others, space), second], 1),
            ]
        )

    def _replace(
        self, words: np.ndarray, kept: np.ndarray, others: np.ndarray, space: np.ndarray
    ) -> np.ndarray:
        """[m] for each word, the nearest of `others` that is not related to the `kept` one; where
        the batch has none, any other word of the lexicon.
        """
        alike = space[np.searchsorted(others, words)] @ space.T  # [m, others]
        same = (others == words[:, None]) | (others == kept[:, None])
        related = self.table.related(kept[:, None], np.broadcast_to(others, same.shape))
        alike[same | related] = -np.inf
        nearest = others[alike.argmax(1)]
        away = (words + 1 + len(self.table.words) // 2) % len(self.table.words)
        return np.where(np.isinf(alike).all(1), away, nearest)

    def lay_out(self, rows: np.ndarray, device: torch.device) -> Batch:
        """The two words of each row as two segments, padded."""
        a, b = find_wraps(self.vocab, self.vocab.pair)
        lists, segments = [], []
        for first, second in rows.tolist():
            left = [*a.before, *self.table.ids[first], *a.after]
            right = [*b.before, *self.table.ids[second], *b.after]
            lists.append([*left, *right])
            segments.append([0] * len(left) + [1] * len(right))
        width = max(map(len, lists))
        ids = [row + [self.vocab.pad] * (width - len(row)) for row in lists]
        segment = [row + [0] * (width - len(row)) for row in segments]
        length = torch.tensor([len(row) for row in lists], device=device)
        tracks = {"segment": torch.tensor(segment, device=device)}
        seq = Seq(torch.tensor(ids, device=device), length, tracks)
        return Batch(torch.arange(len(lists), device=device), {"text": seq})
