"""Word vectors as bytes: word2vec's binary files, and the models of fastText."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from plmctl.core.errors import DataError
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.subwords import Ngrams, Subwords
from plmctl.text.inputs import open_unpacked

Content = bytes | mmap.mmap
AGAIN, WHOLE = "copy it again", "the .bin or .vec of version 12"
MAGIC, VERSIONS = 793_712_314, (11, 12)  # marks of fastText's models
_WORD = 1 << 12  # bytes of a word at most


def open_content(file: Path) -> Content:
    """All bytes of a file: mapped into memory, or unpacked."""
    if file.suffix in (".gz", ".zst"):
        with open_unpacked(file) as stream:
            return stream.read()
    with file.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def read_word2vec(
    file: Path, limit: int, among: Collection[str] | None
) -> tuple[list[str], np.ndarray]:
    """Words and their vectors [N, D] of a binary file of word2vec. It has a line `N D`, then N
    times the word, a space, D float32, and in some files the end of a line.

    Raises:
        DataError: naming the first word that is not complete.
    """
    content = open_content(file)
    place = content.find(b"\n") + 1
    count, width = (int(cell) for cell in content[:place].split())
    words, rows = list[str](), list[np.ndarray]()
    for number in range(1, count + 1):
        if len(words) == limit:
            break
        end = content.find(b" ", place, place + _WORD)
        if end < 0 or end + 1 + 4 * width > len(content):
            what = (
                f"{count:,} words of {width} numbers are announced in its first line, and word"
                f" {number:,}, at byte {place:,}, is not complete"
            )
            raise DataError(what, file=file, fix=AGAIN)
        word = content[place:end].lstrip(b"\n").decode("utf-8", "replace")
        if among is None or word in among:
            row = np.frombuffer(content, "<f4", width, end + 1)
            _check_row(row, f"word {number:,} ({word[:40]!r})", file)
            words.append(word)
            rows.append(row)
        place = end + 1 + 4 * width
    return words, np.stack(rows) if rows else np.zeros((0, max(width, 1)), np.float32)


def write_word2vec(words: Sequence[str], table: np.ndarray) -> Iterator[bytes]:
    """The pieces of a file that `read_word2vec` reads."""
    yield f"{table.shape[0]} {table.shape[1]}\n".encode()
    for word, row in zip(words, table, strict=True):
        yield word.encode() + b" " + row.astype("<f4").tobytes() + b"\n"


def read_fasttext(file: Path, limit: int, among: Collection[str] | None) -> StaticVectors:
    """A model of fastText. The vector of a word is the mean of its own row and the rows of its
    n-grams; that of any other word is the mean of its n-grams (FastText::getWordVector).

    Layout (fastText, version 12): magic, version; 12 int32 and a double of settings; int32 entries,
    words, labels, int64 tokens and pruned buckets; each entry with a zero byte, int64 count, int8
    kind; a byte, 1 for a quantised table; int64 rows and columns; float32 numbers.

    Raises:
        DataError: it is quantised, or not complete.
    """
    content = open_content(file)
    try:
        words, (ngrams, version), place = _read_dictionary(content, file)
        quantised, rows, columns = struct.unpack_from("<?qq", content, place)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise DataError(f"not complete: {error}", file=file, fix=AGAIN) from error
    if version not in VERSIONS or quantised:
        what = "a quantised model" if quantised else f"version {version}"
        raise DataError(f"{what} of fastText", file=file, fix=WHOLE)
    place += 17
    needed = len(words) + (ngrams.buckets if ngrams else 0)
    if rows < needed or columns < 1 or place + 4 * rows * columns > len(content):
        what = f"{rows:,} rows of {columns:,} numbers are announced, and the file ends before"
        raise DataError(what, file=file, fix=AGAIN)
    table = np.frombuffer(content, "<f4", rows * columns, place).reshape(rows, columns)
    chosen = [n for n, word in enumerate(words) if among is None or word in among][:limit]
    made = np.zeros((len(chosen), columns), np.float32)
    for row, n in enumerate(chosen):
        buckets = ngrams.find(words[n]) if ngrams and words[n] != "</s>" else []
        made[row] = table[[n, *(len(words) + bucket for bucket in buckets)]].mean(0)
        _check_row(made[row], f"word {n + 1:,} ({words[n][:40]!r})", file)
    subwords = Subwords(ngrams, table[len(words) :]) if ngrams else None
    return StaticVectors([words[n] for n in chosen], made, subwords)


def _read_dictionary(
    content: Content, file: Path
) -> tuple[list[str], tuple[Ngrams | None, int], int]:
    """(words, (n-grams, version of the layout), where the table begins)."""
    magic, version, *settings = struct.unpack_from("<14i", content, 0)
    buckets, least, most = settings[8:11]
    size, count, _, _, pruned = struct.unpack_from("<iiiqq", content, 64)
    if magic == MAGIC and pruned > 0:
        what = "a quantised and pruned model of fastText"
        raise DataError(what, file=file, fix=WHOLE)
    if magic != MAGIC or not 0 <= count <= size:
        raise ValueError("no table of words and labels, each with its count")
    words, place = list[str](), 92
    for number in range(size):
        end = content.find(b"\0", place, place + _WORD)
        if end < 0 or end + 10 > len(content):
            raise ValueError(f"entry {number + 1:,}, at byte {place:,}, does not end")
        if content[end + 9] == 0:
            words.append(content[place:end].decode("utf-8", "replace"))
        place = end + 10
    if len(words) != count:
        raise ValueError(f"{count:,} words are announced, and {len(words):,} are there")
    known = most > 0 and buckets > 0 and pruned < 0  # 0: all buckets were pruned
    return words, (Ngrams(least, most, buckets) if known else None, version), place


def _check_row(row: np.ndarray, what: str, file: Path) -> None:
    if not np.isfinite(row).all():
        raise DataError(f"{what} has numbers that are not finite", file=file, fix=AGAIN)
