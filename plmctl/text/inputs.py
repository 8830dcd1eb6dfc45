"""The input of text: the files that a path names, and their lines (plain, gzip, zstandard)."""

from __future__ import annotations

import gzip
import io
import os
import re
import shlex
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from glob import escape, glob
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from plmctl.core.errors import DataError, find_meant, list_some, nearest
from plmctl.core.extras import require_library
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import WARN, remark
from plmctl.storage.paths import find_near
from plmctl.storage.remote import is_url
from plmctl.storage.resumable import RECORD
from plmctl.storage.unpacking import UNPACK, open_data
from plmctl.text.bounds import BLANK, blank_text_error, long_line_error, longest_line
from plmctl.text.hub import DataSet
from plmctl.text.strings import Strings
from plmctl.text.undecodable import decode

Input = Path | DataSet | Strings
Given = TypeVar("Given", bound=Input)

FEW = 3  # names of files in a message
_LINE = 1 << 20  # bytes of a line held at once
_PACKED = (".gz", ".zst")
_PARQUET, _CSV, _MARKDOWN = ".parquet", ".csv", ".md"
_PAGES = (".html", ".htm")
_SUFFIXES = (*(stem + end for stem in (".txt", ".jsonl") for end in ("", *_PACKED)), _PARQUET)
_ONCE_NAMED = (*(_CSV + end for end in ("", *_PACKED)), ".tsv", ".ndjson", _MARKDOWN, *_PAGES)
_NOTES = ("readme", "license", "changelog")  # pages about the files next to them
_WIKI = re.compile(r"wiki_\d+(\.gz|\.zst)?")  # WikiExtractor's own file names
_HELD_OUT = re.compile(r"(valid|validation|dev|test|held[-_]?out)[._-]")
_looked: set[tuple[str, ...]] = set()  # paths whose skipped files were looked for


def find_files(path: str | Path, setting: str = "data.path") -> list[Path]:
    """Find the text files of a file name, a folder (all of them, sorted) or a pattern.

    Args:
        setting: the setting that the path comes from, for messages.

    Raises:
        DataError: if the path has no files, or if all are empty.
    """
    files = _find(path, setting)
    _warn_of_folders([path], setting, files)
    return leave_out_empty(files, setting)


def _find(
    path: str | Path, setting: str, listed: Mapping[Path, list[Path]] | None = None
) -> list[Path]:
    """The files of `find_files`, the empty ones too; `listed`: the files of folders, if known."""
    if is_url(path):
        name = str(path).rstrip("/").rpartition("/")[2]
        get = f"curl -fLO {shlex.quote(str(path))}" if str(path).startswith("http") else ""
        what = "text is read from this machine; a URL may name the tokens of plmctl tokenize"
        fix = get or f"copy it here, then {setting}={name}"
        raise DataError(what, file=path, fix=fix)
    source = Path(path).expanduser()
    if source.is_dir():
        files = (listed or {}).get(source) or _list_folder(source)
        chosen = [
            file for file in files if file.name.endswith(_SUFFIXES) or _WIKI.fullmatch(file.name)
        ]
        pages = [file for file in files if file.suffix == _MARKDOWN]
        # together with other files they may be notes
        if not chosen and 2 * len(pages) > len(files):
            chosen = pages
        if not chosen:
            raise _explain_textless(source, files, setting)
    elif source.exists():
        chosen = [source]
    else:
        chosen = sorted(Path(name) for name in _matches(source) if Path(name).is_file())
    if not chosen:
        names = [str(file) for file in source.parent.iterdir()] if source.parent.is_dir() else []
        near = find_meant(source, names)
        raise DataError(
            f"no such file, folder or pattern{nearest(source, names)}",
            file=source,
            fix=spell_setting(setting, near) if near else f"{setting}=<an existing one>",
        )
    return chosen


def _list_folder(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not _hidden(file.relative_to(folder))
    )


def describe_skipped(
    paths: Sequence[str | Path], setting: str = "data.path"
) -> tuple[int, str, str]:
    """Find (number, description, fix) of the files that `find_all` skips in folders, and reads
    where their names are given; notes such as a readme are no text.
    """
    folders = [folder for path in paths if (folder := Path(path).expanduser()).is_dir()]
    if not folders:
        return 0, "", ""
    listed = {folder: _list_folder(folder) for folder in folders}
    found = (_find_data_set(str(path)) or _find(path, setting, listed) for path in paths)
    read = {file for files in found for file in files}
    skipped: list[Path] = []
    named: list[str] = []
    for folder in folders:
        files = [file for file in listed[folder] if file not in read and _is_skipped(file)]
        for end in _ONCE_NAMED:
            alike = [file for file in files if file.name.endswith(end)]
            inner = "*" if all(file.parent == folder for file in alike) else "**/*"
            named += map(str, alike if len(alike) <= 1 else [folder / f"{inner}{end}"])
        skipped += files
    what = "this file is" if len(skipped) == 1 else f"{len(skipped):,} files are"
    kinds = [end for end in _ONCE_NAMED if any(file.name.endswith(end) for file in skipped)]
    said = f"{list_some(skipped, FEW)}: {what} not read"
    said += f"; a {', '.join(kinds)} is read where it is named"
    return len(skipped), said, spell_setting(setting, [*map(str, paths), *named])


def _is_skipped(file: Path) -> bool:
    notes = file.name.lower().startswith(_NOTES) or _is_record(file)
    return file.name.endswith(_ONCE_NAMED) and not notes and file.stat().st_size > 0


def _is_record(file: Path) -> bool:
    """Whether data dedup or data filter wrote a file about documents, `dropped/00000.tsv`."""
    dropped = file.parent.name == "dropped"
    folder = file.parent.parent if dropped else file.parent
    return (dropped or file.name == "conflicts.tsv") and (folder / RECORD).is_file()


def _warn_of_folders(paths: Sequence[str | Path], setting: str, read: Sequence[Given]) -> None:
    """Warn once of the unread files in folders, and of held-out parts among those in `read`."""
    key = tuple(map(str, paths))
    if key in _looked:  # a command looks for its files several times
        return
    _looked.add(key)
    number, found, fix = describe_skipped(paths, setting)
    if number:
        remark(f"{found}\n  fix: {fix}", WARN)
    if setting == "data.path":
        for folder in (Path(path).expanduser() for path in paths):
            inside = [file for file in read if isinstance(file, Path) and folder in file.parents]
            _warn_of_held_out(folder, inside)


def _warn_of_held_out(folder: Path, files: Sequence[Path]) -> None:
    """Warn of files of a folder whose names are those of held-out parts."""
    held = [file.name for file in files if _HELD_OUT.match(file.name.lower())]
    if held and len(held) < len(files):
        names = list_some(held, FEW)
        fix = "fix: # name the others in data.path, and this part in data.valid_path"
        remark(f"{folder}: {names} is read for training, as the other files are\n  {fix}", WARN)


def leave_out_empty(files: Sequence[Given], setting: str) -> list[Given]:
    """The files that are not empty; DataError without any."""
    empty = [file for file in files if isinstance(file, Path) and file.stat().st_size == 0]
    if files and len(empty) == len(files):
        what = "the file is empty" if len(files) == 1 else "all of these files are empty"
        first = empty[0] if len(files) == 1 else list_some(empty, FEW)
        raise DataError(what, file=first, fix=f"name files with text in {setting}")
    if empty:
        _warn_of_empty(tuple(empty))
    return [file for file in files if file not in empty]


@cache  # a command looks for its files several times
def _warn_of_empty(files: tuple[Path, ...]) -> None:
    what = "this file is" if len(files) == 1 else f"{len(files):,} files are"
    remark(f"{list_some(files, FEW)}: {what} empty, and left out", WARN)


def _explain_textless(folder: Path, files: Sequence[Path], setting: str) -> DataError:
    """A folder without text; a table in it may be notes, and is read where it is named."""
    tables = [file for file in files if _CSV in file.suffixes[-2:]]
    looked = f"looked for {', '.join(_SUFFIXES)}; a {_CSV} is read where it is named"
    kinds = (kind for kind in (_MARKDOWN, *_PAGES) if any(folder.glob(f"**/*{kind}")))
    pages = next((folder / "**" / f"*{kind}" for kind in kinds), None)
    named = tables[0] if tables else pages or "<a file>"
    placeholder = isinstance(named, str)
    fix = f"{setting}={named}" if placeholder else spell_setting(setting, named)
    return DataError(f"no text files in this folder ({looked})", file=folder, fix=fix)


def _hidden(inner: Path) -> bool:
    """Names that begin with a dot are not text of the user: `.git`, or a file that is just being
    written.
    """
    return any(part.startswith(".") for part in inner.parts)


def find_all(
    paths: str | Path | Iterable[str | Path], setting: str = "data.path", *, empty: bool = False
) -> list[Input]:
    """Find the files of one or several paths, each file once; paths `hf:...` and `strings:...` are
    data sets.

    Args:
        setting: the setting that the paths come from, for messages.
        empty: Whether empty files stay, as in parallel text.

    Raises:
        DataError: If a path has no files, or if all are empty.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    inputs: list[Input] = []
    for path in several:
        inputs += _find_data_set(str(path)) or _find(path, setting)
    _warn_of_folders(several, setting, inputs)
    found = list(dict.fromkeys(inputs))
    others = leave_out_empty(found, setting)
    return found if empty else others


def _find_data_set(path: str) -> list[Input]:
    """The data set of a name such as `hf:...`; none for a path of files."""
    if path.startswith(DataSet.PREFIX):
        return [DataSet(path)]
    if path.startswith(Strings.PREFIX):
        strings = Strings(path)
        assert strings.settings  # a wrong name raises at once
        return [strings]
    return []


def read_lines(file: Path, *, cut: bool = True) -> Iterator[tuple[int, str]]:
    """Yield (number, line) without line ends.

    Args:
        cut: a very long line comes in parts, cut at spaces; else it is refused.
    """
    try:
        with open_unpacked(file) as stream:
            yield from read_stream(stream, file, cut=cut)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        kind = "zstandard" if file.name.endswith(".zst") else "gzip"
        raise DataError(
            f"damaged {kind} file ({error})", file=file, fix="copy or compress it again"
        ) from error
    except OSError as error:
        near = find_near(file, folders=False) if isinstance(error, FileNotFoundError) else None
        fix = f"give {near}" if near else "check the path, and the right to read it"
        raise DataError(f"cannot be read ({error.strerror})", file=file, fix=fix) from error


def need_lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of every line; only `\\n` and `\\r\\n` end a line,
    as U+2028 occurs inside text.

    Raises:
        DataError: No line has a text.
    """
    empty = True
    for number, line in read_lines(file, cut=False):
        empty = empty and not line.strip()
        yield number, line
    if empty:
        raise DataError("the file is empty", file=file, fix="name a file with examples")


def read_stream(
    stream: BinaryIO, file: Path | str, *, cut: bool = True, first: int = 1
) -> Iterator[tuple[int, str]]:
    """`read_lines` for a stream that is open already; `file` is its name in messages, `first` the
    number of its first line.

    A byte order mark at the start of a line is left out: there one file was joined to another.
    """
    limit = _LINE if cut else longest_line() + 1
    number, rest, blank = first, b"", 0
    while chunk := stream.readline(limit):
        line, rest = rest + chunk if rest else chunk.removeprefix(BOM_UTF8), b""
        complete = line.endswith(b"\n")
        if not complete and len(chunk) == limit:
            if not cut:
                raise long_line_error(file, number)
            end = line.rfind(b" ") + 1 or _character_end(line)
            line, rest = line[:end], line[end:]
        text = _decode(line, file, number)
        blank = blank + len(line) if not text or text.isspace() else 0
        if blank > BLANK:
            raise blank_text_error(file, number)
        yield number, text
        number += complete
    if rest:
        yield number, _decode(rest, file, number)


def _matches(pattern: Path) -> list[str]:
    """The files that a pattern matches; a letter like `[` in the name of an existing folder is an
    ordinary letter.
    """
    existing = next(folder for folder in pattern.parents if folder.is_dir())
    literal = os.path.join(escape(str(existing)), pattern.relative_to(existing))
    return glob(literal, recursive=True) or glob(str(pattern), recursive=True)


def open_unpacked(file: Path) -> BinaryIO:
    """Open a file as unpacked bytes; OSError if it cannot be read."""
    if file.name.endswith(".zst"):
        library = require_library("zstandard", "zstd", str(file))
        return open_data(file, lambda stream: _Zstandard(stream, library))
    return open_data(file, UNPACK[".gz"] if file.name.endswith(".gz") else None)


class _Zstandard(io.RawIOBase):
    """The content of a zstandard file of any number of frames; EOFError where the last one is
    cut off.
    """

    def __init__(self, stream: BinaryIO, library: Any) -> None:
        self._stream, self._library, self._step = stream, library, 1 << 9
        self._frame: Any = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._read_more():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _read_more(self) -> bool:
        data = self._frame.unused_data if self._frame and self._frame.eof else b""
        if not (data := data or self._stream.read(self._step)):
            if self._frame and not self._frame.eof:
                raise EOFError("it ends too early")
            return False
        if self._frame is None or self._frame.eof:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            self._ready = memoryview(self._frame.decompress(data))
        except self._library.ZstdError as error:
            raise EOFError(str(error)) from error
        size = len(self._ready)  # a few packed bytes may hold many: the next step reads fewer
        self._step = (
            max(1 << 6, self._step >> 1)
            if size > 1 << 20
            else min(1 << 12, self._step << (size < 1 << 18))
        )
        return True


def _character_end(line: bytes) -> int:
    """The last offset in `line` where a UTF-8 character may end."""
    cut = len(line)
    while cut > len(line) - 4 and line[cut - 1] & 0xC0 == 0x80:
        cut -= 1
    return cut - 1 if line[cut - 1] >= 0xC0 else len(line)


def _decode(line: bytes, file: Path | str, number: int) -> str:
    if number == 1 and line.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        kind, end = ("gzip", ".gz") if line.startswith(b"\x1f\x8b") else ("zstandard", ".zst")
        raise DataError(f"this is {kind} data", file=file, fix=f"name it {Path(file).name}{end}")
    return decode(line, file=file, number=number).rstrip("\r\n")
