"""The polarity of an aspect of a text: of a term in it, or of a category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts import markers
from plmctl.tasks.layouts.marked import encode_marked
from plmctl.tasks.layouts.texts import parse_texts
from plmctl.tasks.readers.entity_tags import read_tags
from plmctl.tasks.record import Example


@dataclass(frozen=True, kw_only=True)
class AspectSettings(ClassificationSettings):
    """Settings of aspect sentiment.

    Args:
        read: "pair", the text and behind it the aspect; or "marks", the text with marks around the
            aspect.
        marks: these marks (tasks/layouts/markers.py).
    """

    read: Literal["pair", "marks"] = "pair"
    marks: markers.Style = "symbols"


@part_of("task")
class AspectSentiment(Classification):
    """Predicts the polarity of an aspect from the pair of text and aspect (BERT-SPC: Song et al.,
    2019, arXiv:1902.09314, sec. 3.6; Sun et al., 2019, arXiv:1903.09588, sec. 2.2), or from the
    text with marks around the aspect; loss and metrics are those of classification.
    """

    Settings = AspectSettings
    facts = replace(
        Classification.facts,
        typed="texts that you type, one a line, with <e1>aspect</e1>, or with a tab and the aspect",
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = AspectSettings(**settings)
        self.way, self.marks = own.read, own.marks
        if self._marked:
            self.requires = markers.add_needs(self.requires, own.marks, 1)

    @property
    def _marked(self) -> bool:
        return self.way == "marks"

    def check_tokenizer(self, tokenizer: Any) -> None:
        if self._marked:
            markers.make_marks(self.marks, tokenizer, types=[""], first_new=0)

    def texts(self, example: Example) -> list[str]:
        spelled = markers.spell(self.marks) if self._marked else []
        return [example.fields["text"], example.fields["text2"], *spelled]

    def unit(self, example: Example) -> str:
        """All aspects of a text stay on one side."""
        return str(example.fields["text"])

    def parse(self, line: str, number: int) -> Example:
        if "<e1>" in line:
            text, (start, end) = read_tags(line, 1)
            entities = [{"start": start, "end": end, "id": "", "type": ""}]
            fields = {"text": text, "text2": text[start:end], "entities": entities}
            return Example(str(number - 1), fields, place=f"line {number}")
        pair = parse_texts(line, number, {"text": 0, "text2": 1})
        return Example(pair.id, {**pair.fields, "entities": []}, place=pair.place)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        if not self._marked:
            return super().encode(examples, tokenizer)
        for example in examples:
            if not example.fields["entities"]:
                raise DataError(
                    f"it is not known where the aspect {example.fields['text2']!r} stands",
                    file=example.place,
                    fix="task.read=pair, or task.columns.start=... task.columns.end=...",
                )
        rows = encode_marked(
            examples,
            tokenizer,
            style=self.marks,
            max_length=self.max_length,
            pooling=self.pooling,
            transform=self.transform,
        )
        return self.add_labels(rows, examples)

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        found = super().predict(logits, rows, examples)
        return [
            {**prediction, "aspect": example.fields["text2"]}
            for prediction, example in zip(found, examples, strict=True)
        ]
