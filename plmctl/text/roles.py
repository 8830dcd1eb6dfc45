"""Which token plays which part: the families of special tokens, and how a tokenizer becomes a `Vocab`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from plmctl.text.sentences import CJK
from plmctl.text.vocab import Vocab

NAMES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")


@dataclass(frozen=True)
class Roles:
    """The spelling of each special token (None: there is none), and the order of roles around one and two segments."""

    pad: str
    unk: str | None = None
    cls: str | None = None
    sep: str | None = None
    mask: str | None = None
    bos: str | None = None
    eos: str | None = None
    single: tuple[str, ...] = ("cls", "A", "sep")
    pair: tuple[str, ...] = ("cls", "A", "sep", "B", "sep")

    @property
    def tokens(self) -> list[str]:
        """The different spellings, in the order of the roles."""
        return list(dict.fromkeys(token for name in NAMES if (token := getattr(self, name)) is not None))

    def settings(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def read(cls, settings: dict[str, Any]) -> Roles:
        known = {field.name for field in fields(cls)}
        read: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items() if key in known}
        return cls(**read)


BERT = Roles(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]", bos="[CLS]", eos="[SEP]")
ROBERTA = Roles(
    pad="<pad>", unk="<unk>", cls="<s>", sep="</s>", mask="<mask>", bos="<s>", eos="</s>",
    pair=("cls", "A", "sep", "sep", "B", "sep"),
)  # fmt: skip
# One token plays all parts, as in GPT-2; as padding it lies behind the text, where a causal model never looks.
GPT2 = Roles(
    pad="<|endoftext|>", bos="<|endoftext|>", eos="<|endoftext|>",
    single=("bos", "A", "eos"), pair=("bos", "A", "eos", "B", "eos"),
)  # fmt: skip


def vocabulary(tokens: Sequence[str], roles: Roles, kind: str, special: Sequence[str] = ()) -> Vocab:
    """The `Vocab` of a tokenizer with these `tokens` (by id); `special` are further tokens that never stand for text."""
    ids = {token: place for place, token in enumerate(tokens)}
    found = {name: ids.get(spelling) if (spelling := getattr(roles, name)) else None for name in NAMES}
    never = np.zeros(len(tokens), bool)
    for token in (*roles.tokens, *special):
        # Text can be unknown, so [UNK] may be chosen and predicted as in BERT; a token of several roles is special.
        if token in ids and (token != roles.unk or token in (roles.pad, roles.bos, roles.eos)):
            never[ids[token]] = True
    starts = np.array([_STARTS[kind](token) for token in tokens], bool) | never
    if found["unk"] is not None:
        starts[found["unk"]] = True
    pad = found.pop("pad")
    assert pad is not None, "a tokenizer without padding cannot fill rows"
    return Vocab(size=len(tokens), pad=pad, special=never, word_start=starts, single=roles.single, pair=roles.pair, **found)


def joins_words(tokens: Sequence[str]) -> np.ndarray:
    """[V] bool: a character that continues the word of the character before it (letters and digits, not Chinese)."""
    return np.array([len(token) == 1 and token.isalnum() and not _CJK.match(token) for token in tokens], bool)


_CJK = re.compile(f"[{CJK}]")
_ALBERT_PARTS = re.compile(
    r"[A-Za-z!\"#$%&()*+,\-./:;?@\[\\\]^_`{|}~€£]+"
)  # albert/tokenization.py: english_chars, special_pieces
_ALBERT_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')


def _sentencepiece_starts(token: str) -> bool:
    """ALBERT's rule: `▁`, `<`, one punctuation mark, or anything that is not made of English letters and punctuation."""
    return token.startswith(("▁", "<")) or token in _ALBERT_PUNCTUATION or _ALBERT_PARTS.fullmatch(token) is None


def _byte_starts(token: str) -> bool:
    """`Ġ` (space) and `Ċ` (line break), and pieces that begin with the first byte of a Chinese character (E4..E9)."""
    return token.startswith(("Ġ", "Ċ")) or "ä" <= token[:1] <= "é"  # these bytes are printed as Latin-1


_STARTS = {
    "wordpiece": lambda token: not token.startswith("##"),
    "unigram": _sentencepiece_starts,
    "bpe": _sentencepiece_starts,
    "byte_bpe": _byte_starts,
    "char": lambda token: not (len(token) == 1 and token.isalnum()) or bool(_CJK.match(token)),  # words: see annotate.py
}
