"""Rows as a person reads them: the pieces before and after noise, and what is asked where."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from plmctl.batch import IGNORE, Rows

Pieces = Callable[[list[int]], Sequence[str]]  # a tokenizer's `pieces`


def preview(before: Rows, after: Rows, pieces: Pieces, *, mask: int | None = None, seq: str = "text") -> str:
    """One paragraph for each row of `before` (as the format laid it out) and `after` (with noise and targets).

    Marks in the line `after`: `{cat→[MASK]}` hidden, `{cat→dog}` replaced, `{cat=}` asked but left as it is.
    """
    return "\n\n".join(_row(before, after, row, pieces, mask, seq) for row in range(len(before.key)))


def _row(before: Rows, after: Rows, row: int, pieces: Pieces, mask: int | None, seq: str) -> str:
    length = int(after.seqs[seq].length[row])
    old = list(pieces(before.seqs[seq].ids[row, : int(before.seqs[seq].length[row])].tolist()))
    ids = after.seqs[seq].ids[row, :length]
    lines = [f"row {int(before.key[row])} of {before.source}: {length} of {after.seqs[seq].ids.shape[1]} tokens"]
    lines += [f"  before: {' '.join(old)}"]
    hidden = after.targets.get("mlm")
    if hidden is not None:
        lines += [f"  after:  {' '.join(_marked(list(pieces(ids.tolist())), hidden[row, :length], pieces))}"]
        lines += [f"  asked:  {_summary(ids, hidden[row, :length], mask)}"]
    for name, labels in after.targets.items():
        places = np.flatnonzero(labels[row] != IGNORE)
        shown = pieces(labels[row, places].tolist()) if name in ("mlm", "clm") else labels[row, places]
        lines += [f"  targets.{name} ({len(places)}): " + " ".join(f"{p}:{x}" for p, x in zip(places, shown, strict=True))]
    if after.anchors is not None:
        mine = after.anchors[:, 0] == row
        for name, given in after.labels.items():
            lines += [f"  labels.{name}: {', '.join(map(str, given[mine].tolist()))}"]
    for name, track in after.seqs[seq].tracks.items():
        if name in ("segment", "document"):
            lines += [f"  {name}s: {_stretches(track[row, :length])}"]
    return "\n".join(lines)


def _marked(shown: list[str], labels: np.ndarray, pieces: Pieces) -> list[str]:
    """The pieces after noise; chosen ones with the piece that is asked."""
    for place in np.flatnonzero(labels != IGNORE):
        asked = pieces([int(labels[place])])[0]
        shown[place] = f"{{{asked}=}}" if asked == shown[place] else f"{{{asked}→{shown[place]}}}"
    return shown


def _summary(ids: np.ndarray, labels: np.ndarray, mask: int | None) -> str:
    """How many of the chosen tokens are masked, replaced, kept."""
    chosen = labels != IGNORE
    masked, kept = int((chosen & (ids == mask)).sum()), int((chosen & (ids == labels)).sum())
    total = int(chosen.sum())
    return f"{total} of {len(ids)} tokens: {masked} masked, {total - masked - kept} replaced, {kept} kept"


def _stretches(track: np.ndarray) -> str:
    """`0 x 12, 1 x 9`: the values of a track and how long each lasts."""
    first = np.flatnonzero(np.diff(track, prepend=track[:1] - 1 if len(track) else 0))
    return ", ".join(f"{track[p]} x {n}" for p, n in zip(first, np.diff(first, append=len(track)), strict=True))
