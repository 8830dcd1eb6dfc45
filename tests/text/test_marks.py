"""Marks of the input (entities, senses): from character offsets to tokens, and what is said of
bad ones.
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.data import encoding, split_writer, tokenizing
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob
from plmctl.text import reader
from plmctl.text.document import Document
from plmctl.text.marks import count_characters
from plmctl.text.reader import read_documents
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import KINDS as RECIPES
from tests.text.test_tokenizer import CHINESE, KINDS, TEXTS

PARTS = [
    "The naïve café",
    "北京大学",
    "on Main Street",
    "🙂👩‍👧",
    "is new",
    "图书馆",
    "Ⅷ and ﬁne",
    "𠀀𪚥",
    "x1",
    "Dr. Who",
]
ENDS = [". ", "。", "!  ", "\n", "\r\n\r\n  ", "，", " ", "\t", "? "]


def records(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of parts and ends; about half of the parts are entities (id = number of the part +
    1), some of them senses.
    """
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        text, marked = " " * int(rng.integers(3)), {"entity": [], "sense": []}
        for _ in range(int(rng.integers(1, 12))):
            number = int(rng.integers(len(PARTS)))
            for name, share in (("entity", 0.5), ("sense", 0.3)):
                if rng.random() < share:
                    marked[name].append(
                        {
                            "start": len(text),
                            "end": len(text) + len(PARTS[number]),
                            "id": number + 1,
                        }
                    )
            text += PARTS[number] + ENDS[int(rng.integers(len(ENDS)))]
        for name in marked:
            rng.shuffle(marked[name])
        found.append({"title": "kept out", "text": text, **marked})
    return found


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text(
        "".join(json.dumps(row, ensure_ascii=bool(n % 2)) + "\n" for n, row in enumerate(rows)),
        encoding="utf-8",
    )
    return file


def made(folder: Path, rows: list[dict[str, Any]], recipe: Any, **how: Any) -> dict[str, Any]:
    file = write(folder / "a.jsonl", rows)
    source = TextSource(
        str(file), lines=how.pop("lines", "auto"), spans=("entity",), tags=("sense",)
    )
    return tokenizing.tokenize(
        TokenizingJob(source, recipe, valid_share=how.pop("valid_share", 0), processes=1),
        folder / "out",
    )


def tokens_by_hand(
    tokenizer: Tokenizer, row: dict[str, Any]
) -> tuple[list[tuple[int, int, int]], list[int], int]:
    """(token spans, sense of each token, number of tokens), by looking for each sentence in the
    text itself.
    """
    text, at, count = row["text"], 0, 0
    tokens: list[tuple[int, int, int]] = []  # start and end in the text, sentence
    given = Document(
        [line.rstrip() for line in text.replace("\r\n", "\n").split("\n") if line.strip()], ""
    )
    for number, sentence in enumerate(given.sentences):
        at = text.index(sentence, at)
        offsets = tokenizer.encode_offsets(sentence)[1]
        tokens += [(at + start, at + end, number) for start, end in offsets]
        at += len(sentence)
    spans, senses = [], [0] * len(tokens)
    for name in ("entity", "sense"):
        taken = -1
        for mark in sorted(row[name], key=lambda mark: mark["start"]):
            inside = [
                n
                for n, (start, end, _) in enumerate(tokens)
                if start < mark["end"] and end > mark["start"]
            ]
            if not inside or len({tokens[n][2] for n in inside}) > 1 or inside[0] <= taken:
                continue
            taken = inside[-1]
            if name == "entity":
                spans.append((count + inside[0], len(inside), mark["id"]))
            else:
                senses[inside[0] : taken + 1] = [mark["id"]] * len(inside)
    return spans, senses, len(tokens)


def bare(text: str) -> str:
    """Letters only: without case, accents, white space and forms that normalisation joins."""
    kept = unicodedata.normalize("NFKD", "".join(text.casefold().split()))
    return "".join(
        c for c in kept if not unicodedata.combining(c) and unicodedata.category(c) != "Cf"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith(("byte", "char"))])
def test_against_the_text_itself(tmp_path: Path, name: str) -> None:
    rows = records(120)
    texts = [*TEXTS[:300], *(row["text"] for row in rows)]
    tokenizer = Tokenizer.train(texts, kind=name.split()[0], **{**KINDS[name], "vocab_size": 600})
    tokenizer.save(tmp_path / "tokenizer")
    made(
        tmp_path, rows, RECIPES[tokenizer.kind](path=str(tmp_path / "tokenizer")), lines="paragraph"
    )
    shards = Shards.open(tmp_path / "out")
    shards.verify()
    spans, senses, size = [], [], 0
    for row in rows:
        by_hand, tags, count = tokens_by_hand(tokenizer, row)
        spans += [(start + size, length, identity) for start, length, identity in by_hand]
        senses += tags
        size += count
    assert size == len(shards.ids)
    assert list(zip(*(part.tolist() for part in shards.spans["entity"]), strict=True)) == spans
    assert shards.tracks["sense"].tolist() == senses
    assert len(spans) > 200


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KINDS)
def test_the_tokens_of_a_span_are_its_mention(tmp_path: Path, name: str) -> None:
    rows = [{**row, "sense": []} for row in records(150, seed=1)]
    texts = [*TEXTS[:300], CHINESE, *(row["text"] for row in rows)]
    tokenizer = Tokenizer.train(texts, kind=name.split()[0], **KINDS[name] | {"vocab_size": 600})
    tokenizer.save(tmp_path / "tokenizer")
    made(tmp_path, rows, RECIPES[tokenizer.kind](path=str(tmp_path / "tokenizer")))
    shards = Shards.open(tmp_path / "out")
    track, wider = shards.spans["entity"], 0
    assert (track.start.dtype, track.length.dtype, track.id.dtype) == (np.int64, np.int32, np.int64)
    assert (track.start[1:] >= track.start[:-1] + track.length[:-1]).all()
    for start, length, identity in zip(*track, strict=True):
        ids, mention = shards.ids[start : start + length], bare(PARTS[identity - 1])
        if tokenizer.vocab.unk in ids:
            continue
        found = bare(tokenizer.decode(ids))
        assert mention in found
        wider += found != mention
        if tokenizer.kind in ("char", "byte_bpe") and found == mention:
            assert tokenizer.decode(ids).strip() == PARTS[identity - 1]
    # a token may hold the punctuation mark or word beside it as well
    assert wider < 0.1 * len(track.start)
    if tokenizer.kind in ("char", "wordpiece"):
        assert wider == 0
    whole = sum(len(row["entity"]) for row in rows) - sum(shards.manifest["left_out"].values())
    assert len(track.start) == whole


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lines", ["paragraph", "sentence", "wrapped"])
def test_any_layout(tmp_path: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**row, "sense": row["entity"]} for row in records(80, seed=2)]
    made(tmp_path, rows, RECIPES["char"](vocab_size=200), lines=lines)
    shards = Shards.open(tmp_path / "out")
    tokenizer, track = Tokenizer.load(tmp_path / "out"), shards.spans["entity"]
    assert len(track.start) > 150
    for start, length, identity in zip(*track, strict=True):
        assert tokenizer.decode(shards.ids[start : start + length]) == PARTS[identity - 1]
    covered = np.zeros(len(shards.ids), int)
    for start, length, identity in zip(*track, strict=True):
        covered[start : start + length] = identity
    assert (shards.tracks["sense"] == covered).all()
    monkeypatch.setattr(encoding, "CHUNK", 500)
    (tmp_path / "small").mkdir()
    made(tmp_path / "small", rows, RECIPES["char"](vocab_size=200), lines=lines)
    assert Shards.open(tmp_path / "small/out").fingerprint == shards.fingerprint
    monkeypatch.setattr(reader, "PART", 50)  # documents in parts
    (tmp_path / "parts").mkdir()
    recipe = RECIPES["char"](path=str(tmp_path / "out"))
    made(tmp_path / "parts", rows, recipe, lines=lines)
    parts = Shards.open(tmp_path / "parts/out").spans["entity"]
    assert [part.tolist() for part in parts] == [part.tolist() for part in track]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    row = {
        "text": "One two. Three four.  Five",
        "sense": [],
        "entity": [
            {"start": 0, "end": 3},
            {"start": 4, "end": 14},
            {"start": 20, "end": 22, "id": 5},
            {"start": 22, "end": 24},
            {"start": 24, "end": 26},
        ],
    }
    manifest = made(tmp_path, [row] * 30, RECIPES["word"](vocab_size=30))
    assert manifest["left_out"] == {
        "'entity' across the end of a sentence": 30,
        "'entity' without a token": 30,
        "'entity' that share a token with the one before": 30,
    }
    assert Shards.open(tmp_path / "out").spans["entity"].id.tolist() == [0] * 60


FINE = '{"text": "Anna met Bo.", "entity": [{"start": 0, "end": 4, "id": 1}], "sense": []}\n'
BAD = {
    "type": (
        {"entity": [{"start": "0", "end": 4}]},
        r"'entity'\[0\]: 'start' is '0', not a whole number",
    ),
    "float": ({"entity": [{"start": 0.0, "end": 4}]}, r"'start' is 0\.0, not a whole number"),
    "bool": ({"entity": [{"start": False, "end": 4}]}, "'start' is False, not a whole number"),
    "string id": (
        {"entity": [{"start": 0, "end": 4, "id": "Q42"}]},
        "'id' is 'Q42', not a whole number",
    ),
    "key": (
        {"entity": [{"start": 0, "end": 4, "di": 4}]},
        "has an unknown key 'di'; it takes start, end, id",
    ),
    "missing": ({"entity": [{"start": 0}]}, r"'entity'\[0\]: has no 'end'"),
    "pair": ({"entity": [[0, 4]]}, r"'entity'\[0\]: is \[0, 4\], not an object"),
    "outside": (
        {"entity": [{"start": 0, "end": 13}]},
        r"0\.\.13 lies outside the text, which has 12 char(.|\n)*code points",
    ),
    "negative": ({"entity": [{"start": -1, "end": 4}]}, r"-1\.\.4 lies outside"),
    "empty": ({"entity": [{"start": 4, "end": 4}]}, "ends at 4, not after its start 4"),
    "overlap": (
        {"entity": [{"start": 9, "end": 11}, {"start": 0, "end": 4}, {"start": 3, "end": 6}]},
        r"'entity'\[2\]: 3\.\.6 overlaps 0\.\.4 \(number 1\)(.|\n)*data.spans=\[outer,inner\]",
    ),
    "object": ({"entity": {"start": 0}}, "'entity' is an object, where a list is expected"),
    "number": ({"entity": 3}, "'entity' is a number, where a list is expected"),
    "no field": ({"entities": []}, r"no list in a field 'entity' .*did you mean 'entities'"),
    "tag without id": (
        {"entity": [], "sense": [{"start": 0, "end": 4}]},
        r"'sense'\[0\]: has no 'id'",
    ),
    "tag 0": (
        {"entity": [], "sense": [{"start": 0, "end": 4, "id": 0}]},
        r"its id 0 is not in 1\.\.2147483647\n  fix: # number them from 1 \(0: no tag\)",
    ),
    "large tag": (
        {"entity": [], "sense": [{"start": 0, "end": 4, "id": 1 << 31}]},
        "is not in 1..2147483647",
    ),
    "negative span": (
        {"entity": [{"start": 0, "end": 4, "id": -4}]},
        r"its id -4 is not in 0\.\.\d+\n  fix: # number them from 0, as the lines of entities",
    ),
    "large span": (
        {"entity": [{"start": 0, "end": 4, "id": 1 << 63}]},
        "is not in 0..9223372036854775807",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_marks(tmp_path: Path, name: str) -> None:
    row, message = BAD[name]
    (tmp_path / "a.jsonl").write_text(
        FINE + json.dumps({"text": "Anna met Bo.", "sense": [], **row}), encoding="utf-8"
    )
    with pytest.raises(
        DataError, match=rf"a\.jsonl:2: {'' if 'no ' in name else '.*'}{message}"
    ) as caught:
        list(read_documents(tmp_path / "a.jsonl", spans=["entity"], tags=["sense"]))
    assert "\n  fix: " in str(caught.value)


def test_marks_need_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Text.", encoding="utf-8")
    for path in (tmp_path / "a.txt", None):
        with pytest.raises(
            DataError, match=r"data\.spans and data\.tags \(entity\) need rows with fields"
        ):
            list(read_documents(path, spans=["entity"]))


@pytest.mark.parametrize("wrong", ["ids", "word_start", "a.b", "sense"])
def test_bad_names_of_tracks(tmp_path: Path, wrong: str) -> None:
    write(tmp_path / "a.jsonl", records(3))
    with pytest.raises(
        ConfigError, match=r"data\.(spans|tags)=.*names of letters and digits, each once"
    ):
        TextSource(str(tmp_path / "a.jsonl"), spans=(wrong,), tags=("sense",))


def test_ink() -> None:
    text = " a\u3000中\n🙂\u200b\ud800 b\x85"
    assert count_characters(text).tolist() == [
        sum(not c.isspace() for c in text[:n]) for n in range(len(text) + 1)
    ]
    assert "".join(text.split()) == "".join(c for c in text if not c.isspace())


def test_damaged_spans(tmp_path: Path) -> None:
    made(tmp_path, records(20), RECIPES["char"]())
    file = tmp_path / "out/train.entity.id.npy"
    np.save(file, np.zeros(3, np.int64))
    with pytest.raises(DataError, match=r"train\.entity\.id\.npy"):
        Shards.open(tmp_path / "out")
    file.unlink()
    with pytest.raises(DataError, match=r"train\.entity\.id\.npy"):
        Shards.open(tmp_path / "out")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("stop", [2, 9, 17])
def test_a_stopped_write_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    rows = [*records(100), {"text": "   .", "entity": [{"start": 0, "end": 2}], "sense": []}]
    rows = [rows[(7 * n) % 101] for n in range(202)]
    monkeypatch.setattr(encoding, "CHUNK", 600)
    monkeypatch.setattr(tokenizing, "EVERY", 1000)
    recipe, whole = RECIPES["char"](vocab_size=200), tmp_path / "whole"
    whole.mkdir()
    made(whole, rows, recipe)
    append, calls = split_writer.SplitWriter.append, iter(range(stop))

    def stopped(split: Any, found: Any) -> None:
        append(split, found)
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(split_writer.SplitWriter, "append", stopped)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path, rows, recipe)
    assert (tmp_path / ".out.partial/journal.json").exists()
    made(tmp_path, rows, recipe)
    files = {
        file.name: file.read_bytes() for file in (whole / "out").iterdir() if file.suffix == ".npy"
    }
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files} == files
    left = [
        json.loads((place / "out/manifest.json").read_text(encoding="utf-8"))["left_out"]
        for place in (whole, tmp_path)
    ]
    assert left[0] == left[1] != {}
