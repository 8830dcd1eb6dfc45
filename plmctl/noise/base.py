"""The interface of noise: a function from Rows to Rows that returns the same bytes for the same
(seed, epoch, row).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field, fields_of
from plmctl.core.parts import base_of
from plmctl.core.ungiven import check_found, check_given
from plmctl.text.vocab import TokenLack, Vocab


@base_of("noise")
class Noise:
    """One published idea: the part of the input that is hidden, and the tokens that the model
    predicts. It runs in the loader and never uses a network.

    `reads`, `writes` and `removes` name fields ("tracks.word_start", "targets.mlm"); the contract
    check uses them. "input" is the sequence that noise changes, `rows.input`: `source` if there is
    one, else `text`. `changes`: it replaces or moves tokens of the input. `uses`: fields that it
    reads if a row has them. `fields`: the fields that it introduces. A subclass is one file with a
    keyword-only constructor of numbers and the `vocab`.
    """

    reads: frozenset[str] = frozenset({"input"})
    writes: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    changes: bool = True
    uses: frozenset[str] = frozenset()
    fields: Mapping[str, Field] = {}

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        """Return new rows with noise; every random number comes from `draws`. Each batch must have
        the fields in `writes`, and is checked for them.
        """
        raise NotImplementedError(type(self).__name__)

    def capacity(self, length: int) -> dict[str, int]:
        """For each target name, the largest number of labels in a row of `length` tokens."""
        return {}

    def input_length(self, length: int) -> int:
        """The number of tokens that the format must lay out so that the row after noise has
        `length` (smaller if the noise inserts tokens).
        """
        return length

    def columns(self, length: int) -> dict[str, int]:
        """The columns of the sequences that it makes of a row of `length`; empty if it makes
        none.
        """
        return {}


class Denoising(Noise):
    """Noise whose target is the complete clean sequence: `text` becomes `source`, which it changes,
    and `target`.
    """

    writes = frozenset({"source", "target"})
    removes = frozenset({"text"})

    def columns(self, length: int) -> dict[str, int]:
        return {"source": length, "target": length}


def find_mask(vocab: Vocab, noise: str) -> int:
    """The id of the mask token, which the `noise` of this name writes.

    Raises:
        ConfigError: if the tokenizer lacks it.
    """
    if vocab.mask is None:
        allowed = "a tokenizer with a mask token"
        raise TokenLack("noise", noise, allowed, fix="tokenizer=wordpiece")
    return vocab.mask


def split_source(rows: Rows) -> Rows:
    """Make a `source` to change and a clean `target` out of `text`; rows that have a `source` stay
    as they are.
    """
    if "source" in rows.seqs:
        return rows
    if rows.targets:
        targets = ", ".join(f"targets.{name}" for name in rows.targets)
        raise ConfigError(
            "noise",
            ...,
            "the target should be the clean text,"
            f" but an earlier noise has hidden some of it ({targets})",
            fix="put autoencode first: noise=[autoencode,...]",
        )
    seqs = {name: seq for name, seq in rows.seqs.items() if name != "text"}
    return replace(rows, seqs={**seqs, "source": rows.seqs["text"], "target": rows.seqs["text"]})


def add_noise(noise: Noise, rows: Rows, draws: Draws) -> Rows:
    """Rows of a task after its noise.

    Raises:
        ConfigError: They lack a field that it states.
    """
    check_found(noise, noise.reads - {"input"}, rows.names)
    noised = noise(rows, draws)
    check_given(noise, noise.writes, noised.names, said="writes", method="__call__")
    return noised


class Chain(Noise):
    """Several noise functions, applied in the order of the config list; each has its own random
    numbers, by its index.
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
        for index, noise in enumerate(self.noises):
            rows = noise(rows, draws.child(index))
            check_given(noise, noise.writes, rows.names, said="writes", method="__call__")
        return rows

    def capacity(self, length: int) -> dict[str, int]:
        total: dict[str, int] = {}
        for noise in self.noises:
            total |= {
                name: min(length, total.get(name, 0) + most)
                for name, most in noise.capacity(length).items()
            }
        return total

    def input_length(self, length: int) -> int:
        for noise in reversed(self.noises):
            length = noise.input_length(length)
        return length

    def columns(self, length: int) -> dict[str, int]:
        """Those of the first noise that makes a target; later ones keep the widths."""
        for noise in self.noises:
            if columns := noise.columns(length):
                return columns
        return {}
