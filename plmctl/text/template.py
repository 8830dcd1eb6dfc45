"""The special tokens around segments, as a tokenizer's templates state them in roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plmctl.text.vocab import TokenLack, Vocab


@dataclass(frozen=True)
class Wrap:
    """The special tokens before and after one kind of piece."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return len(self.before) + len(self.after)


def find_wraps(vocab: Vocab, template: Sequence[str]) -> list[Wrap]:
    """One `Wrap` for each segment of a template of roles: `("cls", "A", "sep", "B", "sep")` gives
    cls A sep and B sep.
    """
    segments: list[list[list[int]]] = []
    leading: list[int] = []
    for role in template:
        if role in ("A", "B"):
            segments.append([leading, []])
            leading = []
        else:
            (segments[-1][1] if segments else leading).append(find_special(vocab, role))
    return [Wrap(tuple(before), tuple(after)) for before, after in segments]


def find_special(vocab: Vocab, role: str) -> int:
    """The id of a role that a format puts into rows.

    Raises:
        ConfigError: if the tokenizer lacks it.
    """
    value = vocab.find(role)
    if value is None:
        allowed = f"this tokenizer has no '{role}' token"
        raise TokenLack("format", role, allowed, fix="tokenizer=wordpiece, or another format")
    return value
