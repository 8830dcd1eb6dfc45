"""Files to documents: every layout, plain and gzipped, and what is said of bad files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.text import inputs, reader
from plmctl.text.layout import TextLayout
from plmctl.text.reader import read_documents
from tests.command import plmctl

DATA = Path(__file__).resolve().parents[2] / "../shared/data/pretraining"
WIKI = """<doc id="1" url="u" title="Cats &amp; dogs">
Cats &amp; dogs

Cats purr. Dogs bark.

Origins.
Both are old.
</doc>
<doc id="2" title="Birds">
Birds sing.
</doc>
"""
WRAPPED = "\n\n".join(
    f"This is paragraph number {n} of a book whose\nlines are broken at a fixed width, so that a\n"
    "sentence goes on over lines. It ends here."
    for n in range(8)
)


def read(path: object, **how: str) -> list[list[str]]:
    return [document.sentences for document in read_documents(path, **how)]


def test_a_blank_line_ends_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One. Two.\nThree.\n\n  \nFour.\r\n", encoding="utf-8")
    assert read(tmp_path / "a.txt") == [["One.", "Two.", "Three."], ["Four."]]


def test_wikipedia_blocks(tmp_path: Path) -> None:
    (tmp_path / "wiki_00").write_text(WIKI, encoding="utf-8")
    assert read(tmp_path) == [
        ["Cats purr.", "Dogs bark.", "Origins.", "Both are old."],
        ["Birds sing."],
    ]


def test_json_lines_gzipped(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(
            json.dumps({"body": "One. Two.\n\nThree."})
            + "\n\n"
            + json.dumps({"body": "四。五。"})
            + "\n"
        )
    assert read(tmp_path / "a.jsonl.gz", field="body") == [
        ["One.", "Two.", "Three."],
        ["四。", "五。"],
    ]


def test_folders_patterns_and_lists(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/c.txt", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"In {name}", encoding="utf-8")
    assert read(tmp_path) == [["In a.txt"], ["In b.txt"], ["In deep/c.txt"]]
    assert read(str(tmp_path / "?.txt")) == [["In a.txt"], ["In b.txt"]]
    assert read([tmp_path / "b.txt", tmp_path / "notes.md", tmp_path / "b.txt"]) == [
        ["In b.txt"],
        ["In notes.md"],
    ]


@pytest.mark.parametrize(
    "name", ["with space.txt", "中文.txt", "a[1],b.txt", "~tilde.txt", "é.txt"]
)
def test_any_file_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("Text.", encoding="utf-8")
    assert read(str(tmp_path / name)) == [["Text."]]


def test_wrapped_lines(tmp_path: Path) -> None:
    file = tmp_path / "book.txt"
    file.write_text(WRAPPED, encoding="utf-8")
    found: dict[str, TextLayout] = {}
    book = list(read_documents(file, layouts=found))
    assert found[str(file)] == TextLayout("wrapped", 1, True)
    assert book[0].paragraphs == (WRAPPED.split("\n\n")[0].replace("\n", " "),)
    assert len(book) == 8
    # chapters: single blank lines only part paragraphs
    file.write_text(f"{WRAPPED}\n\n\n\n{WRAPPED}", encoding="utf-8")
    assert [len(document.paragraphs) for document in read_documents(file)] == [8, 8]


def test_wrapped_chinese_is_joined_without_spaces(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("今天天气\n很好。我们\nwent home\n", encoding="utf-8")
    assert read(tmp_path / "a.txt", lines="wrapped") == [["今天天气很好。", "我们 went home"]]


def test_one_sentence_a_line(tmp_path: Path) -> None:
    lines = [f"This line is number {n} and it says one thing." for n in range(20)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    found: dict[str, TextLayout] = {}
    assert next(read_documents(tmp_path / "a.txt", layouts=found)).sentences == lines
    assert next(iter(found.values())).lines == "sentence"
    (tmp_path / "a.txt").write_text("One. Two.\nThree", encoding="utf-8")
    assert read(tmp_path / "a.txt", lines="sentence") == [["One. Two.", "Three"]]


def test_segments_join_to_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.  Two. Three\nFour. 五。六\n\nSeven", encoding="utf-8")
    assert ["".join(document.segments) for document in read_documents(tmp_path / "a.txt")] == [
        "One.  Two. Three\nFour. 五。六",
        "Seven",
    ]


def test_long_documents_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PART", 100)
    monkeypatch.setattr(inputs, "_LINE", 40)
    text = "é wörd und 中文字 " * 40
    (tmp_path / "a.txt").write_text(f"{text}\n\nnext", encoding="utf-8")
    found = list(read_documents(tmp_path / "a.txt", lines="paragraph"))
    assert [document.continues for document in found[:2]] == [False, True]
    assert len({document.identity for document in found[:-1]}) == 1
    assert not found[-1].continues
    words = [
        word
        for document in found[:-1]
        for paragraph in document.paragraphs
        for word in paragraph.split()
    ]
    assert words == text.split()


def test_a_line_without_spaces_is_cut_between_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_LINE", 40)
    (tmp_path / "a.txt").write_text("中文🙂é" * 30, encoding="utf-8")
    found = list(read_documents(tmp_path / "a.txt", lines="paragraph"))
    assert (
        "".join(paragraph for document in found for paragraph in document.paragraphs)
        == "中文🙂é" * 30
    )


BAD = {
    "latin.txt": (b"good line\ncaf\xe9\n", r"latin.txt:2: not UTF-8: byte 0xe9 at column 4"),
    "empty.txt": (b"", "the file is empty"),
    "a.jsonl": (
        b'{"text": "x"}\n{"titel": "a", "body": "long text"}\n',
        r"a.jsonl:2: no text in a field 'text' .*'titel', 'body'(.|\n)*data.field=body",
    ),
    "d.jsonl": (
        b'{"text": ["x"]}\n',
        r"""d.jsonl:1: the field 'text' holds \["x"\], which is no text""",
    ),
    "b.jsonl": (b"{not json}\n", "b.jsonl:1: not JSON"),
    "c.jsonl": (b"[1]\n", "a JSON object is needed on each line, found list"),
    "broken.txt.gz": (gzip.compress(b"text " * 1000)[:-20], "damaged gzip"),
    "fake.txt.gz": (b"plain text", "damaged gzip"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["{}", "{}/*.txt", "both"])
def test_an_empty_file_among_others_is_left_out_with_one_warning(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for each, text in {"a.txt": "One.\n", "b.txt": "", "c.txt": "Two.\n"}.items():
        (tmp_path / each).write_text(text, encoding="utf-8")
    several = [tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.txt"]
    paths = several if name == "both" else name.format(tmp_path)
    for _ in range(2):  # a command looks for its files several times
        found = [document.sentences for document in read_documents(paths)]
        assert found == [["One."], ["Two."]]
    said = capfd.readouterr().err.splitlines()
    assert said == [f"{tmp_path}/b.txt: this file is empty, and left out"]


def test_empty_files_alone_are_no_text(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(DataError, match=r"0.txt, .*2.txt and 2 more: all of these files are empty"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("https://example.org/wiki/a.txt", "curl -fLO https://example.org/wiki/a.txt"),
        ("s3://bucket/wiki/", "# copy it here, then data.path=wiki"),
    ],
)
def test_text_at_a_url_is_refused_by_name(url: str, fix: str) -> None:
    with pytest.raises(DataError, match="text is read from this machine") as error:
        read(url)  # type: ignore[arg-type]
    assert str(error.value).startswith(url)
    assert str(error.value).endswith(f"fix: {fix}")
    refused = plmctl("tokenize", f"data.path={url}", "out=x", code=3)
    assert f"fix: {fix}" in refused


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match=r"no such file.*corpus.txt"):
        read(tmp_path / "corpsu.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="no text files in this folder"):
        read(tmp_path / "folder")


def test_markdown_is_the_text_of_a_folder_that_has_little_else(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "inner").mkdir(parents=True)
    for name in ("a.md", "inner/b.md", "picture.png"):
        (folder / name).write_text("Some words.\n", encoding="utf-8")
    assert [file.name for file in inputs.find_files(folder)] == ["a.md", "b.md"]
    (folder / "c.txt").write_text("Other words.\n", encoding="utf-8")
    assert [file.name for file in inputs.find_files(folder)] == ["c.txt"]
    (folder / "c.txt").rename(folder / "c.rst")
    with pytest.raises(DataError, match=r"fix: \"data\.path='.*docs/\*\*/\*\.md'\""):
        inputs.find_files(folder)
    assert len(inputs.find_files(f"{folder}/**/*.md")) == 2


def test_files_that_a_folder_passes_over_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = "a.txt b.csv c.tsv inner/d.csv e.md README.md f.png inner/empty.csv"
    for file in map(Path, names.split()):
        file.parent.mkdir(exist_ok=True)
        file.write_text("" if "empty" in file.name else "text\nSome words\n", encoding="utf-8")
    listed, plain = list[Path](), inputs._list_folder
    monkeypatch.setattr(inputs, "_list_folder", lambda at: listed.append(at) or plain(at))
    for _ in range(2):  # a command looks for its files several times
        assert inputs.find_all(".") == [Path("a.txt")]
    assert len(listed) == 3  # each time, and once for what it passes over
    said = capfd.readouterr().err
    assert said == (
        "b.csv, c.tsv, e.md and 1 more: 4 files are not read;"
        " a .csv, .tsv, .md is read where it is named\n"
        "  fix: \"data.path=['.','**/*.csv',c.tsv,e.md]\"\n"
    )
    found = inputs.find_all([".", "**/*.csv", "c.tsv", "e.md"])
    assert {str(file) for file in found} == {*names.split()[:5], "inner/d.csv"} - {"inner"}
    assert [file.name for file in inputs.find_all("inner/d.csv")] == ["d.csv"]
    named = capfd.readouterr().err
    assert named == "inner/empty.csv: this file is empty, and left out\n"


def test_an_unknown_layout(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"data\.lines='wraped'.*did you mean 'wrapped'"):
        read(tmp_path / "a.txt", lines="wraped")


@pytest.mark.shared
@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("name", "count", "lines"),
    [
        ("enwiki/enwiki-valid.txt.gz", 45, "paragraph"),
        ("zhwiki/zhwiki-valid.txt.gz", 300, "paragraph"),
        ("wikinews/wikinews-en.jsonl.gz", 2000, "paragraph"),
        ("grimm_tales/tales.txt.gz", 127, "wrapped"),
    ],
)
def test_real_files(name: str, count: int, lines: str) -> None:
    found: dict[str, TextLayout] = {}
    assert len(list(read_documents(DATA / name, layouts=found))) == count
    assert next(iter(found.values())).lines == lines
