"""Files that hold nothing, and packed ones that unpack to far too much."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge.dump import Dump
from plmctl.storage import unpacking
from plmctl.storage.unpacking import open_data, refuse_bomb
from plmctl.tasks.readers import files
from plmctl.text.inputs import open_unpacked, read_lines
from plmctl.use.semantic_search import VectorFile

PACKED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE", 1 << 16)


@pytest.mark.parametrize("suffix", sorted(PACKED))
def test_a_bomb_is_refused_and_text_is_read(tmp_path: Path, suffix: str) -> None:
    file, pack = tmp_path / f"a{suffix}", PACKED[suffix]
    file.write_bytes(pack(b"x" * (1 << 18)))
    with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
        open_data(file, unpacking.UNPACK[suffix]).read()
    text = np.random.default_rng(0).integers(97, 123, 3 << 16).astype(np.uint8).tobytes()
    file.write_bytes(pack(text))
    with open_data(file, unpacking.UNPACK[suffix]) as stream:
        assert stream.read() == text


def test_a_bomb_of_zstandard(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.txt.zst").write_bytes(zstandard.compress(b"word " * (1 << 18)))
    with pytest.raises(DataError, match="unpacks to more"):
        list(read_lines(tmp_path / "a.txt.zst"))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.txt.gz", lambda file: list(read_lines(file))),
        ("a.jsonl.gz", lambda file: open_unpacked(file).read()),
        ("a.json.gz", files.read_text),
        ("a.xml.gz", lambda file: list(Dump(file))),
    ],
)
def test_every_reader_of_packed_files_is_bounded(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    start = b"<mediawiki>" if "xml" in name else b""
    (tmp_path / name).write_bytes(gzip.compress(start + b" word\n" * (1 << 16)))
    with pytest.raises(DataError, match="unpacks to more"):
        read(tmp_path / name)


@pytest.mark.parametrize("begin", [b"", b"a\tline\n"])
def test_a_hole_is_found_at_once(tmp_path: Path, begin: bytes) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(begin)
    os.truncate(file, 32 << 30)
    for read in (lambda: next(read_lines(file)), lambda: files.read_text(file)):
        with pytest.raises(DataError, match=r"from byte .* on were never written"):
            read()


def test_zero_bytes_that_were_written_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n" + b"\0" * (3 << 20))
    with pytest.raises(DataError, match="zero bytes instead of text"):
        list(read_lines(tmp_path / "a.txt"))


def test_an_archive_of_arrays(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez_compressed(file, a=np.zeros(1 << 20))
    with pytest.raises(DataError, match="unpacks to more"):
        refuse_bomb(file)
    with pytest.raises(DataError, match="unpacks to more"):
        VectorFile.read(file)
    np.savez(file, a=np.zeros(1 << 20))
    refuse_bomb(file)


def test_an_array_that_claims_more_than_there_is(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "|u1", "fortran_order": False, "shape": (1 << 50,)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("made.npy", head.getvalue())
    with pytest.raises(DataError, match=r"no file of vectors|which can be searched"):
        VectorFile.read(tmp_path / "a.npz")
