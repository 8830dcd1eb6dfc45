"""ALBERT's and XLNet's tokenizers from a bare `spiece.model`, with the changes that their published
code makes to a text first.

Quotes of two characters become one, accents are taken off, ALBERT's capitals are lowered, and a
comma is never part of a number (Lan et al., 2020, albert/tokenization.py; Yang et al., 2019,
xlnet/prepro_utils.py: preprocess_text, encode_pieces). The sentencepiece model says nothing of
this; its special tokens show which of the two it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenizers import normalizers

from plmctl.text import roles
from plmctl.text.roles import Roles
from plmctl.text.rust import Rust
from plmctl.text.sentence_piece import SentencePiece, convert_to_rust

ALBERT = replace(roles.BERT, pad="<pad>", unk="<unk>")
XLNET = replace(roles.XLNET, eos="</s>")
# subtracted from the score of a number with its comma, so that any other segmentation is better
_LAST = 100.0


def find_family(tokens: Sequence[str]) -> Roles | None:
    """The family, XLNet or ALBERT, whose special tokens are all among `tokens`; None if neither."""
    return next((known for known in (XLNET, ALBERT) if set(known.tokens) <= set(tokens)), None)


def read(model: SentencePiece, special: Roles, settings: Mapping[str, Any]) -> Rust:
    """The tokenizer of such a model.

    Args:
        model: the sentencepiece model.
        special: the roles of its family.
        settings: The settings in its tokenizer_config.json; they override the defaults of the
            family.

    A vocabulary with a capital letter can only be a cased one.
    """
    cased = special == XLNET or any(
        letter.isascii() and letter.isupper()
        for token in set(model.tokens).difference(special.tokens)
        for letter in token
    )
    before: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    before += (
        [] if settings.get("keep_accents") else [normalizers.NFKD(), normalizers.StripAccents()]
    )
    before += [normalizers.Lowercase()] if settings.get("do_lower_case", not cased) else []
    pieces = [  # rounded so that a file returns the same numbers
        (token, round(score - _LAST * (token.endswith(",") and token[-2:-1].isdigit()), 6))
        for token, score in zip(model.tokens, model.scores(), strict=False)
    ]
    return convert_to_rust(model, special, before=before, pieces=pieces)
