"""Files of bracketed trees, as of the Penn Treebank (.mrg)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.phrase_tree import (
    CHAIN,
    PARTS,
    BracketError,
    Branch,
    Phrase,
    clean,
    linearise,
    parse_trees,
    words_of,
)
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines

SHOWN = "(S (NP (NNP Anna)) (VP (VBZ sleeps))), over one line or several"
SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}
# how the Penn Treebank spells characters that mean something in its files
SPELLED = {
    **{f"-{side}{kind}B-": sign for kind, signs in (("R", "()"), ("S", "[]"), ("C", "{}"))
       for side, sign in zip("LR", signs, strict=True)},
    "``": '"', "''": '"',
}  # fmt: skip


@part_of("reader")
class BracketFiles(SplitFiles):
    """Trees of brackets: an example has the words of one, as they are written elsewhere, their
    parts of speech, and its tree.

    Traces, functions behind labels and the root are taken out. A folder with folders 02 to 24, as
    the sections of the Wall Street Journal lie, is split as usual: 02-21, 22, 23.
    """

    def has(self, path: files.Where, split: str, columns: Columns | None = None) -> bool:
        return bool(_find_sections(path, split)) or super().has(path, split)

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        found = _find_sections(path, split)
        if not found:
            return super().read(path, split, columns)
        trees = (pair for file in found for pair in _read_trees(file))
        return _make_examples(trees, found[0])

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        return _make_examples(_read_trees(file), file)


def _find_sections(path: files.Where, split: str) -> list[Path]:
    """The .mrg files of the sections of a split, in their order; none where they do not lie so."""
    if not isinstance(path, str | Path) or not Path(path).expanduser().is_dir():
        return []
    folders = [Path(path).expanduser() / f"{number:02}" for number in SECTIONS.get(split, ())]
    return [file for folder in folders for file in sorted(folder.glob("*.mrg"))]


def _read_trees(file: Path) -> Iterator[tuple[str, Branch]]:
    """(file:line, the tree) of every tree with words."""
    try:
        for line, tree in parse_trees(need_lines(file)):
            _check_labels(tree, file, line)
            if (kept := clean(tree)) is not None:
                yield f"{file}:{line}", kept
    except BracketError as error:
        raise DataError(str(error), file=file, line=error.line, fix=SHOWN) from None


def _check_labels(tree: Branch, file: Path, line: int) -> None:
    if not isinstance(tree, Phrase):
        return
    for sign in (CHAIN, PARTS):
        if sign in tree.label:
            what = f"the label '{tree.label[:40]}' has a {sign}, which joins labels here"
            raise DataError(what, file=file, line=line, fix="another name for it")
    for child in tree.children:
        _check_labels(child, file, line)


def _make_examples(trees: Iterator[tuple[str, Branch]], file: Path) -> list[Example]:
    examples = []
    for number, (place, tree) in enumerate(trees):
        words = words_of(tree)
        fields = {"words": [spell_plainly(each.word) for each in words], "tree": str(tree)}
        examples.append(Example(str(number), fields, linearise(tree), place))
    if not examples:
        raise DataError("no trees", file=file, fix=SHOWN)
    return examples


def spell_plainly(word: str) -> str:
    """A word of the Penn Treebank as it is written elsewhere: "(" for -LRB-, "/" for \\\\/."""
    return SPELLED.get(word, word).replace("\\/", "/").replace("\\*", "*")
