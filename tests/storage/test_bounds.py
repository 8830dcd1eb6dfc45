"""Files that no person writes are refused early and at little memory: lines, rows, settings and
numbers of models.
"""

from __future__ import annotations

import csv
import gzip
import json
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import plmctl
from plmctl.config.compose import compose
from plmctl.config.part_help import list_settings
from plmctl.config.recipes import load
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.values import fit
from plmctl.nn import layout
from plmctl.runs.check import check_pretraining
from plmctl.storage.reading import read_json
from plmctl.storage.settings_file import read_settings, to_yaml
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.readers.tables import Table
from plmctl.text import bounds, inputs, reader
from plmctl.text.given import read_texts
from plmctl.text.hugging_face import read as read_tokenizer
from plmctl.text.inputs import need_lines, read_lines
from plmctl.text.tokenizer import WORD, Tokenizer

FIX = "\n  fix: export PLMCTL_LONGEST_LINE=BYTES  # cut it into several, or allow more"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bounds.LONGEST, "100")


@pytest.fixture
def most() -> Iterator[Callable[[], int]]:
    """The most memory that Python has held so far, in bytes."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


LONG = "x" * 101


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", f'{{"text": "a"}}\n{{"text": "{LONG}"}}\n'),
        ("a.jsonl.gz", f'{{"text": "a"}}\n{{"text": "{LONG}"}}\n'),
        ("a.csv", f"text\n{LONG}\n"),
    ],
)
@pytest.mark.usefixtures("short")
def test_a_row_of_a_text(name: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    with pytest.raises(DataError) as refused:
        list(reader.read_documents(file))
    assert str(refused.value) == f"{file}:2: the line has more than 100 bytes{FIX}"


@pytest.mark.usefixtures("short")
def test_a_line_as_long_as_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x" * 100 + "\n" + "y" * 100)
    assert [len(line) for _, line in need_lines(tmp_path / "a.tsv")] == [100, 100]


@pytest.mark.usefixtures("short")
def test_a_cell_over_several_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\n"' + "a\n" * 60 + '",1\n')
    for read in (
        lambda: list(reader.read_documents(tmp_path / "a.csv")),
        lambda: Table(splits={}).read_file(tmp_path / "a.csv", {"text": "text", "label": "label"}),
    ):
        with pytest.raises(
            DataError,
            match=r"a.csv:2: .* is not closed in 5\d lines \(field larger than field limit",
        ):
            read()
    csv.field_size_limit(1 << 25)


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        (
            "a.tsv",
            f"text\tlabel\n{LONG}\t1\n",
            lambda file: Table(splits={}).read_file(file, {"text": 0, "label": 1}),
        ),
        (
            "a.jsonl",
            f'{{"text": "{LONG}", "label": 1}}',
            lambda file: Table(splits={}).read_file(file, {"text": "text"}),
        ),
        (
            "a.conll",
            f"a O\n{LONG} O\n",
            lambda file: Columns(splits={}).read_file(file, {"tokens": 0, "tags": 1}),
        ),
        ("a.txt", f"a\n{LONG}\n", lambda file: list(read_texts(None, str(file))[1])),
    ],
)
@pytest.mark.usefixtures("short")
def test_a_line_of_a_task(
    name: str, content: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(DataError, match=rf"{name}:[12]: the line has more than 100 bytes"):
        read(file)


@pytest.mark.usefixtures("short")
def test_a_file_that_is_one_value(tmp_path: Path) -> None:
    file = tmp_path / "dev.json"
    file.write_text(json.dumps({"data": [], "more": "x" * 1600}))
    with pytest.raises(DataError) as refused:
        SquadFiles(splits={}).read_file(file, {})
    fix = "export PLMCTL_LONGEST_LINE=BYTES_16  # cut it into several, or allow more"
    assert (
        str(refused.value)
        == f"{file}: the file is one value and has more than 1,600 bytes\n  fix: {fix}"
    )


def test_the_setting_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bounds.LONGEST, "1G")
    with pytest.raises(
        ConfigError, match=r"^PLMCTL_LONGEST_LINE='1G': a number of bytes, 1 or more"
    ):
        bounds.longest_line()


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_an_endless_line_in_a_small_file(
    ending: str, most: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """200 MB in some kB, and 1 MB that may be a line: read to there, and no further."""
    monkeypatch.setenv(bounds.LONGEST, str(1 << 20))
    file, piece = tmp_path / f"a.jsonl{ending}", b"x" * (1 << 20)
    if ending == ".gz":
        with gzip.open(file, "wb", 1) as stream:
            stream.writelines(piece for _ in range(40))
    else:
        library = pytest.importorskip("zstandard")
        with file.open("wb") as raw, library.ZstdCompressor().stream_writer(raw) as stream:
            for _ in range(200):
                stream.write(piece)
    before = most(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        DataError, match=rf"a.jsonl{ending}:1: the line has more than 1,048,576 bytes"
    ):
        list(read_lines(file, cut=False))
    assert most() - before[0] < 20 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before[1] < 60 << 10  # kB


def test_nothing_but_white_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BLANK", 1 << 20 >> 8)
    file = tmp_path / "a.txt"
    file.write_bytes(b"a line\n" + b"\n" * 5000 + b"the end\n")
    with pytest.raises(DataError) as refused:
        list(reader.read_documents(file))
    what = "nothing but white space for more than 1,048,576 bytes up to here"
    assert str(refused.value) == f"{file}:4098: {what}\n  fix: # cut it out, or leave out this file"
    file.write_bytes(b"a line\n" + b"\n" * 1000 + b"the end\n")
    assert [document.paragraphs for document in reader.read_documents(file)] == [
        ("a line",),
        ("the end",),
    ]


def test_an_endless_word_teaches_a_tokenizer_in_time() -> None:
    """Its pieces are learnt as from shorter words; words of people stay whole."""
    word = "".join(chr(97 + (n * n) % 26) for n in range(300_000))
    made = Tokenizer.train(["the cat sat on the mat. " * 20, word], kind="byte_bpe", vocab_size=300)
    assert made.decode(made.encode("the cat")) == "the cat"
    text = "中" * (WORD + 5) + " end"
    assert [len(part) for part in plmctl.text.tokenizer._cut_long_runs(text)] == [WORD, 9]
    assert list(plmctl.text.tokenizer._cut_long_runs("a b" * 2000)) == ["a b" * 2000]


BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


def test_settings_that_unfold_without_end(tmp_path: Path, most: Callable[[], int]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(BILLION)
    with pytest.raises(
        DataError, match=r"mine.yaml: [\d,]+ values, once its aliases \(\*name\) are filled in"
    ):
        read_settings(file)
    with pytest.raises(UsageError, match="once its aliases"):
        load(file)
    (tmp_path / "format").mkdir()
    (tmp_path / "format" / "mine.yaml").write_text(BILLION)
    with pytest.raises(UsageError, match=r"format/mine.yaml: [\d,]+ values, once its aliases"):
        compose(
            "pretrain",
            None,
            ["format=mine", "train.steps=1"],
            config_dirs=[str(tmp_path / "format"), str(tmp_path)],
        )
    assert most() < 40 << 20
    file.write_text("first: &one {a: 1, b: [2]}\nsecond: *one\nlayout: af*12\n")
    assert read_settings(file)["second"] == {"a": 1, "b": [2]}
    file.write_text("# " + "x" * (1 << 22))
    with pytest.raises(DataError, match="more than 4,194,304 characters of settings"):
        read_settings(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "[" * 30_000 + "]" * 30_000, ":1: nested too deeply, over 100"),
        ("a: " + "{b: " * 30_000 + "1" + "}" * 30_000, ":1: nested too deeply, over 100"),
        ("a:\n  " + "- " * 30_000 + "x", ":2: nested too deeply, over 100"),
        ("? " * 30_000 + "x", ":1: nested too deeply, over 100"),
        ("a: 1" + ":59" * 3_000, ":1: a number of 9,001 characters"),
        ("a: -1" + ":59" * 300 + ".5", ":1: a number of 904 characters"),
        ("a: 0x" + "f" * 5_000, ":1: a number of 5,002 characters"),
        ("a:\n- 0b" + "1" * 5_000, ":2: a number of 5,002 characters"),
        ("1" + "0" * 5_000 + ": a", ":1: a number of 5,001 characters"),
    ],
)
def test_settings_that_would_end_the_parser(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=said):
        read_settings(file)
    with pytest.raises(DataError, match=said):
        list_settings(file)
    (tmp_path / "noise").mkdir()
    file.rename(tmp_path / "noise" / "mine.yaml")
    with pytest.raises(UsageError, match=said):
        compose("pretrain", None, ["noise=mine"], config_dirs=[str(tmp_path)])


@pytest.mark.parametrize(
    "value", [[[[[["a"]]]]], "0123456789" * 7, "f" * 64, "word " * 400, 1 << 62, [{"a": 1}] * 200]
)
def test_settings_that_only_look_so(tmp_path: Path, value: Any) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(to_yaml({"a": value}))
    assert read_settings(file) == {"a": value}


def test_a_word_that_is_nested_without_end() -> None:
    for word in ("size.width=" + "[" * 30_000, "+x=" + "{a:" * 500 + "1" + "}" * 500):
        with pytest.raises(UsageError, match="nested too deeply, over 100 levels"):
            compose("pretrain", "bert", [word])


@pytest.mark.parametrize("number", [1 << 63, 10**30, -(10**30), 1e30])
def test_a_number_of_more_than_64_bits(number: float) -> None:
    with pytest.raises(ConfigError, match=r"seed=.*: must be less than 2\*\*63"):
        compose("pretrain", "bert", [f"seed={number}"])
    with pytest.raises(ValueError, match=r"must be less than 2\*\*63"):
        fit(number, int)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("tokenizer.vocab_size=1000000000000", "at least 8, at most 2147483647"),
        ("tokenizer.vocab_size=-5", "at least 8, at most 2147483647"),
        ("size.width=1000000000", "no tensor of this size can be"),
        ("size.inner_width=1000000000000000000", "no tensor of this size can be"),
        ("position.max_length=1000000000000000000", "no tensor of this size can be"),
    ],
)
def test_a_size_that_no_model_has(small_text: Path, word: str, said: str) -> None:
    words = ["size=tiny", f"data.path={small_text}", word]
    with pytest.raises(ConfigError, match=f"{word}: .*{said}"):
        check_pretraining(compose("pretrain", "bert", words))


def test_a_file_that_is_read_whole_is_of_some_size(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(1 << 30)  # takes no room on the disk
    with pytest.raises(DataError, match=r"config.json: more than 536,870,912 bytes"):
        read_json(tmp_path / "config.json")


def test_layers_without_end() -> None:
    for written in ("af*1000000000", "af@1000000000", "a*6000 f*6000"):
        with pytest.raises(ConfigError) as refused:
            layout.parse(written)
        assert str(refused.value) == f"model.stack.layout={written!r}: at most 10,000 sublayers"


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "vocab.json", "spiece.model"])
def test_a_tokenizer_file_is_refused_by_its_size(tmp_path: Path, name: str) -> None:
    """Before it is read: none of its bytes is ever in memory."""
    for file in {"vocab.json": ["vocab.json", "merges.txt"]}.get(name, [name]):
        with (tmp_path / file).open("wb") as out:
            out.truncate((1 << 29) + 1)  # a sparse one
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=rf"{name}: more than 536,870,912 bytes"):
        read_tokenizer(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # kB


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["train.batch_size=1e12"], "train.batch_size=1000000000000.0: must be at most 1048576"),
        (["train.micro_batch_size=10000000"], "at most 1048576"),
        (["eval.batch_size=1e15"], "at most 1048576"),
        (["train.processes=1e9"], "must be at most 4096"),
        (["train.threads=5000"], "at most 4096"),
    ],
)
def test_counts_have_bounds(words: list[str], most: str) -> None:
    with pytest.raises(UsageError, match=most):
        compose("pretrain", "bert", words)
