"""Which lines are joined: those of a text that an editor has broken at a width, and no others."""

from __future__ import annotations

import itertools
import json
import random
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError
from plmctl.data.shards import Shards
from plmctl.text.corpus import extract_paragraphs, load_topics
from plmctl.text.layout import TextLayout, detect_layout
from plmctl.text.reader import read_documents
from plmctl.text.tokenizer import Tokenizer

PAGES = filter(None, (extract_paragraphs(text) for _, text in sorted(load_topics().items())))
PARAGRAPHS = [text for page in itertools.islice(PAGES, 20) for text in page]
SENTENCES = [s.strip(" .") for text in PARAGRAPHS for s in text.split(". ") if len(s) > 20][:400]
CODE = "def f(x):\n    if x:\n\treturn  x\n\n    return 0\n\n\nclass A:\n    pass\n"
draws = random.Random(3)
CHINESE = "".join(chr(0x4E00 + draws.randrange(3000)) for _ in range(3000))
WRAPPED = {
    f"at {width}": "\n\n".join(textwrap.fill(text, width) for text in PARAGRAPHS)
    for width in (50, 66, 79, 110)
} | {
    "with indented verse": "\n\n".join(
        [*(textwrap.fill(text, 70) for text in PARAGRAPHS), "  o moon\n  of june\n"]
    ),
    "chinese": "\n\n".join(
        "\n".join(CHINESE[i + k : i + k + 35] for k in range(0, 210, 35)) + "\n终。"
        for i in range(0, 2940, 210)
    ),
}
KEPT = {
    "sentences in lower case": "\n".join(SENTENCES).lower(),
    "titles": "\n".join(" ".join(s.split()[:8]) for s in SENTENCES).lower(),
    "cut at a width": "\n".join(
        s[:60].rpartition(" ")[0].lower() for s in SENTENCES if len(s) > 60
    ),
    "python": CODE * 20,
    "flat code": "\n".join(f"set option_{n} to value {n * 7919 % 977};" for n in range(80)),
    "verse": "so much depends\nupon\na red wheel\nbarrow\nglazed with rain\nwater\n" * 12,
    "chinese verse": "床前明月光\n疑是地上霜\n举头望明月\n低头思故乡\n" * 9,
    "chinese titles": "\n".join(CHINESE[n : n + 8 + n % 13] for n in range(0, 900, 21)),
    "columns": "\n".join(
        f"{'pear' * (n % 3):<16}{n:>6}   kg of fruit on the market" for n in range(50)
    ),
    "a log of one length": "\n".join(
        f"info connection from host {draws.randrange(100, 999)} was accepted by worker number one"
        for _ in range(90)
    ),
    "a log": "\n".join(
        f"{draws.choice(['info', 'warn', 'debug'])}: request {draws.randrange(10**6)} from client"
        f" {draws.randrange(999)} took {draws.randrange(900)} ms in all"
        for _ in range(90)
    ),
    "sequences": "\n".join("".join(draws.choice("acgt") for _ in range(60)) for _ in range(40)),
    "thai": "\n".join("ภาษาไทยเขียนติดกันทั้งบรรทัดและไม่มีช่อง"[: 30 + n % 9] for n in range(40)),
}


def kind(text: str) -> str:
    return detect_layout(text.split("\n"), "auto", blocks=False).lines


@pytest.mark.parametrize("name", WRAPPED)
def test_lines_that_fill_a_width_are_joined(name: str) -> None:
    assert kind(WRAPPED[name]) == "wrapped"


@pytest.mark.parametrize("name", KEPT)
def test_other_lines_are_kept(name: str, tmp_path: Path) -> None:
    assert kind(KEPT[name]) != "wrapped"
    (tmp_path / "a.txt").write_text(KEPT[name], encoding="utf-8")
    lines = [
        line for document in read_documents(tmp_path / "a.txt") for line in document.paragraphs
    ]
    assert lines == [line.rstrip() for line in KEPT[name].split("\n") if line.strip()]


def test_indented_lines_are_never_joined_to_others(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "    It was late, and\nnobody came.\n    She sang:\n  o moon\n\tof june\n"
        "the end of it\nall\n",
        encoding="utf-8",
    )
    (document,) = read_documents(tmp_path / "a.txt", lines="wrapped")
    assert document.paragraphs == (
        "    It was late, and nobody came.",
        "    She sang:",
        "  o moon",
        "\tof june",
        "the end of it all",
    )
    assert document.joined == 2


def test_rows_are_joined_only_where_they_are_said_to_be(tmp_path: Path) -> None:
    text = WRAPPED["at 66"]
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")
    found: dict[str, TextLayout] = {}
    (document,) = read_documents(file, layouts=found)
    assert list(found.values()) == [TextLayout("paragraph", 1, True)]
    assert document.paragraphs == tuple(line for line in text.split("\n") if line)
    (joined,) = read_documents(file, lines="wrapped")
    assert len(joined.paragraphs) == len(PARAGRAPHS)
    assert len(document.paragraphs) - len(joined.paragraphs) == joined.joined


def test_rows_as_they_are(tmp_path: Path) -> None:
    rows = [CODE, "a = 1\r\n\n\n\nb = 2", " \n", "x"]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"code": row}) + "\n" for row in rows), encoding="utf-8")
    documents = list(read_documents(file, field="code", lines="running"))
    assert ["".join(document.segments) for document in documents] == rows
    assert len({document.identity for document in documents}) == 4
    with pytest.raises(ConfigError, match=r"data\.bytes"):
        list(read_documents(file, field="code", lines="running", span=(0, 9)))
    words = ["tokenize", f"data.path={file}", "data.field=code", "data.lines=running"]
    for tokenizer in ("byte_bpe", "unigram"):
        out = tmp_path / tokenizer
        more = [f"tokenizer={tokenizer}", "data.valid_share=0", f"out={out}"]
        result = CliRunner().invoke(make_app(), [*words, *more])
        assert result.exit_code == 0, result.output
        ids = Shards.open(out).ids
        if tokenizer == "byte_bpe":
            assert Tokenizer.load(out).decode(ids) == "".join(rows)
        else:  # each line end is a token
            end = Tokenizer.load(out).vocab.eos
            assert int((ids == end).sum()) == "".join(rows).count("\n")


def test_what_was_joined_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(WRAPPED["at 66"], encoding="utf-8")
    joined = sum(document.joined for document in read_documents(tmp_path / "a.txt"))
    assert joined == sum(text.count("\n") for text in WRAPPED["at 66"].split("\n\n"))
    out = ["tokenizer.vocab_size=300", f"out={tmp_path / 'out'}"]
    for command in (["tokenize", *out], ["data", "check"]):
        words = [*command, f"data.path={tmp_path / 'a.txt'}"]
        result = CliRunner().invoke(make_app(), words, env={"COLUMNS": "200"})
        assert f"{joined:,} lines" in result.output
        assert "data.lines=paragraph" in result.output
    (tmp_path / "kept.txt").write_text(KEPT["titles"], encoding="utf-8")
    words = ["tokenize", f"data.path={tmp_path / 'kept.txt'}", f"out={tmp_path / 'kept'}"]
    assert "were joined" not in CliRunner().invoke(make_app(), words).output
