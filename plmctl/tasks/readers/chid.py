"""ChID's files as examples: a gap in a Chinese passage, and the idioms that may fill it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole, fit
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import FileRecord, SplitFiles, read_records
from plmctl.tasks.record import Example

SHOWN = '{"content": ["...#idiom000378#..."], "candidates": ["百尺竿头", "随波逐流", ...]}'
ANSWERS = '{"#idiom000378#": 0, ...}, the number of a candidate for each gap'
GAP = re.compile(r"#idiom\d*#")
OTHER = "____"  # a gap that another example is about, as long as an idiom


class _Passages(TypedDict):
    content: list[str] | str
    candidates: list[str]
    answer: NotRequired[Whole]
    id: NotRequired[int | str]


@part_of("reader")
class ChidFiles(SplitFiles):
    """JSON lines of passages that share their candidates, and the answers in a second file of the
    folder: `train.json` and `train_answer.json` (Zheng et al., 2019, arXiv:1906.01265; the layout
    of CLUEbenchmark/CLUE, README). Or JSON lines of one passage each with its `answer` (FewCLUE; Xu
    et al., 2021, arXiv:2107.07498).

    An example is one gap. `text` is the passage before it; a choice is a candidate with the passage
    behind it. The gaps of a line are a bundle.

    Args:
        around: The number of characters of the passage around a gap. Where one side is shorter, the
            other is longer.
    """

    bare_test = True

    def __init__(
        self, *, splits: Mapping[str, Sequence[str]], folder: str = "", around: Count = 56
    ) -> None:
        super().__init__(splits=splits, folder=folder)
        self.around = around

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        records = list(read_records(file, _Passages, shown=SHOWN))
        answers = _read_own(records) or read_answers(file, labelled=labelled)
        made = [e for record in records for e in self._list_gaps(record, answers)]
        if not made:
            raise DataError("no gaps such as #idiom000378#", file=file, fix=SHOWN)
        return made

    def _list_gaps(
        self, record: FileRecord, answers: Mapping[str, int] | None
    ) -> Iterator[Example]:
        candidates, content = record.values["candidates"], record.values["content"]
        if len(candidates) < 2:
            raise DataError(f"{len(candidates)} candidates", file=record.place, fix=SHOWN)
        alone = isinstance(content, str)
        for passage in [content] if alone else content:
            for gap in GAP.finditer(passage):
                before, after = _cut(passage[: gap.start()], passage[gap.end() :], self.around)
                name = _name_line(record) if alone else gap[0]
                yield Example(
                    id=name,
                    fields={"text": before, "choices": [f"{each}{after}" for each in candidates]},
                    label=_find_answer(name, answers, len(candidates), record.place),
                    place=record.place,
                    bundle="" if alone else str(record.number),
                )


def _name_line(record: FileRecord) -> str:
    return str(record.values.get("id", record.number))


def _read_own(records: Sequence[FileRecord]) -> Mapping[str, int]:
    """{id of a line: number of the idiom in its gap}, where lines have answers."""
    return {_name_line(each): each.values["answer"] for each in records if "answer" in each.values}


def _cut(before: str, after: str, around: int) -> tuple[str, str]:
    """The characters on both sides of a gap; other gaps have the length of an idiom."""
    before, after = GAP.sub(OTHER, before), GAP.sub(OTHER, after)
    right = min(len(after), max(around - around // 2, around - len(before)))
    return before[max(0, len(before) - (around - right)) :], after[:right]


def read_answers(file: Path, *, labelled: bool) -> Mapping[str, int] | None:
    """{gap: number of its idiom} of the second file; None for a missing one of unlabelled gaps."""
    name = file.name.removesuffix(".gz").removesuffix(".json").removesuffix(".jsonl")
    second = [file.with_name(f"{name}_answer.json{end}") for end in ("", ".gz")]
    found = next((each for each in second if each.is_file()), None)
    if found is None:
        if labelled:
            fix = f"put the answers there: {ANSWERS}"
            raise DataError(f"its folder has no {second[0].name}", file=file, fix=fix)
        return None
    try:
        read: Mapping[str, int] = fit(
            parse_json_at(files.read_text(found), file=found), dict[str, Whole]
        )
    except ValueError as error:
        raise DataError(f"not in ChID's layout: {error}", file=found, fix=ANSWERS) from None
    return read


def _find_answer(gap: str, answers: Mapping[str, int] | None, count: int, place: str) -> str | None:
    if answers is None:
        return None
    if gap not in answers:
        raise DataError(f"the answers lack the gap {gap}", file=place, fix=ANSWERS)
    if answers[gap] >= count:
        what = f"the answer of {gap} is {answers[gap]}, and there are {count} candidates"
        raise DataError(what, file=place, fix="count candidates from 0")
    return str(answers[gap])
