"""XNLI's files as examples: inference in fifteen languages, trained on MNLI or its translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import AbsentData, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.tabular import cells_of

# the columns of XNLI, of MNLI's training set in its translations, and of MNLI as GLUE has it
LAYOUTS: tuple[dict[str, str], ...] = (
    {"text": "sentence1", "text2": "sentence2", "label": "gold_label", "slice": "language"},
    {"text": "premise", "text2": "hypo", "label": "label"},
    {"text": "sentence1", "text2": "sentence2", "label": "gold_label"},
)
SAME = {"contradictory": "contradiction"}  # the label in the translations, and its English name
PARTS = ("", "*/", "*/*/")  # how deep files may lie


@part_of("reader")
class XnliFiles(Table):
    """The tables of XNLI-1.0 and XNLI-MT-1.0, or of MNLI, in `task.path` or up to two folders below
    it (Conneau et al., 2018, arXiv:1809.05053). The language of an example is its slice.

    Args:
        train: the languages of the training set: `multinli.train.<language>.tsv`, or of English
            MNLI's `train.tsv`.
        languages: The languages of dev and test that are read; None: all.
    """

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        folder: str = "",
        lenient: bool = False,
        train: Sequence[str] = ("en",),
        languages: Sequence[str] | None = None,
    ) -> None:
        super().__init__(splits=splits, folder=folder, header=True, lenient=lenient)
        self.train, self.languages = tuple(train), languages

    def has(self, path: files.Where, split: str, columns: Columns | None = None) -> bool:
        if not _is_folder(path):
            return super().has(path, split)
        names = self.train if split == "train" else ("",)
        return all(self._find(path, split, language) for language in names)

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        labelled = split.startswith(("train", "dev"))
        if not _is_folder(path):
            examples = self.read_file(self.need(path, split), columns, labelled=labelled)
        elif split == "train":
            examples = [
                replace(example, id=f"{language}-{example.id}", slices=(language,))
                for language in self.train
                for example in self.read_file(self._need(path, split, language), columns)
            ]
        else:
            examples = self.read_file(self._need(path, split), columns, labelled=labelled)
        return examples if split == "train" else self._choose(examples)

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        names = next(iter(cells_of(file)))[1]
        layout = next((each for each in LAYOUTS if set(each.values()) <= set(names)), None)
        if layout is None:
            wanted = "; or ".join(", ".join(each.values()) for each in LAYOUTS)
            raise DataError(
                f"found the columns {', '.join(names)}", file=file, line=1, fix=f"needed: {wanted}"
            )
        examples = super().read_file(file, layout, header=True, labelled=labelled)
        return [replace(e, label=SAME.get(e.label, e.label)) for e in examples]

    def _choose(self, examples: list[Example]) -> list[Example]:
        """The examples of the chosen languages; DataError for a language without examples."""
        if self.languages is None:
            return examples
        there = {name for example in examples for name in example.slices}
        for language in self.languages:
            if language not in there:
                known = ", ".join(sorted(there))
                raise DataError(
                    f"no examples in '{language}'{nearest(language, there)}; there are {known}",
                    file=examples[0].place,
                    fix=f"task.reader.languages=[{','.join(sorted(there))}]",
                )
        return [example for example in examples if set(example.slices) & set(self.languages)]

    def _patterns(self, split: str, language: str) -> list[str]:
        """Patterns of the names of files, in order of preference; MNLI's own is English."""
        if split != "train":
            return list(self.splits.get(split, ()))
        own = ["MNLI/train.tsv", "multinli_1.0_train.txt", "train.tsv"] * (language == "en")
        return [f"multinli.train.{language}.tsv", *own]

    def _find(self, path: Any, split: str, language: str = "") -> Path | None:
        place = Path(path).expanduser()
        found = (
            file
            for pattern in self._patterns(split, language)
            for part in PARTS
            for end in ("", ".gz")
            for file in sorted(place.glob(f"{part}{pattern}{end}"))
        )
        return next(found, None)

    def _need(self, path: Any, split: str, language: str = "") -> Path:
        file = self._find(path, split, language)
        if file is None:
            looked = ", ".join(self._patterns(split, language))
            what = f" in '{language}'" if language else ""
            columns, other = files.propose_table(Path(path), split)
            raise AbsentData(
                f"no file for the split '{split}'{what}: looked for {looked}{columns}",
                file=path,
                fix=other or "the folder with XNLI-1.0 and XNLI-MT-1.0, or with XNLI-1.0 and MNLI",
            )
        return file


def _is_folder(path: Any) -> bool:
    return isinstance(path, str | Path) and Path(path).expanduser().is_dir()
