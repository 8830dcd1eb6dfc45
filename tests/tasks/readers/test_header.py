"""Tables whose columns are given by number: is the first line names, or an example?"""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import DataError
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task

LONG = [f"this is a sentence about the number {n}" for n in range(12)]
CHINESE = [f"这是第{n}条很长的评论，房间很干净" for n in range(12)]


def read(name: str, folder: Path, *words: str, split: str = "train") -> tuple[Task, list[Example]]:
    cfg = config.compose(
        "finetune", None, [f"task={name}", f"task.path={folder}", "checkpoint=null", *words]
    )
    task: Task = build(cfg.task, {"pooling": "first"}, path="task")
    return task, task.read(split)


def table(folder: Path, *lines: str, name: str = "train.tsv") -> Path:
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def rows(texts: list[str], labels: str) -> list[str]:
    return [f"{text}\t{labels[n % len(labels)]}" for n, text in enumerate(texts)]


NUMBERS = ["task.columns.text=0", "task.columns.label=1"]


@pytest.mark.parametrize("texts", [LONG, CHINESE])
@pytest.mark.parametrize("names", ["text\tlabel", "Text\tclass of it"])
@pytest.mark.parametrize("labels", ["01", "ab"])
def test_names_are_no_example(tmp_path: Path, texts: list[str], names: str, labels: str) -> None:
    task, found = read("classification", table(tmp_path, names, *rows(texts, labels)), *NUMBERS)
    assert len(found) == 12
    task.fit_labels(found)
    assert task.names == list(labels)
    shown = names.replace("\t", ", ")
    note = f"the first line ({shown}) names the columns; task.reader.header=false: it is an example"
    assert task.splits.reader.notes == {str(tmp_path / "train.tsv"): note}


@pytest.mark.parametrize(
    "first",
    [
        "this is one more sentence\ta",  # a label as others
        # a text as others, though no other has its label
        "this is one more sentence about a number\trare",
        "no\ta",
        "never.\trare",  # the end of a sentence
        f"{LONG[3]}\tc",
    ],
)
def test_an_example_is_no_name(tmp_path: Path, first: str) -> None:
    task, found = read("classification", table(tmp_path, first, *rows(LONG, "ab")), *NUMBERS)
    assert len(found) == 13
    assert task.splits.reader.notes == {}


def test_what_may_be_either_is_asked(tmp_path: Path) -> None:
    words = [
        f"{word}\t{'NV'[n % 2]}"
        for n, word in enumerate(["cat", "run", "sun", "see", "dog", "eat", "sky", "fly"])
    ]
    table(tmp_path, "word\tpos", *words)
    with pytest.raises(DataError) as error:
        read("classification", tmp_path, *NUMBERS)
    assert (
        str(error.value)
        == f"{tmp_path / 'train.tsv'}:1: does the first line (word, pos) name the columns?\n"
        "  fix: task.reader.header=true  # it does, or task.reader.header=false: it is an example"
    )
    assert len(read("classification", tmp_path, *NUMBERS, "task.reader.header=true")[1]) == 8
    assert len(read("classification", tmp_path, *NUMBERS, "task.reader.header=false")[1]) == 9


def test_scores_have_no_name_among_them(tmp_path: Path) -> None:
    table(
        tmp_path,
        "left\tright\tscore",
        *(f"{text}\tthe same again\t{n / 2}" for n, text in enumerate(LONG)),
    )
    words = ["task.columns.text=0", "task.columns.text2=1", "task.columns.label=2"]
    task, found = read("regression", tmp_path, *words)
    task.fit_labels(found)
    assert [example.label for example in found][:2] == ["0.0", "0.5"]


def test_the_fix_that_is_proposed_works(tmp_path: Path) -> None:
    table(tmp_path, "review\tstars", *rows(LONG, "15"))
    with pytest.raises(
        DataError, match=r"fix: task.columns.text=review task.columns.label=COLUMN  # COLUMN: a col"
    ):
        read("classification", tmp_path)
    assert len(read("classification", tmp_path, *NUMBERS)[1]) == 12
    assert (
        len(
            read(
                "classification", tmp_path, "task.columns.text=review", "task.columns.label=stars"
            )[1]
        )
        == 12
    )


@pytest.mark.parametrize(
    ("head", "fix"),
    [
        ("文本\t标签", r"fix: task\.columns\.text=文本 task\.columns\.label=标签$"),
        ("正文\tlabel", r"fix: task\.columns\.text=正文$"),
        ("正文\tstars", r"task\.columns\.text=正文 task\.columns\.label=COLUMN  # COLUMN: a"),
        ("Message Body\tlabel", r"fix: 'task\.columns\.text=Message Body'$"),
        ("文本\t句子\tlabel", r"task\.columns\.text=COLUMN  # COLUMN: a"),  # which one?
    ],
)
def test_chinese_names_of_columns_are_understood(tmp_path: Path, head: str, fix: str) -> None:
    wide = rows(LONG, "15") if head.count("\t") == 1 else [f"a\t{row}" for row in rows(LONG, "15")]
    table(tmp_path, head, *wide)
    with pytest.raises(DataError, match=fix):
        read("classification", tmp_path)


def test_a_file_without_labels(tmp_path: Path) -> None:
    table(tmp_path, *rows(LONG, "ab"))
    (tmp_path / "test.tsv").write_text("\n".join(["text\tother", *(f"{text}\tx" for text in LONG)]))
    columns = ["task.columns.text=0", "task.columns.label=9"]
    assert len(read("classification", tmp_path, *columns, split="test")[1]) == 12


def test_a_table_of_tagged_sentences(tmp_path: Path) -> None:
    sentences = [
        "我 住 在 北 京 的 家 里 面\tO O O B-LOC I-LOC O O O O",
        "他 们 也 来 了 这 里 看\tO O O O O O O O",
    ]
    table(tmp_path, "text_a\tlabel", *sentences)
    task, found = read("tagging", tmp_path, "task.reader.layout=table")
    assert len(found) == 2
    task.fit_labels(found)
    assert task.names == ["O", "B-LOC", "I-LOC"]
    assert next(iter(task.splits.reader.notes.values())).startswith(
        "the first line (text_a, label) names the columns"
    )
    with pytest.raises(DataError) as error:
        read("tagging", tmp_path)
    assert (
        str(error.value)
        == f"{tmp_path / 'train.tsv'}:2: 9 tags in one cell ('O O O B-LOC I-LOC O ...'): a line is"
        " a whole sentence\n  fix: task.reader.layout=table"
    )


def test_a_label_that_training_has_not_seen_is_one_line(tmp_path: Path) -> None:
    many = [
        f"{text}\t{'a very long label of many words ' * 3}{n // 2}" for n, text in enumerate(LONG)
    ]
    table(tmp_path, *many)
    task, found = read("classification", tmp_path, *NUMBERS)
    task.fit_labels(found)
    with pytest.raises(DataError) as error:
        task.fit_labels([Example("0", {"text": "x"}, label="another " * 100)])
    assert len(str(error.value)) < 500


def chinese_tagger(folder: Path, words: list[str], *more: str) -> Task:
    lines = [f"{word} {'B-LOC' if word in '北京' else 'O'}" for word in words]
    task, found = read(
        "tagging", table(folder, *(["\n".join([*lines, ""])] * 3), name="train.bio"), *more
    )
    task.fit_labels(found)
    return task


def test_characters_are_the_words_of_new_lines_where_they_are_those_of_training(
    tmp_path: Path,
) -> None:
    task = chinese_tagger(tmp_path, ["我", "住", "北", "京", "1995", "年"])
    assert task.decided["joiner"] == ""
    assert task.parse("他住北京 很好", 1).fields["words"] == list("他住北京很好")
    assert task.parse("他 住 1995 年", 1).fields["words"] == ["他", "住", "1995", "年"]


@pytest.mark.parametrize(
    "words", [["I", "live", "in", "Rome"], ["我们", "住在", "北京", "很", "久"], ["a", "b"]]
)
def test_other_words_stay_what_stands_between_spaces(tmp_path: Path, words: list[str]) -> None:
    task = chinese_tagger(tmp_path, words)
    assert task.decided["joiner"] == " "
    assert task.parse("他住北京 很好", 1).fields["words"] == ["他住北京", "很好"]


def test_what_is_told_holds(tmp_path: Path) -> None:
    assert chinese_tagger(tmp_path, ["我", "住"], 'task.joiner=" "').decided["joiner"] == " "
