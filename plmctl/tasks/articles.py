"""Articles with their summaries, a file each, as CNN/DailyMail and XSum are published."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha1
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError, nearest
from plmctl.core.parts import part_of
from plmctl.storage.reading import read_json
from plmctl.tasks import files
from plmctl.tasks.base import Example
from plmctl.tasks.pairs import Columns, Pairs

HIGHLIGHT = "@highlight"
_MARK = re.compile(r"^\[SN\]([A-Z-]+)\[SN\]\s*$", re.MULTILINE)


@part_of("reader")
class Articles(Pairs):
    """A folder with an article in each file, wherever below it, and what says of which split each
    is; else as `Pairs`.

    CNN/DailyMail (abisee/cnn-dailymail): `*.story`, paragraphs and then highlights, which are the
    summary, a line each; `url_lists/all_{train,val,test}.txt` have the addresses whose SHA-1 is the
    name of a file. XSum (EdinburghNLP/XSum): `*.summary`, the summary under
    `[SN]FIRST-SENTENCE[SN]`; the names of files by split in one `*SPLIT*.json`.
    `lenient`: articles that are absent or empty are passed over and counted.
    """

    def has(self, path: Any, split: str, columns: Columns | None = None) -> bool:
        listed = _lists(path)
        return (
            super().has(path, split, columns)
            if listed is None
            else self._named(listed, split) is not None
        )

    def read(self, path: Any, split: str, columns: Columns) -> list[Example]:
        listed = _lists(path)
        if listed is None:
            return super().read(path, split, columns)
        named = self._named(listed, split)
        if named is None:
            raise DataError(
                f"no list of the split '{split}'; there is {', '.join(listed)}", file=path
            )
        kind, names = _names(*named)
        there = {file.stem: file for file in Path(str(path)).expanduser().rglob(f"*{kind}")}
        found = []
        for name in names:
            source, target = KINDS[kind](files.text(there[name])) if name in there else ("", "")
            if source and target:
                found.append(Example(name, {"source": source}, (target,), str(there[name])))
            elif self.lenient:
                self.skipped[str(named[0])] = self.skipped.get(str(named[0]), 0) + 1
            else:
                what = (
                    "has no article or no summary"
                    if name in there
                    else f"there is no such file{nearest(name, there)}"
                )
                fix = "pass such articles over: task.reader.lenient=true"
                raise DataError(f"{name}{kind}: {what}", file=named[0], fix=fix)
        if not found:
            raise DataError("no article of this list is there", file=named[0])
        return found

    def _named(self, listed: Mapping[str, tuple[Path, str]], split: str) -> tuple[Path, str] | None:
        """(file, key in it) of the list of `split`."""
        return next((listed[name] for name in self.splits.get(split, []) if name in listed), None)


def _lists(path: Any) -> dict[str, tuple[Path, str]] | None:
    """{split: (the file that lists it, its key there)}, or None for any other layout."""
    folder = Path(path).expanduser() if isinstance(path, str | Path) else None
    if folder is None or not folder.is_dir():
        return None
    listed = {
        file.stem.removeprefix("all_"): (file, "")
        for file in sorted(folder.glob("url_lists/all_*.txt"))
    }
    for file in sorted(folder.glob("*SPLIT*.json")):
        listed |= {split: (file, split) for split in _ids(file)}
    return listed or None


def _names(file: Path, key: str) -> tuple[str, list[str]]:
    """(suffix of the files, their names without it) of a list."""
    if key:
        return ".summary", _ids(file)[key]
    return ".story", [
        sha1(line.strip().encode()).hexdigest() for _, line in files.lines(file) if line.strip()
    ]


def _ids(file: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = read_json(file, dict[str, list[str]])
    return found


def _story(text: str) -> tuple[str, str]:
    article, *highlights = text.split(HIGHLIGHT)
    return _join(article), "\n".join(filter(None, map(_join, highlights)))


def _summary(text: str) -> tuple[str, str]:
    _, *parts = _MARK.split(text)
    known = dict(zip(parts[::2], parts[1::2], strict=True))
    return _join(known.get("RESTBODY", "")), _join(known.get("FIRST-SENTENCE", ""))


def _join(text: str) -> str:
    return " ".join(text.split())


KINDS = {".story": _story, ".summary": _summary}
