"""A table as LaTeX sets it with booktabs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from plmctl.text.sentences import CJK

LATIN = 0x24F  # letters up to here are in every font
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    # not in the fonts of LaTeX without packages
    "«": r"$\ll$",
    "»": r"$\gg$",
    "‹": r"$<$",
    "›": r"$>$",
    "⟦": "[",
    "⟧": "]",
    "′": "'",
    "″": "''",
    **{"−": "$-$", "→": r"$\to$", "≤": r"$\le$", "≥": r"$\ge$", "≈": r"$\approx$"},
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    **dict.fromkeys("\u200b\u200d\ufe0e\ufe0f", ""),  # join or colour the sign next to them
}

CHINESE = (
    r"% Chinese letters: \usepackage{xeCJK} or \usepackage{ctex}, and XeLaTeX instead of LaTeX"
)
OTHER = "% letters that are not Latin: XeLaTeX instead of LaTeX"

# not in `tilt=-0.8`, which is as it is typed
_MINUS = re.compile(r"(?<![\w.)=:,−-])-(?=\.?\d)")


def escape(text: str) -> str:
    """`text` in one line, its letters as LaTeX prints them. Negative numbers have a minus; an emoji
    is its name in brackets.
    """
    line = _MINUS.sub("−", " ".join(text.split()))
    return "".join(_SPECIAL.get(sign) or _name(sign) for sign in line)


def _name(sign: str) -> str:
    """`[grinning face]` for an emoji or another picture; other signs as they are."""
    if sign in _SPECIAL:  # it has no sign of its own
        return ""
    pictured = unicodedata.category(sign) in ("So", "Sk", "Sm", "Cn") and ord(sign) > 0x2000
    return f"[{unicodedata.name(sign, 'sign').lower()}]" if pictured else sign


def list_needs(text: str, command: str) -> list[str]:
    """Comments on the packages that a table needs, and which `command` wrote it."""
    other = any(sign.isalpha() and ord(sign) > LATIN for sign in text)
    packages = "booktabs,array" if r"\arraybackslash" in text else "booktabs"
    letters = CHINESE if re.search(f"[{CJK}]", text) else OTHER
    return [
        rf"% needs \usepackage{{{packages}}}; written by {command}",
        *([letters] if other else []),
    ]


def format_table(
    caption: str,
    columns: str,
    head: str,
    body: Sequence[str],
    notes: Sequence[str] = (),
    before: Sequence[str] = (),
) -> str:
    """A `table` environment.

    Args:
        columns: The alignment of each column, such as "lrr".
        head: The first line, as `join_cells` makes it.
        body: The lines below it.
        notes: Paragraphs below the table, as plain text.
        before: Commands that change its look, such as the size of its letters.
    """
    below = [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize"] if notes else []
    below += [rf"{escape(note)}\par" for note in notes] + [r"\end{minipage}"] * bool(notes)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *before,
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *below,
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def join_cells(cells: Sequence[str]) -> str:
    """A line of a table."""
    return " & ".join(cells) + r" \\"
