"""The special tokens around segments, as a tokenizer's templates state them in roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plmctl.core.errors import ConfigError
from plmctl.text.vocab import Vocab


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
    value = getattr(vocab, role)
    if value is None:
        raise ConfigError(
            "format",
            role,
            f"this tokenizer has no '{role}' token",
            fix="another format, tokenizer=wordpiece, or with init= a run whose tokenizer has it",
        )
    return value
