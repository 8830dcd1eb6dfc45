"""Tokens in shards: cut, read here and from a URL, through a cache of bounded size."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.faulty_store import open_store
from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.data import located
from plmctl.data.formats.blocks import Blocks
from plmctl.data.located import locate
from plmctl.data.parts import Parts
from plmctl.data.shard_files import FileShards, list_shards, map_shard, open_beginning
from plmctl.data.shards import Shards, is_tokens, read_manifest
from plmctl.data.stream_reader import StreamReader
from plmctl.data.survey import TextSource
from plmctl.data.text_stream import StreamPlace
from plmctl.data.tokenizing import TokenizingJob, tokenize
from plmctl.inputs.sharded import open_held_out_shard, open_shards
from plmctl.storage import remote
from plmctl.storage.file_cache import FileCache
from plmctl.storage.remote import is_url, read_url
from plmctl.text.train import KINDS
from tests.command import plmctl
from tests.data.test_parts import sentence
from tests.data.test_tokenize_resume import contents
from tests.training.toy import curve

TOKENS = 900


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same text in one piece, in `whole`, and in shards, in `cut`."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("corpora")
    marks = [[{"start": 0, "end": 2, "id": n}] for n in range(300)]
    rows = [json.dumps({"text": sentence(rng, 50), "who": own}) for own in marks]
    (folder / "x.jsonl").write_text("\n".join(rows), encoding="utf-8")
    source = TextSource(str(folder / "x.jsonl"), spans=("who",))
    for name, tokens in (("whole", None), ("cut", TOKENS)):
        recipe = KINDS["wordpiece"](vocab_size=75)
        tokenize(TokenizingJob(source, recipe, processes=1, shard_tokens=tokens), folder / name)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLMCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "FIRST", 0.001)
    located._copy_home.cache_clear()


def open_stream(path: object, cache_size: float = 20.0, window: int = 1, share: float = 1.0):
    data = Data(cache_size=cache_size)
    return open_shards(locate(path), path, data, window=window, share=share)


def read_rows(stream, count: int, batch: int = 8, position=None) -> tuple[list[np.ndarray], object]:
    """The ids of the rows of some updates."""
    reader = StreamReader(
        stream,
        Blocks(vocab=stream.tokenizer.vocab, max_length=32, crossing=True, specials=False),
        seed=3,
        batch_size=batch,
    )
    if position is not None:
        reader.load_state_dict(position)
    found = []
    for _ in range(count):
        picks, reader.position = reader.take(reader.position)
        rows = [part.rows.seqs["text"].ids for part in reader.parts(picks)]
        found.append(np.concatenate(rows))
    return found, reader.state_dict()


def test_the_shards_are_the_arrays(corpora: Path) -> None:
    whole, manifest = Shards.open(corpora / "whole"), read_manifest(corpora / "cut")
    entries = list_shards(manifest, "train")
    assert len(entries) == 10
    files = [corpora / "cut" / entry.file for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        assert entry.bytes == file.stat().st_size
        assert entry.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        assert TOKENS / 2 < entry.tokens <= TOKENS or file == files[-1]
        assert {name: a.tolist() for name, a in load_file(file).items()} == {
            name: a.tolist() for name, a in map_shard(file, entry).items()
        }
    opened = [
        (file, entry, map_shard(file, entry)) for file, entry in zip(files, entries, strict=True)
    ]
    joined = FileShards(corpora / "cut", "train", manifest, opened, "")
    for name in ("ids", "sentences", "documents"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))
    assert all(
        np.array_equal(a, b) for a, b in zip(joined.spans["who"], whole.spans["who"], strict=True)
    )
    assert all(np.array_equal(joined.counts[name], whole.counts[name]) for name in whole.counts)
    held = open_held_out_shard(corpora / "cut", str(corpora / "cut"), Data())
    assert np.array_equal(held.ids, Shards.open(corpora / "whole", "valid").ids)
    assert not list((corpora / "cut").glob("*.npy"))
    with pytest.raises(DataError, match="plmctl pretrain alone reads"):
        Shards.open(corpora / "cut")
    assert len(open_beginning(corpora / "cut").ids) == entries[0].tokens


def test_parts_are_cut_alike(corpora: Path, tmp_path: Path) -> None:
    source = TextSource(str(corpora / "x.jsonl"), spans=("who",))
    recipe = KINDS["wordpiece"](vocab_size=75)
    job = TokenizingJob(source, recipe, processes=1, shard_tokens=TOKENS)
    parts = Parts(job, tmp_path / "cut", 3, str)
    for part in range(3):
        parts.write(part)
    parts.join()
    assert contents(tmp_path / "cut") == contents(corpora / "cut")


@pytest.mark.parametrize("window", [1, 12_000])
def test_every_row_once_in_a_round_in_a_new_order(corpora: Path, window: int) -> None:
    stream = open_stream(str(corpora / "cut"), window=window)
    orders = []
    for round in range(2):
        at, seen, ids = StreamPlace(round), [], []
        while at.round == round:
            found = stream.read(at)
            seen.append(found.shards.fingerprint)
            ids.append(np.asarray(found.shards.ids))
            at = found.after
        orders.append(seen)
        assert sum(map(len, ids)) == len(Shards.open(corpora / "whole").ids)
    assert orders[0] != orders[1]
    if window == 1:
        assert sorted(orders[0]) == sorted(orders[1])
    assert len(orders[0]) < len(list_shards(read_manifest(corpora / "cut"), "train")) or window == 1


def test_a_share_is_part_of_a_larger_one(corpora: Path) -> None:
    few, more = (open_stream(str(corpora / "cut"), share=share) for share in (0.2, 0.5))
    assert {*few.bytes} <= {*more.bytes}
    assert len(few.files) < len(more.files)


def faults(path: str, number: int) -> int | str:
    """Every first request for a shard fails, in turn by a status, half an answer, a bit."""
    if "train" not in path or number > 1:
        return ""
    return [503, 429, "cut", "flip", "whole", 500][int(path[-17:-12]) % 6]


def test_the_same_rows_from_a_url_with_faults_and_a_small_cache(corpora: Path) -> None:
    straight, _ = read_rows(open_stream(str(corpora / "cut")), 30)
    entries = list_shards(read_manifest(corpora / "cut"), "train")
    limit = 3.5 * max(entry.bytes for entry in entries)
    with open_store(corpora, faults) as store:
        url = f"{store.url}/cut"
        assert is_tokens(url)
        found, state = read_rows(open_stream(url, limit / 1e9), 20)
        cache = Path(os.environ["PLMCTL_CACHE"]) / "shards"
        kept = [file.stat().st_size for file in cache.glob("*.file")]
        assert sum(kept) <= limit
        assert len(kept) >= 2
        for _ in range(500):  # what is fetched ahead may be on its way
            if not (partial := list(cache.glob("*.partial"))):
                break
            time.sleep(0.01)
        assert not partial
        assert store.asked["/cut/manifest.json"] == 1
        located._copy_home.cache_clear()
        again, _ = read_rows(open_stream(url, limit / 1e9), 10, position=state)
    assert all(np.array_equal(a, b) for a, b in zip(straight, [*found, *again], strict=True))


@pytest.mark.parametrize("fault", [503, "cut"])
def test_a_store_that_stays_away_is_named(corpora: Path, fault: int | str) -> None:
    with open_store(corpora, lambda path, number: fault) as store:
        with pytest.raises(DataError, match=r"/x.jsonl: cannot be read, after 6 tries"):
            read_url(f"{store.url}/x.jsonl")
        assert store.asked["/x.jsonl"] == 6


def test_no_right_and_no_such_url_are_not_tried_again(corpora: Path) -> None:
    with open_store(corpora, lambda path, number: 403) as store:
        with pytest.raises(DataError, match="there is no right to read it"):
            locate(f"{store.url}/cut")
        assert store.asked["/cut/manifest.json"] == 1
    with open_store(corpora) as store:
        with pytest.raises(DataError, match=r"cat/manifest.json: there is no such file"):
            locate(f"{store.url}/cat")
        with pytest.raises(DataError, match=r"(?s)in one piece.*shard_tokens"):
            locate(f"{store.url}/whole")
        with pytest.raises(ConfigError, match="bytes of the largest shard"):
            open_stream(f"{store.url}/cut", 1e-6)


@pytest.mark.parametrize("change", ["cut", "other"])
def test_a_changed_or_half_written_shard_is_named(
    corpora: Path, tmp_path: Path, change: str
) -> None:
    shutil.copytree(corpora / "cut", tmp_path / "cut")
    for file in (tmp_path / "cut").glob("train-*"):
        content = file.read_bytes()
        file.write_bytes(content[:-99] if change == "cut" else content[:-1] + b"\x07")
    with open_store(tmp_path) as store:
        stream = open_stream(f"{store.url}/cut")
        words = "tries" if change == "cut" else "has changed, or was written in part"
        with pytest.raises(DataError, match=rf"train-\d+.safetensors: .*{words}"):
            stream.read(stream.first.after)
    with pytest.raises(DataError, match="bytes, not" if change == "cut" else "content has changed"):
        open_stream(str(tmp_path / "cut")).first  # noqa: B018


def test_two_processes_and_threads_download_once(tmp_path: Path) -> None:
    content = os.urandom(1000)
    name = hashlib.sha256(content).hexdigest()
    log = tmp_path / "log"
    script = f"""
import sys, threading, time
from pathlib import Path
from plmctl.storage.file_cache import FileCache
content = bytes.fromhex({content.hex()!r})
def download(stream):
    with open({str(log)!r}, "a") as log: log.write("x")
    time.sleep(0.1)
    stream.write(content)
cache = FileCache(Path({str(tmp_path / "c")!r}), 5000)
def get(): assert cache.get("x", 1000, {name!r}, download).read_bytes() == content
threads = [threading.Thread(target=get) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
get()
"""
    both = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert log.read_text(encoding="utf-8") == "x"


def test_the_file_not_read_for_the_longest_time_goes(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "c", 2500)

    def get(number: int) -> bool:
        """Whether it was downloaded."""
        content, asked = bytes([number]) * 1000, []

        def download(stream) -> None:
            asked.append(1)
            stream.write(content)

        file = cache.get("x", 1000, hashlib.sha256(content).hexdigest(), download)
        assert file.read_bytes() == content
        return bool(asked)

    assert [get(n) for n in (1, 2, 1, 3, 1, 2)] == [True, True, False, True, False, True]
    left = cache.folder / "ab.file.999999999.partial"  # of a killed process
    left.write_bytes(b"x" * 1400)
    assert get(3)
    assert not left.exists()


def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere/deeper")
    for folder in (tmp_path / "file/c", tmp_path / "gone"):
        with pytest.raises(DataError, match=r"cannot be kept.*") as refused:
            FileCache(folder, 5000).get("a", 3, "0" * 64, lambda stream: None)
        assert "data.cache_dir" in str(refused.value)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    remote._open_store.cache_clear()
    with pytest.raises(UsageError, match=r"s3:// needs fsspec\n  fix: pip install"):
        read_url("s3://bucket/x")
    assert [is_url(x) for x in ("s3://b/x", "hf://datasets/a/b", "hf:wikitext", "a/b", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.slow  # the rows of a store are compared above
def test_a_pretraining_from_a_store_is_that_from_the_files(corpora: Path, tmp_path: Path) -> None:
    words = ["pretrain", "bert", "size=tiny", "format.max_length=32", "train.batch_size=8"]
    words += ["train.steps=6", "data.window=2000", "train.compile=false", "train.device=cpu"]
    plmctl(*words, f"data.path={corpora / 'cut'}", f"run.dir={tmp_path / 'files'}")
    with open_store(corpora, faults) as store:
        plmctl(*words, f"data.path={store.url}/cut", f"run.dir={tmp_path / 'store'}")
        mixed = f"data.mixture={{a: {{path: {store.url}/cut}}, b: {{path: {corpora / 'whole'}}}}}"
        assert "they are read alone" in plmctl(*words, mixed, code=2)
        small = [*words, f"data.path={store.url}/cut", "data.cache_size=0.000001"]
        assert "bytes of the largest shard" in plmctl(*small, code=2)
    assert curve(tmp_path / "files") == curve(tmp_path / "store")
