"""The roles of special tokens: the families of published tokenizers, and the `Vocab` of a
tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from plmctl.text.letters import has_unspaced, is_letter
from plmctl.text.sentences import CHINESE
from plmctl.text.suffixed import LAST
from plmctl.text.vocab import ROLES, Vocab

# T5's spelling, BERT's spelling
SENTINEL, UNUSED = re.compile(r"<extra_id_(\d+)>"), re.compile(r"\[unused(\d+)\]")
NAMES = ROLES
SEGMENTS = ("A", "B")  # the texts of a template


@dataclass(frozen=True)
class Roles:
    """The spelling of each special token (None without one), and the order of roles around one and
    two segments. A token without a role, such as a language, stands there by its spelling.
    """

    pad: str
    unk: str | None = None
    cls: str | None = None
    sep: str | None = None
    mask: str | None = None
    bos: str | None = None
    eos: str | None = None
    single: tuple[str, ...] = ("cls", "A", "sep")
    pair: tuple[str, ...] = ("cls", "A", "sep", "B", "sep")
    sentinels: tuple[str, ...] = ()  # for cut-out spans, in order
    unused: tuple[str, ...] = ()  # slots without a meaning yet
    target: tuple[str, ...] = ()  # the order around what a model writes; (): that of `single`

    @property
    def tokens(self) -> list[str]:
        """The different spellings in the order of the roles, then those of unused slots and
        sentinels, and of tokens without a role.
        """
        spelled = [*(getattr(self, name) for name in NAMES), *self.further, *self.without_role]
        return list(dict.fromkeys(filter(None, spelled)))

    @property
    def without_role(self) -> tuple[str, ...]:
        """The tokens of the templates that have no role."""
        known = {*NAMES, *SEGMENTS}
        return tuple(
            dict.fromkeys(
                name for name in (*self.single, *self.pair, *self.target) if name not in known
            )
        )

    def spell(self, name: str) -> str | None:
        """The spelling of a role, or of a token that a template spells."""
        spelled: str | None = getattr(self, name) if name in NAMES else name
        return spelled

    @property
    def further(self) -> tuple[str, ...]:
        """The spellings of unused slots and sentinels."""
        return (*self.unused, *self.sentinels)

    def with_slots(self, sentinels: int, unused: int) -> Roles:
        """These roles with so many sentinels (spelled as T5's) and unused slots (spelled as
        BERT's).
        """
        spelled = (
            tuple(f"<extra_id_{n}>" for n in range(sentinels)),
            tuple(f"[unused{n}]" for n in range(unused)),
        )
        return replace(self, sentinels=spelled[0], unused=spelled[1])

    def settings(self) -> dict[str, Any]:
        """The fields as JSON. A field that came after the first format is there only if it is set,
        so that old fingerprints stay valid.
        """
        named = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }
        return {
            key: value
            for key, value in named.items()
            if value or key not in ("sentinels", "unused", "target")
        }

    @classmethod
    def read(cls, settings: dict[str, Any]) -> Roles:
        """The roles that `settings` wrote."""
        known = {field.name for field in fields(cls)}
        read: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v
            for key, v in settings.items()
            if key in known
        }
        return cls(**read)


def sort_numbered(pattern: re.Pattern[str], tokens: Iterable[str]) -> tuple[str, ...]:
    """The tokens that match `pattern`, in the order of their numbers."""
    numbered = {int(match[1]): token for token in tokens if (match := pattern.fullmatch(token))}
    return tuple(numbered[number] for number in sorted(numbered))


def order_appended(tokens: Sequence[str]) -> list[str]:
    """The order in which T5 appends slots to its pieces: the first sentinel is the last of all."""
    return [*sort_numbered(UNUSED, tokens), *reversed(sort_numbered(SENTINEL, tokens))]


BERT = Roles(
    pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]", bos="[CLS]", eos="[SEP]"
)
ROBERTA = Roles(
    pad="<pad>",
    unk="<unk>",
    cls="<s>",
    sep="</s>",
    mask="<mask>",
    bos="<s>",
    eos="</s>",
    pair=("cls", "A", "sep", "sep", "B", "sep"),
)
# One token has all roles, as in GPT-2; as padding it stands after the text, which a causal model
# never sees.
GPT2 = Roles(
    pad="<|endoftext|>",
    bos="<|endoftext|>",
    eos="<|endoftext|>",
    single=("bos", "A", "eos"),
    pair=("bos", "A", "eos", "B", "eos"),
)

# the token that stands for a row comes last, in a segment of its own; <eod> ends documents
XLNET = Roles(
    pad="<pad>",
    unk="<unk>",
    cls="<cls>",
    sep="<sep>",
    mask="<mask>",
    bos="<s>",
    eos="<eod>",
    single=("A", "sep", "cls"),
    pair=("A", "sep", "B", "sep", "cls"),
)


def make_vocabulary(
    tokens: Sequence[str], roles: Roles, kind: str, special: Sequence[str] = ()
) -> Vocab:
    """Make the `Vocab` of a tokenizer.

    Args:
        tokens: spellings by id.
        roles: spellings of the special tokens.
        kind: kind of the tokenizer, which decides where words start.
        special: further tokens that never stand for text.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    ids_of_roles = {
        name: ids.get(spelling) if (spelling := getattr(roles, name)) else None for name in NAMES
    }
    is_special = np.zeros(len(tokens), bool)
    for token in (*roles.tokens, *special):
        # Text can be unknown, so [UNK] may be chosen and predicted as in BERT; a token of several
        # roles is special.
        if token in ids and (token != roles.unk or token in (roles.pad, roles.bos, roles.eos)):
            is_special[ids[token]] = True
    starts = np.array([_STARTS[kind](token) for token in tokens], bool) | is_special
    if ids_of_roles["unk"] is not None:
        starts[ids_of_roles["unk"]] = True
    pad = ids_of_roles.pop("pad")
    assert pad is not None, "a tokenizer without padding cannot fill rows"
    return Vocab(
        size=len(tokens),
        pad=pad,
        special=is_special,
        word_start=starts,
        single=roles.single,
        pair=roles.pair,
        target=roles.target,
        **ids_of_roles,
        sentinels=tuple(ids[token] for token in roles.sentinels),
        unused=tuple(ids[token] for token in roles.unused),
        tokens=tuple(tokens),
        spellings=tuple(tokens) if kind == "word" else (),
        texts=tuple(
            "" if is_special[number] or token == roles.unk else _SPELLED[kind](token)
            for number, token in enumerate(tokens)
        ),
    )


def find_joined(tokens: Sequence[str]) -> np.ndarray:
    """[V] bool: whether a character continues the word of the character before it (letters, marks
    and digits, not Chinese).
    """
    return np.array([_joins(token) for token in tokens], bool)


def _joins(token: str) -> bool:
    return len(token) == 1 and is_letter(token) and not CHINESE.match(token)


_ALBERT_PARTS = re.compile(
    r"[A-Za-z!\"#$%&()*+,\-./:;?@\[\\\]^_`{|}~€£]+"
)  # albert/tokenization.py: english_chars, special_pieces
_ALBERT_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')


def _sentencepiece_starts(token: str) -> bool:
    """ALBERT's rule: `▁`, `<`, one punctuation mark, or anything that is not made of English
    letters and punctuation.

    Differs: letters and marks of other scripts with spaces continue a word as English ones do.
    """
    return (
        token.startswith(("▁", "<"))
        or token in _ALBERT_PUNCTUATION
        or not (
            _ALBERT_PARTS.fullmatch(token)
            or (token[:1] and not token.isascii() and all(map(is_letter, token)))
        )
        or has_unspaced(token)
    )


def _byte_starts(token: str) -> bool:
    """`Ġ` (space) and `Ċ` (line break), and pieces that begin with the first byte of a Chinese
    character (E4..E9).
    """
    # these bytes are printed as Latin-1
    return token.startswith(("Ġ", "Ċ")) or "ä" <= token[:1] <= "é"


_STARTS = {
    "wordpiece": lambda token: not token.startswith("##"),
    "unigram": _sentencepiece_starts,
    "bpe": _sentencepiece_starts,
    "byte_bpe": _byte_starts,
    "word": lambda token: True,
    # words: see annotate.py
    "suffix_bpe": lambda token: True,
    # words: see annotate.py
    "char": lambda token: not _joins(token),
}


def show_bytes(token: str) -> str:
    """The text of a token of bytes, such as `␣the` for `Ġthe` and `’` for `âĢĻ`.

    Bytes that are no whole character stand as `\\xe2`. A token of other letters stays as it is.
    """
    if not set(token) <= _BYTES.keys():
        return token
    text = bytes(_BYTES[sign] for sign in token).decode("utf-8", errors="backslashreplace")
    return text.replace(" ", "␣")


# the bytes behind the letters that print them (Radford et al., 2019): those without a letter of
# their own in Latin-1 have the letters from 256 on
_PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTES = {chr(byte): byte for byte in _PRINTED}
_BYTES |= {chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - {*_PRINTED}))}

SHOWN = {"byte_bpe": show_bytes}  # how people read the tokens, by kind


def _spelled_in_bytes(token: str) -> str:
    """ASCII stands for itself among printed bytes; other letters are several bytes."""
    text = token.removeprefix("Ġ")
    return text if text.isascii() else ""


_SPELLED = {
    "wordpiece": lambda token: token.removeprefix("##"),
    "unigram": lambda token: token.removeprefix("▁"),
    "bpe": lambda token: token.removeprefix("▁"),
    "byte_bpe": _spelled_in_bytes,
    "word": lambda token: token,
    "suffix_bpe": lambda token: token.removesuffix(LAST),
    "char": lambda token: token,
}
