"""BERTRAM (Schick and Schütze, 2020): the vector of a word from its letters and its contexts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.knowledge.ngrams import FIRST, PAD, NgramVocabulary
from plmctl.knowledge.words import WordCounts
from plmctl.nn.starting import Starting

TINY = 1e-12


class FormVectors(nn.Module):
    """`v_form = mean of the vectors of all n-grams of a word`, words to [n, d].

    The n-grams are saved with their vectors, as letters. In training each n-gram is left out with
    probability `dropout`. (Schick and Schütze, 2020, arXiv:1910.07181, sec. 3.1;
    timoschick/bertram, ngram_models.py.) Differs: where all n-grams would be left out, all stay.
    """

    letters: Tensor

    def __init__(
        self, *, size: int, width: int, least: int, most: int, dropout: DropoutRate
    ) -> None:
        super().__init__()
        if not 1 <= least <= most:
            raise ConfigError("least", least, f"1 to most={most}")
        if size <= FIRST:
            raise ConfigError("ngrams", size, f"above {FIRST}")
        self.least, self.most, self.dropout = least, most, dropout
        self.table = nn.Embedding(size, width)
        self.register_buffer("letters", torch.zeros(size, most, dtype=torch.int32))
        self._known: tuple[int, NgramVocabulary] | None = None

    @property
    def vocabulary(self) -> NgramVocabulary:
        """The n-grams, as `letters` holds them."""
        version = self.letters._version
        if self._known is None or self._known[0] != version:
            table = self.letters.cpu().numpy()
            known = NgramVocabulary.from_letters(table, least=self.least, most=self.most)
            self._known = version, known
        return self._known[1]

    def learn(self, words: Sequence[str], often: int) -> None:
        """Take the n-grams that stand in at least `often` of these words."""
        size = len(self.letters)
        known = NgramVocabulary.learn(
            words, least=self.least, most=self.most, often=often, size=size
        )
        self.letters.copy_(torch.from_numpy(known.letters(size)))

    def forward(self, words: Sequence[str]) -> Tensor:
        ids = torch.from_numpy(self.vocabulary.encode_all(words)).to(self.letters.device)
        real = ids != PAD  # [n, N]
        if self.training and self.dropout:
            kept = real & (torch.rand(ids.shape, device=ids.device) >= self.dropout)
            real = torch.where(kept.any(1, keepdim=True), kept, real)
        vectors = self.table(ids) * real[..., None]  # [n, N, d]
        return vectors.sum(1) / real.sum(1, keepdim=True)


class AttentiveMimicking(nn.Module):
    """`A (sum_i rho_i h_i) + a`, contexts [n, m, H] to [n, d]; rho_i says how much the contexts
    agree with context i.

        u_i = M h_i + b        s_ij = u_i . u_j / sqrt(H), 0 where i or j is no context
        rho_i = sum_j s_ij / (sum_i sum_j s_ij + 1e-12)

    There is no softmax, and weights may be negative.
    (Schick and Schütze, 2019, NAACL, sec. 3; timoschick/bertram, `ReliabilityMeasure`.)
    """

    def __init__(self, *, width: int, outputs: int) -> None:
        super().__init__()
        self.agree, self.out = nn.Linear(width, width), nn.Linear(width, outputs)

    def weigh(self, states: Tensor, real: Tensor) -> Tensor:
        """[n, m] rho, 0 where there is no context.

        Args:
            states: [n, m, H].
            real: [n, m] bool: there is a context.
        """
        u = self.agree(states) * real[..., None]
        scores = u @ u.transpose(1, 2) / states.shape[-1] ** 0.5  # [n, m, m]
        return scores.sum(2) / (scores.sum((1, 2)) + TINY)[:, None]

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        weights = self.weigh(states, real)
        return self.out((weights[..., None] * states * real[..., None]).sum(1))


@part_of("heads")
class MimicHead(Starting):
    """The parts that give a word a vector as wide as the table of tokens: `form`, `context`, and
    the `gate` between them.

    Args:
        width: H, of the states.
        token_embedding: the table whose rows are imitated.
        ngrams: most n-grams that are known, the unknown one and padding included.
        least: letters of the shortest n-gram.
        most: letters of the longest n-gram.
        often: in how many words a known n-gram stands.
        dropout: share of the n-grams of a word that are left out in training.
        words: the table of words from which a new model learns its n-grams; a model that is loaded
            has them.
    """

    def __init__(
        self,
        *,
        width: int,
        token_embedding: nn.Module,
        ngrams: int,
        words: str | None = None,
        least: int = 3,
        most: int = 5,
        often: int = 4,
        dropout: DropoutRate = 0.1,
    ) -> None:
        super().__init__()
        weight = token_embedding.weight
        assert isinstance(weight, Tensor)
        outputs = weight.shape[1]
        self.form = FormVectors(size=ngrams, width=outputs, least=least, most=most, dropout=dropout)
        self.context = AttentiveMimicking(width=width, outputs=outputs)
        self.gate = nn.Linear(2 * outputs, 1)
        self.words, self.often = words, often

    @torch.no_grad()
    def start(self, generator: Generator) -> None:
        """Vectors of n-grams `~ N(0, 1)`, maps `~ U(-a, a)` with a = inputs ** -0.5; the n-grams
        are those of `words`.
        """
        self.form.table.weight.normal_(generator=generator)
        for linear in (self.context.agree, self.context.out, self.gate):
            bound = linear.in_features**-0.5
            for parameter in (linear.weight, linear.bias):
                parameter.uniform_(-bound, bound, generator=generator)
        if self.words is not None and not self.form.letters.is_meta:
            self.form.learn(WordCounts.read(self.words).spellings, self.often)

    def mix(self, context: Tensor, form: Tensor) -> Tensor:
        """[n, d] `alpha context + (1 - alpha) form`, alpha = sigmoid(gate [context; form]): the
        mode `shallow`.
        """
        alpha = torch.sigmoid(self.gate(torch.cat([context, form], -1)))
        return alpha * context + (1 - alpha) * form
