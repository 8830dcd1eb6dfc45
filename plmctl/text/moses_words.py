"""Pieces of XLM (Conneau and Lample, 2019, arXiv:1901.07291, sec. 5.1) and FlauBERT (Le et al.,
2020, arXiv:1912.05372, sec. 3.1): words by the rules of Moses, cut by a list of merges.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.extras import require_library
from plmctl.text.backend import Cut, Span, cut_nowhere
from plmctl.text.suffixed import LAST, UNKNOWN, SuffixedPieces

RULES = "moses.json"  # in a tokenizer's folder
XLM, FLAUBERT = "XLMTokenizer", "FlaubertTokenizer"
_CLASSES = {"xlm": XLM, "flaubert": FLAUBERT}  # by the family of a folder
_LOWER = {XLM: "do_lowercase_and_remove_accent", FLAUBERT: "do_lowercase"}
_OTHERS = ("zh", "ja", "th")  # languages whose words other libraries find
# signs of East Asian text, quotes and dashes by their ASCII forms
# (moses-smt/mosesdecoder, replace-unicode-punctuation.perl)
_SIGNS = str.maketrans(
    {
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
        **dict(zip("，、∶：？）！（；～’━〈〉【】％", ",,::?)!(;~'-<>[]%", strict=True)),
        **dict.fromkeys("”“《》」「", '"'),
        "…": "...",
    }
)
_STOPS = re.compile(r"[。．]\s*")
# Romanian letters without their marks (rsennrich/wmt16-scripts)
_ROMANIAN = str.maketrans("ŞşȘșŢţȚțĂăÂâÎî", "SsSsTtTtAaAaIi")
_AHEAD = 12  # letters among which the next one of a word is looked for


class Rules(TypedDict):
    """The settings of a published class that change a text."""

    name: str
    language: str
    lower: bool


def name_class(config: Mapping[str, Any], kind: object) -> str | None:
    """The class of a folder's tokenizer, if it is one of these.

    Args:
        config: Its tokenizer_config.json.
        kind: The `model_type` of its config.json.
    """
    named = config.get("tokenizer_class") or _CLASSES.get(str(kind))
    return named if named in _LOWER else None


def read_rules(name: str, config: Mapping[str, Any], model: Mapping[str, Any]) -> Rules:
    """The rules of a folder.

    Args:
        name: The class of its tokenizer.
        config: Its tokenizer_config.json.
        model: Its config.json. Text is in the language of `lang_id`, where the model has vectors of
            languages or one language; otherwise in English, as for the class.
    """
    lower = config.get(_LOWER[name])
    known = {number: code for code, number in (model.get("lang2id") or {}).items()}
    chosen = len(known) == 1 or (model.get("use_lang_emb", True) and model.get("n_langs", 1) > 1)
    number = model.get("lang_id", 0) if len(known) > 1 else next(iter(known), 0)
    language = "fr" if name == FLAUBERT else known.get(number, "en") if chosen else "en"
    return {
        "name": name,
        "language": str(language),
        "lower": name == XLM if lower is None else bool(lower),
    }


def write_rules(rules: Rules) -> dict[str, Any]:
    """The settings of a tokenizer_config.json with these rules."""
    return {"tokenizer_class": rules["name"], _LOWER[rules["name"]]: rules["lower"]}


class MosesWords:
    """The pieces of a text by the rules of one of the classes.

    Args:
        merges: The content of its merges.txt.
        rules: The content of `moses.json`.
        tokens: The tokens of its vocab.json.
    """

    kind = "suffix_bpe"

    def __init__(self, merges: str, rules: bytes, tokens: Iterable[str]) -> None:
        self.cut: Cut = cut_nowhere  # whether a full stop ends a word depends on the words around
        own: Rules = json.loads(rules)
        self.rules, language = own, own["language"]
        if language in _OTHERS:
            what = f"text in {language} is cut into words by other libraries than Moses's rules"
            raise DataError(f"{what}, which plmctl does not call", fix="take another tokenizer")
        library = require_library("sacremoses", "moses", "the tokenizer of XLM and FlauBERT")
        self._signs = library.MosesPunctNormalizer(lang=language)
        self._words = library.MosesTokenizer(lang=language)
        lines = merges.split("\n")
        self._pieces = SuffixedPieces(lines[lines[0].startswith("#version") :], tokens)

    def cut_pieces(self, text: str) -> tuple[list[str], list[Span]]:
        """The pieces of `text`, and the span of each."""
        words = self._find_words(text)
        places = _align(text, "".join(words))
        pieces: list[str] = []
        spans: list[Span] = []
        start = 0
        for word in words:
            for piece, size in self._pieces.cut(word):
                pieces.append(piece)
                spans.append((places[start], places[start + size - 1] + 1))
                start += size
        return pieces, spans

    def join(self, pieces: Sequence[str], whole: Collection[str] = ()) -> str:
        """The text of pieces, with a space behind each word; those in `whole` are words."""
        return "".join(f"{p} " if p in whole else p for p in pieces).replace(LAST, " ").strip()

    def normalize(self, text: str) -> str:
        """`text` with plain signs and without control characters, before it is cut into words."""
        if self.rules["name"] == FLAUBERT:
            text = text.replace("``", '"').replace("''", '"')
            text = unicodedata.normalize("NFC", text)
            text = text.lower() if self.rules["lower"] else text
        text = self._signs.normalize(_STOPS.sub(". ", text).translate(_SIGNS))
        text = "".join(each for each in text if unicodedata.category(each)[0] != "C")
        return text.translate(_ROMANIAN) if self.rules["language"] == "ro" else text

    def _find_words(self, text: str) -> list[str]:
        words = self._words.tokenize(self.normalize(text), return_str=False, escape=False)
        if self.rules["name"] == XLM and self.rules["lower"]:
            letters = unicodedata.normalize("NFD", " ".join(words).lower())
            kept = (each for each in letters if unicodedata.category(each) != "Mn")
            words = "".join(kept).lower().split(" ")
        return [word for word in words if word]


def _fold(letter: str) -> str:
    """A letter or a sign as it is compared: without case and marks, all quotes the same."""
    plain = unicodedata.normalize("NFKD", letter.translate(_SIGNS).lower())
    kept = "".join(each for each in plain if unicodedata.category(each) not in ("Mn", "Cc", "Zs"))
    return kept.replace("`", '"').replace("'", '"')


def _align(text: str, letters: str) -> list[int]:
    """For each of `letters` the offset in `text` of the letter that it comes from; of one that
    Moses put in, that of the next one.
    """
    own = [(each, place) for place, letter in enumerate(text) for each in _fold(letter)]
    signs, at = "".join(each for each, _ in own), 0
    places = []
    for number, letter in enumerate(letters):
        for each in _fold(letter)[:1]:
            following = "".join(map(_fold, letters[number + 1 : number + 2]))[:1]
            found = signs.find(each + following, at, at + _AHEAD)
            found = at if signs.startswith(each, at) else found
            at = max(at, found)
        places.append(own[min(at, len(own) - 1)][1] if own else 0)
        at += signs.startswith(_fold(letter)[:1] or UNKNOWN, at)
    return places
