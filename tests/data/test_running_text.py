"""Benchmarks of language models in their own layouts: running text, whose line ends are tokens, and
parts of a file by bytes.
"""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.encoding import close_lines
from plmctl.data.shards import Shards
from plmctl.text import running
from plmctl.text.reader import read_documents
from plmctl.text.running import check_span, join_parts
from plmctl.text.tokenizer import Tokenizer

# as wiki.train.tokens: blank lines around titles, <unk>, spaces at both ends of lines
WIKI = (
    " \n = Robert <unk> = \n \n Robert <unk> is an English film , television and theatre actor . \n"
    " He had a guest @-@ starring role in 2000 . \n \n = = Career = = \n \n"
)
SMALL = [
    "size=tiny",
    "size.width=16",
    "size.num_heads=2",
    "size.inner_width=16",
    "size.num_layers=1",
    "format.max_length=8",
    "train.batch_size=2",
    "train.steps=2",
    "train.device=cpu",
    "train.save_every=2",
]


def say(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return str(done.output)


def read(path: Path, **how: Any) -> str:
    return "".join("".join(pieces) for pieces in join_parts(read_documents(path, **how)))


def test_the_text_is_what_the_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where lines and parts are longer than what is held at once."""
    text = WIKI * 20 + "word " * 300 + "\r\n\n\n" + "ü你😀" * 200
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(running, "PIECE", 50)
    monkeypatch.setattr(running, "PART", 200)
    for name in ("a.txt", "a.txt.gz"):
        documents = list(read_documents(tmp_path / name, lines="running"))
        assert len(documents) > 10
        assert len({document.identity for document in documents}) == 1  # one document
        assert "".join("".join(document.paragraphs) for document in documents) == text


@pytest.mark.parametrize("span", [(0, 7), (3, 9), (5, 6), (2, 18), (4, 12), (17, 18)])
def test_parts_of_a_file_by_bytes(span: tuple[int, int], tmp_path: Path) -> None:
    """As `bytes[first:last]`; of characters that are cut nothing is kept."""
    content = "aü\n你😀bc\nüd".encode()
    file = tmp_path / "a.txt"
    file.write_bytes(content + b"\nxyz")
    found = read(file, lines="running", span=span)
    assert found == (content + b"\nxyz")[slice(*span)].decode("utf-8", "ignore")


def test_splits_of_enwik8_meet_without_a_gap(tmp_path: Path) -> None:
    file = tmp_path / "enwik8"
    text = "<page>\n  <title>A</title>\n\n</page>\n" * 3
    file.write_text(text)
    cuts = [0, 60, 80, len(text)]
    parts = [
        read(file, lines="running", span=(low, high)) for low, high in itertools.pairwise(cuts)
    ]
    assert "".join(parts) == text
    fix = rf"has {len(text)} .*\n  fix: 'data.bytes=\[0,{len(text)}\]'"
    with pytest.raises(DataError, match=fix):
        read(file, lines="running", span=(0, len(text) + 7))


@pytest.mark.parametrize(
    ("span", "lines", "words"),
    [
        ([0, 5], "auto", "null where data.lines=auto: .*\n  fix: data.lines=running"),
        ([9, 5], "running", r"two numbers: .*\n  fix: 'data.bytes=\[5,9\]'"),
        ([5, 5], "running", r"two numbers: .*\n  fix: 'data.bytes=\[0,90000000\]'"),
        ([5], "running", "two numbers"),
    ],
)
def test_wrong_bytes_are_refused(span: list[int], lines: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_span(span, lines, setting="data.bytes")


def tokenizer_of(tmp_path: Path, kind: str, **numbers: Any) -> Tokenizer:
    return Tokenizer.train(WIKI.splitlines(keepends=True), kind=kind, **numbers)


def test_every_line_ends_with_a_token_also_a_blank_one(tmp_path: Path) -> None:
    """As the released code counts WikiText: the words of a line, then <eos>."""
    (tmp_path / "wiki.txt").write_text(WIKI)
    tokenizer = tokenizer_of(tmp_path, "word", vocab_size=100, punctuation=False)
    pieces = next(join_parts(read_documents(tmp_path / "wiki.txt", lines="running")))
    ids, lengths, _ = close_lines(pieces, *tokenizer.encode_flat(pieces), tokenizer)
    end = tokenizer.pieces([int(ids[0])])[0]
    expected = [word for line in WIKI.split("\n")[:-1] for word in [*line.split(), end]]
    assert tokenizer.pieces(ids.tolist()) == expected
    assert "<unk>" in expected
    assert lengths.sum() == len(ids)
    assert (lengths > 0).all()


def test_a_run_on_wikitext_and_its_score(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / f"wiki.{split}.tokens").write_text(WIKI * (20 if split == "train" else 2))
    out = tmp_path / "run"
    say(
        "pretrain",
        "transformer_xl",
        f"data.path={tmp_path}/wiki.train.tokens",
        f"data.valid_path={tmp_path}/wiki.valid.tokens",
        "data.lines=running",
        "tokenizer.punctuation=false",
        f"run.dir={out}",
        f"data.cache_dir={tmp_path}/cache",
        *SMALL,
    )
    folder = next((tmp_path / "cache").rglob("manifest.json")).parent
    count = len(WIKI.split()) + WIKI.count("\n")
    assert len(Shards.open(folder, "train").ids) == 20 * count
    said = say(
        "eval",
        "task=lm",
        f"checkpoint={out}",
        f"data.path={tmp_path}/wiki.test.tokens",
        "data.lines=running",
        "--json",
    )
    scores = json.loads(said)["metrics"]["text"]
    # a word is a token, and so is the end of a line
    assert scores["words"] == scores["tokens"] == scores["scored_tokens"] == 2 * count
    assert scores["perplexity_per_word"] == scores["perplexity_per_token"]
    assert scores["characters"] == 2 * len(WIKI)


def test_a_run_on_bytes_of_one_file(tmp_path: Path) -> None:
    """enwik8's layout: one file, 90, 5 and 5 per cent of its bytes."""
    file, out = tmp_path / "enwik8", tmp_path / "run"
    file.write_text("<page>\n  <title>Zürich</title>\n\n</page>\n" * 60)
    size = file.stat().st_size
    cuts = [0, size * 90 // 100, size * 95 // 100, size]
    say(
        "pretrain",
        "transformer_xl",
        f"data.path={file}",
        f"data.valid_path={file}",
        f"data.bytes=[0,{cuts[1]}]",
        f"data.valid_bytes=[{cuts[1]},{cuts[2]}]",
        "data.lines=running",
        "tokenizer=byte_bpe",
        "tokenizer.vocab_size=261",
        f"run.dir={out}",
        f"data.cache_dir={tmp_path}/cache",
        *SMALL,
    )
    folder = next((tmp_path / "cache").rglob("manifest.json")).parent
    assert len(Shards.open(folder, "train").ids) == cuts[1]  # a token is a byte
    assert len(Shards.open(folder, "valid").ids) == cuts[2] - cuts[1]
    said = say(
        "eval",
        "task=lm",
        f"checkpoint={out}",
        f"data.path={file}",
        f"data.bytes=[{cuts[2]},{size}]",
        "data.lines=running",
        "--json",
    )
    scores = json.loads(said)["metrics"]["text"]
    assert scores["bytes"] == scores["scored_tokens"] == size - cuts[2]
