"""Folders pushed to the Hugging Face hub, by its library `huggingface_hub` and its login."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from plmctl.core.errors import PlmctlError, UsageError
from plmctl.core.extras import require_library
from plmctl.core.terminal import counted, print_table, remark, tell
from plmctl.storage.hub import PREFIX

LOGIN = "hf auth login"
OPTION = "--push"


@dataclass(frozen=True)
class Push:
    """A repository of models on the hub, to which a folder goes.

    Args:
        name: The owner and the name: `ada/reviews`.
        private: Whether a new repository is private.
        overwrite: Whether the folder may replace the files of an existing repository.

    Raises:
        UsageError: The name has another form.
    """

    name: str
    private: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        try:
            if "/" not in self.name:
                raise ValueError("a repository is named OWNER/NAME")
            _load(".utils").validate_repo_id(self.name)
        except ValueError as error:
            bare = self.name.removeprefix(PREFIX)
            own = re.sub(r"\W+", "-", bare.rpartition("/")[2]).strip("-") or "model"
            fix = bare if bare != self.name and "/" in bare else f"OWNER/{own}"
            what = f"{OPTION} {shlex.quote(self.name)}: {error}"
            raise UsageError(f"{what}\n  fix: {OPTION} {fix}") from error

    def deliver(
        self,
        write: Callable[[Path], None],
        describe: Callable[[Path], None],
        place: Path | None,
        *,
        dry_run: bool = False,
    ) -> None:
        """Write a folder and push it; with `dry_run` print what that would push.

        Args:
            write: Writes the folder, which does not exist before.
            describe: Adds the model card that its page shows.
            place: The path of the folder; None: it is removed after the push.
            dry_run: Whether nothing is kept or pushed.
        """
        if not dry_run:
            self.refuse()
        with TemporaryDirectory(prefix="plmctl-") as room:
            passing = Path(room, self.name.rpartition("/")[2])
            folder = passing if place is None or dry_run else place
            write(folder)
            describe(folder)
            if dry_run:
                self.show(folder)
            else:
                self.send(folder, kept=place is not None)

    def refuse(self) -> None:
        """UsageError without a token that the hub takes, or for a name that is in use: before the
        work that makes the folder.
        """
        api = self._open()
        with self._explain():
            if not self.overwrite and api.repo_exists(self.name):
                raise self._taken()

    def send(self, folder: Path, *, kept: bool = True) -> None:
        """Push all files of a folder as one commit, and log the page of the repository.

        Args:
            kept: Whether the folder stays; a failed push then names the command that repeats it.

        Raises:
            UsageError: The hub refuses the token, or the name is in use.
            PlmctlError: The hub cannot be reached, or answers with another error.
        """
        api = self._open()
        with self._explain(folder if kept else None):
            api.create_repo(self.name, private=self.private or None, exist_ok=self.overwrite)
            api.upload_folder(
                repo_id=self.name,
                folder_path=folder,
                commit_message="Upload a model of plmctl",
                # a file that the new model lacks would be read with it
                delete_patterns="*" if self.overwrite else None,
            )
        remark(f"pushed: {api.endpoint}/{self.name}")

    def show(self, folder: Path) -> None:
        """Print what `send` would push; no request is made."""
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        sizes = {str(file.relative_to(folder)): file.stat().st_size for file in files}
        print_table(("file", "bytes"), [[name, f"{size:,}"] for name, size in sizes.items()])
        tell(f"{counted(len(files), 'file')}, {sum(sizes.values()):,} bytes in all")
        where = f"{_load().HfApi().endpoint}/{self.name}"
        how = "the files of an earlier commit are replaced" if self.overwrite else "must be new"
        tell(f"repository: {where} ({'private, ' if self.private else ''}{how})")
        tell("token: found" if _find_token() else f"token: none; first: {_spell_login()}")

    def _open(self) -> Any:
        """The client of the hub, with the token of its login; UsageError without one."""
        if not (token := _find_token()):
            what = f"{OPTION} {self.name}: this machine has no token of the hub"
            raise UsageError(f"{what}\n  fix: {_spell_login()}")
        return _load().HfApi(token=token, library_name="plmctl")

    def _taken(self) -> UsageError:
        what = f"{OPTION} {self.name}: the hub has a repository of this name"
        return UsageError(f"{what}\n  fix: --overwrite  # or another name")

    @contextmanager
    def _explain(self, kept: Path | None = None) -> Iterator[None]:
        """Errors of the library as those of plmctl."""
        try:
            yield
        except (OSError, _load(".errors").HTTPError) as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            where = f"{OPTION} {self.name}: "
            if status == 409 and not self.overwrite:
                raise self._taken() from error
            if status == 401:
                what = "the hub refuses the token of this machine"
                raise UsageError(f"{where}{what}\n  fix: {_spell_login()}") from error
            if status == 403:
                what = "the token of this machine may not write there"
                fix = f"{_spell_login()}, with a token that may write, or another owner"
                raise UsageError(f"{where}{what}\n  fix: {fix}") from error
            said = " ".join(str(getattr(error, "server_message", None) or error).split())
            again = "run it again"
            if kept is not None:
                again = f"hf upload {self.name} {shlex.quote(str(kept))}, which pushes the folder"
            raise PlmctlError(f"{where}not pushed ({said})\n  fix: {again}") from error


def _load(inner: str = "") -> Any:
    """The library of the hub, or a module inside it."""
    return require_library(f"huggingface_hub{inner}", "hub", OPTION)


def _find_token() -> str | None:
    """The token of the library's own login, or of HF_TOKEN."""
    try:
        return _load().get_token() or None
    except (OSError, getattr(_load(".errors"), "OIDCError", OSError)):
        return None


def _spell_login() -> str:
    return "export HF_TOKEN=<a token>" if os.environ.get("HF_TOKEN") else LOGIN
