"""The base of all recipes for a vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, asdict, dataclass
from string import digits
from typing import Any, ClassVar

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import base_of
from plmctl.text import roles
from plmctl.text.backend import Backend
from plmctl.text.roles import Roles

SMALLEST = 8  # ids: the special tokens and a character
LARGEST = (1 << 31) - 1  # most ids, which are numbers of 32 bits


class TooLittleText(ConfigError):
    """A text yields only `size` tokens, fewer than the vocabulary has."""

    def __init__(self, vocab_size: int, size: int) -> None:
        self.size = size
        allowed = f"this text is too small for it: it yields at most {size} tokens"
        fix = f"tokenizer.vocab_size={size}, or give more text (data.path)"
        fix = fix if size >= SMALLEST else "give more text (data.path)"
        super().__init__("tokenizer.vocab_size", vocab_size, allowed, fix=fix)


@base_of("tokenizer")
@dataclass(frozen=True)
class Recipe:
    """How a vocabulary is learnt: its size, and how much text it is learnt from.

    Args:
        vocab_size: tokens, special tokens included.
        path: a trained tokenizer to use instead of training one.
        sample_bytes: bytes of text that are read.
        sentinels: tokens that stand for masked spans (T5).
        unused: spare tokens.
    """

    kind: ClassVar[str]
    is_bound: ClassVar[bool] = False  # whether any text may yield fewer tokens than `vocab_size`
    _: KW_ONLY
    vocab_size: int = 8192
    path: str | None = None  # a trained tokenizer to use instead of training one
    sample_bytes: int = 1 << 25
    sentinels: int = 0
    unused: int = 0

    def __post_init__(self) -> None:
        if type(self.vocab_size) is not int or not SMALLEST <= self.vocab_size <= LARGEST:
            allowed = f"a whole number of at least {SMALLEST}, at most {LARGEST}"
            raise ConfigError("tokenizer.vocab_size", self.vocab_size, allowed)
        if type(self.sample_bytes) is not int or self.sample_bytes < 1:
            raise ConfigError(
                "tokenizer.sample_bytes", self.sample_bytes, "a positive number of bytes"
            )
        for name in ("sentinels", "unused"):
            if type(count := getattr(self, name)) is not int or count < 0:
                raise ConfigError(f"tokenizer.{name}", count, "0 or more")
        coverage = getattr(self, "character_coverage", 1.0)
        if not 0 < coverage <= 1:
            raise ConfigError("tokenizer.character_coverage", coverage, "0 < coverage <= 1")

    def settings(self) -> dict[str, Any]:
        """The settings that decide the result, for the manifest. A setting that came later is there
        only if it is set, so that old caches stay valid.
        """
        optional = ("sentinels", "unused", "specials", "segment", "strip_accents", "normalize")
        named = {key: value for key, value in asdict(self).items() if key != "path"}
        return {
            "kind": self.kind,
            **{
                key: value
                for key, value in named.items()
                if value or value is False or key not in optional
            },
        }

    def special(self, family: Roles = roles.BERT) -> Roles:
        """The special tokens at the beginning of the vocabulary: those of its family, unused slots,
        sentinels.
        """
        return family.with_slots(self.sentinels, self.unused)

    def train(self, texts: Iterable[str]) -> tuple[Backend, Roles]:
        """Learn a vocabulary.

        Args:
            texts: sentences or lines.

        Returns:
            The trained backend and the roles of its special tokens.

        Raises:
            ConfigError: if the text yields fewer tokens than `vocab_size`, or its characters alone
                are more.
        """
        raise NotImplementedError(type(self).__name__)

    def check_size(self, size: int) -> None:
        """Raise TooLittleText where a text has yielded only `size` tokens."""
        if self.path is None and not self.is_bound and size < self.vocab_size:
            raise self.size_too_large_error(size)

    def size_too_large_error(self, size: int) -> ConfigError:
        """The error for a text that yields only `size` tokens."""
        return TooLittleText(self.vocab_size, size)

    def size_too_small_error(self, size: int) -> ConfigError:
        """The error for a vocabulary that cannot be smaller than `size`."""
        allowed = f"special tokens and single characters alone take {size}"
        fix = f"tokenizer.vocab_size={size} or more, or a smaller tokenizer.character_coverage"
        return ConfigError("tokenizer.vocab_size", self.vocab_size, allowed, fix=fix)


def choose_characters(counts: Counter[str], coverage: float) -> list[str]:
    """The most frequent characters that make up `coverage` of the text, and all of ASCII that
    `list_required` names, by frequency.
    """
    characters = Counter[str]()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    if not characters:
        raise no_text_error()
    needed, covered, chosen = coverage * characters.total(), 0, []
    characters.update(dict.fromkeys(required := list_required(characters), 0))
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered < needed or character in required:
            chosen.append(character)
        covered += count
    return chosen


def list_required(characters: Iterable[str]) -> set[str]:
    """The printable characters of ASCII in a text, and all digits where it has one: one number must
    not read as another.
    """
    found = {character for character in characters if "!" <= character <= "~"}
    return found if found.isdisjoint(digits) else found | {*digits}


def no_text_error() -> DataError:
    """The error for a tokenizer without any text to learn from."""
    problem = "there is no text to train a tokenizer on"
    return DataError(problem, fix="data.path=<a file, folder or pattern with text>")
