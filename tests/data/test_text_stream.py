"""Text that is tokenized as it is read: the tokens of a token directory, each row once in a round,
and the same rows again from any place on.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plmctl.analysis.sample import HELD_OUT, batch_held_out
from plmctl.artifacts.loading import load
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.segments import Segments
from plmctl.data.shards import Shards
from plmctl.data.stream_reader import StreamPosition, StreamReader
from plmctl.data.text_stream import StreamPlace, TextStream, TextWindow
from plmctl.runs.validation import score_parts
from plmctl.text.inputs import find_all
from plmctl.text.row_stream import stream_rows
from plmctl.training.evaluation import Measured
from tests.command import plmctl

SIZE = 3000  # characters of a window
Pair = tuple[int, int]  # the number of a window, a row of it


@pytest.fixture(scope="module")
def files(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three files of rows; of the second, some rows are empty, and the last has no end of line."""
    folder = tmp_path_factory.mktemp("stream")
    documents = small_text.read_text(encoding="utf-8").split("\n\n")[:48]
    documents = [document[:900] for document in documents]
    made = []
    for number in range(3):
        rows = [json.dumps({"n": n, "body": text}) for n, text in enumerate(documents[number::3])]
        rows[4:4] = ["", json.dumps({"body": "  "})] if number == 1 else []
        made.append(folder / f"{number}.jsonl")
        made[-1].write_text("\n".join(rows) + ("\n" if number != 1 else ""), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def home(tokens_of: Callable[..., Path]) -> Path:
    return tokens_of("wordpiece") / "tokenizer"


@pytest.fixture
def stream(files: list[Path], home: Path) -> TextStream:
    return open_text(files, home)


def open_text(files: list[Path], home: Path, **other: int) -> TextStream:
    how = {"field": "body", "lines": "auto", "segment": None, "size": SIZE, **other}
    return TextStream(files, home, **how)  # type: ignore[arg-type]


def read_round(stream: TextStream) -> list[tuple[StreamPlace, TextWindow]]:
    place, windows = StreamPlace(), list[tuple[StreamPlace, TextWindow]]()
    while place.round == 0:
        window = stream.read(place)
        windows.append((place, window))
        place = window.after
    return windows


def read_rows(
    reader: StreamReader, batches: int, position: StreamPosition | None = None
) -> tuple[list[Pair], StreamPosition]:
    position, found = position or StreamPosition(), list[Pair]()
    for _ in range(batches):
        picks, position = reader.take(position)
        found += zip(picks.epoch.tolist(), picks.index.tolist(), strict=True)
    return found, position


def make_reader(stream: TextStream, **how: int) -> StreamReader:
    rows = Blocks(vocab=stream.tokenizer.vocab, max_length=32, crossing=False, specials=True)
    return StreamReader(stream, rows, **{"seed": 3, "batch_size": 7, **how})


def test_the_windows_of_a_round_are_the_tokens_of_a_directory(
    files: list[Path], home: Path, stream: TextStream, tmp_path: Path
) -> None:
    plmctl(
        *("tokenize", f"data.path=[{','.join(map(str, files))}]", "data.field=body"),
        *(f"tokenizer.path={home}", "data.valid_share=0", f"out={tmp_path / 'out'}"),
    )
    whole = Shards.open(tmp_path / "out")
    windows = [window.shards for _, window in read_round(stream)]
    assert len(windows) > 3
    np.testing.assert_array_equal(np.concatenate([own.ids for own in windows]), whole.ids)
    for name, track in whole.tracks.items():
        joined = np.concatenate([own.tracks[name] for own in windows])
        np.testing.assert_array_equal(joined, track)
    for name, counts in whole.counts.items():
        joined = np.concatenate([own.counts[name] for own in windows])
        np.testing.assert_array_equal(joined, counts)
    for name in ("sentences", "documents"):
        sizes = np.concatenate([np.diff(getattr(own, name)) for own in windows])
        np.testing.assert_array_equal(sizes, np.diff(getattr(whole, name)))


def test_no_window_is_less_than_half_of_one(stream: TextStream) -> None:
    characters = [int(own.shards.counts["characters"].sum()) for _, own in read_round(stream)]
    assert min(characters) >= SIZE / 2
    assert max(characters) <= 2 * SIZE
    assert len({own.shards.fingerprint for _, own in read_round(stream)}) == len(characters)


def test_every_row_is_read_once_in_a_round_and_in_another_order_in_the_next(
    stream: TextStream,
) -> None:
    reader, windows = make_reader(stream), read_round(stream)
    counts = [len(reader._make(window.shards).order(0)) for _, window in windows]
    rows = sum(counts)
    found, position = read_rows(reader, 2 * rows // 7 + 1)
    numbers = [n for n, _ in found[: 2 * rows]]
    assert numbers == [n for n in range(2 * len(windows)) for _ in range(counts[n % len(counts)])]
    by_window = [[row for n, row in found if n == number] for number in range(len(counts) + 1)]
    for number, count in enumerate(counts):
        assert sorted(by_window[number]) == list(range(count))
    assert by_window[0] != by_window[len(counts)]  # the first window again
    assert position.begin.round == 2
    assert reader.rows_per_epoch == pytest.approx(rows, rel=0.3)


def test_from_any_place_the_same_rows_follow(files: list[Path], home: Path) -> None:
    reader = make_reader(open_text(files, home))
    position, states, rows = StreamPosition(), [], []
    for _ in range(40):
        reader.position = position
        states.append(json.loads(json.dumps(reader.state_dict())))
        picks, position = reader.take(position)
        rows.append([part.rows.seqs["text"].ids for part in reader.parts(picks)])
    for number in (0, 1, 6, 17, 30):
        other = make_reader(open_text(files, home))
        other.load_state_dict(states[number])
        position = other.position
        for wanted in rows[number : number + 8]:
            picks, position = other.take(position)
            for part, ids in zip(other.parts(picks), wanted, strict=True):
                np.testing.assert_array_equal(part.rows.seqs["text"].ids, ids)


def test_windows_that_fill_no_row_are_passed_over(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows are those of a stream without the texts of one token, from any place on."""
    long = [f"{word} words of a text " * 20 for word in ("some", "more", "other", "newer")]
    short = "x" * 500  # of a window's size, and too long to be known
    texts = {"plain": long, "mixed": [short, *long[:2], short, short, *long[2:], short]}

    def open_reader(name: str, length: int = 64) -> StreamReader:
        rows = [json.dumps({"body": text}) + "\n" for text in texts[name]]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
        stream = open_text([tmp_path / f"{name}.jsonl"], home, size=400)
        kind = Blocks(
            vocab=stream.tokenizer.vocab, max_length=length, crossing=False, specials=True
        )
        return StreamReader(stream, kind, seed=3, batch_size=1)

    def read(reader: StreamReader, position: StreamPosition) -> tuple[np.ndarray, StreamPosition]:
        picks, after = reader.take(position)
        (part,) = reader.parts(picks)
        return part.rows.seqs["text"].ids, after

    plain, mixed = open_reader("plain"), open_reader("mixed")
    at, place = StreamPosition(), StreamPosition()
    while at.begin.round < 2:
        mixed.position = place
        again = open_reader("mixed")
        again.load_state_dict(json.loads(json.dumps(mixed.state_dict())))
        wanted, at = read(plain, at)
        np.testing.assert_array_equal(read(again, again.position)[0], wanted)
        ids, place = read(mixed, place)
        np.testing.assert_array_equal(ids, wanted)
    told = "no row of format.max_length=64 is filled by 1 token in 1 document: passed over"
    assert told in capsys.readouterr().err
    with pytest.raises(DataError, match=r"no window of about 400 characters(.|\n)*data\.window"):
        open_reader("mixed", 4000)


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_each_batch(stream: TextStream, world: int) -> None:
    alone = make_reader(stream)
    ranks = [make_reader(stream, world=world, rank=rank) for rank in range(world)]
    position = StreamPosition()
    for _ in range(9):
        whole, after = alone.take(position)
        shares = [rank.take(position) for rank in ranks]
        assert {own for _, own in shares} == {after}
        assert np.concatenate([own.index for own, _ in shares]).tolist() == whole.index.tolist()
        position = after


def test_another_text_is_not_gone_on_with(files: list[Path], home: Path, tmp_path: Path) -> None:
    state = make_reader(open_text(files, home)).state_dict()
    for other in (open_text(files[:2], home), open_text(files, home, size=SIZE + 1)):
        with pytest.raises(DataError, match="the checkpoint was reading another text"):
            make_reader(other).load_state_dict(state)
    wrong = {**state, "file": 0, "byte": 1 << 40}
    with pytest.raises(ValueError, match="is no position in these files"):
        make_reader(open_text(files, home)).load_state_dict(wrong)


def test_rows_that_go_on_from_batch_to_batch_are_refused(stream: TextStream) -> None:
    rows = Segments(vocab=stream.tokenizer.vocab, max_length=16, streams=2, shuffled=False)
    with pytest.raises(
        ConfigError, match=r"data\.streaming=True: not read in windows: rows of this format"
    ):
        StreamReader(stream, rows, seed=0, batch_size=2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"body": 1\n', r"a\.jsonl:4: not JSON"),
        (b"[1]\n", r"a\.jsonl:4: this line has a list"),
        (b'{"body": "\xe9"}\n', r"a\.jsonl:4: not UTF-8: byte 0xe9"),
        (b'{"text": "x"}\n', r"a\.jsonl:4: no text in a field 'body'"),
        (b'{"body": 7}\n', r"a\.jsonl:4: the field 'body' holds 7"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, home: Path, line: bytes, message: str) -> None:
    file = tmp_path / "a.jsonl"
    rows = [json.dumps({"body": "some words of a text " * 9}).encode() + b"\n" for _ in range(3)]
    file.write_bytes(rows[0] + b"\n" + rows[1] + line + b"".join(rows))
    layout = tmp_path / "first.jsonl"  # the layout is found in the first rows
    layout.write_bytes(b"".join(rows))
    stream = open_text([layout], home)
    stream.files, stream.bytes = [file], [file.stat().st_size]
    with pytest.raises(DataError, match=message):
        stream.read(StreamPlace(1, 0, 0))
    with pytest.raises(DataError, match=message):
        stream._read(StreamPlace(0, 0, len(rows[0]) + 1))


def test_rows_from_a_byte_on(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": 2}\n{"a": 3}')
    found = list(stream_rows(file, 0))
    assert [row["a"] for row, _, _ in found] == [1, 2, 3]
    for number, (_, start, end) in enumerate(found):
        assert list(stream_rows(file, end)) == found[number + 1 :]
        assert json.loads(file.read_bytes()[start:end].decode("utf-8-sig"))["a"] == number + 1


SMALL = [
    *("size=tiny", "size.width=32", "size.inner_width=64", "size.num_layers=1"),
    *("format.max_length=32", "train.batch_size=4", "train.precision=fp32", "train.threads=1"),
    *("train.steps=8", "train.save_every=4", "train.eval_every=0", "train.keep_last=9"),
    *("data.field=body", "data.streaming=true", "eval.rows=8"),
]


@pytest.mark.slow  # rows and the places to go on from are compared in the tests before
def test_a_run_reads_a_stream_and_goes_on_bit_for_bit(
    files: list[Path], home: Path, small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, cache = tmp_path / "run", tmp_path / "cache"
    words = [
        *("pretrain", "bert", *SMALL, f"data.path={files[0].parent}/*.jsonl"),
        *("format=blocks", "objective=[mlm]", "data.window=2000", f"data.cache_dir={cache}"),
        *(f"tokenizer.path={home}", f"data.valid_path={small_text}", f"run.dir={run}"),
    ]
    plmctl(*words)
    assert len(list(cache.glob("*/manifest.json"))) == 1  # of the held-out text alone
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (bits,) = (line["valid/bits_per_byte/mlm"] for line in lines if "valid/loss/mlm" in line)
    assert 0.5 < bits < 20  # its bytes are counted
    last = run / "checkpoints" / "step-8"
    saved = (last / "model.safetensors").read_bytes()
    reader = json.loads((run / "checkpoints" / "step-4" / "trainer.json").read_text())
    assert '"byte"' in json.dumps(reader)
    shutil.rmtree(last)
    plmctl("pretrain", "--resume", f"run.dir={run}")
    assert (last / "model.safetensors").read_bytes() == saved
    other = plmctl("eval", f"checkpoint={run}", "task=held_out", f"data.path={small_text}")
    assert "mlm" in other
    # a report reads what was held out, and no window of the text
    monkeypatch.delattr(TextStream, "_read")
    assert batch_held_out(load(run))[1] == HELD_OUT


def test_text_whose_bytes_are_not_counted_has_no_bits_per_byte() -> None:
    parts = {"a": Measured({"loss/mlm": [12.0, 4]}, {"loss/mlm": 1.0})}
    bits = score_parts(parts, {"a": 3.0}, ["mlm"])["bits_per_byte/mlm"]
    assert bits == pytest.approx(1 / math.log(2))
    lost = score_parts(parts, {"a": 0.0}, ["mlm"])
    assert lost == {"loss": 3.0, "loss/mlm": 3.0, "perplexity/mlm": math.exp(3)}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["data.path=null"], "data.streaming=True: false: it reads .jsonl files"),
        (["data.valid_share=0.1"], "which nothing is held out of"),
        (["tokenizer.path=null"], "there is no text yet to train one on"),
        (["train.steps=null", "train.epochs=2"], "nobody has counted the rows of a stream"),
        (["train.share=0.5"], "nobody has counted the text"),
        (["data.tags=[pos]"], "data.tags=['pos']: not with data.streaming"),
        (
            ["data.streaming=false", "data.window=5"],
            "only with data.streaming=true, or with tokens in shards",
        ),
    ],
)
def test_what_a_stream_cannot_do_is_refused(
    files: list[Path], home: Path, tmp_path: Path, words: list[str], told: str
) -> None:
    given = [f"data.path={files[0]}", f"tokenizer.path={home}", f"run.dir={tmp_path / 'run'}"]
    said = plmctl("pretrain", "bert", *SMALL, *given, *words, code=2)
    assert told in " ".join(said.split())
    assert not (tmp_path / "run").exists()


def test_packed_files_are_refused(files: list[Path], home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"\x1f\x8b")
    assert len(find_all(str(tmp_path / "a.jsonl.gz"))) == 1
    given = [f"data.path={tmp_path / 'a.jsonl.gz'}", f"tokenizer.path={home}"]
    said = plmctl("pretrain", "bert", *SMALL, *given, f"run.dir={tmp_path / 'run'}", code=3)
    assert "files of JSON lines that are not packed" in said or "damaged gzip" in said
