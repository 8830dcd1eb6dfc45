"""The habits of heads: neighbours, special tokens and punctuation (Clark et al., 2019)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_text
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError

PAIRS = 2**18  # pairs of tokens at a time
ENTROPY, DISTANCE = "entropy", "distance"


@dataclass(frozen=True)
class HeadHabits(Measure):
    """The mean weights of each head, over all tokens of a text, special ones included.

    Args:
        means: {"previous", "next", "itself", each special token, "punctuation": the mean weight;
            "entropy": in nats; "distance": in tokens}, by layer and head.
        tokens: The tokens whose weights were read.
        about: The source of the rows.
    """

    name: ClassVar[str] = "heads"
    means: dict[str, list[list[float]]]
    tokens: int
    about: str

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded, sentences: Sequence[str] = ()) -> Self:
        """Measure a model on sentences, without any on held-out rows of the run.

        `p_qk` is the weight of token k at token q of n. Previous: `sum_q p_q,q-1 / n`. A set S:
        `sum_q sum_k p_qk [k in S] / n`. Entropy: `-sum_q sum_k p_qk ln p_qk / n`. Distance:
        `sum_q sum_k p_qk |q - k| / n`. (Clark et al., 2019, arXiv:1906.04341, sec. 3.)
        n counts the first token, which has no previous one, and the last, as the code of the paper
        does. Differs: the mean is over the tokens of all texts, not of each text and then of texts;
        punctuation is any, not only periods and commas.

        Raises:
            DataError: The model records no attention from each token of one text to each other.
        """
        if "attention" not in opened.model.backbone.records:
            raise DataError("this model has no self-attention that is recorded")
        batch, about = batch_text(opened, sentences)
        seq = batch.text
        groups = _group(opened, seq)
        sums: dict[str, Tensor] = {}
        for part in _cut(seq):
            batch = Batch(torch.arange(len(part.ids)), {"text": part})
            layers = opened.model(batch, record=frozenset({"attention"})).recorded["attention"]
            square = (*part.ids.shape, part.ids.shape[1])
            if any((layer.shape[0], *layer.shape[2:]) != square for layer in layers):
                raise DataError("the heads of this model do not see each token of a text alone")
            if len({layer.shape[1] for layer in layers}) > 1:
                raise DataError("the layers of this model have different numbers of heads")
            for name, added in _sum_weights(torch.stack(list(layers)), part, groups).items():
                sums[name] = sums.get(name, 0) + added
        tokens = int(seq.real.sum())
        return cls({name: (each / tokens).tolist() for name, each in sums.items()}, tokens, about)


def _group(opened: Loaded, seq: Seq) -> dict[str, Tensor]:
    """{name: [V] whether a token of the vocabulary belongs to it}: each special token that the rows
    have, and punctuation.
    """
    vocab, real = opened.vocab, seq.ids[seq.real]
    present = [int(i) for i in real.unique() if i < vocab.size and vocab.special[i]]
    marks = [
        bool(text) and all(unicodedata.category(sign).startswith("P") for sign in text)
        for text in (text.strip() for text in vocab.texts)
    ]
    size = max(vocab.size, int(real.max()) + 1)
    groups = {}
    for name, ids in [
        *zip(opened.tokenizer.pieces(present), [[i] for i in present], strict=True),
        ("punctuation", [i for i, yes in enumerate(marks) if yes and not vocab.special[i]]),
    ]:
        groups[name] = torch.zeros(size, dtype=torch.bool, device=real.device)
        groups[name][ids] = True
    return groups


def _cut(seq: Seq) -> Iterator[Seq]:
    """A few rows at a time, without the padding of others."""
    rows = max(1, PAIRS // seq.ids.shape[1] ** 2)
    for start in range(0, len(seq.ids), rows):
        part = seq.pick(slice(start, start + rows))
        if part.length.any():
            yield part


def _sum_weights(p: Tensor, seq: Seq, groups: dict[str, Tensor]) -> dict[str, Tensor]:
    """{name: [L, H] the sum over real tokens}, from the weights `p [L, B, H, T, T]`."""
    p = p.float() * seq.real[:, None, :, None]
    place = torch.arange(p.shape[-1], device=p.device)
    apart = (place[:, None] - place).abs()
    near = {"previous": -1, "next": 1, "itself": 0}
    sums = {name: p.diagonal(step, -2, -1).sum((1, 3)) for name, step in near.items()}
    for name, members in groups.items():
        sums[name] = (p * (members[seq.ids] & seq.real)[:, None, None]).sum((1, 3, 4))
    sums[ENTROPY] = torch.special.entr(p).sum((1, 3, 4))
    sums[DISTANCE] = (p * apart).sum((1, 3, 4))
    return {name: each.double().cpu() for name, each in sums.items()}
