"""Token directories: what is in them, that they never vary, and that nothing wrong is opened."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import ConfigError, DataError, PlmctlError, UsageError
from plmctl.data import encoding, split_writer, tokenizing
from plmctl.data.shards import Shards
from plmctl.data.sharing import share_tokenizer
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob, open_or_tokenize, tokenize
from plmctl.storage.paths import find_cache_folder
from plmctl.text.reader import read_documents
from plmctl.text.recipe import TooLittleText
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import KINDS

_WORDS = (
    "the of and to in is was for on with as by at from his that it an were are which this also be"
)
WORDS = _WORDS.split()


def write_text(file: Path, count: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        sentences = [
            " ".join(rng.choice(WORDS, rng.integers(3, 9))).capitalize() + "."
            for _ in range(rng.integers(1, 7))
        ]
        texts.append(" ".join(sentences) + f"\n中文第{number % 10}。好的，再见！")
    file.write_text("\n\n".join(texts), encoding="utf-8")
    return file


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text.txt", 300)


def job(text: object, kind: str = "wordpiece", **changes: Any) -> TokenizingJob:
    given = {
        name: changes.pop(name)
        for name in ("valid", "valid_share", "segment", "processes", "at_most", "tell")
        if name in changes
    }
    size = {"wordpiece": 90, "unigram": 90, "byte_bpe": 300, "char": 90, "bpe": 90}[kind]
    return TokenizingJob(TextSource(text), KINDS[kind](**{"vocab_size": size, **changes}), **given)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and f.name != "manifest.json"
    }


def texts_of(shards: Shards) -> list[list[list[int]]]:
    sentences = [
        shards.ids[a:b].tolist()
        for a, b in zip(shards.sentences[:-1], shards.sentences[1:], strict=True)
    ]
    return [
        sentences[a:b] for a, b in zip(shards.documents[:-1], shards.documents[1:], strict=True)
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe", "char"])
def test_against_the_slow_way(text: Path, tmp_path: Path, kind: str) -> None:
    tokenize(job(text, kind), tmp_path / "out")
    tokenizer = Tokenizer.load(tmp_path / "out")
    train, valid = (
        Shards.open(tmp_path / "out", split, tokenizer=tokenizer) for split in ("train", "valid")
    )
    assert train.ids.dtype == np.uint16
    expected = {}
    for document in read_documents(text):
        parts = document.segments if tokenizer.lossless else document.sentences
        whole = "\n".join(document.paragraphs)
        row = [
            [ids for part in parts if (ids := tokenizer.encode(part))],
            len(whole.encode()),
            len(whole),
            len(whole.split()),
        ]
        expected.setdefault(json.dumps(row), []).append(document)
    found = [
        json.dumps(
            [doc, *(int(shards.counts[name][n]) for name in ("bytes", "characters", "words"))]
        )
        for shards in (train, valid)
        for n, doc in enumerate(texts_of(shards))
    ]
    assert sorted(found) == sorted(key for key, same in expected.items() for _ in same)
    for shards in (train, valid):
        shards.verify()
        stated = shards.manifest["splits"][shards.split]
        assert stated["tokens"] == len(shards.ids) == shards.sentences[-1]
        assert stated["sentences"] == len(shards.sentences) - 1 == shards.documents[-1]
        assert stated["documents"] == len(shards.documents) - 1
        assert stated["bytes"] == shards.counts["bytes"].sum()
    if tokenizer.lossless:
        first = next(iter(read_documents(text)))
        assert tokenizer.decode(
            np.concatenate([np.array(s, int) for s in (texts_of(train) + texts_of(valid))[0]])
        ) in {"".join(document.segments) for document in read_documents(text)}
        assert "".join(first.segments) == "\n".join(first.paragraphs)
    assert set(train.tracks) == ({"word_start"} if kind == "char" else set())
    assert all(len(track) == len(train.ids) for track in train.tracks.values())


def test_processes_and_chunks_change_nothing(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenize(job(text, processes=1), tmp_path / "one")
    monkeypatch.setattr(encoding, "CHUNK", 2000)
    tokenize(job(text, processes=1), tmp_path / "small")
    tokenize(job(text, processes=3), tmp_path / "three")
    assert (
        contents(tmp_path / "one") == contents(tmp_path / "small") == contents(tmp_path / "three")
    )
    assert Shards.open(tmp_path / "one").fingerprint == Shards.open(tmp_path / "three").fingerprint


def test_long_documents_are_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write_text(tmp_path / "text.txt", 40)
    long = text.read_text(encoding="utf-8").replace("\n\n", "\n")
    text.write_text(long + "\n\nAnother one.\n\nA third.", encoding="utf-8")
    tokenize(job(text, "char"), tmp_path / "whole")
    monkeypatch.setattr("plmctl.text.reader.PART", 300)
    monkeypatch.setattr(encoding, "CHUNK", 500)
    tokenize(job(text, "char", path=str(tmp_path / "whole")), tmp_path / "parts")
    found = []
    # a document in parts is known by its first one, so another may be held out
    for folder in ("whole", "parts"):
        both = [Shards.open(tmp_path / folder, split) for split in ("train", "valid")]
        found.append(
            [sorted(np.concatenate([np.diff(shards.documents) for shards in both]).tolist())]
        )
        found[-1] += [
            sorted(np.concatenate([shards.counts[name] for shards in both]).tolist())
            for name in ("bytes", "characters")
        ]
    assert found[0] == found[1]
    assert found[0][0][-1] > 100


def test_held_out_documents(text: Path, tmp_path: Path) -> None:
    tokenize(job(text, valid_share=0.1), tmp_path / "a")
    paragraphs = text.read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "again.txt").write_text(
        "\n\n".join([*reversed(paragraphs), *paragraphs]), encoding="utf-8"
    )
    tokenize(job(tmp_path / "again.txt", "char", valid_share=0.1), tmp_path / "b")

    def held(folder: str, split: str) -> list[str]:
        shards, tokenizer = Shards.open(tmp_path / folder, split), Tokenizer.load(tmp_path / folder)
        return [
            "".join("".join(tokenizer.decode(s).split()) for s in document).lower()
            for document in texts_of(shards)
        ]

    assert 15 <= len(held("a", "valid")) <= 50
    # neither order, copies nor tokenizer matter
    assert set(held("a", "valid")) == set(held("b", "valid"))
    assert not set(held("b", "valid")) & set(held("b", "train"))
    assert len(held("b", "valid")) == 2 * len(held("a", "valid"))


def test_few_documents(tmp_path: Path) -> None:
    file = tmp_path / "two.txt"
    file.write_text("One is here.\n\nTwo is there.", encoding="utf-8")
    tokenize(job(file, "char"), tmp_path / "two")
    assert [
        len(Shards.open(tmp_path / "two", split).documents) - 1 for split in ("train", "valid")
    ] == [1, 1]
    file.write_text("One is here.\n\nOne is here.", encoding="utf-8")
    tokenize(job(file, "char"), tmp_path / "same")
    assert len(Shards.open(tmp_path / "same").documents) - 1 == 2
    empty = Shards.open(tmp_path / "same", "valid")
    assert (
        len(empty.ids),
        empty.sentences.tolist(),
        empty.documents.tolist(),
        len(empty.tracks["word_start"]),
    ) == (0, [0], [0], 0)


def test_a_valid_file_of_its_own(text: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text(
        text.read_text(encoding="utf-8").split("\n\n")[3] + "\n\nSomething else.", encoding="utf-8"
    )
    manifest = tokenize(job(text, valid=TextSource(valid)), tmp_path / "out")
    assert manifest["splits"]["valid"]["documents"] == 2
    assert manifest["dropped_from_train"] >= 1
    assert manifest["splits"]["train"]["documents"] == 300 - manifest["dropped_from_train"]


def test_the_manifest(text: Path, tmp_path: Path) -> None:
    manifest = tokenize(job(text), tmp_path / "out")
    assert manifest == json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["files"][0]["bytes"] == text.stat().st_size
    assert len(manifest["files"][0]["sha256"]) == 64
    assert manifest["files"][0]["lines"] == "paragraph"
    assert manifest["tokenizer"]["fingerprint"] == Tokenizer.load(tmp_path / "out").fingerprint
    assert manifest["settings"]["tokenizer"]["kind"] == "wordpiece"


def test_damage_is_seen(text: Path, tmp_path: Path) -> None:
    tokenize(job(text), tmp_path / "out")
    tokenize(job(text, "char"), tmp_path / "other")

    def broken(change: Any) -> Path:
        folder = tmp_path / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "out", folder)
        change(folder)
        return folder

    def cut(folder: Path) -> None:
        os.truncate(folder / "train.ids.npy", 400)

    def swap(folder: Path) -> None:
        shutil.rmtree(folder / "tokenizer")
        shutil.copytree(tmp_path / "other/tokenizer", folder / "tokenizer")

    def swap_offsets(folder: Path) -> None:
        offsets = np.load(folder / "train.sentences.npy")
        offsets[-1] -= 1
        np.save(folder / "train.sentences.npy", offsets)

    stated = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))["splits"][
        "train"
    ]["tokens"]
    with pytest.raises(
        DataError,
        match=rf"train\.ids\.npy: a damaged .* states uint16 \[{stated}\], the file has 400 bytes",
    ):
        Shards.open(broken(cut))
    with pytest.raises(
        DataError, match=r"train\.documents\.npy: a damaged token directory.* is missing"
    ):
        Shards.open(broken(lambda folder: (folder / "train.documents.npy").unlink()))
    with pytest.raises(
        DataError, match=rf"train\.ids\.npy: .* \[{stated}\], the file holds uint16 \[5\]"
    ):
        Shards.open(
            broken(lambda folder: np.save(folder / "train.ids.npy", np.zeros(5, np.uint16)))
        )
    with pytest.raises(
        DataError,
        match=rf"train\.sentences\.npy: .*goes from 0 to {stated - 1}, not from 0 to {stated}",
    ):
        Shards.open(broken(swap_offsets))
    with pytest.raises(DataError, match="is not the one its tokens were made with"):
        Shards.open(broken(swap))
    with pytest.raises(DataError, match="a damaged manifest"):
        Shards.open(broken(lambda folder: (folder / "manifest.json").write_text("{")))

    def go_back(folder: Path) -> None:
        offsets = np.load(folder / "train.documents.npy")
        offsets[1] = offsets[-1] + 5
        np.save(folder / "train.documents.npy", offsets)

    with pytest.raises(
        DataError,
        match=r"train\.documents\.npy: a damaged token directory: its offsets are not in order",
    ):
        Shards.open(broken(go_back))
    with pytest.raises(DataError, match="not a token directory"):
        Shards.open(tmp_path)
    with pytest.raises(DataError, match="tokens of another tokenizer"):
        Shards.open(tmp_path / "out", tokenizer=Tokenizer.load(tmp_path / "other"))
    folder = broken(lambda folder: None)
    data = bytearray((folder / "train.ids.npy").read_bytes())
    data[-1] ^= 1
    (folder / "train.ids.npy").write_bytes(data)
    with pytest.raises(
        DataError,
        match=r"train\.ids\.npy: its content has changed: sha256 \w+\.\.\. in the manifest",
    ):
        Shards.open(folder).verify()


def test_only_our_own_folders_are_replaced(text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").touch()
    with pytest.raises(UsageError, match="is not empty and holds no tokens"):
        tokenize(job(text), tmp_path / "mine")
    with pytest.raises(UsageError, match="is a file"):
        tokenize(job(text), text)
    for kind in ("wordpiece", "char"):
        tokenize(job(text, kind), tmp_path / "out")
    assert Tokenizer.load(tmp_path / "out").kind == "char"
    (tmp_path / "empty").mkdir()
    tokenize(job(text), tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "mine", "out", "text.txt"]


def test_a_full_disk_harms_nothing_and_what_is_done_is_kept(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenize(job(text), tmp_path / "out")
    before = contents(tmp_path / "out")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(split_writer.ArrayWriter, "append", full)
        with pytest.raises(
            DataError,
            match=(
                r"cannot be written \(No space left on device\); what is done(.|\n)*free some space"
            ),
        ):
            tokenize(job(text, "char"), tmp_path / "out")
    assert contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.partial", "out", "text.txt"]
    monkeypatch.setattr(tokenizing, "survey_text", None)  # the text is not surveyed again
    tokenize(job(text, "char"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt"]


@pytest.mark.parametrize("share", [-0.1, 1.0, 7])
def test_a_share_that_is_none(text: Path, tmp_path: Path, share: float) -> None:
    with pytest.raises(ConfigError, match=r"data\.valid_share"):
        tokenize(job(text, valid_share=share), tmp_path / "out")


def test_bad_input_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "tiny.txt").write_text("too little", encoding="utf-8")
    for name, message in (
        ("blank.txt", "no documents"),
        ("tiny.txt", "at most|single characters"),
        ("none.txt", "no such file"),
    ):
        with pytest.raises(PlmctlError, match=message):
            tokenize(job(tmp_path / name, vocab_size=5000), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blank.txt", "tiny.txt"]


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe", "byte_bpe"])
def test_a_vocabulary_that_nobody_asked_for_is_as_large_as_the_text_allows(
    text: Path, tmp_path: Path, kind: str
) -> None:
    told: list[str] = []
    wanted = {"vocab_size": 9000, "valid_share": 0, "processes": 1}
    with pytest.raises(TooLittleText) as refused:
        open_or_tokenize(job(text, kind, **wanted), cache_dir=tmp_path)
    free = job(text, kind, at_most=True, tell=told.append, **wanted)
    folder = open_or_tokenize(free, cache_dir=tmp_path)
    size = Tokenizer.load(folder / "tokenizer").vocab.size
    assert 60 < size == refused.value.size
    assert told == [f"tokenizer.vocab_size={size} instead of 9000: the text yields no more"]
    assert open_or_tokenize(free, cache_dir=tmp_path) == folder
    with pytest.raises(TooLittleText, match=f"fix: tokenizer.vocab_size={size}"):  # as before
        open_or_tokenize(job(text, kind, **wanted), cache_dir=tmp_path)


def test_a_shared_vocabulary_is_as_large_as_the_texts_allow(text: Path, tmp_path: Path) -> None:
    other = write_text(tmp_path / "other.txt", 20, seed=2)
    wanted = {"vocab_size": 9000, "valid_share": 0}
    free = [job(file, at_most=True, **wanted) for file in (text, other)]
    folder = share_tokenizer(free, cache_dir=tmp_path)
    assert 60 < Tokenizer.load(folder).vocab.size < 9000
    with pytest.raises(TooLittleText):
        share_tokenizer([job(file, **wanted) for file in (text, other)], cache_dir=tmp_path)


def test_the_cache(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_or_tokenize(job(text), cache_dir=tmp_path / "cache")
    stamp = (first / "manifest.json").stat().st_mtime_ns
    shutil.copy(text, tmp_path / "moved")
    (tmp_path / "moved").rename(tmp_path / "elsewhere.txt")
    assert open_or_tokenize(job(text), cache_dir=tmp_path / "cache") == first
    assert (first / "manifest.json").stat().st_mtime_ns == stamp
    assert open_or_tokenize(job(text, "char"), cache_dir=tmp_path / "cache") != first
    assert open_or_tokenize(job(text, valid_share=0.2), cache_dir=tmp_path / "cache") != first
    assert open_or_tokenize(job(text, processes=1), cache_dir=tmp_path / "cache") == first
    # tokens are taken as they are
    assert open_or_tokenize(job(first), cache_dir=tmp_path / "none") == first
    write_text(text, 300, seed=1)
    assert open_or_tokenize(job(text), cache_dir=tmp_path / "cache") != first
    monkeypatch.setenv("PLMCTL_CACHE", str(tmp_path / "named"))
    assert find_cache_folder() == tmp_path / "named"
    monkeypatch.delenv("PLMCTL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert find_cache_folder() == tmp_path / "xdg/plmctl"
