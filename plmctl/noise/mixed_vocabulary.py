"""Words of two vocabularies in one row (Zhao et al., 2021): each is cut by a teacher's tokenizer,
or by the smaller one of its student.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import Opens, part_of
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Rate
from plmctl.noise.base import Noise
from plmctl.noise.masking import MASKED, MaskOrReplace, NoiseBudget, Spans, sum_before
from plmctl.noise.moves import move_tokens
from plmctl.noise.token_mask import RandomTokens
from plmctl.noise.units import find_units
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import ROLES, Vocab

SETTING = "noise.mixed_vocabulary.path"
NONE = -1  # in tracks.small: a token of the large vocabulary


def confirm(folder: str | None) -> None:
    """Raise ConfigError without a tokenizer, AbsentData if its folder is missing."""
    if folder is None:
        allowed = "the folder of the smaller tokenizer"
        raise ConfigError(SETTING, None, allowed, fix=f"{SETTING}=<its folder>")
    if not Path(folder).expanduser().exists():
        out = spell_setting("out", folder)
        fix = f"plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4928 {out}"
        raise AbsentData("there is no such tokenizer", file=folder, fix=fix)


def read_small(folder: str | None) -> Tokenizer:
    """The tokenizer of the smaller vocabulary.

    Raises:
        ConfigError: No folder is named, or its tokenizer is not WordPiece.
        DataError: The folder has no tokenizer.
    """
    confirm(folder)
    fix = f"{SETTING}=<a folder of plmctl tokenize tokenizer=wordpiece>"
    try:
        found = Tokenizer.load(str(folder))
    except DataError as error:
        raise DataError(error.message, file=error.file, fix=fix) from error
    if found.kind != "wordpiece":
        raise ConfigError(SETTING, folder, f"WordPiece, and this is {found.kind}", fix=fix)
    return found


@part_of("noise")
class MixedVocabulary(Noise):
    """Every word, and every special token, is one of the smaller vocabulary with probability
    `share`, independently. Then tokens are masked as `token_mask` does, each within its vocabulary.

        words    playing          chess          [SEP]
        large    playing          chess          [SEP]
        mixed    play ##ing  <-   chess          [SEP] <-      <- of the smaller vocabulary

    `tracks.small` has the ids of the smaller vocabulary; there the text has [UNK], or the special
    token that means the same. Masks and random tokens are of the vocabulary of the hidden token.
    `targets.mlm` has hidden ids of the large one, `targets.small_mlm` those of the smaller one. The
    last words of a row are left out where it gets too long; a special token at its end stays.
    Only `objective=[mixed_vocabulary]` reads `tracks.small`; other objectives see [UNK] there.
    (Zhao et al., 2021, arXiv:1909.11687, stage I: share 0.5.) Differs: the paper does not say of
    which vocabulary special tokens are. With `share=0` it is `token_mask`.

    Args:
        vocab: the large vocabulary.
        path: the folder of the tokenizer of the smaller one; both are WordPiece.
        share: probability of the smaller vocabulary.
    """

    opens: ClassVar[Opens] = {"path": confirm}
    reads = frozenset({"input", "tracks.word_start"})
    writes = frozenset({"tracks.small", "targets.mlm", "targets.small_mlm"})
    fields: Mapping[str, Field] = {
        **MASKED,
        "tracks.small": Field(
            "[n, T]", "int", "id of a token in the smaller vocabulary, -1 at others", lines="each"
        ),
        "targets.small_mlm": Field(
            "[n, T]", "int", "id of a hidden token in the smaller vocabulary", hidden=True
        ),
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        path: str | None = None,
        share: Rate = 0.5,
        rate: Rate = 0.15,
        mask_share: Rate = 0.8,
        random_share: Rate = 0.1,
        max_predictions: int | None = None,
    ) -> None:
        self.vocab, self.path, self.limit = vocab, path, np.uint64(round(share * 2**32))
        self.budget = NoiseBudget(rate=rate, max_predictions=max_predictions, selection="exact")
        self.mask_share, self.random_share = mask_share, random_share
        self._pieces: dict[tuple[int, ...], list[int]] = {}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the smaller vocabulary."""
        return read_small(self.path)

    @cached_property
    def roles(self) -> dict[int, int]:
        """{id of a role in the large vocabulary: its id in the smaller one}."""
        pairs = ((getattr(self.vocab, role), self.tokenizer.vocab.find(role)) for role in ROLES)
        return {large: small for large, small in pairs if large is not None and small is not None}

    @cached_property
    def select(self) -> RandomTokens:
        """Chooses among the tokens of both vocabularies: the smaller one behind the large one."""
        special = np.concatenate([self.vocab.special, self.tokenizer.vocab.special])
        both = replace(self.vocab, size=len(special), special=special)
        return RandomTokens(vocab=both, budget=self.budget, choose_specials=False)

    @cached_property
    def corrupt(self) -> tuple[MaskOrReplace, MaskOrReplace]:
        """The two parts that hide tokens: of the large vocabulary, and of the smaller one."""
        large, small = (
            MaskOrReplace(
                vocab=vocab,
                mask_share=self.mask_share,
                random_share=self.random_share,
                random_specials=True,
            )
            for vocab in (self.vocab, self.tokenizer.vocab)
        )
        return large, small

    def capacity(self, length: int) -> dict[str, int]:
        return dict.fromkeys(("mlm", "small_mlm"), self.budget.capacity(length))

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows, small = self.cut(rows, draws.child("cut"))
        seq, own = rows.seqs[rows.input], small != NONE
        both = np.where(own, self.vocab.size + small, seq.ids)
        union = rows.with_seq(rows.input, replace(seq, ids=both))
        chosen = self.select(union, draws.child("select"))
        of_small = own[chosen.row, chosen.start]
        spans = [Spans(*(part[kept] for part in chosen)) for kept in (~of_small, of_small)]
        views = rows, rows.with_seq(rows.input, replace(seq, ids=np.where(own, small, 0)))
        shown = [
            corrupt(view, span, draws.child("corrupt"))
            for corrupt, view, span in zip(self.corrupt, views, spans, strict=True)
        ]
        small = np.where(own, shown[1].seqs[rows.input].ids, NONE)
        return self._lay_out(shown[0], small).with_targets(small_mlm=shown[1].targets["mlm"])

    def cut(self, rows: Rows, draws: Draws) -> tuple[Rows, np.ndarray]:
        """The rows with words of both vocabularies, and the ids of the smaller one [n, T]."""
        seq = rows.seqs[rows.input]
        n, width = seq.ids.shape
        units = find_units(rows, self.vocab, words=True)
        start, length = units.start[:-1], np.diff(units.start)
        real = seq.real.ravel()[start]
        start, length = start[real], length[real]
        lot = draws.bits(rows.key, "word", width).ravel()[start] < self.limit
        flat, spans = seq.ids.ravel().tolist(), zip(start.tolist(), length.tolist(), strict=True)
        found = [
            (self._cut_word(tuple(flat[at : at + size])) if chosen else []) or [NONE] * size
            for (at, size), chosen in zip(spans, lot.tolist(), strict=True)
        ]
        row, size = start // width, np.array([len(pieces) for pieces in found], np.int64)
        kept = _fit(row, size, (n, width), special=self.vocab.special[seq.ids.ravel()[start]])
        size = np.where(kept, size, 0)
        ids = np.array(
            [token for pieces, keep in zip(found, kept, strict=True) if keep for token in pieces],
            seq.ids.dtype,
        )
        offset = np.arange(len(ids)) - np.repeat(np.cumsum(size) - size, size)
        take = np.repeat(start, size) + np.minimum(offset, np.repeat(length, size) - 1)
        moved = move_tokens(
            rows, take, np.bincount(row, weights=size, minlength=n).astype(int), pad=self.vocab.pad
        )
        changed = moved.seqs[rows.input]
        small = np.full(changed.ids.shape, NONE, seq.ids.dtype)
        small[changed.real] = ids
        begins = changed.tracks["word_start"].copy()
        begins[changed.real] = np.where(ids == NONE, begins[changed.real], offset == 0)
        moved = moved.with_seq(rows.input, changed.with_tracks(word_start=begins))
        return moved, small

    def _cut_word(self, ids: tuple[int, ...]) -> list[int]:
        """The ids in the smaller vocabulary of a word, or of a special token; none where the
        smaller one has no such token.
        """
        if ids not in self._pieces:
            texts = [self.vocab.texts[token] for token in ids]
            own = [self.roles[token] for token in ids if token in self.roles]
            self._pieces[ids] = self.tokenizer.encode("".join(texts)) if all(texts) else own[:1]
        return self._pieces[ids]

    def _lay_out(self, rows: Rows, small: np.ndarray) -> Rows:
        """The rows with tracks.small; there the text has a token that means the same, or [UNK]."""
        seq: Seq = rows.seqs[rows.input]
        means = np.full(self.tokenizer.vocab.size, self.vocab.unk, seq.ids.dtype)
        for large, own in self.roles.items():
            means[own] = large
        ids = np.where(small == NONE, seq.ids, means[small.clip(0)])
        return rows.with_seq(rows.input, replace(seq, ids=ids).with_tracks(small=small))


def _fit(
    row: np.ndarray, size: np.ndarray, shape: tuple[int, int], *, special: np.ndarray
) -> np.ndarray:
    """[u] bool: the units that rows of this shape have room for.

    Args:
        row: The row of each unit, in order.
        size: The tokens of each unit.
        shape: Rows and columns.
        special: [u] bool: a special token, which stays if it ends its row.
    """
    count = np.bincount(row, minlength=shape[0])
    last = np.zeros(len(row), bool)
    last[(np.cumsum(count) - 1)[count > 0]] = True
    last &= special
    spare = np.bincount(row[last], weights=size[last], minlength=shape[0])
    return last | (sum_before(size, count) + size + spare[row] <= shape[1])
