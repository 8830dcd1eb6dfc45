"""Classification of texts with knowledge about their words (K-BERT; Liu et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from plmctl.core.parts import part_of
from plmctl.knowledge.lexicon import TripleLexicon
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts.tree_rows import TreeRows


@dataclass(frozen=True, kw_only=True)
class TreeSettings(ClassificationSettings):
    """Settings of classification with trees.

    Args:
        lexicon: The lexicon of knowledge about words; None: nothing, the control.
        visible: whether a branch is seen by its word alone; otherwise by all tokens.
        soft_positions: whether a branch goes on behind its word, and the sentence as if no branch
            stood there; otherwise all tokens are counted.
        branch_segment: whether branches are of segment 1.
    """

    lexicon: TripleLexicon | None = None
    visible: bool = True
    soft_positions: bool = True
    branch_segment: bool = True


@part_of("task")
class TreeClassification(Classification):
    """`Classification` of sentence trees. Facts of a lexicon about a word stand behind it as
    branches, which that word alone sees, with positions that go on behind it (Liu et al., 2020,
    arXiv:1909.07606, sec. 3.2 to 3.4).

    Branches that do not fit into a row are left out, the last ones first. Differs: the released
    code cuts the end of the row with them; subjects are found as the longest names, not by a
    segmenter.
    """

    fields = TreeRows.fields
    Settings = TreeSettings

    def lay_out(self, own: TreeSettings) -> TreeRows:
        return TreeRows(
            lexicon=own.lexicon,
            visible=own.visible,
            soft_positions=own.soft_positions,
            branch_segment=own.branch_segment,
        )
