"""One row for a text and its aspect: a pair, or the text with marks around the aspect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from plmctl.core.batch import Rows
from plmctl.core.errors import DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.layouts import markers
from plmctl.tasks.layouts.base import RowSettings
from plmctl.tasks.layouts.marked import MENTIONS, encode_marked
from plmctl.tasks.layouts.texts import TextRows, parse_texts
from plmctl.tasks.readers.entity_tags import read_tags
from plmctl.tasks.record import Example, Examples

Way = Literal["pair", "marks"]


@part_of("layout")
class AspectRows(TextRows):
    """One row for a text and its aspect.

    Args:
        read: "pair", the text and behind it the aspect; or "marks", the text with marks around the
            aspect.
        marks: These marks (tasks/layouts/markers.py).
    """

    typed = "texts that you type, one a line, with <e1>aspect</e1>, or with a tab and the aspect"
    fields: Mapping[str, Field] = {"values.mentions": MENTIONS}

    def __init__(self, *, read: Way = "pair", marks: markers.Style = "symbols") -> None:
        super().__init__()
        self.marks: markers.Style | None = marks if read == "marks" else None

    def requires(self, rows: RowSettings) -> ModelNeeds:
        none = ModelNeeds()
        return none if self.marks is None else markers.add_needs(none, self.marks, 1)

    def check_tokenizer(self, tokenizer: Any) -> None:
        if self.marks is not None:
            markers.make_marks(self.marks, tokenizer, types=[""], first_new=0)

    def texts(self, example: Example) -> list[str]:
        spelled = [] if self.marks is None else markers.spell(self.marks)
        return [example.fields["text"], example.fields["text2"], *spelled]

    def unit(self, example: Example) -> str:
        """All aspects of a text stay on one side."""
        return str(example.fields["text"])

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        if "<e1>" in line:
            text, (start, end) = read_tags(line, 1)
            entities = [{"start": start, "end": end, "id": "", "type": ""}]
            fields = {"text": text, "text2": text[start:end], "entities": entities}
            return Example(str(number - 1), fields, place=f"line {number}")
        pair = parse_texts(line, number, {"text": 0, "text2": 1})
        return Example(pair.id, {**pair.fields, "entities": []}, place=pair.place)

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        if self.marks is None:
            return super().encode(examples, tokenizer, rows)
        for example in examples:
            if not example.fields["entities"]:
                problem = f"it is not known where the aspect {example.fields['text2']!r} stands"
                fix = "task.read=pair, or task.columns.start=... task.columns.end=..."
                raise DataError(problem, file=example.place, fix=fix)
        return encode_marked(
            examples,
            tokenizer,
            style=self.marks,
            max_length=rows.max_length,
            pooling=rows.pooling,
            transform=rows.transform,
        )
