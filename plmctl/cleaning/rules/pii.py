"""Masks for personal data (PII)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from string import ascii_letters, digits
from typing import Literal

from plmctl.cleaning.rule import TextRule
from plmctl.cleaning.text_view import TextView
from plmctl.core.parts import part_of

Kind = Literal["email", "iban", "card", "resident_id", "ssn", "phone", "ip"]

_LEFT = r"(?<![A-Za-z0-9+_/])(?<!\d[-.,])"  # scripts without spaces may stand next to a number
_RIGHT = r"(?![A-Za-z0-9_])(?![-.,]\d)"
_PICTURES = ("png", "jpg", "jpeg", "gif", "svg", "webp")  # photo@2x.png is a file
_CARDS = (
    *(r"4\d{12}(?:\d{3}){0,2}", r"5[1-5]\d{14}", r"2[2-7]\d{14}"),
    *(r"3[47]\d{13}", r"6(?:011|5\d\d)\d{12}", r"62\d{14,17}"),
)
_CARD = re.compile("|".join(_CARDS))
# full-width letters, digits and signs of such data as the half-width ones that mean the same
_WIDE = {ord(sign) + 0xFEE0: sign for sign in f"{digits}{ascii_letters}()+-.@_"}
_HAS_WIDE = re.compile(f"[{''.join(map(chr, _WIDE))}]")
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def sums_to_luhn(digits: str) -> bool:
    """Whether the last of the digits checks the others (ISO/IEC 7812-1, annex B)."""
    doubled = [sum(divmod(2 * int(each), 10)) for each in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def sums_to_iban(text: str) -> bool:
    """Whether the third and fourth sign check the others (ISO 13616, by ISO 7064 MOD 97-10)."""
    return int("".join(str(int(sign, 36)) for sign in text[4:] + text[:4])) % 97 == 1


def sums_to_resident(text: str) -> bool:
    """Whether the last sign checks the others (GB 11643, by ISO 7064 MOD 11-2)."""
    total = sum(int(digit) * weight for digit, weight in zip(text, _WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == text[-1].upper()


def _measure_email(found: str) -> int:
    return 0 if found.rpartition(".")[2].lower() in _PICTURES else len(found)


def _measure_card(found: str) -> int:
    digits = _digits(found)
    return len(found) if _CARD.fullmatch(digits) and sums_to_luhn(digits) else 0


def _measure_iban(found: str) -> int:
    """The characters that are a number of an account; words in capitals may stand behind it."""
    ends = [match.start() for match in re.finditer(" ", found)] + [len(found)]
    codes = ((end, found[:end].replace(" ", "")) for end in reversed(ends))
    return next((end for end, code in codes if 15 <= len(code) <= 34 and sums_to_iban(code)), 0)


def _measure_resident(found: str) -> int:
    return len(found) if sums_to_resident(found) else 0


def _measure_phone(found: str) -> int:
    return len(found) if 8 <= len(_digits(found)) <= 15 else 0


def _measure_address(found: str) -> int:
    numbers = found.split(".")
    valid = all(number == str(int(number)) and int(number) < 256 for number in numbers)
    return len(found) if valid and IPv4Address(found).is_global else 0


@dataclass(frozen=True)
class Finder:
    """How data of a kind look, and how many of the found characters are such data."""

    pattern: re.Pattern[str]
    measure: Callable[[str], int]


def _finder(pattern: str, measure: Callable[[str], int] = len, *, left: str = _LEFT) -> Finder:
    return Finder(re.compile(f"{left}(?:{pattern}){_RIGHT}"), measure)


_PHONES = (
    r"\+\d{1,3}(?:[ .\-]?\(\d{1,4}\))?(?:[ .\-]?\d{1,4}){2,6}",  # with the code of its country
    r"(?:\([2-9]\d\d\) ?|[2-9]\d\d[-.])[2-9]\d\d[-.]\d{4}",  # North America
    r"(?:\(\+?86\) ?|0086[ -]?|86[ -])?1[3-9]\d(?:[ -]?\d{4}){2}",  # China: mobile
    r"(?:0|(?:00)?86[ -]0?)\d{2,3}-[2-8]\d{6,7}",  # China: landline
    r"\(0\d{1,4}\) ?\d{3,8}(?:[ -]\d{2,4}){0,2}",  # Europe and Asia: a code of a city
)
# those with a checksum come first, since their digits may look like the number of a phone
FINDERS: dict[str, Finder] = {
    "email": _finder(
        # a label of a name has letters of one script: text may stand next to it without a space
        r"[A-Za-z0-9._%+\-]{1,64}@(?:(?:[A-Za-z0-9\-À-ɏ]{1,63}|[^\W\d_A-Za-zÀ-ɏ]{1,63})\.){1,8}"
        r"(?:[A-Za-z]{2,24}|中国|中國)",
        _measure_email,
        left=r"(?<![A-Za-z0-9._%+\-])",
    ),
    "iban": _finder(r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?", _measure_iban),
    "card": _finder(r"\d(?:[ -]?\d){12,18}", _measure_card),
    "resident_id": _finder(
        r"[1-9]\d{5}(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx]",
        _measure_resident,
    ),
    "ssn": _finder(r"(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}"),
    "phone": _finder("|".join(_PHONES), _measure_phone, left=r"(?<![A-Za-z0-9+_/])(?<!\d[-.,(])"),
    "ip": _finder(r"\d{1,3}(?:\.\d{1,3}){3}", _measure_address),
}


@part_of("rule")
class MaskedPii(TextRule):
    """Personal data are masked by their kind: `Write to <email>`.

    Kinds and masks as published corpora have them (Dolma: Soldaini et al., 2024, arXiv:2402.00159,
    sec. 5; FineWeb: Penedo et al., 2024, arXiv:2406.17557, sec. 3).

    Differs: numbers of accounts, cards and residents are masked where their checksum is right.
    Documents with much personal data are not dropped.

    Args:
        kinds: The kinds to mask. `ip`: public addresses of version 4, which versions of software
            may look like.
        mask: The mask, with {kind} where the name of the kind stands.
    """

    def __init__(
        self,
        *,
        kinds: Sequence[Kind] = ("email", "iban", "card", "resident_id", "ssn", "phone"),
        mask: str = "<{kind}>",
    ) -> None:
        self._finders = [
            (mask.replace("{kind}", kind), finder)
            for kind, finder in FINDERS.items()
            if kind in kinds
        ]

    def apply(self, view: TextView) -> TextView:
        text = view.text
        for mask, finder in self._finders:
            text = _hide(text, mask, finder)
        return view if text == view.text else TextView(text)


def _hide(text: str, mask: str, finder: Finder) -> str:
    """The text with masks; full-width signs are read as half-width ones, and stay where no mask
    is.
    """
    read = text.translate(_WIDE) if _HAS_WIDE.search(text) else text
    parts, end = [], 0
    for found in finder.pattern.finditer(read):
        if length := finder.measure(found[0]):
            parts += [text[end : found.start()], mask]
            end = found.start() + length
    return "".join([*parts, text[end:]])
