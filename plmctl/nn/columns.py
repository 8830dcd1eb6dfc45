"""The columns of the stream that a cell reads and writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from plmctl.core.errors import ConfigError, nearest


def find_columns(
    shares: Mapping[str, Sequence[float]], letters: Collection[str], width: int
) -> dict[str, slice]:
    """The columns of every letter in `shares`.

    Args:
        shares: {letter: [from, to]}, 0 <= from < to <= 1.
        letters: The cells of the layout.

    Raises:
        ConfigError: An unknown letter, or shares that are no whole columns.
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
            raise ConfigError(path, share, allowed, fix=f"{path}=[0,0.5]")
        start, stop = (round(part * width) for part in share)
        if not start < stop or abs(start - share[0] * width) + abs(stop - share[1] * width) > 1e-6:
            raise ConfigError(path, list(share), f"shares of size.width={width} in whole columns")
        columns[letter] = slice(start, stop)
    return columns


def describe_rounds(
    columns: Mapping[str, slice], rounds: Iterable[Sequence[str]], width: int
) -> str:
    """The columns that several cells in parallel share, and the columns that none of them has; ""
    if they divide all columns.

    Args:
        columns: {letter: its columns}, for letters that do not have all columns.
        rounds: The letters of each group of cells in parallel.
    """
    remarks = []
    for letters in dict.fromkeys(map(tuple, rounds)):
        if len(letters) < 2 or columns.keys().isdisjoint(letters):
            continue
        counts = [0] * width
        for letter in letters:
            for column in range(width)[columns.get(letter, slice(None))]:
                counts[column] += 1
        shared, left = _spell([n > 1 for n in counts]), _spell([n == 0 for n in counts])
        facts = [f"{shared} are of several, whose results are added"] if shared else []
        facts += [f"{left} are of none, and stay as they are"] if left else []
        if facts:
            remarks.append(f"of {'|'.join(letters)}: {'; '.join(facts)}")
    return "; ".join(remarks)


def _spell(marked: Sequence[bool]) -> str:
    """The numbers of the marked ones, as runs: "0 to 31 and 48 to 63"."""
    runs: list[list[int]] = []
    for number in (number for number, mark in enumerate(marked) if mark):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " and ".join(f"{first} to {last}" for first, last in runs)
