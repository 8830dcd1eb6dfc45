"""Files of word vectors: GloVe's and word2vec's text, word2vec's bytes, fastText's .vec and .bin,
each plain or packed, and .safetensors of our own.

`vectors` float32 [N, D], `words` uint8 (UTF-8, a line for each), and with subwords `ngrams` [B, D],
whose least and most characters stand in the metadata.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted, remark
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.subwords import Ngrams, Subwords
from plmctl.knowledge.vector_binary import MAGIC, read_fasttext, read_word2vec, write_word2vec
from plmctl.knowledge.vector_text import read_text_table, write_text_table
from plmctl.storage.atomic import open_atomic
from plmctl.storage.reading import blame_file
from plmctl.text.inputs import open_unpacked
from plmctl.text.tabular import PACKED

FORMATS = "GloVe's .txt, word2vec's .txt or .bin, fastText's .vec or .bin, or .safetensors"
SUFFIXES = (".safetensors", ".txt", ".vec", ".bin")  # endings of files that are written
ALL = 1 << 62  # a limit that no file reaches
_HEAD = 1 << 12  # bytes that say which kind a file is
_SPACES = frozenset(b"\t\n\r")


def confirm(file: str | None) -> None:
    """Raise AbsentData if a file of vectors is missing; None names none."""
    if file is not None and not Path(file).expanduser().is_file():
        raise AbsentData("there is no such file of word vectors", file=file, fix=FORMATS)


def read_static(
    file: Path | str, limit: int = ALL, among: Collection[str] | None = None
) -> StaticVectors:
    """Read word vectors; what is in the file says which kind it is.

    Args:
        limit: words that are read at most, the first ones.
        among: the words that are kept; None: all.

    Raises:
        DataError: if the file is no file of vectors; it names the line or the word.
    """
    file = Path(file).expanduser()
    with _blame(file):
        if file.suffix == ".safetensors":
            read = _read_tensors(file, limit, among)
        else:
            with open_unpacked(file) as stream:
                head = stream.read(_HEAD)
            if len(head) >= 4 and struct.unpack_from("<i", head)[0] == MAGIC:
                read = read_fasttext(file, limit, among)
            elif _is_word2vec(head):
                read = StaticVectors(*read_word2vec(file, limit, among))
            elif _is_binary(head):
                what = "neither word2vec's bytes, nor a model of fastText, nor text"
                raise DataError(what, file=file, fix=FORMATS)
            else:
                read = StaticVectors(*read_text_table(file, limit, among))
    read = _keep_words(read, file)
    if not len(read.words) and among is None:
        what, fix = "there are no vectors in it", "lines of a word and its numbers"
        raise DataError(what, file=file, fix=fix)
    return read


def refuse_uncovered(found: int, asked: int, what: str, *, file: object, fix: str) -> None:
    """Raise DataError if a file of vectors has no word of a text.

    Args:
        asked: The number of words, which may be 0.
        what: A name for these words, as in "words of the lists".
        fix: The smallest change that finds some.
    """
    if asked and not found:
        raise DataError(f"none of the {asked:,} {what} has a vector in it", file=file, fix=fix)


def choose_writer(out: Path | str) -> Path:
    """The path of a file that is to be written; ConfigError for a kind that there is not."""
    file = Path(out).expanduser()
    if file.suffix not in SUFFIXES:
        allowed = f"a file that ends with {', '.join(SUFFIXES)}"
        raise ConfigError(
            "out", str(out), allowed, fix=spell_setting("out", file.with_suffix(SUFFIXES[0]))
        )
    return file


def write_static(vectors: StaticVectors, file: Path) -> None:
    """Write word vectors, completely or not at all; only .safetensors can hold subwords.

    Raises:
        ConfigError: a word has a space, which .vec and .bin cannot hold.
    """
    words, table = vectors.words, vectors.table
    if file.suffix == ".safetensors":
        _write_tensors(vectors, file)
        return
    spaced = next((word for word in words if not word or word != "".join(word.split())), None)
    if spaced is not None:
        allowed = f"a file that ends with .safetensors: {spaced[:40]!r} has spaces in it"
        fix = spell_setting("out", file.with_suffix(".safetensors"))
        raise ConfigError("out", str(file), allowed, fix=fix)
    pieces = (
        write_word2vec(words, table)
        if file.suffix == ".bin"
        else write_text_table(words, table, header=file.suffix == ".vec")
    )
    with open_atomic(file, "wb") as stream:
        stream.writelines(pieces)


def _is_word2vec(head: bytes) -> bool:
    """Whether a line of two whole numbers is followed by bytes that are no text."""
    first, _, rest = head.partition(b"\n")
    cells = first.split(b" ")
    numbers = len(cells) == 2 and all(cell.isdigit() for cell in cells) and len(first) < 40
    return numbers and _is_binary(rest)


def _is_binary(head: bytes) -> bool:
    """Whether bytes are no text: they have control characters, or are not UTF-8 and no word with
    numbers behind it.
    """
    if any(byte < 32 and byte not in _SPACES for byte in head):
        return True
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # a character may be cut off at the end
        return error.start < len(head) - 3 and not _begins_as_text(head)
    return False


def _begins_as_text(head: bytes) -> bool:
    """Whether the first line is a word and numbers, in whatever encoding the word is."""
    cells = head.partition(b"\n")[0].split()[1:4]
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def _keep_words(read: StaticVectors, file: Path) -> StaticVectors:
    """The first vector of each word; a line says which words stand there twice, or are none."""
    first, again, nameless = dict[str, int](), dict[str, None](), 0
    for number, word in enumerate(read.words):
        if not word:
            nameless += 1
        elif first.setdefault(word, number) != number:
            again[word] = None
    if len(first) == len(read.words):
        return read
    if nameless:
        remark(f"{file}: {counted(nameless, 'vector')} without a word, left out")
    if again:
        named = ", ".join(repr(word[:40]) for word in list(again)[:3])
        some = f"{named}{', ...' if len(again) > 3 else ''}"
        said = f"{counted(len(again), 'word')} more than once ({some})"
        remark(f"{file}: {said}; the first vector of each counts")
    return StaticVectors(list(first), read.table[list(first.values())], read.subwords)


def _read_tensors(file: Path, limit: int, among: Collection[str] | None) -> StaticVectors:
    from safetensors import SafetensorError, safe_open

    with blame_file(file, "truncated or not a file of word vectors", fix="write it again"):
        try:
            with safe_open(file, "numpy") as stored:
                about = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        words = tensors["words"].tobytes().decode("utf-8").split("\n")
        table = np.ascontiguousarray(tensors["vectors"], np.float32)
        if table.ndim != 2 or len(table) != len(words) or not np.isfinite(table).all():
            raise ValueError(f"{len(words):,} words, and vectors {list(table.shape)}")
        subwords = None
        if "ngrams" in tensors:
            rows = tensors["ngrams"].astype(np.float32)
            if rows.ndim != 2 or rows.shape[1] != table.shape[1] or not len(rows):
                raise ValueError(f"ngrams {list(rows.shape)}, vectors {list(table.shape)}")
            if not np.isfinite(rows).all():
                raise ValueError("numbers of n-grams that are not finite")
            ngrams = Ngrams(int(about["least"]), int(about["most"]), len(rows))
            subwords = Subwords(ngrams, rows)
    chosen = [n for n, word in enumerate(words) if among is None or word in among][:limit]
    return StaticVectors([words[n] for n in chosen], table[chosen], subwords)


def _write_tensors(vectors: StaticVectors, file: Path) -> None:
    from safetensors.numpy import save

    if broken := [word for word in vectors.words if "\n" in word]:
        raise DataError(f"a word with the end of a line in it: {broken[0]!r}", file=file)
    words = "\n".join(vectors.words).encode()
    tensors = {"vectors": vectors.table, "words": np.frombuffer(words, np.uint8)}
    about = {"format": "plmctl word vectors"}
    if vectors.subwords is not None:
        tensors["ngrams"] = vectors.subwords.table
        ngrams = vectors.subwords.ngrams
        about |= {"least": str(ngrams.least), "most": str(ngrams.most)}
    with open_atomic(file, "wb") as stream:
        stream.write(save({k: np.ascontiguousarray(v) for k, v in tensors.items()}, about))


def find_static(checkpoint: str) -> Path | None:
    """The file of word vectors that a checkpoint names; None for another path."""
    place = Path(checkpoint).expanduser()
    stem = place.with_suffix("") if place.suffix in PACKED else place
    return place if stem.suffix in SUFFIXES and place.is_file() else None


@contextlib.contextmanager
def _blame(file: Path) -> Iterator[None]:
    """Name a file that cannot be read, or not be unpacked."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"damaged packed file ({error})", file=file, fix="copy it again") from error
    except OSError as error:
        fix = "check the path, and the right to read it"
        raise DataError(f"cannot be read: {error.strerror}", file=file, fix=fix) from None
    except (ValueError, OverflowError, MemoryError) as error:
        what = f"not a file of word vectors ({error})"
        raise DataError(what, file=file, fix=FORMATS) from error
