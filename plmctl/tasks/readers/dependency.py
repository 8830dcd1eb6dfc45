"""Dependency trees of sentences, as CoNLL-U has them (Nivre et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.conllu import NAMES, NONE, WORD, ConlluLine, read_words, require_sentences
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example


@part_of("reader")
class DependencyTrees(SplitFiles):
    """Sentences of CoNLL-U as trees: the label is the head of each word, 0 for the root, its
    relation, and its part of speech.

    `subtypes`: relations with their part behind a colon (nsubj:pass), or without.
    """

    bare_test = True

    def __init__(self, *, splits: Mapping[str, Sequence[str]], subtypes: bool = True) -> None:
        super().__init__(splits=splits)
        self.subtypes = subtypes

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        examples: list[Example] = []
        for words in read_words(file):
            fields = {name: [cells[at] for _, cells in words] for at, name in enumerate(NAMES)}
            tree = None
            if labelled or NONE not in fields["head"]:
                heads = [_read_head(line, len(words), file) for line in words]
                _check_tree(heads, words[0].number, file)
                relations = fields["deprel"]
                if not self.subtypes:
                    relations = [relation.partition(":")[0] for relation in relations]
                tree = {"heads": heads, "relations": relations, "upos": fields["upos"]}
            name, place = str(len(examples)), f"{file}:{words[0].number}"
            own = {"words": fields["form"]}
            examples.append(Example(name, own, tree, place))
        return require_sentences(examples, file)


def _read_head(line: ConlluLine, count: int, file: Path) -> int:
    head = line.cells[6]
    if not WORD.fullmatch(head) or int(head) > count or head == line.cells[0]:
        problem = f"the head of word {line.cells[0]} is {head}"
        fix = f"0 for the root, or another word from 1 to {count}"
        raise DataError(problem, file=file, line=line.number, fix=fix)
    return int(head)


def _check_tree(heads: Sequence[int], line: int, file: Path) -> None:
    """DataError where a word does not lead to the root."""
    for start in range(1, len(heads) + 1):
        word, steps = start, 0
        while word and steps <= len(heads):
            word, steps = heads[word - 1], steps + 1
        if word:
            problem = f"the heads of word {start} run in a circle"
            fix = "correct column 7: every word leads to the root, 0"
            raise DataError(problem, file=file, line=line, fix=fix)
