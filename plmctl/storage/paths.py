"""A name that a file or a config gives becomes a path only below the folder that it is meant
for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from plmctl.core.errors import DataError, PlmctlError


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


def refuse_links(folder: Path) -> None:
    """Raise DataError for the first entry of `folder` that is a link out of it."""
    for entry in sorted(folder.iterdir()):
        if why := explain_outside(folder, entry.name):
            raise DataError(
                f"{entry.name} {why}", file=folder, fix="copy what it leads to into the folder"
            )
