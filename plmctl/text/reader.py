"""Files to documents: plain text, Wikipedia extractors' `<doc>` blocks and JSON lines, plain or gzipped, as a stream."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from glob import escape, glob
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from plmctl.errors import DataError, nearest
from plmctl.text import corpus, layout, sentences
from plmctl.text.layout import Layout

BUILTIN = (None, "builtin")  # paths that mean the text of `corpus.py`
PART = 1 << 22  # characters of a document held at once; a longer one comes in parts
_LINE = 1 << 20  # bytes of a line held at once
_SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
_WIKI = re.compile(r"wiki_\d+(\.gz)?")  # WikiExtractor's own file names
_DOC = re.compile(r"<doc\b[^>]*>\s*")
_TITLE = re.compile(r'\btitle="([^"]*)"')


class Document:
    """One document: paragraphs of text, where it stands, and what it is known by (a hash of its text)."""

    def __init__(self, paragraphs: Sequence[str], place: str, *, whole: bool, identity: int | None = None) -> None:
        self.paragraphs, self.place, self.whole = tuple(paragraphs), place, whole  # whole: a paragraph is one sentence
        self.continues = identity is not None  # a further part of the document before it, known by the same hash
        self.identity = _identity(self.paragraphs) if identity is None else identity

    @cached_property
    def segments(self) -> list[str]:
        """Sentences with the white space before them; joined they are the text, with a line break between paragraphs."""
        found: list[str] = []
        for paragraph in self.paragraphs:
            parts = [paragraph] if self.whole else sentences.pieces(paragraph)
            if parts and (found or self.continues):
                parts[0] = "\n" + parts[0]
            found += parts
        return found

    @property
    def sentences(self) -> list[str]:
        return [sentence for segment in self.segments if (sentence := segment.strip())]


def find_files(path: str | Path) -> list[Path]:
    """The text files that a file name, a folder (all of them, sorted) or a pattern names; DataError where there are none."""
    given = Path(path).expanduser()
    if given.is_dir():
        found = sorted(
            file
            for file in given.rglob("*")
            if file.is_file() and (file.name.endswith(_SUFFIXES) or _WIKI.fullmatch(file.name))
        )
        if not found:
            raise DataError(
                f"no text files in this folder (looked for {', '.join(_SUFFIXES)})", file=given, fix="data.path=<a file>"
            )
    elif given.exists():
        found = [given]
    else:
        found = sorted(Path(name) for name in _matches(given) if Path(name).is_file())
    if not found:
        names = [str(file) for file in given.parent.iterdir()] if given.parent.is_dir() else []
        raise DataError(
            f"no such file, folder or pattern{nearest(str(given), names)}", file=given, fix="data.path=<an existing one>"
        )
    for file in found:
        if file.stat().st_size == 0:
            raise DataError("the file is empty", file=file, fix="remove it, or name files with text in data.path")
    return found


def _matches(pattern: Path) -> list[str]:
    """What a pattern names; letters like `[` in the folders that are there are only letters."""
    there = next(folder for folder in pattern.parents if folder.is_dir())
    literal = os.path.join(escape(str(there)), pattern.relative_to(there))
    return glob(literal, recursive=True) or glob(str(pattern), recursive=True)


def find_all(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """`find_files` of one or several paths, each file once."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    return list(dict.fromkeys(file for path in several for file in find_files(path)))


def documents(
    paths: str | Path | Iterable[str | Path] | None,
    *,
    field: str = "text",
    lines: str = "auto",
    layouts: dict[str, Layout] | None = None,
) -> Iterator[Document]:
    """The documents of files in order, or of the built-in corpus. What is found for each file is put into `layouts`."""
    if paths is None or paths in BUILTIN:
        for text in corpus.documents():
            yield Document(text.paragraphs, f"builtin: {text.name}", whole=False)
        return
    for file in find_all(paths):
        found = decide(file, field=field, lines=lines)
        if layouts is not None:
            layouts[str(file)] = found
        yield from _read(file, field, found)


def decide(file: Path, *, field: str = "text", lines: str = "auto") -> Layout:
    """How the lines of a file are to be understood, from its first megabyte."""
    sample: list[str] = []
    if _is_json(file):
        for _, text in islice(_json_texts(file, field), 200):
            sample += [*text.split("\n"), ""]
        return layout.decide(sample, lines, blocks=True)
    size, blocks = 0, False
    for _, line in _lines(file):
        size += len(line) + 1
        blocks = blocks or _DOC.fullmatch(line) is not None
        sample.append(line)
        if size > 1 << 20:
            break
    return layout.decide(
        [line for line in sample if not (blocks and line.startswith(("<doc", "</doc>")))], lines, blocks=blocks
    )


def _is_json(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith((".jsonl", ".json", ".ndjson"))


def _read(file: Path, field: str, found: Layout) -> Iterator[Document]:
    if not _is_json(file):
        yield from _text_documents(file, found)
        return
    for number, text in _json_texts(file, field):
        gather = _Gather(f"{file}:{number}", found)
        for line in text.split("\n"):
            yield from gather.add(line.rstrip())
        yield from gather.close()


def _text_documents(file: Path, found: Layout) -> Iterator[Document]:
    """Documents end at blank lines (`found.gap` of them), or where `</doc>` stands if they began with `<doc ...>`."""
    gather, blanks, inside, title = _Gather(f"{file}:1", found), 0, False, ""
    for number, line in _lines(file):
        if (line.startswith("<doc") and _DOC.fullmatch(line)) or line == "</doc>":
            yield from gather.close()
            inside = line != "</doc>"
            named = _TITLE.search(line)
            title = html.unescape(named[1]) if named else ""
            gather = _Gather(f"{file}:{number}", found)
        elif not line or line.isspace():
            blanks += 1
            if not inside and blanks >= found.gap:
                yield from gather.close()
                gather = _Gather(f"{file}:{number + 1}", found)
            else:
                yield from gather.add("")
            continue
        elif inside and title and html.unescape(line.strip()) == title:
            pass  # the title stands in the tag; as a line it is not a sentence of the text
        else:
            yield from gather.add(line)
        title = title if line.startswith("<doc") else ""
        blanks = 0
    yield from gather.close()


class _Gather:
    """Collects the lines of one document into paragraphs and hands out parts of it when they grow long."""

    def __init__(self, place: str, found: Layout) -> None:
        self.place, self.layout = place, found
        self.paragraphs: list[str] = []
        self.wrapped: list[str] = []
        self.size = 0
        self.identity: int | None = None

    def add(self, line: str) -> Iterator[Document]:
        self.size += len(line)
        if self.layout.lines == "wrapped" and line:
            self.wrapped.append(line.strip())
        elif line := line.strip() if self.layout.lines == "sentence" else line.rstrip():
            self.paragraphs.append(line)
        else:
            self._end_paragraph()
        if self.size > PART:
            yield from self._part()

    def close(self) -> Iterator[Document]:
        yield from self._part()
        self.identity = None

    def _part(self) -> Iterator[Document]:
        self._end_paragraph()
        if self.paragraphs:
            made = Document(self.paragraphs, self.place, whole=self.layout.lines == "sentence", identity=self.identity)
            self.identity, self.paragraphs, self.size = made.identity, [], 0
            yield made

    def _end_paragraph(self) -> None:
        if self.wrapped:
            self.paragraphs.append(layout.unwrap(self.wrapped))
            self.wrapped = []


def _json_texts(file: Path, field: str) -> Iterator[tuple[int, str]]:
    for number, line in _lines(file, cut=False):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"not JSON ({error})", file=file, line=number, fix="one JSON object a line") from error
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            raise _no_text(row, field, file, number)
        yield number, row[field].replace("\r\n", "\n")


def _no_text(row: object, field: str, file: Path, number: int) -> DataError:
    fields = row if isinstance(row, dict) else {}
    names = ", ".join(f"'{name}'" for name in fields) or f"a {type(row).__name__}"
    longest = max(
        (name for name in fields if isinstance(fields[name], str)), key=lambda name: len(fields[name]), default="<name>"
    )
    message = f"no text in a field '{field}' (this line has {names}){nearest(field, fields)}"
    return DataError(message, file=file, line=number, fix=f"data.field={longest}")


def _lines(file: Path, *, cut: bool = True) -> Iterator[tuple[int, str]]:
    """(number, line) without line ends; with `cut`, a very long line comes in parts cut at spaces."""
    limit = _LINE if cut else -1
    number, rest, opened = 1, b"", False
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            while chunk := stream.readline(limit):
                if not opened:
                    chunk, opened = chunk.removeprefix(b"\xef\xbb\xbf"), True
                line, rest = rest + chunk, b""
                ended = line.endswith(b"\n")
                if not ended and len(chunk) == limit:
                    end = line.rfind(b" ") + 1 or _character_end(line)
                    line, rest = line[:end], line[end:]
                yield number, _decoded(line, file, number)
                number += ended
            if rest:
                yield number, _decoded(rest, file, number)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"damaged gzip file ({error})", file=file, fix="copy or compress it again") from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from error


def _character_end(line: bytes) -> int:
    """The last place in `line` where a UTF-8 character may end."""
    cut = len(line)
    while cut > len(line) - 4 and line[cut - 1] & 0xC0 == 0x80:
        cut -= 1
    return cut - 1 if line[cut - 1] >= 0xC0 else len(line)


def _decoded(line: bytes, file: Path, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        if number == 1 and line.startswith(b"\x1f\x8b"):
            raise DataError("this is gzip data", file=file, fix=f"name it {file.name}.gz") from None
        guess = "utf-16" if line.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin1"
        raise DataError(
            f"not UTF-8: byte 0x{error.object[error.start]:02x} at column {error.start + 1}", file=file, line=number,
            fix=f"iconv -f {guess} -t utf-8 {shlex.quote(str(file))} > converted.txt (or gb18030, if it is Chinese)",
        ) from error  # fmt: skip


def _identity(paragraphs: Sequence[str]) -> int:
    text = "\n".join(paragraphs).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
