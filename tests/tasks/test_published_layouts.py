"""CNN/DailyMail, XSum, Gigaword and Cornell's movie dialogs, in the layouts that they are
published in.
"""

from __future__ import annotations

import json
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from plmctl.core.errors import DataError
from plmctl.run.build import build, plain
from plmctl.run.compose import compose

NAMES = [f"http://news.example/{n}" for n in range(4)]


def read(task: str, path: Any, split: str, *words: str) -> list[tuple[str, tuple[str, ...]]]:
    """What the reader of a task, as conf/ has it, finds."""
    node = plain(
        compose("finetune", None, [f"task={task}", "task.path=x", "checkpoint=null", *words]).task
    )
    reader = build(node["reader"], path="task.reader")
    assert reader.has(path, split, node["columns"])
    return [
        (example.fields["source"], example.label)
        for example in reader.read(path, split, node["columns"])
    ]


@pytest.fixture
def stories(tmp_path: Path) -> Path:
    """cnn/stories and dailymail/stories with one list of addresses for both."""
    (tmp_path / "url_lists").mkdir()
    for number, name in enumerate(NAMES):
        folder = tmp_path / ("cnn", "dailymail")[number % 2] / "stories"
        folder.mkdir(parents=True, exist_ok=True)
        story = (
            f"(CNN) -- It rained\nin town {number}.\n\nAll day.\n\n@highlight\n\nRain in"
            f" {number}\n\n@highlight\n\nNo sun\n"
        )
        (folder / f"{sha1(name.encode()).hexdigest()}.story").write_text(story, encoding="utf-8")
    for split, names in (("train", NAMES[:2]), ("val", NAMES[2:3]), ("test", NAMES[3:])):
        (tmp_path / "url_lists" / f"all_{split}.txt").write_text(
            "\n".join(names) + "\n", encoding="utf-8"
        )
    return tmp_path


def test_cnn_and_dailymail(stories: Path) -> None:
    assert read("summarization", str(stories), "train") == [
        (f"(CNN) -- It rained in town {n}. All day.", (f"Rain in {n}\nNo sun",)) for n in (0, 1)
    ]
    assert [
        source[-12:]
        for split in ("dev", "test")
        for source, _ in read("summarization", stories, split)
    ] == [" 2. All day.", " 3. All day."]


def test_an_article_that_is_absent_or_empty(stories: Path) -> None:
    known = stories / "cnn" / "stories" / f"{sha1(NAMES[0].encode()).hexdigest()}.story"
    known.write_text("\n\n@highlight\n\nRain\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"\.story: has no article or no summary") as refused:
        read("summarization", stories, "train")
    assert "fix: pass such articles over: task.reader.lenient=true" in str(refused.value)
    known.unlink()
    with pytest.raises(DataError, match="there is no such file"):
        read("summarization", stories, "train")
    assert len(read("summarization", stories, "train", "task.reader.lenient=true")) == 1


def test_xsum(tmp_path: Path) -> None:
    ids = {"train": ["11", "12"], "validation": ["13"], "test": ["14"]}
    (tmp_path / "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json").write_text(
        json.dumps(ids), encoding="utf-8"
    )
    (tmp_path / "bbc-summary-data").mkdir()
    for name in ("11", "12", "13", "14"):
        parts = {
            "URL": "http://x",
            "TITLE": "Snow",
            "FIRST-SENTENCE": f"Snow {name}.",
            "RESTBODY": "It fell.\nLong.",
        }
        text = "".join(f"[SN]{mark}[SN]\n{part}\n\n" for mark, part in parts.items())
        (tmp_path / "bbc-summary-data" / f"{name}.summary").write_text(text, encoding="utf-8")
    assert read("summarization", tmp_path, "train") == [
        ("It fell. Long.", (f"Snow {n}.",)) for n in (11, 12)
    ]
    assert read("summarization", tmp_path, "dev") == [("It fell. Long.", ("Snow 13.",))]


def test_gigaword(tmp_path: Path) -> None:
    names = [
        "train.article.txt",
        "train.title.txt",
        "valid.article.filter.txt",
        "valid.title.filter.txt",
    ]
    for name in names:
        (tmp_path / name).write_text(f"a line of {name}\n", encoding="utf-8")
    path = [str(tmp_path / name) for name in names]
    assert read("summarization", path, "train") == [
        ("a line of train.article.txt", ("a line of train.title.txt",))
    ]
    assert read("summarization", path, "dev")[0][1] == ("a line of valid.title.filter.txt",)


def test_pairs_of_any_other_layout_are_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(
        '{"source": ["a", "b"], "target": "c"}\n', encoding="utf-8"
    )
    assert read("summarization", tmp_path, "train") == [("a b", ("c",))]


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """60 conversations of three lines, in ISO 8859-1; one line of each tenth is empty."""
    lines, order = [], []
    for film in range(60):
        names = [f"L{10 * film + turn}" for turn in range(3)]
        texts = [f"hi {film}", "" if film % 10 == 0 else "caf\u00e9?", f"no {film}"]
        said = [
            f"{name} +++$+++ u{turn % 2} +++$+++ m{film} +++$+++ ANN +++$+++ {text}"
            for turn, (name, text) in enumerate(zip(names, texts, strict=True))
        ]
        lines += reversed(said)
        order.append(f"u0 +++$+++ u1 +++$+++ m{film} +++$+++ {names!r}")
    (tmp_path / "movie_lines.txt").write_text("\n".join(lines) + "\n", encoding="iso-8859-1")
    (tmp_path / "movie_conversations.txt").write_text(
        "\n".join(order) + "\n", encoding="iso-8859-1"
    )
    return tmp_path


def test_cornells_movie_dialogs(films: Path) -> None:
    found = {
        split: read("dialogue", str(films), split, "task.reader.turns=1")
        for split in ("train", "dev", "test")
    }
    pairs = [pair for each in found.values() for pair in each]
    assert sorted(pairs) == sorted(
        pair
        for n in range(60)
        for pair in (
            [(f"hi {n}", (f"no {n}",))]
            if n % 10 == 0
            else [(f"hi {n}", ("café?",)), ("café?", (f"no {n}",))]
        )
    )
    assert len(found["train"]) > len(found["test"]) > len(found["dev"]) > 0
    longer = read("dialogue", films, "train")
    assert ("hi 1 | café?", ("no 1",)) in longer or ("hi 2 | café?", ("no 2",)) in longer


def test_what_is_wrong_with_a_movies_files(films: Path) -> None:
    with (films / "movie_conversations.txt").open("a", encoding="utf-8") as file:
        file.write("u0 +++$+++ u1 +++$+++ m60 +++$+++ ['L9999']\n")
    with pytest.raises(
        DataError, match=r"movie_conversations\.txt:61: L9999 is not in movie_lines\.txt"
    ):
        read("dialogue", films, "train")
    (films / "movie_lines.txt").write_text("L1 +++$+++ u0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"movie_lines\.txt:1: 2 fields where 5 are needed"):
        read("dialogue", films, "train")
