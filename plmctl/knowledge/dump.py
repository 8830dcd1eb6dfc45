"""MediaWiki's XML exports as a stream of pages, in a bounded amount of memory; of a file that is
cut off, the pages before the cut.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from plmctl.core.errors import DataError
from plmctl.storage.unpacking import UNPACK, open_data

_CHUNK = 1 << 18
_CUT = (EOFError, OSError, lzma.LZMAError)
_FIX = "copy or download it again; `bzip2 -tv` and `gzip -tv` say whether a file is whole"
_FIELDS = frozenset({"title", "ns", "text"})


class Page(NamedTuple):
    """A page as it is written."""

    title: str
    namespace: int
    text: str
    redirect: str  # the title that it sends to, as the export states it; "" if it states none


class Site(NamedTuple):
    """The header of an export about its wiki."""

    name: str
    namespaces: dict[str, int]
    first_letter: bool  # titles begin with an upper case letter
    language: str


class Dump:
    """The pages of an export; `problem` is the error that cut it off, with its position.

    Args:
        file: .xml, .xml.bz2, .xml.gz or .xml.xz.
        say: A function that receives (bytes of the file read, bytes of the file, bytes of XML
            read).
    """

    def __init__(self, file: Path, say: Callable[[int, int, int], None] | None = None) -> None:
        self.file, self.problem = file, ""
        self._say = say
        self.site = Site("", {}, True, "")
        self._pages: list[Page] = []
        self._names: dict[str, int] = {}
        self._path: list[str] = []
        self._fields: dict[str, str] = {}
        self._text: list[str] = []
        self._reading = False
        self._key = 0

    def __iter__(self) -> Iterator[Page]:
        """Read the pages.

        Raises:
            DataError: it is no export.
        """
        parser = self._make_parser()
        read = 0
        with open_compressed(self.file) as (stream, position):
            while True:
                chunk = self._read(stream, read)
                read += len(chunk)
                try:
                    parser.Parse(chunk, not chunk and not self.problem)
                except expat.ExpatError as error:
                    self._explain(error, parser)
                yield from self._take()
                if self._say:
                    self._say(position(), self.file.stat().st_size, read)
                if not chunk or self.problem:
                    return

    def _read(self, stream: Any, read: int) -> bytes:
        try:
            return stream.read1(_CHUNK)  # the text before a damage is read, too
        except _CUT as error:
            if not read:
                what = f"cannot be read: {error}"
                raise DataError(what, file=self.file, fix=_FIX) from error
            self.problem = f"cut off or damaged after {read:,} bytes of XML ({error})"
            return b""

    def _explain(self, error: expat.ExpatError, parser: expat.XMLParserType) -> None:
        line, at = error.lineno, parser.ErrorByteIndex
        reason = expat.ErrorString(error.code)
        if not self._path and not self._names and not self._fields:
            fix = "an export of a wiki, such as enwiki-...-pages-articles.xml.bz2"
            what = f"no MediaWiki export ({reason})"
            raise DataError(what, file=self.file, line=line, fix=fix) from error
        self.problem = f"XML ends or is damaged in line {line:,}, byte {at:,} ({reason})"

    def _take(self) -> Iterator[Page]:
        pages, self._pages = self._pages, []
        yield from pages

    def _make_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate()
        parser.buffer_text, parser.buffer_size = True, 1 << 16
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

        def refuse(*given: object) -> None:
            raise DataError("defines XML entities, which no export does", file=self.file)

        parser.EntityDeclHandler = refuse
        return parser

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path:
            if name != "mediawiki":
                fix = "an export of a wiki: its first element is <mediawiki>"
                raise DataError(f"no MediaWiki export, but <{name}>", file=self.file, fix=fix)
            self.site = self.site._replace(language=attributes.get("xml:lang", ""))
        self._path.append(name)
        if name == "page":
            self._fields = {}
        elif name == "redirect":
            self._fields["redirect"] = attributes.get("title", "")
        elif name == "namespace":
            self._key = int(attributes.get("key", "0"))
        self._reading = name in _FIELDS or name in ("namespace", "case", "sitename")
        if self._reading:
            self._text = []

    def _characters(self, text: str) -> None:
        if self._reading:
            self._text.append(text)

    def _end(self, name: str) -> None:
        self._path.pop()
        if self._reading:
            text, self._reading = "".join(self._text), False
            if name in _FIELDS:  # if a page has several revisions, the last counts
                self._fields[name] = text
            elif name == "namespace":
                self._names[text] = self._key
            elif name == "case":
                self.site = self.site._replace(first_letter=text == "first-letter")
            else:
                self.site = self.site._replace(name=text)
        if name == "siteinfo":
            self.site = self.site._replace(namespaces=self._names)
        elif name == "page":
            fields = self._fields
            number = fields.get("ns", "0").strip()
            self._pages.append(
                Page(
                    fields.get("title", "").strip(),
                    int(number) if number.lstrip("-").isdigit() else 0,
                    fields.get("text", ""),
                    fields.get("redirect", ""),
                )
            )


@contextmanager
def open_compressed(file: Path) -> Iterator[tuple[Any, Callable[[], int]]]:
    """The bytes of a file that may be compressed, and how much of the file was read."""
    try:
        with open_data(file, UNPACK.get(file.suffix.lower())) as stream:
            packed = getattr(stream, "raw", stream)
            yield stream, getattr(packed, "packed", packed).tell
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"cannot be read: {error.strerror}", file=file) from error
