"""Column files, lists in JSON lines and tables, and tag spellings."""

import random

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.readers.schemes import canonical, iob1_to_iob2
from plmctl.tasks.scores import metrics

SPLITS = {"train": ["train.*"], "dev": ["dev.*"], "test": ["test.*"]}


def test_column_files(tmp_path):
    (tmp_path / "train.txt").write_text(
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n"
        "Peter NNP I-NP I-PER\nUN NNP I-NP I-ORG\nUN NNP I-NP B-ORG"
    )
    found = Columns(splits=SPLITS, scheme="iob1").read(tmp_path, "train", {"tokens": 0, "tags": -1})
    assert [e.fields["words"] for e in found] == [["EU", "rejects"], ["Peter", "UN", "UN"]]
    assert [e.label for e in found] == [["B-ORG", "O"], ["B-PER", "B-ORG", "B-ORG"]]
    assert found[1].place.endswith(":7")


@pytest.mark.parametrize(
    ("name", "layout", "content"),
    [
        ("train.jsonl", "auto", '{"tokens": ["a"], "ner_tags": ["O"]}\n'),
        ("train.tsv", "table", "tokens\tner_tags\na\tO\n"),
    ],
)
def test_tags_of_another_name_are_asked_for_by_the_nearest_one(tmp_path, name, layout, content):
    (tmp_path / name).write_text(content)
    reader, columns = (
        Columns(splits=SPLITS, layout=layout),
        {"tokens": "tokens", "tags": "net_tags"},
    )
    with pytest.raises(DataError, match=r"net_tags; found tokens, ner_tags \(did you mean") as told:
        reader.read(tmp_path, "train", columns)
    assert str(told.value).endswith("fix: task.columns.tags=ner_tags")
    (found,) = reader.read_file(tmp_path / name, columns, labelled=False)
    assert found.label is None


def test_a_field_with_a_comma_is_proposed_in_quotes(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"tokens": ["a"], "tags, all": ["O"]}\n')
    columns = {"tokens": "tokens", "tags": "tags all"}
    with pytest.raises(DataError) as told:
        Columns(splits=SPLITS).read(tmp_path, "train", columns)
    assert str(told.value).endswith("""fix: "task.columns.tags='tags, all'\"""")


@pytest.mark.parametrize(
    ("name", "layout", "columns", "content"),
    [
        # tabs: a word may hold a space
        ("train.conll", "auto", {"tokens": 0, "tags": 1}, "a\tB-X\nb c\tI-X\n"),
        (
            "train.jsonl",
            "auto",
            {"tokens": 0, "tags": -1},
            '{"tokens": ["a", "b c"], "tags": ["B-X", "I-X"]}\n',
        ),
        ("train.tsv", "table", {"tokens": "w", "tags": "t"}, "w\tt\na b\tB-X I-X\n"),
    ],
)
def test_layouts(tmp_path, name, layout, columns, content):
    (tmp_path / name).write_text(content)
    found = Columns(splits=SPLITS, layout=layout).read(tmp_path, "train", columns)
    assert "".join(found[0].fields["words"]).replace(" ", "") == "abc"[: 3 - (layout == "table")]
    assert found[0].label == ["B-X", "I-X"]


def test_bmes_and_bioul_become_bioes():
    assert canonical(["B-A", "M-A", "E-A", "S-A", "O"]) == ["B-A", "I-A", "E-A", "S-A", "O"]
    assert canonical(["B-A", "I-A", "L-A", "U-A"]) == ["B-A", "I-A", "E-A", "S-A"]
    assert canonical(["NN", "M", "U-"]) == ["NN", "M", "S-"]  # part-of-speech tags are left alone


@pytest.mark.parametrize("seed", range(20))
def test_iob1_conversion_keeps_the_entities_and_starts_each_with_b(seed):
    draw = random.Random(seed)
    tags = [draw.choice(["O", "I-A", "B-A", "I-B", "B-B"]) for _ in range(20)]
    found = iob1_to_iob2(tags)
    assert metrics.entities(found) == metrics.entities(tags)
    assert {start for _, start, _ in metrics.entities(found)} == {
        place for place, tag in enumerate(found) if tag[0] == "B"
    }


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("a B-X\nb\n", {"tokens": 0, "tags": -1}, r"train.txt:2: no column -1: found 1 in 'b'"),
        ("a B-X\n", {"tokens": 0, "tags": 4}, r"train.txt:1: no column 4"),
        ("a B-X\n", {"tokens": "word", "tags": "tag"}, "column files have numbers"),
        ("-DOCSTART- O\n", {"tokens": 0, "tags": 1}, "no sentences"),
    ],
)
def test_bad_column_files(tmp_path, content, columns, message):
    (tmp_path / "train.txt").write_text(content)
    with pytest.raises(DataError, match=message):
        Columns(splits=SPLITS).read(tmp_path, "train", columns)


def test_lists_of_different_length(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"tokens": ["a"], "tags": ["O", "O"]}\n')
    with pytest.raises(DataError, match=r"train.jsonl:1: 1 words but 2 tags"):
        Columns(splits=SPLITS).read(tmp_path, "train", {"tokens": "tokens", "tags": "tags"})
