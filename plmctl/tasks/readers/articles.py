"""Articles with their summaries, a file each, as CNN/DailyMail and XSum are published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any, ClassVar

from plmctl.core.errors import DataError, nearest
from plmctl.core.parts import part_of
from plmctl.storage.reading import read_json
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.pairs import Pairs
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines

HIGHLIGHT = "@highlight"
_MARK = re.compile(r"^\[SN\]([A-Z-]+)\[SN\]\s*$", re.MULTILINE)


@part_of("reader")
class Articles(Pairs):
    """A folder with one article in each file, at any depth, and lists of the splits; any other
    path is read as `Pairs` reads it.

    CNN/DailyMail (abisee/cnn-dailymail): `*.story`, paragraphs and then highlights, which are the
    summary, a line each; `url_lists/all_{train,val,test}.txt` have the addresses whose SHA-1 is the
    name of a file. XSum (EdinburghNLP/XSum): `*.summary`, the summary under
    `[SN]FIRST-SENTENCE[SN]`; the names of files by split in one `*SPLIT*.json`.
    `lenient`: articles that are absent or empty are passed over and counted.
    """

    leaves = "no article or no summary"

    also: ClassVar[Sequence[tuple[str, str]]] = (
        ("article", "highlights"),  # CNN/DailyMail as a table
        ("document", "summary"),  # XSum
        ("article.txt", "title.txt"),  # Gigaword
        ("article.filter.txt", "title.filter.txt"),
        ("src", "tgt"),  # UniLM's files
    )

    def has(self, path: Any, split: str, columns: Columns | None = None) -> bool:
        """Whether a list of that split exists, or a file as `Pairs` reads it."""
        lists = _lists(path)
        return (
            super().has(path, split, columns)
            if lists is None
            else self._find_list(lists, split) is not None
        )

    def read(self, path: Any, split: str, columns: Columns) -> list[Example]:
        lists = _lists(path)
        if lists is None:
            _refuse_records(path)
            return super().read(path, split, columns)
        listing = self._find_list(lists, split)
        if listing is None:
            raise DataError(
                f"no list of the split '{split}'; there is {', '.join(lists)}", file=path
            )
        kind, names = _names(*listing)
        files_by_name = {file.stem: file for file in Path(str(path)).expanduser().rglob(f"*{kind}")}
        examples = []
        for name in names:
            paragraphs, target = (
                KINDS[kind](files.read_text(files_by_name[name]))
                if name in files_by_name
                else ([], "")
            )
            if paragraphs and target:
                source = self.join_paragraphs(paragraphs)
                examples.append(
                    Example(name, {"source": source}, (target,), str(files_by_name[name]))
                )
            elif self.lenient:
                self.skipped[str(listing[0])] = self.skipped.get(str(listing[0]), 0) + 1
            else:
                what = (
                    "has no article or no summary"
                    if name in files_by_name
                    else f"there is no such file{nearest(name, files_by_name)}"
                )
                fix = "pass such articles over: task.reader.lenient=true"
                raise DataError(f"{name}{kind}: {what}", file=listing[0], fix=fix)
        if not examples:
            raise DataError("no article of this list is there", file=listing[0])
        return examples

    def join_paragraphs(self, texts: Sequence[str]) -> str:
        """The source that the paragraphs of an article are."""
        return " ".join(texts)

    def _find_list(
        self, lists: Mapping[str, tuple[Path, str]], split: str
    ) -> tuple[Path, str] | None:
        """(file, key in it) of the list of `split`."""
        return next((lists[name] for name in self.splits.get(split, []) if name in lists), None)


def _refuse_records(path: Any) -> None:
    """DataError for TensorFlow's records of CNN/DailyMail (`finished_files`)."""
    place = Path(path).expanduser() if isinstance(path, str | Path) else None
    if place is not None and place.is_dir():
        kinds = {file.suffix for file in place.iterdir()}
        place = next(place.glob("*.bin"), None) if kinds <= {".bin", ""} else None
    if place is not None and place.suffix == ".bin":
        fix = "the folder with *.story and url_lists, of which they were made"
        raise DataError("records of TensorFlow are not read", file=place, fix=fix)


def _lists(path: Any) -> dict[str, tuple[Path, str]] | None:
    """{split: (the file that lists it, its key there)}, or None for any other layout."""
    folder = Path(path).expanduser() if isinstance(path, str | Path) else None
    if folder is None or not folder.is_dir():
        return None
    lists = {
        file.stem.removeprefix("all_"): (file, "")
        for file in sorted(folder.glob("url_lists/all_*.txt"))
    }
    for file in sorted(folder.glob("*SPLIT*.json")):
        lists |= {split: (file, split) for split in _ids(file)}
    return lists or None


def _names(file: Path, key: str) -> tuple[str, list[str]]:
    """(suffix of the files, their names without it) of a list."""
    if key:
        return ".summary", _ids(file)[key]
    return ".story", [
        sha1(line.strip().encode()).hexdigest() for _, line in need_lines(file) if line.strip()
    ]


def _ids(file: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = read_json(file, dict[str, list[str]])
    return found


def _story(text: str) -> tuple[list[str], str]:
    article, *highlights = text.split(HIGHLIGHT)
    return _paragraphs(article), "\n".join(filter(None, map(_join, highlights)))


def _summary(text: str) -> tuple[list[str], str]:
    _, *parts = _MARK.split(text)
    known = dict(zip(parts[::2], parts[1::2], strict=True))
    return _paragraphs(known.get("RESTBODY", "")), _join(known.get("FIRST-SENTENCE", ""))


def _paragraphs(text: str) -> list[str]:
    return [joined for line in text.split("\n") if (joined := _join(line))]


def _join(text: str) -> str:
    return " ".join(text.split())


KINDS = {".story": _story, ".summary": _summary}
