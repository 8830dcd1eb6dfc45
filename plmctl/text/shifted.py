"""Tokenizers of models that fairseq trained, from a bare sentencepiece model: its pieces have other
ids, between special tokens that it lacks.

XLM-R: `<s> <pad> </s> <unk>`, all pieces but the three special ones of the model, `<mask>`: the id
of a piece is one higher. CamemBERT: `<s>NOTUSED <pad> </s>NOTUSED <unk> <unk>NOTUSED`, all pieces
but the unknown one, `<mask>`: four higher, and `<s>` and `</s>` are the model's own. (Conneau et
al., 2020, arXiv:1911.02116; Martin et al., 2020, arXiv:1911.03894; released code.)

mBART and NLLB have the ids of XLM-R, and their languages before `<mask>`. (Liu et al., 2020,
arXiv:2001.08210; NLLB Team, 2022, arXiv:2207.04672.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import AddedToken, pre_tokenizers

from plmctl.text import languages, roles
from plmctl.text.rust import Rust
from plmctl.text.sentence_piece import SentencePiece, convert_to_rust


@dataclass(frozen=True)
class Shift:
    """The tokens around the pieces of a sentencepiece model.

    Args:
        before: The first tokens.
        left_out: The number of first pieces of the model that they replace.
        after: The last tokens.
        unused: Tokens among them that no text has.
    """

    before: tuple[str, ...]
    left_out: int
    after: tuple[str, ...] = ("<mask>",)
    unused: tuple[str, ...] = ()


_UNUSED = ("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED")
_XLM_R = Shift(("<s>", "<pad>", "</s>", "<unk>"), 3)
_NLLB = replace(_XLM_R, after=(*languages.NLLB, "<mask>"))
FAMILIES: Mapping[str, Shift] = {
    "xlmroberta": _XLM_R,
    "camembert": Shift((_UNUSED[0], "<pad>", _UNUSED[1], "<unk>", _UNUSED[2]), 1, unused=_UNUSED),
    "mbart50": replace(_XLM_R, after=(*languages.MBART_50, "<mask>")),
    "mbart": replace(_XLM_R, after=(*languages.MBART, "<mask>")),
    "nllb": _NLLB,
    "m2m100": _NLLB,  # its class, without the vocab.json of M2M-100's tokenizer
}


def find_shift(*names: object) -> Shift | None:
    """The family by the name of its tokenizer or model, `CamembertTokenizer` or `camembert`."""
    plain = ["".join(filter(str.isalnum, str(name).lower())) for name in names]
    return next((known for key, known in FAMILIES.items() if any(key in n for n in plain)), None)


def read(model: SentencePiece, shift: Shift) -> Rust:
    """The tokenizer of such a model; words end at any white space, as in the published one."""
    # rounded so that a file returns the same numbers
    scores = [round(score, 6) for score in model.scores()]
    own: Sequence[tuple[str, float]] = list(zip(model.tokens, scores, strict=False))
    first, last = ([(token, 0.0) for token in side] for side in (shift.before, shift.after))
    # the lowest score of all, so that no text is cut into it
    pieces = [(t, -100.0 if t in shift.unused else score) for t, score in first]
    backend = convert_to_rust(model, roles.ROBERTA, pieces=[*pieces, *own[shift.left_out :], *last])
    tokenizer: Any = backend.tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
        ]
    )
    more = (*shift.unused, *shift.after[:-1])
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in more]
    )
    return Rust(tokenizer)
