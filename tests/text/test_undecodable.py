"""Files that are no UTF-8, or no text: what is said of them, and that its command mends them."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import DataError
from plmctl.tasks.readers import files
from plmctl.text.reader import read_documents
from plmctl.text.undecodable import guess_encoding

GERMAN = "Über die größeren Wälder zogen früher Händler, so hieß es. " * 9
JAPANESE = "東京でがっこうへ行きました。カタカナも書きます。" * 9
KOREAN = "오늘은 날씨가 좋아서 공원에 갔습니다. 한국어 문장입니다. " * 9
CHINESE = "今天天气很好，我们去公园散步。北京大学的学生在图书馆读书。" * 9
TRADITIONAL = "今天天氣很好，我們去公園散步。臺灣大學的學生在圖書館讀書，老師檢查電腦。" * 9
THAI = "ภาษาไทยเป็นภาษาที่มีความสำคัญ รถไฟฟ้าขัดข้องเช้านี้\n" * 9
EVEN = "ผมกินข้าว สวัสดีครับ วันนี้อากาศดี\n"  # runs of bytes that decode as pairs, too
ENGLISH = "It was said “twice” – and never again… he didn’t mind. " * 9
ENCODED = [
    (GERMAN, "latin1", "cp1252"),
    (ENGLISH, "cp1252", "cp1252"),
    (CHINESE, "gbk", "gb18030"),
    (TRADITIONAL, "big5", "big5"),
    (TRADITIONAL + "佢哋嘅嘢", "big5-hkscs", "big5-hkscs"),
    (THAI, "cp874", "cp874"),
    (EVEN, "tis-620", "cp874"),
    (JAPANESE, "cp932", "cp932"),
    (JAPANESE, "euc-jp", "euc-jp"),
    (KOREAN, "cp949", "cp949"),
    (ENGLISH, "utf-16-le", "utf-16le"),
    (ENGLISH, "utf-16-be", "utf-16be"),
    (CHINESE + "\n", "utf-16-le", "utf-16le"),
    ("plain words\n", "utf-16-le", "utf-16le"),
]


def error_of(file: Path) -> DataError:
    with pytest.raises(DataError) as error:
        list(read_documents(file, lines="paragraph"))
    return error.value


def mended(file: Path, error: DataError, name: str) -> str:
    """What the command of the message writes."""
    command = str(error).partition("fix: ")[2]
    subprocess.run(command, shell=True, check=True, cwd=file.parent)
    raw = (file.parent / name).read_bytes()
    return (gzip.decompress(raw) if name.endswith(".gz") else raw).decode("utf-8")


@pytest.mark.parametrize(("text", "encoding", "found"), ENCODED)
@pytest.mark.parametrize("end", [".txt", ".txt.gz"])
def test_a_file_in_another_encoding(
    tmp_path: Path, text: str, encoding: str, found: str, end: str
) -> None:
    text = f"{text}\n{text}\n"
    raw = text.encode(encoding)
    file = tmp_path / f"a b{end}"
    file.write_bytes(gzip.compress(raw) if end.endswith(".gz") else raw)
    error = error_of(file)
    assert f"iconv -f {found} -t utf-8" in str(error)
    assert mended(file, error, f"converted{end}") == text


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("text", [f"{CHINESE}\n你", "plain English, and one 你", "你"])
def test_utf8_that_ends_inside_a_character(tmp_path: Path, text: str, lost: int) -> None:
    file = tmp_path / "it's.txt"
    file.write_bytes(text.encode()[:-lost])
    error = error_of(file)
    assert "cut off inside a character" in str(error)
    assert "iconv" not in str(error)
    assert mended(file, error, "whole.txt") == text[:-1]
    rows = tmp_path / "a.jsonl"
    rows.write_bytes(json.dumps({"text": text}, ensure_ascii=False).encode()[: -2 - lost])
    assert "cut off inside a character" in str(error_of(rows))
    table = tmp_path / "a.tsv"
    table.write_bytes(f"text\n{text}".encode()[:-lost])
    with pytest.raises(DataError, match="cut off inside a character"):
        files.read_text(table)


@pytest.mark.parametrize("bad", [b"\xe4", b"\xff\xfe\xfd", "中".encode()[:2]])
def test_one_bad_byte_in_a_good_file(tmp_path: Path, bad: bytes) -> None:
    file, line = tmp_path / "a.txt", f"{GERMAN}\n".encode()
    file.write_bytes(line * 300 + b"here" + bad + b"it is\n" + line * 300)
    error = error_of(file)
    assert "is damaged, all else around it is UTF-8" in str(error)
    assert str(error).startswith(f"{file}:301: ")
    assert (
        mended(file, error, "converted.txt")
        == f"{GERMAN}\n" * 300 + "hereit is\n" + f"{GERMAN}\n" * 300
    )


@pytest.mark.parametrize("rest", [b"", b"a good line\n" * 5])
@pytest.mark.parametrize("lines", ["auto", "running"])
def test_a_file_of_zeros(tmp_path: Path, rest: bytes, lines: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(rest + b"\0" * 5000)
    with pytest.raises(DataError, match="zero bytes instead of text") as error:
        list(read_documents(file, lines=lines))
    if rest:
        assert mended(file, error.value, "rest.txt") == rest.decode()
    words = ["tokenize", f"data.path={file}", f"out={tmp_path / 'out'}"]
    assert CliRunner().invoke(make_app(), words).exit_code == 3


def test_a_single_zero_in_a_line_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a good line with one \0 in it\n")
    assert len(list(read_documents(tmp_path / "a.txt"))) == 1


def test_what_is_not_known_is_not_guessed() -> None:
    for text, encoding in (
        ("Сегодня хорошая погода, и мы идём гулять.", "cp1251"),
        ("Сегодня хорошая погода, и мы идём гулять.", "koi8-r"),
        ("Καλημέρα κόσμε, τι κάνεις;", "iso-8859-7"),
        ("café", "latin1"),
    ):
        assert guess_encoding(text.encode(encoding)) == ""


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("a.xlsx", "a spreadsheet", "a.csv, in its program as 'CSV UTF-8'"),
        ("a.XLS", "a spreadsheet", "a.csv"),
        ("my notes.docx", "a document", "notes.txt', in its program as 'plain text, UTF-8'"),
    ],
)
def test_a_file_of_an_office_program_is_to_be_saved_as_text(
    tmp_path: Path, name: str, what: str, fix: str
) -> None:
    file = tmp_path / name
    file.write_bytes(b"PK\x03\x04\x14\x00\xff\xfe")
    said = str(error_of(file))
    assert f"{file}: this is {what}, not text\n  fix: # save it as " in said
    assert fix in said


def test_a_zip_is_unpacked_into_a_folder_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "tnews public.zip"
    file.write_bytes(b"PK\x03\x04\x14\x00\xff\xfe")
    command = f"unzip '{file}' -d '{file.with_suffix('')}'"
    assert f"this is zip data\n  fix: {command}  # and name what it writes" in str(error_of(file))
