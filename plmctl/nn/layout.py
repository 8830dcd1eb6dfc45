"""The layout grammar: which sublayers run in which order, and which of them share weights.

    layout = group (" " group)*        group = cells ["*" n | "@" n]
    cells = letter (["|"] letter)*

`af*12` runs twelve pairs with their own weights, `af@12` one pair twelve times (Lan et al., 2020,
arXiv:1909.11942, sec. 3.1); `a*6 af*10 f*6` is a sandwich (Press et al., 2020, arXiv:1911.03864),
which `make_sandwich` makes of `af*16`.
One repetition of a group is a *layer*: hidden states are recorded at its end, so `af*12` records
twelve, and the embedding output before them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plmctl.core.errors import ConfigError

# sublayers; DeepNet, the deepest Transformer so far, has 2,500 (Wang et al., 2022,
# arXiv:2203.00555)
MOST = 10_000
_GROUP = re.compile(r"([a-z](?:\|?[a-z])*)(?:([*@])([1-9][0-9]*))?")


@dataclass(frozen=True)
class Step:
    """Run copy `copy` of the sublayer called `letter`.

    `ends`: it is the last step of a layer. `joins`: it runs in parallel with the step before it.
    """

    letter: str
    copy: int
    ends: bool
    joins: bool = False


def parse(layout: str, *, share: Mapping[str, int] | None = None) -> list[Step]:
    """The steps of `layout`.

    Args:
        share: {letter: n} keeps n copies of a letter, each for as many neighbours (ALBERT's
            groups).

        "af*2 f@2"   a0 f0 | a1 f1 | f2 | f2      (| ends a layer)
    """
    steps: list[Step] = []
    counts: Counter[str] = Counter()  # copies of each letter so far
    for group in layout.split():
        match = _GROUP.fullmatch(group)
        if match is None:
            raise ConfigError(
                "model.stack.layout",
                layout,
                "groups like 'af*12' (own weights), 'af@12' (shared) or 'a|f*12' (in parallel),"
                " by spaces",
            )
        cells, shared, times = match[1], match[2] == "@", int(match[3] or 1)
        letters = cells.replace("|", "")
        joining = [cells[:index].endswith("|") for index, cell in enumerate(cells) if cell != "|"]
        if len(steps) + times * len(letters) > MOST:
            raise ConfigError("model.stack.layout", layout, f"at most {MOST:,} sublayers")
        first = Counter(counts)
        for _ in range(times):
            used = Counter(first) if shared else counts
            for index, letter in enumerate(letters):
                ends = index == len(letters) - 1
                steps.append(Step(letter, used[letter], ends, joining[index]))
                used[letter] += 1
            if shared:
                counts = used
    if not steps:
        raise ConfigError("model.stack.layout", layout, "at least one group like 'af*12'")
    return _share_copies(steps, counts, share or {})


def make_sandwich(layout: str, k: int) -> str:
    """The sandwich `a*k af*(n-k) f*k` of a layout `af*n`: as many cells in another order, all
    before the last round first (Press et al., 2020, arXiv:1911.03864, sec. 4).

    k = 0 is the layout itself. For cells in parallel, `a|wf*n` gives `a|w*k a|wf*(n-k) f*k`.

    Raises:
        ConfigError: The layout is no group with weights of its own and at least two rounds, or k is
            not below n.
    """
    if k == 0:
        return layout
    match = _GROUP.fullmatch(layout.strip())
    rounds = re.findall(r"[a-z](?:\|[a-z])*", match[1]) if match else []
    if match is None or match[2] != "*" or len(rounds) < 2:
        allowed = f"0, where the layout {layout} is no group of two cells or more such as af*12"
        raise ConfigError("model.stack.sandwich", k, allowed)
    n = int(match[3])
    if not 0 < k < n:
        fix = f"model.stack.sandwich={n - 1}"
        raise ConfigError(
            "model.stack.sandwich", k, f"0 to {n - 1} in the layout {layout}", fix=fix
        )
    return f"{''.join(rounds[:-1])}*{k} {match[1]}*{n - k} {rounds[-1]}*{k}"


def _share_copies(
    steps: list[Step], counts: Mapping[str, int], share: Mapping[str, int]
) -> list[Step]:
    """The steps with `share[letter]` copies instead of `counts[letter]`."""
    for letter, copies in share.items():
        most = counts.get(letter, 0)
        if not 1 <= copies <= most or most % copies:
            fitting = (
                ", ".join(str(n) for n in range(1, most + 1) if most % n == 0)
                or "the layout has none"
            )
            allowed = f"a divisor of the {most} '{letter}' in the layout: {fitting}"
            raise ConfigError(f"model.stack.share.{letter}", copies, allowed)
    shared = [
        replace(s, copy=s.copy * share.get(s.letter, counts[s.letter]) // counts[s.letter])
        for s in steps
    ]
    joining = {(s.letter, s.copy) for s in shared if s.joins}
    for s in shared:
        if not s.joins and (s.letter, s.copy) in joining:
            allowed = (
                f"more copies: an '{s.letter}' that joins others in parallel has no norm of its"
                " own, and one that does not join has"
            )
            raise ConfigError(f"model.stack.share.{s.letter}", share.get(s.letter), allowed)
    return shared


def split_layers(steps: list[Step]) -> list[list[tuple[int, Step]]]:
    """The steps of each layer, with their numbers."""
    split: list[list[tuple[int, Step]]] = [[]]
    for number, step in enumerate(steps):
        split[-1].append((number, step))
        if step.ends:
            split.append([])
    return split[:-1]


def split_rounds(layer: list[tuple[int, Step]]) -> list[list[tuple[int, Step]]]:
    """The steps of a layer, grouped by rounds: those of a round run in parallel."""
    split: list[list[tuple[int, Step]]] = []
    for number, step in layer:
        if not step.joins:
            split.append([])
        split[-1].append((number, step))
    return split


def spell_layer(layer: Sequence[Step]) -> str:
    """The cells of one layer as a layout spells them."""
    return "".join(f"{'|' * step.joins}{step.letter}" for step in layer)


def count_copies(steps: list[Step]) -> dict[str, int]:
    """{letter: number of copies}, in order of first use."""
    number: dict[str, int] = {}
    for step in steps:
        number[step.letter] = max(number.get(step.letter, 0), step.copy + 1)
    return number
