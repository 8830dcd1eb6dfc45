"""Small files that appear whole or not at all, whenever the process is stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_text(file: Path, text: str) -> None:
    """The whole text or nothing of it; what stood there before stays until then."""
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def write_json(file: Path, record: Any) -> None:
    """The same of JSON."""
    write_text(file, json.dumps(record, indent=1))
