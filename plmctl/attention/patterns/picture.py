"""A pattern as text: a line for each query, a column for each key."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TELLING = 0.4  # share of hidden cells above which a picture shows more than causal or full do


def draw(see: Callable[[int], Tensor | None], cells: int, size: int | None) -> str:
    """The picture of `cells` lines and columns.

    Args:
        see: A number of tokens -> bool [1, H | 1, T | 1, T | 1], who sees whom; None: all see all.
        size: Tokens of a cell; None: the fewest, up to 256, that show what is not seen; where a
            smaller picture shows little of it (a window as wide as the row), a larger one.

    Returns:
        `#` where all tokens of a cell see each other, `+` where some do, `.` where none does.
    """
    if size:
        return _draw(see(cells * size), cells, size)
    first = ""
    for tokens in [1 << n for n in range(9)]:
        drawn = _draw(see(cells * tokens), cells, tokens)
        if _share_unseen(drawn) >= TELLING:
            return drawn
        first = first or (drawn if set(drawn) - {"#", "\n"} else "")
    return first or _draw(see(cells), cells, 1)


def _share_unseen(drawn: str) -> float:
    """The share of cells that are not seen; where nothing behind a query is seen, of those before
    it.
    """
    lines = drawn.splitlines()
    behind = any(set(line[number + 1 :]) - {"."} for number, line in enumerate(lines))
    asked = [line if behind else line[: number + 1] for number, line in enumerate(lines)]
    return sum(line.count(".") for line in asked) / sum(map(len, asked))


def _draw(allowed: Tensor | None, cells: int, size: int) -> str:
    length = cells * size
    if allowed is None:
        allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool, device="cpu")
    mean = allowed[0].float().mean(0).expand(length, length)
    shares = mean.unflatten(1, (cells, size)).unflatten(0, (cells, size)).mean((1, 3))
    return "\n".join(
        "".join("#" if share == 1 else "+" if share else "." for share in line)
        for line in shares.tolist()
    )
