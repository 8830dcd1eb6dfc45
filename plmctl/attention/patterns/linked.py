"""Tokens that a given structure links see each other: dependencies, relations, table cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from torch import Tensor

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of


@part_of("pattern")
class Linked(Pattern):
    """`tag[b, q] = tag[b, k] > 0` for some of the `tags`, or q = k. The tokens of a row with the
    same number are linked, and a token sees itself.

    The data mark the links (`data.tags=[edge]`): an edge between two words is one number at both.
    A word with several edges needs as many tags. Tags that the data do not have link nothing.

    Args:
        tags: names of tracks.
    """

    static = False
    fields: Mapping[str, Field] = {
        "tracks.edge": Field(
            "[n, T]",
            "int",
            "number of the link of a token; equal ones are linked, 0: none",
            stored=True,
        )
    }

    def __init__(self, *, tags: Sequence[str] = ("edge",)) -> None:
        if not tags:
            raise ConfigError("tags", [], "names of tags in the data, such as [edge]")
        self.tags = tuple(tags)
        self.uses = self.links = frozenset(f"tracks.{tag}" for tag in tags)

    def predicate(self, seq: Seq) -> MaskMod:
        tracks = [seq.tracks[tag] for tag in self.tags if tag in seq.tracks]

        def linked(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            same = [(track[b, q] == track[b, k]) & (track[b, q] > 0) for track in tracks]
            return reduce(or_, same, (q == k) & (b >= 0))

        return linked
