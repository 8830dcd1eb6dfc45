"""The error for a text that is not UTF-8: where, and which encoding it seems to have."""

from __future__ import annotations

import codecs
import re
import shlex
from pathlib import Path

from plmctl.core.errors import DataError

# of GB 2312: punctuation and the characters of level 1
_USUAL = re.compile(rb"[\xa1-\xa3\xb0-\xd7][\xa1-\xfe]")
# how packed files begin: (bytes, what it is, what unpacks it)
_PACKED = (
    (b"BZh", "bzip2", "bunzip2 -k"),
    (b"\xfd7zXZ", "xz", "unxz -k"),
    (b"PK\x03\x04", "zip", "unzip"),
)
_BYTE_ORDER = (b"\xff\xfe", b"\xfe\xff")


def undecodable_error(
    error: UnicodeDecodeError, *, file: object, line: int, content: bytes
) -> DataError:
    """The error to raise; the encoding is guessed from `content`, bytes of the file."""
    for begin, kind, command in _PACKED if line == 1 else ():
        if content.startswith(begin):
            name = shlex.quote(str(file)) if isinstance(file, Path) else "<the file>"
            fix = f"{command} {name}, and name what it writes"
            return DataError(f"this is {kind} data", file=file, fix=fix)
    start = error.object.rfind(b"\n", 0, error.start) + 1
    what = f"not UTF-8: byte 0x{error.object[error.start]:02x} at column {error.start - start + 1}"
    seems = guess_encoding(content)
    fix = f"iconv -f {seems or 'latin1'} -t utf-8"
    if isinstance(file, Path):
        fix += f" {shlex.quote(str(file))} > converted{''.join(file.suffixes[:1])}"
    unknown = ", saved in an unknown encoding, such as latin1"
    what += f"; it seems to be {seems}" if seems else unknown
    return DataError(what, file=file, line=line, fix=fix)


def guess_encoding(content: bytes) -> str:
    """The name that iconv has for the encoding of `content`, or "" if it cannot be guessed.

    Text that decodes as GB 18030 is Chinese if most of its characters are common ones: letters of
    other encodings come in words of odd lengths, which do not decode as pairs of bytes.
    """
    if content.startswith(_BYTE_ORDER):
        return "utf-16"
    try:
        # the end may be half a character
        text = codecs.getincrementaldecoder("gb18030")().decode(content)
    except UnicodeDecodeError:
        return ""
    characters = [character.encode("gb18030") for character in text if not character.isascii()]
    common = sum(_USUAL.fullmatch(character) is not None for character in characters)
    return "gb18030" if 2 * common > len(characters) else ""
