"""The characters of a text: its scripts, and signs of a wrong encoding."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

import numpy as np

from plmctl.data.check.finding import Finding, format_percent, judge
from plmctl.text.hanzi import count_forms, find_misread

REPLACEMENT = 0xFFFD
TRADITIONAL = 0.01  # share of the ideographs from which many words are missed
HAN, KANA = 0.05, 0.05  # shares of the letters: from where a text is Chinese, or Japanese
_POINTS = 0x110000
MISREAD = "wrongly decoded characters"
_SHOWN = 12  # characters of an example
_MISREAD = re.compile(
    "[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac|\u00ef\u00bf\u00bd"
)  # UTF-8 that was read as Latin-1 or cp1252
_UNKNOWN = re.compile(r"<unk>|\[UNK\]")
_WHITE = frozenset("\t\n\r")
# other scripts are called by the first word of their letters' names
_NAMES = {"CJK": "Han", "IDEOGRAPHIC": "Han", "KANGXI": "Han"}
_FORMS = {
    "FULLWIDTH",
    "HALFWIDTH",
    "MATHEMATICAL",
    "MODIFIER",
    "SUPERSCRIPT",
    "SUBSCRIPT",
    "FEMININE",
    "MASCULINE",
    "MICRO",
}


class CharacterCounts:
    """Counts of all code points, and of the marks of wrong decoding that take several
    characters.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(_POINTS, np.int64)
        self.misread = self.unknown = self.gbk = 0
        self.example = ""  # a piece of Chinese that was decoded wrongly

    def add(self, text: str) -> None:
        """Count the characters of a text; best a megabyte at a time, since each call adds a table
        of that size.
        """
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        self.counts += np.bincount(points, minlength=_POINTS)
        self.unknown += len(_UNKNOWN.findall(text))
        if not text.isascii():
            self.misread += len(_MISREAD.findall(text))
            chinese = find_misread(text)
            self.gbk += len(chinese)
            self.example = self.example or "".join(chinese[:1])[:_SHOWN]

    @property
    def used(self) -> Counter[str]:
        """{character: how often it occurs}."""
        points = np.flatnonzero(self.counts)
        return Counter({chr(point): int(self.counts[point]) for point in points})

    def scripts(self) -> dict[str, float]:
        """{script: share of the letters}, the most frequent first."""
        return measure_scripts(self.used)

    def findings(self, words: int) -> list[Finding]:
        """Findings on the characters; `words`: words of the text."""
        used = self.used
        total = max(1, used.total())
        replaced = used.get(chr(REPLACEMENT), 0)
        control = {
            c: n
            for c, n in used.items()
            if unicodedata.category(c) in ("Cc", "Cs", "Co") and c not in _WHITE
        }
        lost = sum(control.values())
        listing = ", ".join(
            f"U+{ord(c):04X} ({n:,})"
            for c, n in sorted(control.items(), key=lambda item: -item[1])[:3]
        )
        return [
            judge(
                "replacement characters",
                f"{replaced:,} x U+FFFD ({format_percent(replaced / total)})",
                replaced / total,
                look=0,
                bad=1e-4,
                numbers={"count": replaced},
                advice=(
                    "This text was decoded wrongly:"
                    " decode the original again, or drop these documents."
                ),
            ),
            self._judge_decoding(total),
            judge(
                "control characters",
                f"{lost:,}" + (f": {listing}" if listing else ""),
                lost / total,
                look=1e-6,
                bad=1e-4,
                advice=(
                    "Remove them, or they become tokens;"
                    " many of them mean that the file is not plain text."
                ),
                numbers={"count": lost},
            ),
            judge(
                "unknown words",
                f"{self.unknown:,} x <unk> or [UNK]",
                self.unknown / max(1, words),
                look=0,
                bad=1e-3,
                advice="This text was reduced to a vocabulary; look for the raw version.",
                numbers={"count": self.unknown},
            ),
            _letters(used, total),
        ]

    def _judge_decoding(self, total: int) -> Finding:
        found, advice = f"{self.misread:,} like Ã© or â€™", ""
        if self.misread or not self.gbk:
            advice = "UTF-8 was read as Latin-1: repair the text (ftfy does) before tokenizing."
        if self.gbk:
            found += f", {self.gbk:,} pieces of Chinese like {self.example}"
            gbk = "UTF-8 was read as GBK: take the original, and read it as UTF-8."
            advice = " ".join(filter(None, (advice, gbk)))
        return judge(
            MISREAD,
            found,
            (self.misread + self.gbk) / total,
            look=1e-6,
            bad=1e-4,
            advice=advice,
            numbers={"count": self.misread, "gbk": self.gbk},
        )


def judge_characters(
    counts: CharacterCounts, words: int, *, segmented: bool = True
) -> list[Finding]:
    """All findings on the characters of a text of so many words. Its forms of Chinese are not
    judged where it was decoded wrongly.

    Args:
        segmented: Whether `data.segment` can find the words of this text.
    """
    found = counts.findings(words)
    wrong = counts.gbk and any(each.name == MISREAD and each.verdict == "bad" for each in found)
    return found if wrong else [*found, *judge_forms(counts.used, segmented=segmented)]


def judge_markup(html: int, texts: int, example: str, unit: str, advice: str) -> Finding:
    """The share of texts with HTML in them.

    Args:
        html: The number of these texts.
        example: The position of the first one.
        advice: The advice where there are many.
    """
    share = html / max(1, texts)
    return judge(
        "markup",
        f"{format_percent(share)} of the {unit} have HTML in them"
        + (f", the first at {example}" if share else ""),
        share,
        look=0.01,
        bad=0.2,
        advice=f"Read its tags and character references{advice}",
        numbers={unit: html, "share": share},
    )


def measure_scripts(counts: Counter[str]) -> dict[str, float]:
    """{script: share of the letters} of {character: count}; the script is the first word of a
    letter's Unicode name.
    """
    letters = Counter[str]()
    for character, count in counts.items():
        if unicodedata.category(character)[0] == "L":
            letters[_script(character)] += count
    total = max(1, letters.total())
    return {name: count / total for name, count in letters.most_common()}


def judge_forms(counts: Mapping[str, int], *, segmented: bool = True) -> list[Finding]:
    """How much of a Chinese text is only simplified or only traditional; nothing on other texts.

    Args:
        counts: {character: how often it occurs}.
        segmented: Whether `data.segment` can find the words of this text.
    """
    shares = measure_scripts(Counter(counts))
    if shares.get("Han", 0) < HAN or shares.get("Hiragana", 0) + shares.get("Katakana", 0) > KANA:
        return []
    han = sum(
        n for c, n in counts.items() if unicodedata.category(c)[0] == "L" and _script(c) == "Han"
    )
    forms = count_forms(counts)
    of_each = {name: forms[name] / han for name in ("simplified", "traditional")}
    found = ", ".join(f"{format_percent(n)} of it is only {name}" for name, n in of_each.items())
    if segmented and of_each["traditional"] >= TRADITIONAL:
        found += "; data.segment=jieba_hmm finds its words, jieba few of the traditional ones"
    rarer = min(of_each.values()) / max(1e-9, sum(of_each.values()))
    return [
        judge(
            "forms of Chinese",
            found,
            rarer,
            look=0.01,
            bad=0.1,
            advice=(
                "The text mixes both forms, which share few characters: convert one"
                " (OpenCC: opencc -c t2s), or "
                + ("train the tokenizer on both." if segmented else "take texts of both to train.")
            ),
            numbers=of_each,
        )
    ]


def describe_shares(shares: dict[str, float]) -> str:
    """`Latin 98%, Han 1.2%, ...`."""
    return (
        ", ".join(f"{name} {format_percent(share)}" for name, share in list(shares.items())[:5])
        or "no letters"
    )


def _letters(used: dict[str, int], total: int) -> Finding:
    shares = measure_scripts(Counter(used))
    letters = sum(n for c, n in used.items() if unicodedata.category(c)[0] in "LM")
    white = sum(n for c, n in used.items() if c.isspace())
    share = letters / max(1, total - white)
    return judge(
        "scripts",
        f"{describe_shares(shares)}; {format_percent(share)} of the marks are letters",
        1 - share,
        look=0.4,
        bad=0.8,
        advice=(
            "Mostly digits and signs: tables, code or markup?"
            " Keep prose, unless they are what you want to model."
        ),
        numbers={"shares": shares, "letters": share},
    )


def _script(character: str) -> str:
    words = unicodedata.name(character, "UNNAMED").split()
    first = next((word for word in words if word not in _FORMS), words[0])
    return _NAMES.get(first.partition("-")[0], first.title())
