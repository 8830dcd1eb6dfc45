"""Which columns of the stream a cell reads and writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from plmctl.core.errors import ConfigError, nearest


def find_columns(
    shares: Mapping[str, Sequence[float]], letters: Collection[str], width: int
) -> dict[str, slice]:
    """The columns of every letter in `shares`.

    Args:
        shares: {letter: [from, to]}, 0 <= from < to <= 1.
        letters: The cells of the layout.
        width: The number of all columns.

    Raises:
        ConfigError: A letter that is not there, or shares that are no whole columns.
    """
    columns: dict[str, slice] = {}
    for letter, share in shares.items():
        path = f"model.stack.columns.{letter}"
        if letter not in letters:
            allowed = f"a cell of the layout: {', '.join(letters)}{nearest(letter, letters)}"
            raise ConfigError("model.stack.columns", letter, allowed)
        numbers = isinstance(share, Sequence) and all(isinstance(n, int | float) for n in share)
        if not numbers or len(share) != 2 or not 0 <= share[0] < share[1] <= 1:
            allowed = "two shares of the columns, from and to, such as [0, 0.5]"
            raise ConfigError(path, share, allowed)
        start, stop = (round(part * width) for part in share)
        if not start < stop or abs(start - share[0] * width) + abs(stop - share[1] * width) > 1e-6:
            raise ConfigError(path, list(share), f"shares of size.width={width} in whole columns")
        columns[letter] = slice(start, stop)
    return columns
