"""Names that become paths: only below the intended folder. For a missing path an existing one is
proposed.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from plmctl.core.errors import ConfigError, DataError, PlmctlError, find_alike, find_meant
from plmctl.core.spelling import spell_setting

SUBMITTED = "submitted"  # the folder of jobs of a cluster, and of their logs
LOG = "log.txt"  # in the folder of a job: what it prints
# endings of files; a folder may well be called v1.2
ENDINGS = frozenset(
    (
        *(".csv", ".tsv", ".tab", ".xls", ".xlsx", ".ods", ".parquet", ".arrow", ".feather"),
        *(".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".xml", ".html", ".htm", ".md", ".txt"),
        *(".pdf", ".doc", ".docx", ".rtf", ".tex", ".log", ".png", ".svg", ".db", ".sqlite"),
        *(".npz", ".npy", ".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".h5", ".safetensors"),
        *(".bin", ".vec", ".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz"),
    )
)


def fresh(root: Path) -> Path:
    """`root/<time>-<process>`: a name that no other process uses; with a number behind it where
    this one has used it.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    names = (f"{name}-{number}" if number > 1 else name for number in itertools.count(1))
    return next(root / name for name in names if not (root / name).exists())


def refuse_file_name(out: str | Path, key: str = "out") -> None:
    """Raise ConfigError for a folder that is to be made and has the name of a file."""
    place = Path(out)
    if place.suffix.lower() in ENDINGS and not place.is_dir():
        allowed = f"a folder, for several files; {place.suffix} is the ending of a file"
        raise ConfigError(key, str(out), allowed, fix=spell_setting(key, place.with_suffix("")))


def refuse_ending(out: str | Path, endings: Sequence[str], what: str) -> None:
    """Raise ConfigError for a file that is to be written and whose ending is none of `endings`."""
    place = Path(out)
    if place.suffix not in endings:
        allowed = f"a file that ends with {' or '.join(endings)}: {what}"
        meant = place.with_suffix(endings[0])
        raise ConfigError("out", str(out), allowed, fix=spell_setting("out", meant))


def inside(
    folder: Path, name: str, refuse: Callable[[str], PlmctlError], *, links: bool = True
) -> Path:
    """`folder`/`name`; raises `refuse(why)` where the name, or with `links` a link on the way,
    leads out of `folder`.
    """
    if why := explain_outside(folder, name, links=links):
        raise refuse(why)
    return folder / name


def explain_outside(folder: Path, name: str, *, links: bool = True) -> str:
    """Why `name` is not a path inside `folder`, in words; "" if it is one.

    A snapshot in the cache of the Hugging Face hub consists of links into `blobs/` of the same
    model: they count as inside.
    """
    parts = Path(name).parts
    if not parts or "\0" in name or ".." in parts or Path(name).is_absolute():
        return "leads out of its folder: a name below it has no '..' and begins with no '/'"
    if not links:
        return ""
    home, place = folder.resolve(), (folder / name).resolve()
    homes = [home, *([home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [])]
    return (
        ""
        if any(place.is_relative_to(each) for each in homes)
        else f"is a link that leads out of its folder, to {place}"
    )


def find_near(place: Path, *, folders: bool = True) -> Path | None:
    """An existing path that a missing one may mean: its first missing part is spelt alike. The rest
    is added if it exists below that path, else left out.

    Args:
        folders: Files are not meant.
    """
    missing = place
    while not missing.parent.exists():
        missing = missing.parent
    if not missing.parent.is_dir():
        return None
    entries = (entry for entry in missing.parent.iterdir() if entry.is_dir() or not folders)
    names = find_alike(missing.name, [entry.name for entry in entries], most=3)
    # endings that are alike say nothing
    alike = [name for name in names if find_meant(_stem(missing.name), [_stem(name)])]
    meant = [missing.with_name(name) for name in alike]
    whole = (path / place.relative_to(missing) for path in meant)
    return next((path for path in (*whole, *meant) if path.exists()), None)


def _stem(name: str) -> str:
    """`wiki` of `wiki.xml.bz2`."""
    return name.partition(".")[0] or name


def refuse_links(folder: Path) -> None:
    """Raise DataError for the first entry of `folder` that is a link out of it."""
    for entry in sorted(folder.iterdir()):
        if why := explain_outside(folder, entry.name):
            raise DataError(
                f"{entry.name} {why}", file=folder, fix="copy what it leads to into the folder"
            )


def find_cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """`given`, else the environment variable PLMCTL_CACHE, else plmctl/ in the user's cache
    folder.
    """
    if folder or (folder := os.environ.get("PLMCTL_CACHE")):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plmctl"
