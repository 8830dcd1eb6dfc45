"""The texts that a user gives to a model: one on the command line, a file of lines, or standard
input.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.terminal import WARN, remark
from plmctl.text.inputs import open_unpacked, read_stream
from plmctl.text.tabular import find_object


def read_texts(prompt: str | None, file: str | None) -> tuple[str, Iterator[str]]:
    """Read the given text, the lines of a file, or those of standard input.

    Returns:
        Where the texts come from, for messages, and the texts.
    """
    if prompt is not None and file is not None:
        raise ConfigError("prompt", prompt, "either prompt= or input=, not both")
    if prompt is not None:
        return "prompt", iter([prompt])
    if file is None and sys.stdin is not None and sys.stdin.isatty():
        fix = 'prompt="Once upon a time", or input=<file>, or input=-'
        raise ConfigError("prompt", ..., "there is no text", fix=fix)
    if file in (None, "-"):
        return "standard input", _lines(sys.stdin.buffer, "standard input")
    path = Path(str(file)).expanduser()
    try:
        stream = open_unpacked(path)
    except OSError as error:
        fix = "input=<a file of lines>, or - for standard input"
        raise DataError(f"cannot be read: {error.strerror}", file=path, fix=fix) from error
    return str(file), _closing(stream, path)


def _closing(stream: BinaryIO, file: Path) -> Iterator[str]:
    with stream:
        yield from _lines(stream, file)


def _lines(stream: BinaryIO, name: Path | str) -> Iterator[str]:
    looks = True
    for _, text in read_stream(stream, name, cut=False):
        if looks and find_object(text) is not None:
            remark(f"{name}: the first line is a JSON object, and is a prompt as it stands", WARN)
        looks = looks and not text.strip()
        yield text
