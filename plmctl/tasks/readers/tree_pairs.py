"""Sentences with their trees as text, from files of brackets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.tasks.phrase_tree import read_bracketed
from plmctl.tasks.readers.brackets import BracketFiles
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.pairs import Pairs
from plmctl.tasks.record import Example
from plmctl.tasks.tree_text import write_tree


@part_of("reader")
class TreePairs(Pairs):
    """Files of brackets, as `BracketFiles` reads them: the source is the sentence, the target its
    tree as text.
    """

    def __init__(self, *, splits: Mapping[str, Sequence[str]], lenient: bool = False) -> None:
        if lenient:
            allowed = "false: brackets have no columns, of which one could be too few"
            raise ConfigError("task.reader.lenient", True, allowed, fix="task.reader.lenient=false")
        super().__init__(splits=splits)
        self.trees = BracketFiles(splits=splits)

    def has(self, path: Any, split: str, columns: Columns | None = None) -> bool:
        return self.trees.has(path, split)

    def read(self, path: Any, split: str, columns: Columns) -> list[Example]:
        return [_as_pair(example) for example in self.trees.read(path, split, columns)]

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        return [_as_pair(example) for example in self.trees.read_file(file, columns)]


def _as_pair(example: Example) -> Example:
    tree = example.fields["tree"]
    fields = {"source": " ".join(example.fields["words"]), "tree": tree}
    return replace(example, fields=fields, label=(write_tree(read_bracketed(tree)),))
