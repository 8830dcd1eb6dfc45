"""The ids of a tokenizer: its size, the roles, and the tables that noise and formats read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.text.characters import spell_vocabulary

ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")


class TokenLack(ConfigError):
    """A tokenizer without a special token that a part writes; `fix` is for a tokenizer that can be
    chosen.
    """

    def of_init(self) -> ConfigError:
        """The same where the tokenizer is that of the run which `init` names."""
        fix = "init=<a run whose tokenizer has one>"
        return ConfigError(self.path, self.value, self.allowed, fix=fix)


@dataclass(frozen=True)
class Vocab:
    """The ids of a tokenizer, for the parts that must not know the tokenizer itself.

    Roles, not spellings: BERT's `[CLS]` and RoBERTa's `<s>` are both `cls`. A role that the
    vocabulary lacks is None.
    """

    size: int
    pad: int
    unk: int | None
    cls: int | None
    sep: int | None
    mask: int | None
    bos: int | None
    eos: int | None
    special: np.ndarray  # [V] bool: never chosen, never replaced (pad, cls, sep, mask, ...)
    word_start: np.ndarray  # [V] bool: a piece that begins a word wherever it stands
    single: tuple[str, ...] = ("cls", "A", "sep")  # roles around one segment
    # roles around two segments (RoBERTa: two sep between)
    pair: tuple[str, ...] = ("cls", "A", "sep", "B", "sep")
    target: tuple[str, ...] = ()  # roles around what a model writes; (): as `single`
    # stand for cut-out spans, in this order (T5: <extra_id_0>, <extra_id_1>, ...)
    sentinels: tuple[int, ...] = ()
    unused: tuple[int, ...] = ()  # slots without a meaning yet
    # [V] in a vocabulary of complete words, their spellings; else empty
    spellings: tuple[str, ...] = ()
    # [V] the tokens as they stand in the vocabulary
    tokens: tuple[str, ...] = ()
    # [V] what a token spells, without the mark that begins or continues a word; "" for special
    # tokens, and for bytes that are no letters
    texts: tuple[str, ...] = ()

    @property
    def around_target(self) -> tuple[str, ...]:
        """The roles around what a model writes."""
        return self.target or self.single

    def characters(self) -> np.ndarray:
        """[V, C] int16: each word as a row of characters; ValueError if this is not a vocabulary of
        complete words.
        """
        if not self.spellings:
            raise ValueError("only a vocabulary of complete words has characters")
        return spell_vocabulary(self)

    def find(self, name: str) -> int | None:
        """The id of a role, or of a token that a template spells; None: it has no such token."""
        if name in ROLES:
            number: int | None = getattr(self, name)
            return number
        return self._ids.get(name)

    @cached_property
    def blank(self) -> np.ndarray:
        """[V] bool: special tokens, and spaces alone."""
        if not self.texts:
            return self.special
        return self.special | np.array([not text.strip() for text in self.texts], bool)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    def id(self, role: str) -> int:
        """As `find`; ValueError if this vocabulary has no such token."""
        value = self.find(role)
        if value is None:
            raise ValueError(f"this vocabulary has no '{role}' token")
        return value
