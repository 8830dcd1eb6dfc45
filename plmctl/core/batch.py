"""What travels from files to losses: `Rows` (numpy, made by formats, changed by noise) and `Batch`
(torch, read by models).

Shape legend, used in every shape comment of the repository:

    n rows of a `Rows`       B rows of a `Batch`     T tokens of a row     V vocabulary size
    W model width            H attention heads       D width of a head     M memory (cached keys)
    P predicted positions    N anchors               m spans               K classes

`FIELDS` below is the glossary: every name that may appear in a `Rows` or `Batch`, with shape, type
and meaning. True always means *may attend* or *is selected*. This module imports torch only for
type checking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.core.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IGNORE = -100  # a label that no loss and no metric counts
# the sequences among FIELDS
SEQS = frozenset({"text", "source", "target", "reverse", "characters"})
# of them, what a network is shown: what noise changes, "input" in `Noise.reads`
INPUTS = frozenset({"text", "source"})

FIELDS: dict[str, str] = {
    # sequences: name of a Seq in `seqs`
    "text": "Seq: the sequence an encoder or decoder reads",
    "source": "Seq: what an encoder-decoder reads",
    "target": "Seq: what an encoder-decoder writes",
    "reverse": (
        "Seq: a stream of text from its end to its beginning,"
        " beside `text` (the backward half of a biLM)"
    ),
    "characters": "Seq of ids [n, T, C]: the C characters of each word (ELMo)",
    # tracks: [n, T] beside the ids of a Seq
    "tracks.segment": "[n, T] int: 0 for the first segment with its specials, 1 for the second",
    "tracks.document": (
        "[n, T] int: number of the document inside a packed row; tokens see only their own document"
    ),
    "tracks.position": (
        "[n, T] int: place of the token, where it is not simply 0..T-1 (packed rows restart)"
    ),
    "tracks.word_start": "[n, T] bool: the token begins a word",
    "tracks.sentence": (
        "[n, T] int: number of the sentence inside the row (specials:"
        " of the one beside them; padding: -1)"
    ),
    "tracks.language": "[n, T] int: number of the token's language (translation LM)",
    "tracks.order": (
        "[n, T] int: place of the token in the order of factorisation;"
        " what is not predicted comes first"
    ),
    "tracks.previous": (
        "[n, T] int: of a target, the token that the decoder reads here,"
        " where it is not the one before"
    ),
    "tracks.real": "[n, T] bool: not padding, where padding is not simply what follows `length`",
    # and any further track that the token directory holds (data.tags=[sense] gives tracks.sense),
    # or that a part introduces
    # targets: [n, T] labels with IGNORE in Rows, a `Targets` in Batch
    "targets.mlm": "[n, T] id of the token that the noise hid, IGNORE elsewhere",
    "targets.clm": "[n, T] id of the next token of the same document, IGNORE where there is none",
    "targets.backward": (
        "[n, T] id of the token before:"
        " of `reverse` where there is one, else of `text`; IGNORE where none is"
    ),
    "targets.plm": (
        "[n, T] id of a token that is predicted in the order of factorisation, IGNORE elsewhere"
    ),
    "targets.seq2seq": (
        "[n, T] id of the token of the target that is written here, IGNORE at padding"
    ),
    "targets.shuffle": (
        "[n, T] id of the token that stood here before tokens were shuffled, IGNORE elsewhere"
    ),
    "targets.sbo": (
        "[n, T] id of a hidden token that is asked of the neighbours of its span, IGNORE elsewhere"
    ),
    "targets.replaced": (
        "[n, T] 1 where the noise put another token,"
        " 0 where it did not, IGNORE at specials and padding"
    ),
    "targets.tag": "[n, T] tag of the word that begins here, IGNORE elsewhere",
    # labels: one for each anchor
    "labels.pair": (
        "[N] int: relation of two segments (0 = B follows A; the format says what 1 and 2 are)"
    ),
    "labels.class": "[N] int: class of the example",
    "labels.score": "[N] float: score of the example (regression)",
    "labels.choice": (
        "[N] int: number of the right choice, at the first row of an example; IGNORE at its others"
    ),
    "labels.span": "[N, 2] int: first and last token of the answer in the row",
    # values: one for each row
    "values.example": "[n] int: number of the example a fine-tuning row comes from",
    "values.prefix": (
        "[n] int: tokens at the row's start that see each other whatever the pattern says of the"
        " rest"
    ),
    "values.continues": (
        "[n] bool: the row goes on where the same row of the batch before it ended (state is kept)"
    ),
    "values.reversed": "[n] bool: the row's text runs from its end to its beginning",
    "values.group": (
        "[n] int: rows with the same number, neighbours, make one example (choices;"
        " both orders of a pair)"
    ),
    "values.cut": "[n] int: tokens of the example that max_length left no room for",
    # spans: [m, 3+] = row, start, length, ...; those of the token directory (data.spans=[entity])
    # have an id as fourth column
    "spans.entity": "[m, 4] int: row, start, length, id of a mention",
    "spans.phrase": "[m, 4] int: row, start, length, id of a phrase",
    "spans.chosen": "[m, 3] int: row, start, length of each run of tokens that the noise chose",
    # spans of fine-tuning rows, read when predictions are made
    "spans.word": "[m, 4] int: row, first piece, pieces, number of the word in its sentence",
    "spans.window": (
        "[n, 4] int: row, place of the first passage token,"
        " passage tokens, their first in the whole passage"
    ),
}


def glossary(parts: Iterable[object] = ()) -> dict[str, str]:
    """`FIELDS`, and the fields that `parts` introduce: each says so itself, `fields =
    {"tracks.tone": "[n, T] int: ..."}`.
    """
    found: dict[str, str] = {}
    for part in parts:
        found |= getattr(part, "fields", {})
    return found | FIELDS


def held_by_data(field: str) -> bool:
    """Whether a field may come from the token directory (spans, and tracks that `FIELDS` does
    not know).
    """
    group, _, _ = field.partition(".")
    return (group == "spans" and field != "spans.chosen") or (
        group == "tracks" and field not in FIELDS
    )


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

    def with_tracks(self, **tracks: Any) -> Seq:
        return replace(self, tracks={**self.tracks, **tracks})

    @property
    def real(self) -> Any:
        """[n, T] True where there is a token and not padding."""
        if "real" in self.tracks:
            return self.tracks["real"]
        if isinstance(self.ids, np.ndarray):
            return np.arange(self.ids.shape[1]) < self.length[:, None]
        import torch

        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.length[:, None]


@dataclass(frozen=True)
class Rows:
    """Training rows in numpy: what a format lays out and a noise function changes (always by
    returning a new `Rows`).
    """

    # [n] int64: global row number; with (seed, epoch) it fixes every random draw of the row
    key: np.ndarray
    seqs: Mapping[str, Seq]
    # name -> [n, T] labels with IGNORE
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    # [N, 2] = (row, position) of the tokens that stand for a whole (part of a) row
    anchors: np.ndarray | None = None
    # name -> [N, ...], one for each anchor
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    # name -> [m, 3+] = row, start, length, ...
    spans: Mapping[str, np.ndarray] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)  # name -> [n]
    source: str = "text"  # which data source the rows come from

    @property
    def input(self) -> str:
        """Name of the sequence that noise changes: `source` where there is one, else `text`."""
        return "source" if "source" in self.seqs else "text"

    def with_seq(self, name: str, seq: Seq) -> Rows:
        return replace(self, seqs={**self.seqs, name: seq})

    def with_targets(self, **targets: np.ndarray) -> Rows:
        return replace(self, targets={**self.targets, **targets})


@dataclass(frozen=True)
class Targets:
    """Predicted positions in fixed capacity P: spare slots hold index 0 and label IGNORE, so
    shapes never change.
    """

    index: Tensor  # [P] int64 into the flattened (row, position)
    ids: Tensor  # [P] int64 label, IGNORE in spare slots
    count: int  # real ones among the P

    def written(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """`ids [B, T]` with `tokens [P]` at these places; spare slots, which all point at place
        0, write nothing.
        """
        size = ids.numel()
        flat = ids.new_empty(size + 1)  # one place more, for the spare slots
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

    @property
    def text(self) -> Seq:
        return self.seqs["text"]

    @property
    def input(self) -> str:
        """Name of the sequence that a network is shown: `source` where there is one, else
        `text`.
        """
        return "source" if "source" in self.seqs else "text"

    def require(self, name: str) -> Any:
        """The field called `name` as in FIELDS ("text", "tracks.segment", "targets.mlm");
        ConfigError where it is absent.

        Tracks are those of the input; "target.tracks.segment" is a track of another sequence.
        """
        group, _, key = name.rpartition(".")
        owner, _, kind = group.rpartition(".")
        if not group:
            place = self.seqs
        elif kind == "tracks":
            seq = self.seqs.get(owner or self.input)
            place = seq.tracks if seq else {}
        else:
            place = getattr(self, group)
        if key not in place:
            raise ConfigError(
                "format/noise",
                name,
                f"no part of this run gives '{name}' ({FIELDS.get(name, 'unknown field')})",
            )
        return place[key]

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device` (asynchronously from pinned memory)."""
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
        )


def _mover(device: torch.device | str) -> Any:
    return lambda x: x.to(device, non_blocking=True)
