"""Tokenizer files of other people, tried in a process of its own before they are loaded. Their
libraries end the process, or fill the memory, for unexpected content.

<cache>/tokenizers/<hash>: an empty file, of content that has passed or that plmctl has written.
Content of parts without tables and patterns of their own is not tried.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.storage.gate import admit
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.reading import parse_json
from plmctl.text.letters import JOINERS
from plmctl.text.sentences import CJK

FOLDER, CHILD = "tokenizers", Path(__file__).with_name("trial_child.py")
AGAIN = "take the file from another source"
WAIT = 300.0  # seconds, on a machine with much else to do
# parts of a tokenizer.json that hold a table, a pattern or a text; and letters that are spelled so
# that the names of these would not be seen
_RISKY = re.compile(rb'"(Precompiled|Regex|Replace|Prepend|String)"|\\u00[4-7]')
# the patterns that plmctl writes, and wrote
_OWN = {rf"[^\w\s{JOINERS}]|[{CJK}]", rf"[^\w\s]|[{CJK}]", " {2,}"}
MOST = 1000  # times that a text may grow by replacements


def try_out(content: bytes, file: object, *, kind: str) -> None:
    """Raise DataError for content that would end the process that loads it.

    Args:
        content: The content of a tokenizer.json (`kind` "json"), or of a model of sentencepiece
            ("model").
        file: Its name in messages.
    """
    if (kind == "json" and _is_plain(content, file)) or _mark(content).is_file():
        return
    if problem := _run(content, kind):
        raise DataError(f"not a tokenizer file ({problem})", file=file, fix=AGAIN)
    remember(content)


def remember(content: bytes) -> None:
    """Note that this content needs no trial: plmctl has written it, or it has passed."""
    with contextlib.suppress(OSError):
        mark = _mark(content)
        admit(mark.parent).mkdir(parents=True, exist_ok=True)
        admit(mark).touch()


def _mark(content: bytes) -> Path:
    return find_cache_folder() / FOLDER / hashlib.sha256(content).hexdigest()


def _run(content: bytes, kind: str) -> str:
    """The problem that a process finds which loads the content; "" for none."""
    command = [sys.executable, "-P", str(CHILD), kind]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=WAIT)
    except subprocess.TimeoutExpired:
        return f"loading it takes over {WAIT:.0f} s"
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return f"it ends the process that loads it: {name}"
    try:
        return str(json.loads(done.stdout)["problem"])
    except (ValueError, KeyError):
        return f"it ends the process that loads it: exit code {done.returncode}"


def _is_plain(content: bytes, file: object) -> bool:
    """Whether nothing in a tokenizer.json can do harm; DataError where a text grows too much."""
    if not _RISKY.search(content):
        return True
    try:
        spec = parse_json(content.decode())
    except ValueError:  # its own library describes the fault
        return True
    growth, plain = 1.0, True
    for part in _parts(spec if isinstance(spec, dict) else {}):
        put = part.get("content", part.get("prepend", ""))
        pattern = part.get("pattern")
        given = pattern if isinstance(pattern, dict) else {}
        if part.get("type") in ("Replace", "Prepend") and isinstance(put, str):
            growth *= max(1, len(put) / max(1, len(str(given.get("String", " ")))))
        plain &= part.get("type") != "Precompiled" and given.get("Regex") in {None, *_OWN}
    if growth > MOST:
        what = f"its normaliser makes a text up to {growth:.3g} times as long"
        raise DataError(f"not a tokenizer file ({what})", file=file, fix=AGAIN)
    return plain


def _parts(node: Any) -> Iterator[dict[str, Any]]:
    """Every part of the stages of a pipeline; not the tables of its model."""
    waiting = [node.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(value for value in part.values() if isinstance(value, list))
        elif isinstance(part, list):
            waiting.extend(part)
