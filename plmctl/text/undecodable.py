"""Bytes to text, and the error for bytes that are no UTF-8: where, and what they seem to be."""

from __future__ import annotations

import codecs
import gzip
import re
import shlex
import zlib
from collections import Counter
from pathlib import Path

from plmctl.core.errors import DataError

LOOKED = 1 << 20  # bytes of a file that are looked at
# usual bytes of GB 2312: punctuation and the characters of level 1
_USUAL = re.compile(rb"[\xa1-\xa3\xb0-\xd7][\xa1-\xfe]")
# usual bytes of Big5: punctuation and the characters of level 1
_USUAL_BIG5 = re.compile(rb"[\xa1-\xc6][\x40-\x7e\xa1-\xfe]")
_KANA = re.compile("[\u3040-\u30ff]")
_EASTERN = re.compile("[\n -~\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]")
_EASTERN_MARKS = re.compile("[。、，]")
# how packed files begin: (bytes, what it is, what unpacks it)
_PACKED = (
    (b"BZh", "bzip2", "bunzip2 -k {name}"),
    (b"\xfd7zXZ", "xz", "unxz -k {name}"),
    (b"PK\x03\x04", "zip", "unzip {name} -d {folder}"),
)
# files of office programs: what they are, and as what these save them
_SHEET, _PAGES = ("a spreadsheet", "CSV UTF-8", ".csv"), ("a document", "plain text, UTF-8", ".txt")
_OFFICE = {
    **dict.fromkeys([".xlsx", ".xls", ".ods"], _SHEET),
    **dict.fromkeys([".docx", ".doc", ".odt", ".pdf"], _PAGES),
}
_UNPACK = {".gz": ("gzip -dc", "gzip"), ".zst": ("zstd -dc", "zstd")}
_BYTE_ORDER = (b"\xff\xfe", b"\xfe\xff")
_SINGLE = re.compile(rb"[\x80-\xff]")
_ESCAPED = re.compile("[\udc80-\udcff]")
# encodings of a byte a letter: Cyrillic, Greek, Hebrew, Arabic, Thai
_SCRIPTS = ("cp1251", "koi8-r", "cp866", "cp1253", "cp1255", "cp1256", "tis-620")
# Thai in cp874: a consonant, and a mark that stands above or below it
_CONSONANTS, _MARKS = rb"[\xa1-\xce]", rb"[\xd1\xd4-\xda\xe7-\xee]"
_THAI_MARK, _PLACED = re.compile(_MARKS), re.compile(_CONSONANTS + b"(?:" + _MARKS + b")+")
_EMPTY = 0.1  # a line with a larger share of zero bytes is no text


def decode(line: bytes, *, file: object, number: int, encoding: str = "utf-8") -> str:
    """The text of a line of a file.

    Raises:
        DataError: It is not UTF-8, or has zero bytes all over.
    """
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError as error:
        raise undecodable_error(error, file=file, line=number, content=line) from error
    if "\0" in text and text.count("\0") > _EMPTY * len(text):
        raise _explain_zeros(file, number, line)
    return text


def undecodable_error(
    error: UnicodeDecodeError, *, file: object, line: int, content: bytes
) -> DataError:
    """The error to raise; what the file is, is guessed from its beginning, or from `content`, bytes
    of it.
    """
    if isinstance(file, Path) and file.suffix.lower() in _OFFICE:
        what, form, end = _OFFICE[file.suffix.lower()]
        fix = f"save it as {shlex.quote(str(file.with_suffix(end)))}, in its program as '{form}'"
        return DataError(f"this is {what}, not text", file=file, fix=fix)
    for begin, kind, command in _PACKED if line == 1 else ():
        if content.startswith(begin):
            place = file if isinstance(file, Path) else Path("FILE")
            names = {"name": place, "folder": place.with_suffix("")}
            spelt = {name: shlex.quote(str(path)) for name, path in names.items()}
            fix = f"{command.format(**spelt)}  # and name what it writes"
            return DataError(f"this is {kind} data", file=file, fix=fix)
    start = error.object.rfind(b"\n", 0, error.start) + 1
    what = f"byte 0x{error.object[error.start]:02x} at column {error.start - start + 1}"
    if _is_cut_off(error):
        what = f"the text is cut off inside a character: {what} is only its beginning"
        fix = "copy the whole file again"
        if isinstance(file, Path) and file.suffix not in _UNPACK:
            size = file.stat().st_size - len(error.object) + error.start
            fix = f"head -c {size} {shlex.quote(str(file))} > whole{file.suffix}"
        return DataError(what, file=file, line=line, fix=fix)
    sample = _read_sample(file) or content
    if _is_mostly_utf8(sample):
        what = f"not UTF-8: {what} is damaged, all else around it is UTF-8"
        return DataError(what, file=file, line=line, fix=_spell_conversion(file, "-c -f utf-8"))
    seems = guess_encoding(sample)
    if not seems and _is_other_script(sample):
        what = f"not UTF-8: {what}, saved in an encoding of another script"
        return DataError(what, file=file, line=line, fix=_spell_look(file, line))
    # cp1252 has all letters of latin1, and also quotes and the euro
    western = "cp1252" if _try(sample, "cp1252") else "latin1"
    unknown = f", saved in an unknown encoding, such as {western}"
    what = f"not UTF-8: {what}" + (f"; it seems to be {seems}" if seems else unknown)
    fix = _spell_conversion(file, f"-f {seems or western}")
    return DataError(what, file=file, line=line, fix=fix)


def _is_cut_off(error: UnicodeDecodeError) -> bool:
    """Whether all is UTF-8 up to a character whose last bytes are missing; a single byte behind an
    English letter is more likely one of latin1.
    """
    before = error.object[: error.start]
    if error.reason != "unexpected end of data":
        return False
    single = len(error.object) - error.start == 1
    return not (single and before.isascii() and before[-1:].isalpha())


def guess_encoding(content: bytes) -> str:
    """The name that iconv has for the encoding of `content`, or "" if it cannot be guessed.

    Japanese has kana. Text that decodes as Big5 is traditional Chinese if nearly all characters are
    common ones, and many end with a byte of ASCII. Those of GB 2312 never do. Text that
    decodes as GB 18030 is Chinese if most of its characters are common ones. Letters of other
    encodings come in words of odd lengths, which do not decode as pairs of bytes. Thai has few
    spaces and is known by its marks. Korean syllables lie in a part of the same pairs. Bytes 80 to
    9F are signs of cp1252, and none in latin1.
    """
    if content.startswith(_BYTE_ORDER):
        return "utf-16"
    if wide := _guess_wide(content):
        return wide
    for name in ("cp932", "euc-jp"):
        text = _try(content, name)
        signs = [character for character in text if not character.isascii()]
        if signs and 3 * len(_KANA.findall(text)) >= len(signs):
            return name
    if name := _guess_big5(content):
        return name
    if text := _try(content, "gb18030"):
        characters = [c.encode("gb18030") for c in text if not c.isascii()]
        common = sum(_USUAL.fullmatch(character) is not None for character in characters)
        if 2 * common > len(characters):
            leads = [character[0] for character in characters]
            syllables = sum(0xB0 <= lead <= 0xC8 for lead in leads)
            korean = 20 * syllables > 19 * sum(lead >= 0xB0 for lead in leads) > 0
            if korean and len(leads) > 8 and _try(content, "cp949"):
                return "cp949"
            return "cp874" if _is_thai(content) else "gb18030"
    if _is_thai(content):
        return "cp874"
    high = _SINGLE.findall(content)
    signs_of_windows = sum(byte < b"\xa0" for byte in high)
    letters = len(high) + sum(map(content.count, map(bytes, zip(range(97, 123)))))
    if signs_of_windows and _try(content, "cp1252") and 4 * len(high) < letters:
        return "cp1252"
    return ""


def _guess_big5(content: bytes) -> str:
    """The narrowest encoding that has the characters of Big5 text, or ""."""
    for name in ("big5", "cp950", "big5-hkscs"):
        characters = [c.encode(name) for c in _try(content, name) if not c.isascii()]
        common = sum(_USUAL_BIG5.fullmatch(character) is not None for character in characters)
        low = sum(character[-1] < 0x7F for character in characters)
        if characters and 5 * common > 4 * len(characters) and 6 * low > len(characters):
            return name
    return ""


def _is_thai(content: bytes) -> bool:
    """Whether nearly all marks stand behind a consonant, as in Thai, and there are many."""
    marks = len(_THAI_MARK.findall(content))
    if 12 * marks < len(_SINGLE.findall(content)) or marks < 3 or not _try(content, "cp874"):
        return False
    right = sum(len(each) - 1 for each in _PLACED.findall(content))
    return right > 0.95 * marks


def _is_other_script(content: bytes) -> bool:
    """Whether most letters lie beyond ASCII, which those of no Latin alphabet do."""
    high = len(_SINGLE.findall(content))
    return high > len(re.findall(rb"[A-Za-z]", content))


def _spell_look(file: object, line: int) -> str:
    """A command that shows a line of a file in the encodings of other scripts."""
    if not isinstance(file, Path) or file.suffix in _UNPACK:
        return "find the encoding, and convert the text to UTF-8 with iconv"
    shown = f"sed -n {line}p {shlex.quote(str(file))} | iconv -c -f $e -t utf-8"
    return f'for e in {" ".join(_SCRIPTS)}; do echo "$e: $({shown})"; done'


def _try(content: bytes, encoding: str) -> str:
    """The text of `content`, whose end may be half a character; "" where it is none."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(content)
    except UnicodeDecodeError:
        return ""


def _guess_wide(content: bytes) -> str:
    """UTF-16 without its mark. It is recognised by the zero bytes of spaces, line ends and Latin
    letters, or as East Asian text with its own punctuation.
    """
    content = content[: 1 << 14]
    zeros = Counter(place % 2 for place, byte in enumerate(content) if byte == 0)
    for parity, name in ((1, "utf-16le"), (0, "utf-16be")):
        text = _try(content, name)
        if not text or "\0" in text:
            continue
        if zeros[parity] > 0.9 * zeros.total() and zeros[parity] > 0.02 * len(content):
            return name
        marks = len(_EASTERN_MARKS.findall(text))
        if 200 * marks > len(text) and len(_EASTERN.findall(text)) > 0.9 * len(text):
            return name
    return ""


def _is_mostly_utf8(content: bytes) -> bool:
    """Whether many more characters of several bytes are UTF-8 than bytes are not."""
    text = content.decode("utf-8", "surrogateescape")
    bad = len(_ESCAPED.findall(text))
    return sum(not c.isascii() for c in text) - bad > 4 * bad


def _explain_zeros(file: object, number: int, line: bytes) -> DataError:
    """Zero bytes: UTF-16, or what a machine leaves where it stopped while it wrote."""
    if seems := _guess_wide(_read_sample(file) or line):
        what = f"not UTF-8: it has zero bytes, and seems to be {seems}"
        return DataError(what, file=file, line=number, fix=_spell_conversion(file, f"-f {seems}"))
    what = f"{line.count(0):,} zero bytes instead of text: it was not written to its end"
    fix = "copy the whole file again"
    if isinstance(file, Path) and file.suffix not in _UNPACK:
        fix = f"tr -d '\\000' < {shlex.quote(str(file))} > rest{file.suffix}"
    return DataError(what, file=file, line=number, fix=fix)


def _read_sample(file: object) -> bytes:
    """The beginning of a file, unpacked; b"" where it cannot be read again."""
    if not isinstance(file, Path) or file.suffix == ".zst":
        return b""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            return stream.read(LOOKED)
    except (OSError, EOFError, zlib.error):
        return b""


def _spell_conversion(file: object, options: str) -> str:
    """The command that writes the file as UTF-8."""
    command = f"iconv {options} -t utf-8"
    if not isinstance(file, Path):
        return command
    name = shlex.quote(str(file))
    if file.suffix in _UNPACK:
        unpack, pack = _UNPACK[file.suffix]
        inner = file.with_suffix("").suffix
        return f"{unpack} {name} | {command} | {pack} > converted{inner}{file.suffix}"
    return f"{command} {name} > converted{file.suffix}"
