"""Random positions in training, so that longer rows later have no position that is new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.problems import PartContext
from plmctl.noise.base import Noise

KINDS = ("subset", "offset")


@part_of("noise")
class RandomPositions(Noise):
    """Token i has position p_i of 0 .. `range` - 1 instead of i; tokens keep their order.

        subset   p_i = the i-th smallest of T numbers drawn without replacement
        offset   p_i = i + u, u uniform in 0 .. range - T

    T is the length of the longest sequence of a row. All its sequences have the same p, so that
    token i of the target stands where token i of the source does; so have the documents of a packed
    row. (subset: Ruoss et al., 2023, arXiv:2305.16843, sec. 3.1; offset: Dehghani et al., 2019,
    arXiv:1807.03819, sec. 3.3.)
    Differs: Ruoss et al. draw in evaluation, too; here `eval.noise` decides it.

    Args:
        range: The number of positions.
        kind: The way in which positions are drawn.
    """

    reads = frozenset({"input"})
    uses = frozenset({"tracks.position"})
    writes = frozenset({"tracks.position"})
    changes = False

    def __init__(self, *, range: int, kind: Literal["subset", "offset"] = "subset") -> None:
        if range < 1:
            raise ConfigError("noise.random_positions.range", range, "at least 1")
        if kind not in KINDS:
            allowed = f"one of {', '.join(KINDS)}{nearest(kind, KINDS)}"
            raise ConfigError("noise.random_positions.kind", kind, allowed)
        self.range, self.kind = range, kind

    def problems(self, path: str, around: PartContext) -> Iterator[ConfigError]:
        """Positions that the model does not have."""
        longest = around.backbone.max_length
        if longest is not None and self.range > longest:
            allowed = f"at most {longest}, the positions of this model"
            fix = f"position.max_length={self.range}, or position=sinusoidal"
            yield ConfigError(f"{path}.range", self.range, allowed, fix=fix)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        own = {name: np.where(seq.real, _number(seq), 0) for name, seq in rows.seqs.items()}
        longest = np.max([number.max(1, initial=-1) for number in own.values()], axis=0) + 1  # [n]
        if longest.max(initial=0) > self.range:
            allowed = f"at least {longest.max()}, the tokens of the longest row"
            raise ConfigError("noise.random_positions.range", self.range, allowed)
        draw = self._draw_subsets if self.kind == "subset" else self._draw_offsets
        position = draw(rows, draws, longest)
        seqs = {
            name: seq.with_tracks(position=np.take_along_axis(position, own[name], 1))
            for name, seq in rows.seqs.items()
        }
        return replace(rows, seqs=seqs)

    def _draw_subsets(self, rows: Rows, draws: Draws, longest: np.ndarray) -> np.ndarray:
        """[n, range] of each row `longest [n]` positions in order; the last one fills it up."""
        lots = draws.uniform(rows.key, "subset", self.range)
        rank = lots.argsort(1, kind="stable").argsort(1, kind="stable")
        drawn = np.where(rank < longest[:, None], np.arange(self.range), self.range - 1)
        drawn.sort(axis=1)
        return drawn

    def _draw_offsets(self, rows: Rows, draws: Draws, longest: np.ndarray) -> np.ndarray:
        """[n, range] positions that follow each other; the last one fills it up."""
        first = draws.integers(rows.key, "offset", self.range + 1 - longest)
        return np.minimum(first[:, None] + np.arange(self.range), self.range - 1)


def _number(seq: Seq) -> np.ndarray:
    """[n, T] the number of each token in its document."""
    return np.asarray(seq.tracks.get("position", np.arange(seq.ids.shape[1])[None]))
