"""Tallies of documents on disk: what one process has counted, for all that need it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.data.survey import Ranked, Tally
from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit, open_file
from plmctl.storage.reading import parse_json
from plmctl.text.document import Document

CONTENTS = "contents.json"  # the hashes of the other files


def save_tallies(folder: Path, tallies: list[Tally]) -> None:
    """Write tallies into a folder, with their hashes last."""
    for number, tally in enumerate(tallies):
        np.save(admit(folder / f"{number}.identities.npy"), tally.identities)
        np.save(admit(folder / f"{number}.sizes.npy"), tally.sizes)
        write_json(folder / f"{number}.json", {"joined": tally.joined})
        with open_file(folder / f"{number}.best.jsonl", "w") as lines:
            for ranked in tally.best:
                lines.write(json.dumps([*ranked[:3], _spell(ranked[3])]) + "\n")
    hashes = {file.name: _hash(file) for file in sorted(folder.iterdir())}
    write_json(folder / CONTENTS, hashes)


def has_tallies(folder: Path) -> bool:
    """Whether a folder has whole tallies; damaged ones are removed."""
    if not folder.is_dir():
        return False
    with contextlib.suppress(OSError, ValueError):
        hashes = parse_json((folder / CONTENTS).read_text(encoding="utf-8"))
        if all(_hash(folder / name) == stated for name, stated in hashes.items()):
            return True
    shutil.rmtree(admit(folder), ignore_errors=True)
    return False


def load_tally(folder: Path, number: int) -> Tally:
    """A tally, whose documents stay on disk, without layouts: their files are those of
    one machine."""
    identities, sizes = (
        np.load(folder / f"{number}.{name}.npy") for name in ("identities", "sizes")
    )
    joined = parse_json((folder / f"{number}.json").read_text(encoding="utf-8"))["joined"]
    return Tally(identities, sizes, _Stored(folder / f"{number}.best.jsonl"), {}, joined)


@dataclass(frozen=True)
class _Stored:
    """Documents in a file, read each time."""

    file: Path

    def __iter__(self) -> Iterator[Ranked]:
        with self.file.open(encoding="utf-8") as lines:
            for line in lines:
                identity, part, number, spelled = json.loads(line)
                yield identity, part, number, Document(**{**spelled, "identity": identity})


def _spell(document: Document) -> dict[str, Any]:
    """The arguments with which `Document` makes it again, without marks."""
    names = ("paragraphs", "place", "whole", "pair", "running", "joined")
    return {name: getattr(document, name) for name in names}


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
