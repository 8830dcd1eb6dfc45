"""Files of word vectors: each layout is written here from its definition, and read; what is broken
is named.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.subwords import Ngrams, Subwords, hash_bytes
from plmctl.knowledge.vector_files import choose_writer, read_static, write_static

WORDS = ["the", "of", "naïve", "ключ", "x"]
DRAW = np.random.default_rng(0)
TABLE = DRAW.normal(size=(5, 3)).astype(np.float32)
NGRAMS = Ngrams(2, 3, 11)
BUCKETS = DRAW.normal(size=(11, 3)).astype(np.float32)


def find_ngrams(word: str, least: int, most: int) -> list[str]:
    """All n-grams of <word> but its lone brackets, from the definition."""
    text = f"<{word}>"
    return [
        text[start : start + size]
        for start in range(len(text))
        for size in range(least, most + 1)
        if start + size <= len(text) and text[start : start + size] not in ("<", ">")
    ]


def fasttext_bytes(*, quantised: bool = False, pruned: int = -1, maximum: int = 3) -> bytes:
    """A model as FastText::saveModel writes it: five words, a label, and 11 buckets."""
    settings = [3, 5, 5, 1, 5, 1, 2, 2, len(BUCKETS), 2, maximum, 100]
    content = struct.pack("<ii12id", 793712314, 12, *settings, 1e-4)
    content += struct.pack("<iiiqq", len(WORDS) + 1, len(WORDS), 1, 999, pruned)
    for n, word in enumerate(WORDS):
        content += word.encode() + b"\0" + struct.pack("<qb", 100 - n, 0)
    content += b"__label__a\0" + struct.pack("<qb", 3, 1)
    content += struct.pack("<?qq", quantised, len(WORDS) + len(BUCKETS), 3)
    return content + TABLE.tobytes() + BUCKETS.tobytes() + struct.pack("<?qq", False, 0, 3)


def word2vec_bytes(end: bytes = b"\n") -> bytes:
    named = zip(WORDS, TABLE, strict=True)
    rows = [word.encode() + b" " + row.tobytes() + end for word, row in named]
    return b"5 3\n" + b"".join(rows)


def lines(*, header: bool, end: str = "\n") -> bytes:
    named = zip(WORDS, TABLE, strict=True)
    rows = [f"{word} {' '.join(map(str, row))}{end}" for word, row in named]
    return (("5 3\n" if header else "") + "".join(rows)).encode()


PLAIN = {
    "glove.txt": lines(header=False),
    "word2vec.txt": lines(header=True),
    "fasttext.vec": lines(header=True, end=" \n"),  # both programs leave a space behind
    "word2vec.bin": word2vec_bytes(),
    "google.bin": word2vec_bytes(b""),  # GoogleNews has no ends of lines
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_published_layouts(name: str, packed: bool, tmp_path: Path) -> None:
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(PLAIN[name]) if packed else PLAIN[name])
    read = read_static(file)
    assert list(read.words) == WORDS
    np.testing.assert_allclose(read.table, TABLE, rtol=1e-6)
    some = read_static(file, among={"x", "of"})
    assert list(some.words) == ["of", "x"]
    np.testing.assert_allclose(some.table, TABLE[[1, 4]], rtol=1e-6)
    assert list(read_static(file, limit=2).words) == WORDS[:2]
    np.testing.assert_allclose(read.choose(["OF", "none"])["OF"], TABLE[1], rtol=1e-6)
    assert read.find("none") is None


def test_a_word_may_have_spaces(tmp_path: Path) -> None:
    """As `. . .` and `at name@domain.com` in glove.840B.300d.txt, which has no header."""
    (tmp_path / "g.txt").write_text(", 1 2\n. . . 3 4\nat me@x.com 5 6\n\x85 7 8\n", "utf-8")
    read = read_static(tmp_path / "g.txt")
    assert list(read.words) == [",", ". . .", "at me@x.com", "\x85"]
    assert read.table.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert list(read_static(tmp_path / "g.txt", among={". . ."}).words) == [". . ."]


def test_empty_and_doubled_words_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "g.txt"
    file.write_text("a 1 2\nb 3 4\na 5 6\n 7 8\nb 9 9\na 0 0\n", "utf-8")
    read = read_static(file)
    assert list(read.words) == ["a", "b"]
    assert read.table.tolist() == [[1, 2], [3, 4]]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"{file}: 1 vector without a word, left out",
        f"{file}: 2 words more than once ('a', 'b'); the first vector of each counts",
    ]
    file.write_text(" 7 8\n", "utf-8")
    with pytest.raises(DataError, match="no vectors in it"):
        read_static(file)


@pytest.mark.parametrize("header", [True, False])
def test_another_encoding_is_named(header: bool, tmp_path: Path) -> None:
    file = tmp_path / "french.vec"
    text = ("2 2\n" if header else "") + "\xe9t\xe9 0.5 -1\nhiver 2 3\n"
    file.write_bytes(text.encode("latin-1"))
    where = rf"french.vec:{1 + header}: not UTF-8: byte 0xe9 at column 1"
    with pytest.raises(DataError, match=rf"{where}.*\n  fix: iconv -f cp1252 -t utf-8"):
        read_static(file)


def test_the_hash_is_fnv_1a_with_signs() -> None:
    """The test vectors of FNV-1a (Fowler, Noll and Vo) for ASCII; for other letters what gensim's
    ft_hash_bytes says, with which fastText's own files of Russian words are read.
    """
    assert [hash_bytes(text) for text in (b"", b"a", b"foobar")] == [
        *(0x811C9DC5, 0xE40C292C, 0xBF9CF968)
    ]
    found = [hash_bytes(text.encode()) for text in ("<naïve", "ключ", "日本")]
    assert found == [2660933201, 2950043617, 4164387409]
    for word in ("a", "naïve", "日本語"):
        wanted = [hash_bytes(n.encode()) % 11 for n in find_ngrams(word, 1, 4)]
        assert Ngrams(1, 4, 11).find(word) == wanted


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_of_fasttext(packed: bool, tmp_path: Path) -> None:
    """The mean of a word's row and its n-grams' rows; of n-grams alone for other words."""
    file = tmp_path / ("m.bin.gz" if packed else "m.bin")
    file.write_bytes(gzip.compress(fasttext_bytes()) if packed else fasttext_bytes())
    read = read_static(file)
    assert list(read.words) == WORDS
    for word in [*WORDS, "unseen", "ёж"]:
        rows = [BUCKETS[hash_bytes(n.encode()) % 11] for n in find_ngrams(word, 2, 3)]
        rows += [TABLE[WORDS.index(word)]] if word in WORDS else []
        found = read.find(word)
        assert found is not None
        np.testing.assert_allclose(found, np.mean(rows, 0), rtol=1e-5, atol=1e-7)
    some = read_static(file, among={"ключ"})
    np.testing.assert_array_equal(some.table[0], read.find("ключ"))
    (tmp_path / "plain.bin").write_bytes(fasttext_bytes(maximum=0))
    plain = read_static(tmp_path / "plain.bin")
    np.testing.assert_array_equal(plain.table, TABLE)
    assert plain.find("unseen") is None


@pytest.mark.parametrize("name", ["a.txt", "a.vec", "a.bin", "a.safetensors"])
def test_what_is_written_is_read(name: str, tmp_path: Path) -> None:
    given = StaticVectors(WORDS, TABLE, Subwords(NGRAMS, BUCKETS))
    write_static(given, choose_writer(tmp_path / name))
    read = read_static(tmp_path / name)
    assert list(read.words) == WORDS
    np.testing.assert_allclose(read.table, TABLE, rtol=1e-6)
    unseen = read.find("unseen")
    if name.endswith("safetensors"):
        np.testing.assert_array_equal(unseen, given.find("unseen"))
    else:
        assert unseen is None


def test_a_word_with_spaces_is_not_written_as_text(tmp_path: Path) -> None:
    given = StaticVectors(["a b"], TABLE[:1])
    with pytest.raises(ConfigError, match=r"'a b' has spaces in it\n  fix: out=.*a.safetensors"):
        write_static(given, tmp_path / "a.vec")
    write_static(given, tmp_path / "a.safetensors")
    assert list(read_static(tmp_path / "a.safetensors").words) == ["a b"]
    with pytest.raises(ConfigError, match=r"\.safetensors, \.txt, \.vec, \.bin\n  fix"):
        choose_writer("a.npz")


BROKEN = {
    "a.txt": (b"a 1 2\nb 1\n", r"a.txt:2: a word and 2 numbers are needed"),
    "b.txt": (b"a 1 2\nb 1 2 3\n", r"b.txt:2: a word and 2 numbers are needed"),
    "c.txt": (b"a 1 2\nb 1 two\n", r"c.txt:2: .*'b 1 two'"),
    "d.txt": (b"a 1 nan\n", r"d.txt:1: a word and 2 numbers"),
    "e.txt": (b"3 2\na 1 2\nb 1 2\n", r"3 words are announced in its first line, and 2 are there"),
    "f.vec": (b"1 2\na 1 2 3\n", r"f.vec:2: a word and 2 numbers"),
    "g.txt": (b"", r"no vectors in it"),
    "h.txt": (b"word\n", r"h.txt:1: a word and its numbers"),
    "a.bin": (word2vec_bytes()[:-9], r"word 5, at byte \d+, is not complete"),
    "b.bin": (b"1 2\nx " + struct.pack("<2f", 1, np.inf), r"word 1 \('x'\) has numbers that are"),
    "c.bin": (fasttext_bytes(quantised=True), "a quantised model of fastText"),
    "d.bin": (fasttext_bytes(pruned=4), "a quantised and pruned model of fastText"),
    "e.bin": (fasttext_bytes()[:130], "not complete: entry"),
    "f.bin": (fasttext_bytes()[:-90], "rows of 3 numbers are announced"),
    "g.bin": (b"\x80\x04gensim", "neither word2vec's bytes, nor a model of fastText, nor text"),
    "a.safetensors": (b"nothing", "truncated or not a file of word vectors"),
    "a.txt.gz": (gzip.compress(lines(header=False))[:-20], "damaged"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(name: str, tmp_path: Path) -> None:
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_static(tmp_path / name)


def test_a_ragged_line_is_named_also_where_its_word_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a 1 2 3\nb 1 2\nc 4 5 6\n")
    with pytest.raises(DataError, match=r"a.txt:2: a word and 3 numbers"):
        read_static(tmp_path / "a.txt", among={"a", "c"})
    (tmp_path / "a.txt").write_bytes(b"a 1 2 3\nnew york 1 2 3\nc 4 5 6\n")
    assert list(read_static(tmp_path / "a.txt", among={"a", "c"}).words) == ["a", "c"]


def test_numbers_of_ngrams_are_finite(tmp_path: Path) -> None:
    """Of them the vectors of unseen words are made."""
    rows = np.full((50, 2), np.nan, np.float32)
    made = Subwords(Ngrams(2, 3, 50), rows)
    with pytest.raises(DataError, match="n-grams of 'house' have numbers that are not finite"):
        made.make("house")
    write_static(
        StaticVectors(["a"], np.ones((1, 2), np.float32), made), tmp_path / "a.safetensors"
    )
    with pytest.raises(DataError, match="numbers of n-grams that are not finite"):
        read_static(tmp_path / "a.safetensors")
