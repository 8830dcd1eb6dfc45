"""Vectors of a smaller vocabulary that a larger model has learned to read, and a student that
starts from them (Zhao et al., 2021).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.core.parts import Opens, part_of
from plmctl.core.terminal import remark
from plmctl.nn.first_vectors import FirstVectors
from plmctl.nn.tables import TokenTable
from plmctl.storage.parts.kinds import read_kind

SETTING = "first_vectors.path"
RECIPE = "plmctl pretrain mixed_vocabulary init=<teacher> noise.mixed_vocabulary.path=<tokenizer>"


class SmallTable(nn.Module):
    """`A e_v + b`, ids [...] -> [..., E]: the narrow vector of a token, mapped to the width of a
    larger model's table. First `e ~ N(0, 0.02^2)`, `A ~ N(0, 1 / d)`, b = 0.

    A checkpoint holds a fingerprint of the tokens.

    Args:
        pieces: The tokens as they stand in the vocabulary.
        narrow: d, of the narrow vectors.
        width: E, of the table.
    """

    fingerprint: Tensor

    def __init__(self, pieces: Sequence[str], *, narrow: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(len(pieces), narrow)
        self.project = nn.Linear(narrow, width)
        nn.init.normal_(self.vectors.weight, std=0.02)
        nn.init.normal_(self.project.weight, std=narrow**-0.5)
        nn.init.zeros_(self.project.bias)
        self.register_buffer("fingerprint", torch.tensor(hash_pieces(pieces), device="cpu"))

    @property
    def weight(self) -> Tensor:
        """[V, E] the vectors of all tokens."""
        table: Tensor = self.project(self.vectors.weight)
        return table

    def forward(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.project(self.vectors(ids))
        return vectors


def hash_pieces(pieces: Sequence[str]) -> int:
    """A number that tells vocabularies apart."""
    spelled = "\n".join(pieces).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(spelled, digest_size=7).digest())


def find_checkpoint(run: str | None) -> Path:
    """The newest checkpoint of a run, or the checkpoint that `run` is.

    Raises:
        ConfigError: No run is named.
        AbsentData: It has no checkpoint.
    """
    if run is None:
        fix = f"{SETTING}=<the run>, or first_vectors=none"
        raise ConfigError(SETTING, None, "a run of mixed_vocabulary", fix=fix)
    place = Path(run).expanduser()
    steps = [
        *place.glob("checkpoints/step-*"),
        *([place] if place.name.startswith("step-") else []),
    ]
    whole = [step for step in steps if (step / "config.yaml").is_file()]
    if not whole:
        raise AbsentData("no run with a checkpoint", file=place, fix=f"{RECIPE} run.dir={run}")
    return max(whole, key=lambda step: int(step.name.partition("-")[2]))


@part_of("first_vectors")
@dataclass(frozen=True, kw_only=True)
class SmallVectors(FirstVectors):
    """`E_v = e_v`, for all tokens, special ones as well: the narrow vectors that a run of
    `mixed_vocabulary` has learned (Zhao et al., 2021, arXiv:1909.11687, stage II).

    Args:
        path: the run; its smaller vocabulary is that of this model.
    """

    opens: ClassVar[Opens] = {"path": find_checkpoint}
    counts: ClassVar[bool] = False

    path: str | None = None

    def start(
        self, table: TokenTable, ids: np.ndarray, special: np.ndarray, pieces: Sequence[str] = ()
    ) -> None:
        folder = find_checkpoint(self.path)
        tensors = {
            name.partition(".small.")[2]: x for name, x in read_kind(folder, "objective").items()
        }
        if "vectors.weight" not in tensors:
            what = "the objective of this run has no vectors of a smaller vocabulary"
            raise DataError(what, file=folder, fix=f"{SETTING}=<a run of mixed_vocabulary>")
        if int(tensors["fingerprint"]) != hash_pieces(pieces):
            allowed = "a run whose smaller vocabulary is the one of this model"
            fix = "tokenizer.path=<the smaller tokenizer of that run>"
            raise ConfigError(SETTING, self.path, allowed, fix=fix)
        first = tensors["vectors.weight"]
        rows = table.weight.data[: table.vocab_size]  # [V, W]
        if first.shape != rows.shape:
            allowed = f"vectors of {rows.shape[1]} numbers, as this model has; these have"
            fix = f"size.width={first.shape[1]}"
            raise ConfigError(SETTING, self.path, f"{allowed} {first.shape[1]}", fix=fix)
        rows.copy_(first)
        remark(f"{folder}: {len(first):,} tokens start from their vectors")
