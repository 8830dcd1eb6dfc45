"""Reading of files that may be damaged: text, JSON, weights and arrays, each kind in one module
(YAML: storage/settings_file).

Whatever is in such a file, the caller gets a value of the right type or a DataError. The error has
the file, the problem and the fix.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import DataError
from plmctl.core.values import fit

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

COPY = "copy it again"
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON writes one
_HALVES = re.compile("[\ud800-\udfff]")
# bytes of a file that is read at once; the largest published tokenizer has some 30 MB
LARGEST = 1 << 29
# errors of Python, numpy and torch for unexpected content
MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    MemoryError,
)


def read_bytes(file: Path, *, fix: str = COPY) -> bytes:
    """Read a file of at most `LARGEST` bytes; DataError, before anything is read, for more."""
    try:
        if file.stat().st_size > LARGEST:
            raise DataError(f"more than {LARGEST:,} bytes", file=file, fix=fix)
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file, fix=fix) from error


def read_text(file: Path, *, fix: str = COPY) -> str:
    """Read a UTF-8 file, as `read_bytes` does; the end of a line is "\\n"."""
    try:
        text = read_bytes(file, fix=fix).decode("utf-8-sig")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"not UTF-8: byte 0x{error.object[error.start]:02x}"
        raise DataError(what, file=file, line=line, fix=fix) from error


def parse_json(text: str) -> Any:
    """The value that `text` writes, each half of a surrogate pair as U+FFFD; ValueError with the
    reason in a few words.
    """
    try:
        value = json.loads(text)
        return _replace_surrogates(value) if _HALF.search(text) else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _replace_surrogates(value: Any) -> Any:
    """A value of JSON without what JSON can write and UTF-8 cannot."""
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    return (
        {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def parse_json_at(text: str, *, file: object, line: int | None = None, fix: str = "") -> Any:
    """The value that `text` writes, which is that `line` of `file`, or all of it."""
    fix = fix or ("name a file of JSON" if line is None else "write one JSON value on each line")
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg}{_show_sign(error)}"
        raise DataError(problem, file=file, line=line or error.lineno, fix=fix) from error
    except ValueError as error:
        raise DataError(f"not JSON: {error}", file=file, line=line, fix=fix) from error


def _show_sign(error: json.JSONDecodeError) -> str:
    """Where no JSON stands, and its sign if that is not ASCII: a full-width one looks the same."""
    sign = error.doc[error.pos : error.pos + 1]
    named = "" if sign.isascii() else f": {sign!r} (U+{ord(sign):04X} {unicodedata.name(sign, '')})"
    return f", column {error.colno}{named}"


def read_json(file: Path, kind: Any = dict[str, Any], *, fix: str = COPY) -> Any:
    """The value in a JSON file as the annotation `kind` wants it: a TypedDict, or what `fit`
    knows.
    """
    text = read_text(file, fix=fix)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise DataError(f"truncated or not JSON ({error})", file=file, fix=fix) from error
    return fit_stored(value, kind, file=file, fix=fix)


def fit_stored(
    value: Any, kind: Any, *, file: object, line: int | None = None, fix: str = COPY
) -> Any:
    """`value`, which stands in `file`, as the annotation `kind` wants it."""
    try:
        return fit(value, kind)
    except ValueError as error:
        raise DataError(f"damaged: {error}", file=file, line=line, fix=fix) from error


def read_tensors(file: Path, *, fix: str = COPY) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, all of them in memory; packed ones as floats."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with blame_file(file, "truncated or not a weight file", fix=fix):
        try:
            found = load_file(file)
        except (SafetensorError, OSError) as error:
            raise ValueError(summarize_error(error)) from error
        return _unpack_tensors(found)


def _unpack_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of whatever type, and those of packed ones (storage/packed.py)."""
    from torch import from_numpy

    from plmctl.storage.packed import is_part, unpack_arrays

    parts = {name: tensor.numpy() for name, tensor in tensors.items() if is_part(name, tensors)}
    plain = {name: tensor for name, tensor in tensors.items() if name not in parts}
    return plain | {name: from_numpy(array) for name, array in unpack_arrays(parts).items()}


def read_array(
    file: Path, *, dtype: str, length: int, what: str = "damaged", fix: str = COPY
) -> np.ndarray:
    """The array of one dimension in a .npy file, mapped into memory; `what` it is where it is
    another than that.
    """

    import numpy as np

    wanted = f"{what}: the manifest states {dtype} [{length}]"
    if not file.exists():
        raise DataError(f"{wanted}, the file is missing", file=file, fix=fix)
    with blame_file(file, f"{wanted}, the file has {file.stat().st_size} bytes", fix=fix):
        try:
            # an empty array cannot be mapped
            array = np.load(file, mmap_mode="r" if length else None, allow_pickle=False)
        # the header is a Python literal
        except (OSError, EOFError, SyntaxError, TokenError) as error:
            raise ValueError(summarize_error(error)) from error
    if not isinstance(array, np.ndarray) or array.shape != (length,) or array.dtype.name != dtype:
        holds = (
            f"{array.dtype} {list(array.shape)}"
            if isinstance(array, np.ndarray)
            else "several arrays"
        )
        raise DataError(f"{wanted}, the file holds {holds}", file=file, fix=fix)
    return array


@contextmanager
def blame_file(file: Path, what: str = "damaged", *, fix: str = COPY) -> Iterator[None]:
    """Turn errors inside into a DataError about `file`, with `what` and the reason."""
    try:
        yield
    except MALFORMED as error:
        name = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise DataError(f"{what} ({name}{summarize_error(error)})", file=file, fix=fix) from error


def summarize_error(error: BaseException) -> str:
    """The first line of a library's error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
