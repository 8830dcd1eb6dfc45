"""Models and data sets in the local cache of the Hugging Face hub: `hf:<name>[@revision]`.

The layout is that of `hf download`: `models--<owner>--<name>/refs/<revision>` names a commit, and
`snapshots/<commit>` has its files. Nothing is downloaded.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, Self

from plmctl.core.errors import DataError, UsageError, nearest
from plmctl.core.spelling import spell_word

PREFIX = "hf:"
# how names on the hub look: google-bert/bert-base-cased; old ones have no owner
_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
_RENAMED = (0, 34)  # the version of huggingface_hub whose program is called `hf`


@dataclass(frozen=True)
class HubName:
    """A model or a data set on the hub, and one of its revisions: a branch, a tag or a commit."""

    name: str
    revision: str = "main"
    kind: Literal["model", "dataset"] = "model"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`hf:<name>[@revision]`, of a model; UsageError for another form."""
        name, at, revision = text.removeprefix(PREFIX).partition("@")
        parts = revision.split("/")
        if not _NAME.fullmatch(name) or (at and not all(parts)) or ".." in parts:
            form = f"{PREFIX}<owner>/<name>[@revision]"
            example = f"checkpoint={PREFIX}google-bert/bert-base-uncased"
            raise UsageError(f"{text}: a model of the hub is named {form}\n  fix: {example}")
        return cls(name, revision or "main")

    @property
    def folder(self) -> Path | None:
        """The files of the revision in the local cache; None: they were not downloaded."""
        named = self._home / "refs" / self.revision
        commit = named.read_text(encoding="utf-8").strip() if named.is_file() else self.revision
        snapshot = self._home / "snapshots" / commit
        return snapshot if commit and snapshot.is_dir() else None

    @property
    def download(self) -> str:
        """The command that downloads it into the local cache."""
        kind = () if self.kind == "model" else ("--repo-type", self.kind)
        which = () if self.revision == "main" else ("--revision", self.revision)
        return " ".join(map(spell_word, (_name_program(), "download", self.name, *kind, *which)))

    @property
    def revisions(self) -> list[str]:
        """The branches and tags in the local cache, and the commits that none of them names."""
        refs = self._home / "refs"
        named = {
            str(file.relative_to(refs)): file.read_text(encoding="utf-8").strip()
            for file in sorted(refs.rglob("*"))
            if file.is_file()
        }
        commits = {each.name for each in self._home.glob("snapshots/*") if each.is_dir()}
        found = [name for name, commit in named.items() if commit in commits]
        return found + sorted(commits - {*named.values()})

    def find(self) -> Path:
        """The folder in the local cache; DataError with the command that downloads it."""
        if (folder := self.folder) is not None:
            return folder
        cache, file = find_hub_cache(), f"{PREFIX}{self.name}"
        problem = f"it is not in the local cache of the hub, {cache}"
        if here := self.revisions:
            listed = ", ".join(here)
            problem = f"the local cache of the hub, {cache}, has no revision {self.revision}"
            problem += f"{nearest(self.revision, here)}; it has {listed}"
        file += "" if self.revision == "main" else f"@{self.revision}"
        raise DataError(problem, file=file, fix=self.download, exact=True)

    @property
    def _home(self) -> Path:
        return find_hub_cache() / f"{self.kind}s--{self.name.replace('/', '--')}"


def is_hub_name(text: str) -> bool:
    """Whether a text has the form of a name on the hub, as far as that can be seen."""
    return _NAME.fullmatch(text) is not None


def find_hub_model(text: str) -> Path:
    """The folder of `hf:<name>[@revision]`; DataError with the command that downloads it."""
    return HubName.parse(text).find()


def find_hub_cache() -> Path:
    """The folder of the local cache: HF_HUB_CACHE, else `hub` in HF_HOME, else in the user's cache
    folder.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    place = named or os.path.join(home, "hub")
    return Path(os.path.expandvars(place)).expanduser()


def _name_program() -> str:
    """The name of the program that the installed huggingface_hub has."""
    try:
        version = metadata.version("huggingface_hub")
    except metadata.PackageNotFoundError:
        return "hf"
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return "hf" if numbers >= _RENAMED else "huggingface-cli"
