"""A model that reads token by token and gives the log-probabilities of the next token."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch, Seq
from plmctl.models.base import Model
from plmctl.models.capabilities import Remembering, make_cache
from plmctl.nn.cache import Cache

Tracks = dict[str, Tensor]


class Reading:
    """Rows of a model that reads token by token; `head` predicts the next token at the last one.

    `prompt` is read first: for a decoder the text so far, for an encoder-decoder the start token;
    `batch` holds the source then. Prompts of different lengths are padded at the left (`pad_left`).
    `room`: the tokens of prompt and text, for which the cache has room from the start.
    """

    def __init__(
        self,
        *,
        model: Model,
        head: nn.Module,
        batch: Batch,
        prompt: Seq,
        size: int | None = None,
        segment: int | None = None,
        mask: int | None = None,
        room: int = 0,
    ) -> None:
        self.model, self.head, self.size, self.segment, self.mask = model, head, size, segment, mask
        self.cache = make_cache(model.backbone, batch)
        if isinstance(self.cache, Cache):
            self.cache.reserve(room)
        self.prompt, self.shared = prompt, prompt.ids.shape[1]
        # tracks of the last token, for the tokens after it
        self.tracks = {name: track[:, -1:] for name, track in prompt.tracks.items()}
        self.key = torch.arange(len(prompt.ids), device=prompt.ids.device)
        self.states = torch.zeros(0)  # [B, T, W] of the tokens that were read last
        self.real = prompt.real  # [B, T] which of them are no padding

    def begin(self) -> Tensor:
        """[B, V] logits of the first token."""
        return self._predict(self.prompt)

    def advance(self, tokens: Tensor) -> Tensor:
        """[B, V] logits after every row has read its token [B]."""
        return self._predict(self._go_on(tokens[:, None]))

    def read(self, ids: Tensor) -> Tensor:
        """[B, T, V] logits after each of the tokens [B, T] that every row reads."""
        return self._find_logits(self._run(self._go_on(ids)))

    def forget(self, tokens: int) -> None:
        """Undo the last `tokens`, but for those of the prompt."""
        self.cache.forget(tokens)
        if "position" in self.tracks:
            self.tracks = {**self.tracks, "position": self.tracks["position"] - tokens}

    def select(self, rows: Tensor, *, same_prompt: bool = False) -> None:
        """Continue with these rows, in this order."""
        self.cache.select(
            rows, same_source=same_prompt, shared=self.shared if same_prompt else None
        )
        if not same_prompt:
            self.key = torch.arange(len(rows), device=rows.device)
            self.tracks = {name: track[rows] for name, track in self.tracks.items()}

    @property
    def joins(self) -> bool:
        """Whether rows can come later: the model keeps nothing but keys and values of tokens."""
        backbone = self.model.backbone
        other = isinstance(backbone, Remembering) or "query" in backbone.streams
        tracked = {"real", "position"} <= self.prompt.tracks.keys()
        return tracked and self.mask is None and not other and self.cache.joins

    def join(self, other: Reading) -> None:
        """Append the rows of another one of this model, which `joins`, too."""
        self.cache.join(other.cache)
        self.tracks = {
            name: torch.cat([track, other.tracks[name]]) for name, track in self.tracks.items()
        }
        self.key = torch.arange(len(self.key) + len(other.key), device=self.key.device)

    def leave(self, rows: Tensor) -> None:
        """Continue with these rows, and without the padding that only others needed."""
        self.select(rows)
        self.cache.trim()

    def _predict(self, seq: Seq) -> Tensor:
        """Predict at the last token of `seq`; with `mask`, at a mask after it, which is not
        cached.
        """
        real = seq.real
        if self.mask is not None:
            tracks = self._next({name: track[:, -1:] for name, track in seq.tracks.items()})
            mask = torch.full_like(seq.ids[:, :1], self.mask)
            together = {
                name: torch.cat([track, tracks[name]], 1) for name, track in seq.tracks.items()
            }
            seq = replace(
                seq, ids=torch.cat([seq.ids, mask], 1), length=seq.length + 1, tracks=together
            )
        states = self._run(seq)
        self.states, self.real = states[:, : real.shape[1]], real
        if self.mask is not None:
            self.cache.forget(1)
        return self._find_logits(states[:, -1])

    def _go_on(self, ids: Tensor) -> Seq:
        """The next tokens [B, T] of each row, with their tracks."""
        tracks = []
        for _ in range(ids.shape[1]):
            self.tracks = self._next(self.tracks)
            tracks.append(self.tracks)
        joined = {name: torch.cat([own[name] for own in tracks], 1) for name in self.tracks}
        length = torch.full_like(ids[:, 0], ids.shape[1])
        return Seq(ids, length, joined, full=self.prompt.full)

    def _run(self, seq: Seq) -> Tensor:
        """[B, T, W] the states of new tokens."""
        return self.model(Batch(self.key, {self.model.backbone.writes: seq}), self.cache).last

    def _find_logits(self, states: Tensor) -> Tensor:
        """[..., V] logits of the next token, by states [..., W]."""
        logits: Tensor = self.head(states)
        return logits

    def _next(self, tracks: Tracks) -> Tracks:
        """The tracks of the token after one with `tracks`."""
        moved = {name: track + 1 if name == "position" else track for name, track in tracks.items()}
        if self.segment is not None and "segment" in moved:
            moved["segment"] = torch.full_like(moved["segment"], self.segment)
        return moved


def pad_left(seq: Seq, *, pad: int, always: bool = False) -> Seq:
    """The rows with their padding at the left, if there is any, or `always`: the tracks `real` and
    `position` say where the text is.
    """
    real = seq.real
    length = real.sum(1)
    if not always and bool((length == seq.ids.shape[1]).all()):
        kept = {name: track for name, track in seq.tracks.items() if name != "real"}
        return replace(seq, tracks=kept, full=True)
    longest = int(length.max())
    # [B, T'], below 0: padding
    positions = torch.arange(longest, device=length.device) - (longest - length)[:, None]
    # the n-th real token of each row
    source = torch.argsort(~real, dim=1, stable=True).gather(1, positions.clamp(min=0))
    real = positions >= 0
    tracks = {name: track.gather(1, source) for name, track in seq.tracks.items() if name != "real"}
    tracks = {"position": positions.clamp(min=0)} | tracks | {"real": real}
    return Seq(seq.ids.gather(1, source).masked_fill(~real, pad), length, tracks)
