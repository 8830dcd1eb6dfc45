"""Token directories behind a URL: the manifest and the tokenizer are copied to this machine, the
shards stay there.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.data.shard_files import FILES
from plmctl.data.shards import KEY, MANIFEST
from plmctl.storage.atomic import open_folder, write_bytes
from plmctl.storage.gate import admit
from plmctl.storage.paths import find_cache_folder, inside
from plmctl.storage.remote import is_url, read_url


def locate(path: str | os.PathLike[str]) -> Path:
    """The folder of a token directory on this machine; of a URL, that of its manifest."""
    return (
        _copy_home(path.rstrip("/"))
        if isinstance(path, str) and is_url(path)
        else (Path(path).expanduser())
    )


@cache
def _copy_home(url: str) -> Path:
    """The folder with manifest and tokenizer, as they are now. A process reads them once.

    Raises:
        DataError: There are no shards, or nobody may read them.
    """
    content = read_url(f"{url}/{MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(content)
        files: dict[str, Any] = manifest[FILES] if KEY in manifest else {}
    except (ValueError, TypeError, KeyError):
        what = "no manifest of tokens: a URL names a folder that plmctl tokenize has written"
        raise DataError(what, file=f"{url}/{MANIFEST}", fix="data.path=<its URL>") from None
    if not files:
        what = "its tokens are in one piece, and a URL is read shard by shard"
        fix = "plmctl tokenize data.path=<text> shard_tokens=67108864 out=<dir>, and copy that"
        raise DataError(what, file=url, fix=fix)
    home = find_cache_folder() / "remote" / hashlib.sha256(content).hexdigest()[:24]
    if (home / MANIFEST).is_file():
        return home
    admit(home.parent).mkdir(parents=True, exist_ok=True)
    try:
        with open_folder(home) as folder:
            for name, (_, sha256) in files.items():
                file = inside(folder, name, lambda why: DataError(f"{why}", file=url))
                found = read_url(f"{url}/{name}")
                if hashlib.sha256(found).hexdigest() != sha256:
                    what = "its content is not that of the manifest"
                    raise DataError(what, file=f"{url}/{name}", fix="# copy the folder there again")
                write_bytes(file, found)
            write_bytes(folder / MANIFEST, content)
    except OSError:
        if not (home / MANIFEST).is_file():  # no other process was faster
            raise
    return home
