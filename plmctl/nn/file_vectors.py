"""Vectors of tokens that start from a file of word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from plmctl.core.errors import ConfigError
from plmctl.core.parts import Opens, part_of
from plmctl.core.terminal import remark
from plmctl.knowledge.vector_files import confirm, read_static, refuse_uncovered
from plmctl.nn.first_vectors import FirstVectors
from plmctl.nn.tables import TokenTable

MARKS = ("▁", "Ġ")  # with which the first piece of a word begins, in some vocabularies


@part_of("first_vectors")
@dataclass(frozen=True, kw_only=True)
class FileVectors(FirstVectors):
    """`E_w = v_w` for every token w that is a whole word of the file, as written or in lower case,
    or with n-grams any word; the others stay as they were drawn (Collobert et al., 2011, sec. 4.5;
    Kim, 2014, sec. 3.1).

    Args:
        path: word vectors in any layout.
        scale: brings their mean square to that of the rows that were drawn, as models expect it.
    """

    opens: ClassVar[Opens] = {"path": confirm}
    counts: ClassVar[bool] = False

    path: str
    scale: bool

    def start(
        self, table: TokenTable, ids: np.ndarray, special: np.ndarray, pieces: Sequence[str] = ()
    ) -> None:
        words = find_words(pieces, special)
        asked = {*words.values(), *map(str.lower, words.values())}
        read = read_static(self.path, among=asked)
        found = {number: vector for number, word in words.items()
                 if (vector := read.find(word)) is not None}  # fmt: skip
        rows = table.weight.data[: table.vocab_size]  # [V, W]
        if read.words and read.width != rows.shape[1]:
            allowed = f"vectors of {rows.shape[1]} numbers, as this model has; these have"
            fix = f"size.width={read.width}, or other vectors"
            raise ConfigError("first_vectors.path", self.path, f"{allowed} {read.width}", fix=fix)
        fix = "vectors in the language of the text, or tokenizer=word"
        refuse_uncovered(len(found), len(words), "tokens", file=self.path, fix=fix)
        if found:
            numbers = torch.tensor(list(found), device=rows.device)
            first = torch.from_numpy(np.stack(list(found.values()))).to(rows)
            square = first.square().mean()
            if self.scale and square > 0:
                first *= (rows[numbers].square().mean() / square).sqrt()
            rows[numbers] = first
        remark(f"{self.path}: {len(found):,} of {len(words):,} tokens start from their vectors")


def find_words(pieces: Sequence[str], special: np.ndarray) -> dict[int, str]:
    """{id: the word that a token is}, without special tokens and those inside of words."""
    marked = any(piece.startswith(MARKS) for piece in pieces)
    words = {}
    for number, piece in enumerate(pieces):
        word = piece[1:] if marked else piece
        if not special[number] and word and (not marked or piece.startswith(MARKS)):
            words[number] = word
    return {number: word for number, word in words.items() if not word.startswith("##")}
