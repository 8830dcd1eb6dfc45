"""Branches of a sentence tree: what is known of a word is seen by that word alone."""

from __future__ import annotations

from plmctl.attention.patterns.base import Full, MaskMod, Pattern
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class Tree(Pattern):
    """`branch[q] = branch[k]  or  word[q] = word[k] > 0 and (branch[q] = 0 or branch[k] = 0)`. The
    tokens of the sentence see each other, and so do those of a branch; a branch and the word that
    it hangs on see each other (Liu et al., 2020, arXiv:1909.07606, eq. 3).

    Branches are numbered from 1, 0 is the sentence. Without these tracks everything is seen.
    """

    uses = frozenset({"tracks.branch", "tracks.word"})
    static = False

    def simplify(self, seq: Seq) -> Pattern:
        return self if "branch" in seq.tracks else Full()

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.everything(),), exact=segment is not None)

    def predicate(self, seq: Seq) -> MaskMod:
        branch, word = seq.tracks["branch"], seq.tracks["word"]
        return lambda b, h, q, k: (
            (branch[b, q] == branch[b, k])
            | (
                (word[b, q] == word[b, k])
                & (word[b, q] > 0)
                & ((branch[b, q] == 0) | (branch[b, k] == 0))
            )
        )

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self
