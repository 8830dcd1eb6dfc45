"""CNN/DailyMail, XSum, Gigaword and Cornell's movie dialogs, in the layouts that they are
published in.
"""

from __future__ import annotations

import json
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.build import build, plain
from plmctl.config.compose import compose
from plmctl.core.errors import DataError

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
    assert "fix: task.reader.lenient=true  # pass such articles over" in str(refused.value)
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


# --- copies of CNN/DailyMail, XSum and Gigaword


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".").replace("_of_", "-")).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("task", ["summarization", "extractive_summarization"])
@pytest.mark.parametrize("names", [("article", "highlights"), ("document", "summary")])
def test_copies_with_other_names(task: str, names: tuple[str, str], tmp_path: Path) -> None:
    row = dict(zip(names, ("It rained.", "Rain"), strict=True))
    write(tmp_path, train__jsonl=json.dumps({**row, "id": "7"}) + "\n")
    assert read(task, tmp_path, "train") == [("It rained.", ("Rain",))]
    write(tmp_path / "tsv", train__tsv="\t".join(names) + "\nIt rained.\tRain\n")
    assert read(task, tmp_path / "tsv", "train") == [("It rained.", ("Rain",))]
    # columns that somebody chose are not others
    with pytest.raises(DataError, match="no field body"):
        read(task, tmp_path, "train", "task.columns.source=body")


def test_what_the_columns_are_called_is_said(tmp_path: Path) -> None:
    words = ["task=summarization", "task.path=x", "checkpoint=null"]
    node = plain(compose("finetune", None, words).task)
    reader = build(node["reader"], path="task.reader")
    file = tmp_path / "train.jsonl"
    file.write_text('{"article": "It rained.", "highlights": "Rain"}\n')
    reader.read(tmp_path, "train", node["columns"])
    assert reader.notes == {str(file): "article is the source, highlights the target"}


def test_gigawords_own_folder(tmp_path: Path) -> None:
    names = {"train__article__txt": "a # b\nc\n", "train__title__txt": "b\nd\n"}
    names |= {"valid__article__filter__txt": "e\n", "valid__title__filter__txt": "f\n"}
    write(tmp_path, **names)
    assert read("summarization", tmp_path, "train") == [("a # b", ("b",)), ("c", ("d",))]
    assert read("summarization", tmp_path, "dev") == [("e", ("f",))]
    write(tmp_path / "unilm", train__src="a\n", train__tgt="b\n")
    assert read("summarization", tmp_path / "unilm", "train") == [("a", ("b",))]


def test_records_of_tensorflow_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"\x00\x01")
    for path in (tmp_path, tmp_path / "train.bin"):
        words = ["task=summarization", "task.path=x", "checkpoint=null"]
        node = plain(compose("finetune", None, words).task)
        reader = build(node["reader"], path="task.reader")
        with pytest.raises(DataError, match=r"(?s)records of TensorFlow.*url_lists"):
            reader.read(path, "train", node["columns"])


# --- questions from SQuAD

SQUAD_TEXT = "Mr. A. Bee lives in Rome. He has a dog, Rex.  It barks."


def squad(*questions: dict[str, Any]) -> str:
    paragraph = {"context": SQUAD_TEXT, "qas": list(questions)}
    return json.dumps({"version": "1", "data": [{"title": "T", "paragraphs": [paragraph]}]})


def ask(question: str, answer: str, at: int | None = None) -> dict[str, Any]:
    start = SQUAD_TEXT.index(answer) if at is None else at
    return {
        "id": question,
        "question": question,
        "answers": [{"text": answer, "answer_start": start}],
    }


def test_questions_of_squad(tmp_path: Path) -> None:
    across = "Rome. He"
    none = {"id": "n", "question": "Why?", "answers": [], "is_impossible": True}
    asked = squad(ask("Where?", "Rome"), ask("Who?", "Rex"), ask("What?", across), none)
    (tmp_path / "train-v1.1.json").write_text(asked)
    task = "question_generation"
    assert read(task, tmp_path, "train") == [
        ("Mr. A. Bee lives in * Rome * .", ("Where?",)),
        ("He has a dog, * Rex * .", ("Who?",)),
        ("Mr. A. Bee lives in * Rome. He * has a dog, Rex.", ("What?",)),
    ]
    (whole, *_) = read(task, tmp_path, "train", "task.reader.context=paragraph")
    assert whole[0] == "Mr. A. Bee lives in * Rome * . He has a dog, Rex. It barks."
    (bare, *_) = read(task, tmp_path, "train", "task.reader.mark=''")
    assert bare[0] == "Mr. A. Bee lives in Rome."
    (tmp_path / "train-v1.1.json").write_text(squad(ask("Where?", "Rome", at=3)))
    with pytest.raises(DataError, match="no question has an answer in its text"):
        read(task, tmp_path, "train")


def test_questions_as_lines(tmp_path: Path) -> None:
    write(tmp_path, src_of_train__txt="a b\n", tgt_of_train__txt="who ?\n", src_of_dev__txt="c\n")
    write(tmp_path, tgt_of_dev__txt="why ?\n", para_of_train__txt="a b c\n")
    assert read("question_generation", tmp_path, "train") == [("a b", ("who ?",))]
    assert read("question_generation", tmp_path, "dev") == [("c", ("why ?",))]
    write(tmp_path / "other", train__src="a\n", train__tgt="b ?\n")
    assert read("question_generation", tmp_path / "other", "train") == [("a", ("b ?",))]


# --- dialogues

NUMBERED = """\
1 your persona: i have a dog.
2 your persona: i like  rain.
3 partner's persona: i sing.
4 hi , how are you ?\tfine , and you ?\t\tno|yes|fine , and you ?
5 good .\ti walk my dog .
1 __SILENCE__\thello .
2 hi .\tbye .
"""


def test_numbered_lines(tmp_path: Path) -> None:
    write(tmp_path, train__txt=NUMBERED)
    known = "i have a dog. | i like rain."
    assert read("dialogue", tmp_path, "train") == [
        (f"{known} | hi , how are you ?", ("fine , and you ?",)),
        (f"{known} | hi , how are you ? | fine , and you ? | good .", ("i walk my dog .",)),
        ("hello . | hi .", ("bye .",)),
    ]
    assert read("dialogue", tmp_path, "train", "task.reader.reply=partner") == [
        ("hi , how are you ? | fine , and you ?", ("good .",)),
        ("hello .", ("hi .",)),
    ]
    short = read("dialogue", tmp_path, "train", "task.reader.turns=1")
    assert short[1] == (f"{known} | good .", ("i walk my dog .",))


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("5 good", "7 good", r"train.txt:5: number 7, where 5 follows"),
        ("4 hi", "hi", r"train.txt:4: a line begins with its number"),
        ("\ti walk my dog .", "", r"train.txt:5: a turn, a tab and the answer are needed"),
        ("5 good .\t", "5 \t", r"train.txt:5: a turn, a tab"),
    ],
)
def test_damaged_numbered_lines(old: str, new: str, answer: str, tmp_path: Path) -> None:
    write(tmp_path, train__txt=NUMBERED.replace(old, new))
    with pytest.raises(DataError, match=answer):
        read("dialogue", tmp_path, "train")


def test_schema_guided_dialogue_in_its_own_folders(tmp_path: Path) -> None:
    def dialogue(name: str) -> dict[str, Any]:
        said = (("USER", "A table?"), ("SYSTEM", f"For {name}?"), ("USER", "Two."))
        turns = [{"speaker": who, "utterance": text, "frames": []} for who, text in said]
        return {"dialogue_id": name, "services": ["R"], "turns": turns}

    for number, names in enumerate((["1_0", "1_1"], ["2_0"]), start=1):
        dialogues = json.dumps([dialogue(name) for name in names])
        write(tmp_path / "train", **{f"dialogues_00{number}__json": dialogues})
    write(tmp_path / "train", schema__json="[]")
    write(tmp_path / "dev", dialogues_001__json=json.dumps([dialogue("3_0")]))
    replies = read("dialogue", tmp_path, "train", "task.reader.reply=SYSTEM")
    assert replies == [("A table?", (f"For {name}?",)) for name in ("1_0", "1_1", "2_0")]
    assert len(read("dialogue", tmp_path, "train")) == 6
    assert len(read("dialogue", tmp_path, "dev", "task.reader.reply=SYSTEM")) == 1


# --- WMT

SEGMENTS = """\
<{kind} setid="newstest2099" srclang="any" {more}>
<doc sysid="{system}" docid="a.1" genre="news" origlang="de">
<hl>
<seg id="1">{texts[0]}</seg>
</hl>
<p>
<seg id="2"> {texts[1]} </seg>
</p>
</doc>
<doc docid="b.2" sysid="{system}">
<seg id="1">{texts[2]}</seg>
</doc>
</{kind}>
"""


def segments(kind: str, *texts: str, system: str = "ref", more: str = "") -> str:
    return SEGMENTS.format(kind=kind, texts=texts, system=system, more=more)


def wmt(folder: Path) -> Path:
    texts = {
        "newstest2099-deen-src.de.sgm": segments("srcset", "Eins &amp; zwei", "Drei", "Vier"),
        "newstest2099-deen-ref.en.sgm": segments(
            "refset", "One &amp; two", "Three", "Four", more='trglang="en"'
        ),
        "newstest2099-deen-ref2.en.sgm": segments("refset", "1 & 2", "3", "4"),
        "train.de": "Hund\n",
        "train.en": "dog\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


LANGUAGES = ["task.columns.source=de", "task.columns.target=en"]


def test_wmts_segments(tmp_path: Path) -> None:
    folder = wmt(tmp_path)
    assert read("translation", folder, "test", *LANGUAGES) == [
        ("Eins & zwei", ("One & two", "1 & 2")),
        ("Drei", ("Three", "3")),
        ("Vier", ("Four", "4")),
    ]
    assert read("translation", folder, "train", *LANGUAGES) == [("Hund", ("dog",))]
    names = [str(folder / f"newstest2099-deen-{name}.sgm") for name in ("src.de", "ref.en")]
    assert read("translation", {"dev": names}, "dev")[0] == ("Eins & zwei", ("One & two",))
    # two systems in one refset
    both = segments("refset", "A", "B", "C", system="one").replace("</refset>\n", "")
    both += segments("refset", "D", "E", "F", system="two").partition("\n")[2]
    (folder / "both.sgm").write_text(both)
    found = read("translation", {"dev": [names[0], str(folder / "both.sgm")]}, "dev")
    assert [golds for _, golds in found] == [("A", "D"), ("B", "E"), ("C", "F")]


@pytest.mark.parametrize(
    ("name", "old", "new", "answer"),
    [
        (
            "ref.en",
            '<seg id="2">',
            '<seg id="3">',
            r"src.de.sgm:7: segment 2 of document a.1 is not in",
        ),
        ("ref2.en", '<seg id="2"> 3 </seg>\n', "", r"src.de.sgm:7: segment 2 of document a.1 is"),
        ("src.de", "Drei </seg>", "Drei", r"src.de.sgm:7: a segment without its </seg>"),
        ("src.de", "Drei", " ", r"src.de.sgm:7: segment 2 of document a.1 is empty"),
        ("src.de", 'id="2"', 'id="1"', r"src.de.sgm:7: segment 1 .* second time; first in line 4"),
        ("src.de", ' docid="a.1"', "", r"src.de.sgm:2: <doc> has no docid"),
        ("src.de", '<seg id="2">', "<seg>", r"src.de.sgm:7: <seg> has no id"),
        ("src.de", "srcset", "set", r"none of <srcset>, <refset>, <tstset> is in it"),
    ],
)
def test_damaged_segments(name: str, old: str, new: str, answer: str, tmp_path: Path) -> None:
    folder = wmt(tmp_path)
    file = folder / f"newstest2099-deen-{name}.sgm"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(DataError, match=answer):
        read("translation", folder, "test", *LANGUAGES)
