"""Inference data as questions with positives and negatives: a premise, what it entails, and what it
contradicts.
"""

from __future__ import annotations

from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.ranking import collect_texts, make_question
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example


@part_of("reader")
class InferenceTriples(Table):
    """Premises that entail a sentence and contradict another one; all others are left out and
    counted (Gao et al., 2021, arXiv:2104.08821, sec. 4).

    `columns` text, text2 and label; of labels the words entailment and contradiction count, in any
    case.
    """

    leaves = "a premise without an entailment or without a contradiction"

    def read(self, path: files.Where, split: str, columns: Columns) -> list[Example]:
        return self.read_file(self.need(path, split), columns, header=self.header)

    def read_corpus(self, path: files.Where, split: str, columns: Columns) -> dict[str, str]:
        """{id: text} of all texts of the examples of the split."""
        return collect_texts(self.read(path, split, columns))

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        found: dict[str, dict[str, dict[str, str]]] = {}
        places: dict[str, str] = {}
        numbers: dict[str, str] = {}
        for example in super().read_file(file, columns, header=header, labelled=True):
            premise, text = str(example.fields["text"]), str(example.fields["text2"])
            places.setdefault(premise, example.place)
            kinds = found.setdefault(premise, {"entailment": {}, "contradiction": {}})
            if (own := kinds.get(str(example.label).lower())) is not None:
                own[numbers.setdefault(text, str(len(numbers)))] = text
        examples = [
            make_question(
                str(n), premise, kinds["entailment"], kinds["contradiction"], places[premise]
            )
            for n, (premise, kinds) in enumerate(found.items())
            if all(kinds.values())
        ]
        if not examples:
            raise DataError(
                "no premise with a sentence of the label 'entailment' and one of 'contradiction'",
                file=file,
                fix="task.columns={text: <premise>, text2: <hypothesis>, label: <label>}",
            )
        self.skipped[str(file)] = self.skipped.get(str(file), 0) + len(found) - len(examples)
        return examples
