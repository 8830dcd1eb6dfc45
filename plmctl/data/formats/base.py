"""The interface of row formats: a plan that is made once, then any row in O(1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import base_of
from plmctl.core.problems import PartContext
from plmctl.data.formats.carried import Wanted

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@dataclass(frozen=True)
class Plan:
    """Where every row of one epoch begins and ends; arrays over rows, so that any row is found
    in O(1).
    """

    rows: int
    arrays: dict[str, np.ndarray]
    # tokens that were cut, dropped or padded: shown to the user
    report: dict[str, Any] = field(default_factory=dict)
    width: int = 0  # tokens of a row as `rows` lays it out, padding included


def count_lost(plan: Plan) -> int:
    """The tokens of the text that are in no row of a plan.

    If a plan reads tokens more than once (random pairs), other rows may hold a token that it cut.
    Then only the tokens that no piece holds are counted.
    """
    if not plan.report.get("repeated"):
        return sum(int(plan.report.get(name, 0)) for name in ("cut", "dropped"))
    order = np.argsort(plan.arrays["start"], kind="stable")
    start = np.asarray(plan.arrays["start"])[order]
    end = np.maximum.accumulate(start + np.asarray(plan.arrays["size"])[order])
    before = np.concatenate([[0], end[:-1]])  # the tokens below are counted already
    held = np.maximum(0, end - np.maximum(start, before)).sum()
    return int(plan.report["tokens"]) - int(held)


@base_of("format")
class Format:
    """Turns tokens into rows of `max_length`. `provides` names fields; `fields` are the fields that
    it introduces.

    `plan` is a function of (shards, seed, epoch) only; `rows` of (plan, index) only: batch size,
    rank and worker never matter.
    """

    # tracks that every format can add to the tokens of any text
    carried = frozenset({"tracks.word_start", "tracks.sentence"})
    provides: frozenset[str] = frozenset({"text"})
    fields: Mapping[str, Field] = {}
    texts_in_row: ClassVar[int] = 1  # equal parts of a row, each with positions of its own
    max_length: int
    target_length: int = 0  # tokens of the target sequence, if the format has one
    parallel: bool = False  # reads parallel text and no other
    ordered: bool = False  # rows are read in the order of the plan (streams), not in a random one
    # in an ordered format, the rows of a batch, each of which continues in the next batch
    streams: int | None = None
    anchors_last: bool = False  # the last token of a row stands for it, not the first
    # label -> the meaning of its numbers, in words: {"pair": ("B follows A", ...)}
    meanings: Mapping[str, Sequence[str]] = {}
    # plans repeat after so many epochs (1: one plan for all; BERT's dupe_factor); None: never
    copies: int | None = None

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """Plan the rows of one epoch.

        Args:
            input_length: tokens that may be laid out in a row, at most `max_length`; noise needs
                the rest.
        """
        raise NotImplementedError(type(self).__name__)

    def problems(self, path: str, around: PartContext) -> Iterator[ConfigError]:
        """A format of parallel text over text of which nothing says that it is."""
        if self.parallel and not around.paired:
            fix = (
                "data.path=<lines> data.target_path=<their translations>,"
                " or data.fields=[source,target] of one .tsv or .jsonl"
            )
            yield ConfigError("data.target_path", None, "this format reads parallel text", fix=fix)

    @property
    def source_hash(self) -> str:
        """A hash of all facts that its plans use, except the text and its settings; "" if none."""
        return ""

    @property
    def last_segment(self) -> int:
        """The largest number in tracks.segment; 0 without such a track."""
        return int("tracks.segment" in self.provides)

    def check(self, shards: Shards, plan: Plan) -> None:
        """Raise DataError if `shards` cannot give what the format is for; called for the text that
        a run trains on.
        """

    def describe_left_out(self, shards: Shards, plan: Plan) -> str:
        """One line about what is in no row and why; "" if there is nothing to say."""
        return ""

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        """The rows `index`.

        Args:
            wanted: the tracks and spans that are read; a format leaves out others that cost time
                (None: all that exist).
        """
        raise NotImplementedError(type(self).__name__)

    def sequence_lengths(self, plan: Plan) -> np.ndarray | None:
        """[rows] tokens of the longest sequence of each row, before noise; None: the format fills
        its rows.
        """
        return None

    @classmethod
    def fills_rows(cls) -> bool:
        """Whether all its rows have the same length, so that `sequence_lengths` knows none."""
        return cls.sequence_lengths is Format.sequence_lengths

    def languages(self, shards: Shards) -> int:
        """The number of languages that its rows distinguish; every number in tracks.language is
        below it.
        """
        track = shards.tracks.get("language")
        return 1 if track is None or not len(track) else int(track.max()) + 1
