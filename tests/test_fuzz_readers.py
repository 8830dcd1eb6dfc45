"""A small slice of `tests/fuzz_readers.py`: the readers that are quick, some damaged files each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz_readers import CASES, Case, outcome, trial

QUICK = (
    "text a.jsonl",
    "text a.csv",
    "text a.txt.gz",
    "tokenizer vocab.txt",
    "tokenizer sentencepiece",
    "task table train.tsv",
    "task SQuAD",
    "task CoNLL",
    "task constituency",
    "task CMRC",
    "task dialogue.json",
    "task ranking",
    "task sts",
    "ranking folder",
    "task documents.jsonl",
    "task news.jsonl",
    "task Gigaword",
    "task Persona-Chat",
    "task Schema-Guided Dialogue",
    "task WMT",
    "task questions of SQuAD",
    "task questions as lines",
    "vectors",
    "vectors v.bin",
    "vectors v.safetensors",
    "vectors fasttext.bin",
    "teacher cache",
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in QUICK], ids=lambda case: case.name
)
def test_damaged_files_are_read_or_refused_with_a_sentence(case: Case, tmp_path: Path) -> None:
    case.make(tmp_path)
    assert trial(case, tmp_path, "") == ""
    assert {trial(case, tmp_path, f"1 {case.name} {n}") for n in range(10)} <= {"", "refused"}


def test_what_is_no_sentence_is_a_failure() -> None:
    assert "KeyError: 'x'" in outcome(lambda: {}["x"])
