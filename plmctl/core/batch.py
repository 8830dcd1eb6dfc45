"""The data between files and losses: `Rows` (numpy, made by formats, changed by noise) and `Batch`
(torch, read by models).

Shape legend, used in every shape comment of the repository:

    n rows of a `Rows`       B rows of a `Batch`     T tokens of a row     V vocabulary size
    W model width            H attention heads       D width of a head     M memory (cached keys)
    P predicted positions    N anchors               m spans               K classes

`plmctl.core.fields` says what the names in a `Rows` or `Batch` mean. True always means *may attend*
or *is selected*. This module imports torch only for type checking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.fields import COMMON

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IGNORE = -100  # a label that no loss and no metric counts


@dataclass(frozen=True)
class Seq:
    """One token sequence a row: `ids [n, T]` padded to T, `length [n]` real tokens, and aligned
    `tracks` of `[n, T]`.
    """

    ids: Any  # [n, T] integer array or Tensor
    length: Any  # [n]
    tracks: Mapping[str, Any] = field(default_factory=dict)
    # every row has T real tokens: set when the batch is made, so that no mask is needed
    full: bool = False
    # another view of a sequence of the row, whose tokens are not counted again
    view: bool = False

    def with_tracks(self, **tracks: Any) -> Seq:
        """This sequence with further or other tracks."""
        # `replace` takes several times as long, which counts in a stream of single texts
        return Seq(self.ids, self.length, {**self.tracks, **tracks}, self.full, self.view)

    def pick(self, index: Any) -> Seq:
        """Some of its rows, without the padding of the others."""
        length = self.length[index]
        longest = max(1, int(length.max()))
        tracks = {name: track[index, :longest] for name, track in self.tracks.items()}
        return Seq(self.ids[index, :longest], length, tracks, view=self.view)

    @property
    def real(self) -> Any:
        """[n, T] bool: the tokens that are not padding."""
        if "real" in self.tracks:
            return self.tracks["real"]
        if isinstance(self.ids, np.ndarray):
            return np.arange(self.ids.shape[1]) < self.length[:, None]
        import torch

        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.length[:, None]


@dataclass(frozen=True)
class Rows:
    """Training rows in numpy, laid out by a format; a noise function returns changed rows as a new
    `Rows`.
    """

    # [n] int64: global row number; with (seed, epoch) it fixes every random draw of the row
    key: np.ndarray
    seqs: Mapping[str, Seq]
    # name -> [n, T] labels with IGNORE
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    # [N, 2] = (row, position) of the tokens that stand for a row or a part of it
    anchors: np.ndarray | None = None
    # name -> [N, ...], one for each anchor
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    # name -> [m, 3+] = row, start, length, ...
    spans: Mapping[str, np.ndarray] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)  # name -> [n]
    source: str = "text"  # the data source of the rows

    @property
    def input(self) -> str:
        """Name of the sequence that noise changes: `source` if there is one, else `text`."""
        return "source" if "source" in self.seqs else "text"

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields; a track counts whatever sequence it stands beside."""
        tracks = {name for seq in self.seqs.values() for name in seq.tracks}
        groups = {
            "tracks": tracks,
            "targets": self.targets,
            "labels": self.labels,
            "spans": self.spans,
            "values": self.values,
        }
        beside = {f"{group}.{name}" for group, names in groups.items() for name in names}
        return frozenset({*self.seqs, *beside, *([] if self.anchors is None else ["anchors"])})

    def with_seq(self, name: str, seq: Seq) -> Rows:
        """These rows with another sequence `name`."""
        return replace(self, seqs={**self.seqs, name: seq})

    def with_targets(self, **targets: np.ndarray) -> Rows:
        """These rows with further or other targets."""
        return replace(self, targets={**self.targets, **targets})


@dataclass(frozen=True)
class Targets:
    """Predicted positions in a fixed capacity P: spare slots have index 0 and label IGNORE, so that
    shapes never change.
    """

    index: Tensor  # [P] int64 into the flattened (row, position)
    ids: Tensor  # [P] int64 label, IGNORE in spare slots
    count: int  # real ones among the P

    def write_into(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """`ids [B, T]` with `tokens [P]` at these positions; spare slots, whose index is 0, write
        nothing.
        """
        size = ids.numel()
        flat = ids.new_empty(size + 1)  # one more, for the spare slots
        flat[:size] = ids.flatten()
        return flat.scatter(
            0, self.index.masked_fill(self.ids == IGNORE, size), tokens.to(ids.dtype)
        )[:size].view_as(ids)


@dataclass(frozen=True)
class Batch:
    """A micro-batch in torch: the same fields as `Rows`, read-only, with labels compacted into
    `Targets`.
    """

    key: Tensor  # [B]
    seqs: Mapping[str, Seq]
    targets: Mapping[str, Targets] = field(default_factory=dict)
    anchors: Tensor | None = None  # [N, 2]
    labels: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [N, ...]
    spans: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, Tensor] = field(default_factory=dict)
    # by name of target or label, and "tokens", "rows": host ints
    counts: Mapping[str, int] = field(default_factory=dict)
    source: str = "text"
    # name -> [n, ...]: what all rows of the update share, where this is a part of them
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    # another process trains on these rows: here they only name what is counted
    spare: bool = False

    @property
    def text(self) -> Seq:
        """The sequence `text`."""
        return self.seqs["text"]

    @property
    def input(self) -> str:
        """Name of the sequence that a network reads: `source` if there is one, else `text`."""
        return "source" if "source" in self.seqs else "text"

    def require(self, name: str) -> Any:
        """The field called `name` ("text", "tracks.segment", "targets.mlm").

        Tracks are those of the input; "target.tracks.segment" is a track of another sequence.

        Raises:
            ConfigError: if it is absent.
        """
        group, _, key = name.rpartition(".")
        owner, _, kind = group.rpartition(".")
        if not group:
            group_fields = self.seqs
        elif kind == "tracks":
            seq = self.seqs.get(owner or self.input)
            group_fields = seq.tracks if seq else {}
        else:
            group_fields = getattr(self, group)
        if key not in group_fields:
            meant = f" ({COMMON[name].words})" if name in COMMON else ""
            allowed = f"no part of this run gives '{name}'{meant}"
            fix = "plmctl help fields says what each field is, and which parts give it"
            raise ConfigError("format/noise", name, allowed, fix=fix)
        return group_fields[key]

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device` (asynchronously from pinned memory)."""
        if self.key.device == device:
            return self
        move = _mover(device)

        def each(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: move(x) for name, x in tensors.items()}

        return replace(
            self,
            key=move(self.key),
            anchors=None if self.anchors is None else move(self.anchors),
            seqs={
                k: replace(s, ids=move(s.ids), length=move(s.length), tracks=each(s.tracks))
                for k, s in self.seqs.items()
            },
            targets={
                k: replace(t, index=move(t.index), ids=move(t.ids)) for k, t in self.targets.items()
            },
            labels=each(self.labels),
            spans=each(self.spans),
            values=each(self.values),
            shared=each(self.shared),
        )


def _mover(device: torch.device | str) -> Any:
    return lambda x: x.to(device, non_blocking=True)
