"""What every noise function is: Rows in, Rows out, and the same bytes for the same (seed, epoch,
row).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field, fields_of
from plmctl.core.parts import base_of


@base_of("noise")
class Noise:
    """One published idea of what the input hides and what is asked; runs in the loader, never
    touches a network.

    `reads`, `writes` and `removes` name fields ("tracks.word_start", "targets.mlm"); the contract
    check uses them. "input" is the sequence that noise changes,
    `rows.input`: `source` where there is one, else `text`.
    `changes`: tokens of the input become others, or move. `uses`: fields that it reads where they
    are there. `fields`: those that it introduces.
    A subclass is one file, keyword-only constructor, built from numbers and the `vocab`.
    """

    reads: frozenset[str] = frozenset({"input"})
    writes: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    changes: bool = True
    uses: frozenset[str] = frozenset()
    fields: Mapping[str, Field] = {}

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        raise NotImplementedError(type(self).__name__)

    def capacity(self, length: int) -> dict[str, int]:
        """For each target name, the most labels that one row of `length` tokens can carry."""
        return {}

    def input_length(self, length: int) -> int:
        """How many tokens the format must lay out so that the noised row has `length`
        (insertions make this smaller).
        """
        return length

    def columns(self, length: int) -> dict[str, int]:
        """Columns of the sequences that it makes of a row of `length`; none where it changes
        only what is there.
        """
        return {}


class Denoising(Noise):
    """Noise whose target is the whole clean sequence: `text` becomes `source`, which it changes,
    and `target`.
    """

    writes = frozenset({"source", "target"})
    removes = frozenset({"text"})

    def columns(self, length: int) -> dict[str, int]:
        return {"source": length, "target": length}


def denoising(rows: Rows) -> Rows:
    """The rows with a `source` to change and a clean `target`: `text` is both; rows that have a
    `source` stay as they are.
    """
    if "source" in rows.seqs:
        return rows
    if rows.targets:
        asked = ", ".join(f"targets.{name}" for name in rows.targets)
        raise ConfigError(
            "noise",
            ...,
            "the clean text that should be the target is gone:"
            f" an earlier noise has hidden some of it ({asked})",
            fix="put autoencode first: noise=[autoencode,...]",
        )
    seqs = {name: seq for name, seq in rows.seqs.items() if name != "text"}
    return replace(rows, seqs={**seqs, "source": rows.seqs["text"], "target": rows.seqs["text"]})


class Chain(Noise):
    """Several noise functions, applied in the order of the config list; draws are kept apart by
    each one's place.
    """

    def __init__(self, noises: Sequence[Noise]) -> None:
        self.noises = list(noises)
        self.reads = self.writes = self.removes = frozenset()
        self.uses = frozenset().union(*(noise.uses for noise in self.noises))
        self.fields = {}
        for noise in self.noises:
            self.fields |= fields_of(noise)
            self.reads |= noise.reads - self.writes
            self.writes = (self.writes - noise.removes) | noise.writes
            self.removes = (self.removes - noise.writes) | noise.removes

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        for place, noise in enumerate(self.noises):
            rows = noise(rows, draws.child(place))
        return rows

    def capacity(self, length: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for noise in self.noises:
            found |= {
                name: min(length, found.get(name, 0) + most)
                for name, most in noise.capacity(length).items()
            }
        return found

    def input_length(self, length: int) -> int:
        for noise in reversed(self.noises):
            length = noise.input_length(length)
        return length

    def columns(self, length: int) -> dict[str, int]:
        """The first that makes a target of its own decides; later ones keep the widths."""
        for noise in self.noises:
            if found := noise.columns(length):
                return found
        return {}
