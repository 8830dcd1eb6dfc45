"""How CMRC 2018 compares the texts of answers (Cui et al., 2019, arXiv:1810.07366, and its
evaluation script): Chinese characters stand alone, and what is between them is cut as in the Penn
Treebank.
"""

from __future__ import annotations

import re

# deleted characters; the list of the script has the dots of an ellipsis only in pairs, which no
# single character is, so that they stay
_DELETED = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE = re.compile("([\u4e00-\u9fa5])")
_CLITICS = "(?:re|ve|ll|[mtsdn])"
# in this order: pattern -> replacement
_PENN = [
    (re.compile(found), place)
    for found, place in (
        ("([«‘„])", r" \1 "),
        ('^"', " `` "),  # opening quotes: at the beginning, behind a bracket or a space
        ("([ (\\[{<])(?:\"|'')", r"\1 `` "),
        (rf"(?<!\w)'(?!{_CLITICS}\b)(?=\w)", "' "),
        (r"""([^.])\.([\])}>"'» ]*)\s*$""", r"\1 . \2 "),  # the last full stop
        (r",(\D)", r" , \1"),  # a comma that is not in a number
        (",$", " , "),
        (r"(\.{2,}|[;@#$%&\u2012-\u2015?!])", r" \1 "),
        (r"([^'])' ", r"\1 ' "),
        (r"([\[\](){}<>])", r" \1 "),
        ("^|$", " "),
        ("»", " » "),
        ("''|\"", " '' "),  # all other quotes close
        (r"\s+", " "),
        (r"([^' ])('[smd]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'re|'ve|n't) ", r"\1 \2 "),
        (r"\b(can)(not)\b|\b(gim|lem)(me)\b|\b(gon)(na)\b|\b(got)(ta)\b", r" \1\3\5\7 \2\4\6\8 "),
        (r"\b(d)('ye)\b|\b(more)('n)\b|\b(wan)(na)(?=\s)", r" \1\3\5 \2\4\6 "),
        (r" ('t)(is|was)\b", r" \1 \2 "),
    )
]


def normalise(text: str) -> str:
    """Lower case without the punctuation that is deleted; two answers are the same if this is."""
    return text.lower().strip().translate(_DELETED)


def split(text: str) -> list[str]:
    """The normalised text as Chinese characters and words.

    Differs: the script first looks for the ends of sentences in what stands between two Chinese
    characters; here it is one sentence.
    """
    return [
        token
        for piece in _CHINESE.split(normalise(text))
        if piece
        for token in ([piece] if _CHINESE.fullmatch(piece) else _split_words(piece))
    ]


def _split_words(text: str) -> list[str]:
    for found, place in _PENN:
        text = found.sub(place, text)
    return text.split()
