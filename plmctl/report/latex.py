"""A table as LaTeX sets it with booktabs."""

from __future__ import annotations

from collections.abc import Sequence

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def escape(text: str) -> str:
    """`text` in one line, its letters as LaTeX prints them."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def format_table(caption: str, columns: str, head: str, body: Sequence[str]) -> str:
    """A `table` environment.

    Args:
        caption: The caption, as LaTeX.
        columns: The alignment of each column, such as "lrr".
        head: The first line, as `join_cells` makes it.
        body: The lines below it.
    """
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def join_cells(cells: Sequence[str]) -> str:
    """A line of a table."""
    return " & ".join(cells) + r" \\"
