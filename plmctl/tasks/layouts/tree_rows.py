"""One row for a text or a pair, with knowledge about its words as branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.knowledge.known import describe_known
from plmctl.knowledge.lexicon import TripleLexicon
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.base import RowSettings
from plmctl.tasks.layouts.places import find_tokens
from plmctl.tasks.layouts.texts import TextRows
from plmctl.tasks.layouts.trees import Branches, TreeRow, add_tracks, grow
from plmctl.tasks.record import Example, Examples

TREE = {"_target_": "plmctl.attention.patterns.tree.Tree"}


@part_of("layout")
class TreeRows(TextRows):
    """One row for a sentence tree (Liu et al., 2020, arXiv:1909.07606, sec. 3.2 to 3.4).

    Args:
        lexicon: The lexicon of knowledge about words; None: nothing, the control.
        visible: Whether a branch is seen by its word alone; otherwise by all tokens.
        soft_positions: Whether a branch goes on behind its word, and the sentence as if no branch
            stood there; otherwise all tokens are counted.
        branch_segment: Whether branches are of segment 1.
    """

    fields: Mapping[str, Field] = {
        "tracks.word": Field(
            "[n, T]",
            "int",
            "number of the branching word that a token or its branch belongs to, from 1; else 0",
        ),
        "tracks.branch": Field("[n, T]", "int", "branch of a token, from 1; 0: of the sentence"),
    }

    def __init__(
        self,
        *,
        lexicon: TripleLexicon | None = None,
        visible: bool = True,
        soft_positions: bool = True,
        branch_segment: bool = True,
    ) -> None:
        super().__init__()
        self.lexicon, self.visible = lexicon, visible
        self.soft, self.segment = soft_positions, branch_segment

    def requires(self, rows: RowSettings) -> ModelNeeds:
        if rows.pooling == "last":  # also of a decoder that reads an encoder's states
            why = "branches stand between the words of a text, and its pattern hides them"
            raise ConfigError(
                "task", rows.task, f"for an encoder: {why}", fix="task=classification"
            )
        if rows.transform.own_tokens or rows.transform.language_model:
            raise ConfigError(
                "task.transform", ..., "none: trees have no order", fix="leave it out"
            )
        return ModelNeeds(pattern=TREE if self.visible and self.lexicon is not None else None)

    def describe_known(self, examples: Examples, path: Any) -> list[str]:
        if self.lexicon is None:
            return []
        texts = [text for example in examples for text in _list_texts(example)]
        known = sum(bool(self.lexicon.find(text)) for text in texts)
        what, file = "texts of train have a word of the lexicon", self.lexicon.path
        fix = "triples in the language of the texts, or task.lexicon=null"
        return [describe_known(known, len(texts), what, file=file, fix=fix)]

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        trees = [self._grow(example, tokenizer, rows) for example in examples]
        made = encode.pad([tree.row for tree in trees], tokenizer.vocab, example=range(len(trees)))
        made = encode.mark_anchors(made)
        if self.lexicon is None:
            return made
        return add_tracks(made, trees, soft=self.soft, segment=self.segment)

    def _grow(self, example: Example, tokenizer: Any, rows: RowSettings) -> TreeRow:
        texts = _list_texts(example)
        read = [tokenizer.encode_offsets(text) for text in texts]
        first, second = read[0][0], read[1][0] if len(read) > 1 else None
        row = encode.lay_out(
            first, second, tokenizer.vocab, max_length=rows.max_length, pooling=rows.pooling
        )
        words: list[Branches] = []
        begins = [row.a_start, row.b_start]
        for text, (ids, offsets), begin in zip(texts, read, begins, strict=False):
            assert begin is not None
            kept = _count_kept(row, ids, begin)
            words += [
                Branches(begin + a, begin + b, branches)
                for a, b, branches in self._look_up(text, offsets, tokenizer)
                if b < kept
            ]
        return grow(row, words, max_length=rows.max_length)

    def _look_up(
        self, text: str, offsets: Sequence[tuple[int, int]], tokenizer: Any
    ) -> list[tuple[int, int, list[list[int]]]]:
        """(first token, last token, tokens of the branches) of each known word of a text."""
        if self.lexicon is None:
            return []
        found, last = [], -1
        for word in self.lexicon.find(text):
            for a, b in find_tokens(offsets, [(word.start, word.end)]):
                if a > last:  # a token has one word
                    found.append((a, b, [list(tokenizer.encode(own)) for own in word.texts]))
                    last = b
        return found


def _list_texts(example: Example) -> list[str]:
    return [str(example.fields[name]) for name in ("text", "text2") if name in example.fields]


def _count_kept(row: encode.Row, ids: Sequence[int], begin: int) -> int:
    """How many of the tokens of a text the row has."""
    kept = 0
    while kept < len(ids) and begin + kept < len(row.ids) and row.ids[begin + kept] == ids[kept]:
        kept += 1
    return kept
