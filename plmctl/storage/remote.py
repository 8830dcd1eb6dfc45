"""Files behind a URL (`s3://`, `gs://`, `hf://`, `https://`), read by fsspec with retries.

fsspec reads HTTP without retries, and S3 with those of its library. Here every read is tried again
after time-outs, lost connections, short answers and the statuses 429 and 5xx.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from functools import cache, partial
from typing import IO, Any, TypeVar

from plmctl.core.errors import DataError, PlmctlError
from plmctl.core.extras import require_library

PROTOCOLS = ("s3", "gs", "hf", "https", "http")
TRIES = 6  # the first try of a read, and five more
FIRST = 0.5  # seconds before the second try, and twice as many before each further one
PATIENCE = 60.0  # seconds for a block
BLOCK = 1 << 23  # bytes of one read
_URL = re.compile(f"({'|'.join(PROTOCOLS)})://.")
_RIGHTS = {
    "s3": "export AWS_PROFILE=<one with the right to read it>",
    "gs": "gcloud auth application-default login",
    "hf": "hf auth login",
}
_BUSY = (408, 425, 429)  # statuses of a server that is busy
T = TypeVar("T")


class ShortRead(OSError):
    """An answer with too few bytes."""


def is_url(path: object) -> bool:
    """Whether `path` is a URL of a file store."""
    return isinstance(path, str) and _URL.match(path) is not None


def read_url(url: str) -> bytes:
    """The content of a small file."""
    return _retry(url, lambda: _read(url, None, None))


def copy_url(url: str, size: int, stream: IO[bytes]) -> None:
    """Write the `size` bytes of a file to a stream, block by block.

    Raises:
        DataError: They cannot be read, or are fewer.
    """
    for begin in range(0, size, BLOCK):
        end = min(begin + BLOCK, size)
        stream.write(_retry(url, partial(_read_block, url, begin, end)))


def _read_block(url: str, begin: int, end: int) -> bytes:
    data = _read(url, begin, end)
    if len(data) > end - begin:  # a server that knows no ranges sends the whole file
        data = data[begin:end]
    if len(data) < end - begin:
        raise ShortRead(f"{begin + len(data):,} bytes, not {end:,} or more")
    return data


def _read(url: str, begin: int | None, end: int | None) -> bytes:
    store, path = _open(url)
    if store.async_impl:
        asyn = require_library("fsspec.asyn", "remote", url)
        read = partial(store._cat_file, path, start=begin, end=end)
        found = asyn.sync(store.loop, read, timeout=PATIENCE)
    else:
        found = store.cat_file(path, start=begin, end=end)
    return bytes(found)


def _open(url: str) -> tuple[Any, str]:
    """(its file system, the path in it)."""
    protocol = url.partition("://")[0]
    store = _open_store(protocol)
    return store, store._strip_protocol(url)


@cache
def _open_store(protocol: str) -> Any:
    library = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub"}.get(protocol, "aiohttp")
    fsspec = require_library("fsspec", "remote", f"{protocol}://")
    require_library(library, "remote", f"{protocol}://")
    # listings would be remembered, and a bucket changes
    return fsspec.filesystem(protocol, use_listings_cache=False, skip_instance_cache=True)


def _retry(url: str, read: Callable[[], T]) -> T:
    """The result of `read`, tried again while a store is out of reach."""
    for number in range(TRIES):
        try:
            return read()
        except PlmctlError:
            raise
        except Exception as error:
            if not _may_pass(error):
                raise _explain(url, error) from error
            if number == TRIES - 1:
                what = f"cannot be read, after {TRIES} tries ({_describe(error)})"
                fix = "# check the connection and start again; a run goes on with --resume"
                raise DataError(what, file=url, fix=fix) from error
            time.sleep(FIRST * 2**number * random.uniform(0.5, 1.5))
    raise AssertionError


def _may_pass(error: Exception) -> bool:
    """Whether a later try may succeed."""
    if isinstance(error, FileNotFoundError | PermissionError):
        return False
    if (status := _find_status(error)) is not None:
        return status in _BUSY or status >= 500
    lost = isinstance(error, OSError | TimeoutError | asyncio.TimeoutError)
    return lost or type(error).__module__.partition(".")[0] == "aiohttp"


def _find_status(error: Exception) -> int | None:
    """The status of HTTP in an error, of itself or of its answer."""
    answer = getattr(error, "response", None)
    for found in (getattr(error, "status", None), getattr(answer, "status_code", None)):
        if isinstance(found, int):
            return found
    return None


def _explain(url: str, error: Exception) -> DataError:
    """The error of a read that no further try mends."""
    protocol = url.partition("://")[0]
    if isinstance(error, FileNotFoundError) or _find_status(error) == 404:
        return DataError("there is no such file", file=url, fix="data.path=<the URL of its folder>")
    if (
        isinstance(error, PermissionError)
        or _find_status(error) in (401, 403)
        or ("redential" in type(error).__name__)
    ):
        what = f"there is no right to read it ({_describe(error)})"
        return DataError(what, file=url, fix=_RIGHTS.get(protocol, "# ask its owner for the right"))
    return DataError(f"cannot be read ({_describe(error)})", file=url, fix="# check the URL")


def _describe(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said[:200] or type(error).__name__
