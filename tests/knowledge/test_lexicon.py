"""Triples of a file as what is known of the subjects that a text names."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge.lexicon import TripleLexicon


def write(folder: Path, text: str) -> str:
    file = folder / "facts.tsv"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("relations", "known"), [(False, ("city", "old")), (True, ("age old", "is city"))]
)
def test_the_first_objects_of_a_subject(
    tmp_path: Path, relations: bool, known: tuple[str, ...]
) -> None:
    text = "Rome\tis\tcity\n\nRome\tage\told\nOslo\tis\tport\n"
    lexicon = TripleLexicon(path=write(tmp_path, text), relations=relations)
    assert [word.texts for word in lexicon.find("From Rome to Paris")] == [known]


@pytest.mark.parametrize("line", ["Rome\tcity", "Rome\tis\tcity\told"])
def test_a_line_without_three_columns_is_named(tmp_path: Path, line: str) -> None:
    lexicon = TripleLexicon(path=write(tmp_path, f"Oslo\tis\tport\n{line}\n"))
    with pytest.raises(DataError, match=r"not subject, relation, object") as told:
        lexicon.find("Oslo")
    assert ":2" in str(told.value)
