"""The base of every score of a triple: a question as a vector, compared with candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Generator, Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of

BLOCK = 1 << 24  # numbers of a comparison with all entities that are held at once


@base_of("graph_score")
class Score(ABC):
    """How plausible a triple is; the larger, the more.

    The question for the tail (head, relation) and that for the head (relation, tail) are vectors
    of the width of an entity; the score is a comparison of one with the vector of a candidate. All
    candidates are so compared at the cost of one product of matrices, or of distances.
    """

    complex: bool = False  # the numbers of an entity are the real parts, then the imaginary ones

    def relation_width(self, width: int) -> int:
        """Numbers of a relation, where an entity has `width`."""
        return width

    def check_width(self, width: int) -> None:
        """Raise ConfigError for a width that entities cannot have."""
        if self.complex and width % 2:
            what = "even: the numbers are real and imaginary parts"
            raise ConfigError("width", width, what, fix=f"width={width + 1}")

    @abstractmethod
    def start(self, entity: Tensor, relation: Tensor, generator: Generator) -> None:
        """Draw the first vectors, in place: entity [E, W], relation [R, W']."""

    @abstractmethod
    def ask_tail(self, head: Tensor, relation: Tensor) -> Tensor:
        """[..., W] the question for the tail."""

    @abstractmethod
    def ask_head(self, relation: Tensor, tail: Tensor) -> Tensor:
        """[..., W] the question for the head."""

    @abstractmethod
    def compare(self, question: Tensor, candidate: Tensor) -> Tensor:
        """[...] the scores of [..., W] and [..., W], which broadcast."""

    @abstractmethod
    def compare_all(self, question: Tensor, table: Tensor) -> Tensor:
        """[B, E] the scores of [B, W] with every row of [E, W]."""

    def compare_relations(self, head: Tensor, tail: Tensor, table: Tensor) -> Tensor:
        """[B, R] the scores of the triples that each row of `table` [R, W'] makes of the entities.

        Args:
            head: [B, W].
            tail: [B, W].
            table: [R, W'] the relations that are compared.
        """
        size = max(1, BLOCK // max(1, len(table) * head.shape[-1]))
        parts = [
            self.compare(self.ask_tail(some[:, None], table), ends[:, None])  # [b, R]
            for some, ends in zip(head.split(size), tail.split(size), strict=True)
        ]
        return torch.cat(parts)

    def moduli(self, vectors: Tensor) -> Tensor:
        """[..., W or W / 2] the absolute values of the numbers of an entity or a relation."""
        if not self.complex:
            return vectors.abs()
        real, imaginary = vectors.chunk(2, dim=-1)
        return (real.square() + imaginary.square() + 1e-20).sqrt()

    def constrain(self, entity: Tensor) -> None:  # noqa: B027
        """Called on the entities after every update."""


class Product(Score):
    """Scores that are the inner product of the question and the candidate.

    Args:
        spread: the standard deviation of the numbers of the first vectors.
    """

    def __init__(self, *, spread: float = 1e-3) -> None:
        self.spread = spread

    def start(self, entity: Tensor, relation: Tensor, generator: Generator) -> None:
        for table in (entity, relation):
            torch.nn.init.normal_(table, std=self.spread, generator=generator)

    @abstractmethod
    def ask_relation(self, head: Tensor, tail: Tensor) -> Tensor:
        """[..., W] the question for the relation: its product with one is the triple's score."""

    def compare(self, question: Tensor, candidate: Tensor) -> Tensor:
        return (question * candidate).sum(-1)

    def compare_relations(self, head: Tensor, tail: Tensor, table: Tensor) -> Tensor:
        return self.ask_relation(head, tail) @ table.T

    def compare_all(self, question: Tensor, table: Tensor) -> Tensor:
        return question @ table.T


def multiply(left: Tensor, right: Tensor, *, conjugate: bool = False) -> Tensor:
    """[..., W] the product of complex vectors, each the real parts and then the imaginary ones.

    Args:
        left: [..., W], the factor that is conjugated if `conjugate` is set.
        right: [..., W].
        conjugate: whether `left` is conjugated.
    """
    a, b = left.chunk(2, dim=-1)
    c, d = right.chunk(2, dim=-1)
    if conjugate:
        return torch.cat([a * c + b * d, a * d - b * c], dim=-1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=-1)
