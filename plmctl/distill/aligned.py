"""E-BERT (Poerner et al., 2020): vectors of entities, mapped into the space of a model's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.terminal import remark
from plmctl.core.values import Count
from plmctl.distill.word_vectors import WordsToAdd, WordVectors, table_of
from plmctl.knowledge.vector_files import read_static
from plmctl.knowledge.vectors import Control, find_vectors, read_vectors
from plmctl.models.base import Model
from plmctl.text.tokenizer import Tokenizer

PREFIX = "ENTITY/"  # prefix of entities in files of Wikipedia2Vec
LIMIT = 10_000_000  # lines of a file


@part_of("word_vectors")
@dataclass(frozen=True, kw_only=True)
class Aligned(WordVectors):
    """`W v_e`, with `W = argmin sum_x |W v_x - e_x|^2` over all names x that are one token of the
    model, e_x its vector (Poerner et al., 2020, arXiv:1911.03681, sec. 3.1).

    In a file of Wikipedia2Vec, words and entities share a space: x are its words, and the entities
    (`ENTITY/New_York`) become tokens. In a vectors directory, x are entities whose name is one
    token. Differs: there, where the paper always has words.

    Args:
        path: a text file of vectors, or a vectors directory of plmctl graph.
        most: entities that become tokens, the first ones of the file.
        control: "shuffled" gives each entity the vector of another, "random" random ones.
        seed: The seed of the control.
    """

    path: str
    most: Count
    control: Control
    seed: int

    @cached_property
    def _tables(self) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
        """(names to align by, their vectors [n, D], entities, their vectors [m, D])."""
        place = Path(self.path).expanduser()
        if find_vectors(place):
            read = read_vectors(place)
            names = [name.replace("_", " ") for name in read.entities]
            return names, read.entity, names, read.entity
        read_words = read_static(place, LIMIT)
        names, table = list(read_words.words), read_words.table
        of_entity = np.array([name.startswith(PREFIX) for name in names])
        words = [name for name in names if not name.startswith(PREFIX)]
        entities = [
            name.removeprefix(PREFIX).replace("_", " ") for name in names if name.startswith(PREFIX)
        ]
        if not entities or not words:
            raise DataError(
                f"words and entities ({PREFIX}Name) are both needed, and there are {len(words):,}"
                f" and {len(entities):,}",
                file=place,
                fix="a text file of Wikipedia2Vec, or a vectors directory of plmctl graph",
            )
        return words, table[~of_entity], entities, table[of_entity]

    def names(self) -> tuple[str, ...]:
        """The entities, each once."""
        return tuple(dict.fromkeys(self._tables[2]))[: self.most]

    def check(self, wanted: WordsToAdd) -> None:
        known = set(self._tables[2])
        missing = [name for name in wanted.words if name not in known]
        if missing:
            what = f"no vector of {missing[0]!r}, and of {len(missing) - 1:,} other words"
            fix = (
                f"words=null, for the {len(known):,} entities that it has, or words=<some of them>"
            )
            raise DataError(what, file=self.path, fix=fix)

    def make(self, model: Model, tokenizer: Tokenizer, wanted: WordsToAdd) -> Tensor:
        self.check(wanted)
        words, vectors, entities, of_entities = self._tables
        table = table_of(model, tokenizer)
        aligned = align(words, vectors, tokenizer, table.float().cpu().numpy())
        rows = {name: row for row, name in reversed(list(enumerate(entities)))}
        chosen = of_entities[[rows[name] for name in wanted.words]]
        draws = np.random.default_rng(self.seed)
        if self.control == "shuffled":
            chosen = chosen[draws.permutation(len(chosen))]
        elif self.control == "random":
            chosen = draws.standard_normal(chosen.shape) * of_entities.std(0) + of_entities.mean(0)
        return torch.from_numpy(chosen @ aligned).to(table)


def align(
    names: Sequence[str], vectors: np.ndarray, tokenizer: Tokenizer, table: np.ndarray
) -> np.ndarray:
    """[D, d] the map, transposed, that takes vectors nearest to those of the tokens of their names.

    Args:
        names: The names of the vectors; names of several tokens are passed over.
        vectors: [n, D].
        tokenizer: The tokenizer of the table.
        table: [V, d].

    Raises:
        DataError: if no name is one token.
    """
    ids = [tokenizer.encode(name) for name in names]
    known = [n for n, own in enumerate(ids) if len(own) == 1 and own[0] != tokenizer.vocab.unk]
    if not known:
        raise DataError("no name is one token of the model: nothing to align by")
    source, target = vectors[known], table[[ids[n][0] for n in known]]
    solved: np.ndarray = np.linalg.lstsq(source.astype(np.float64), target, rcond=None)[0]
    left = 1 - np.square(source @ solved - target).sum() / np.square(target).sum()
    few = ", fewer than the vectors have columns" if len(known) < source.shape[1] else ""
    remark(f"aligned by {len(known):,} names{few}; the map explains {left:.1%} of their vectors")
    return solved
