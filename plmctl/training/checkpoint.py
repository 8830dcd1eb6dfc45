"""Checkpoint folders: complete or absent, checked by size and hash, without pickle. A run continues
from the newest valid one.

    checkpoints/step-1000/
        model.safetensors       backbone.* and heads.*, tied tensors once; of a model whose
                                weights are mostly those of another one, what is its own
        base.json               the other one, if any, and the names of its tensors
        objective.safetensors   the state that only training needs, if any
        optimizer.safetensors   "<state>/<parameter name>"
        random.safetensors      "<generator>/<rank>", and recurrent memory as
                                "<rank>/memory/<source>/<slot>/<leaf>"
        shards/                 instead of the four, of a run whose processes write together:
                                __<rank>_<n>.distcp, and .metadata, the list of their tensors
        trainer.json            counters, reader state, loss scaler, sums since the last log line
        config.yaml, tokenizer/ from the caller
        manifest.json           size and SHA-256 of each file, written last

A save writes to `.step-1000.partial`, syncs every file, and renames: a process killed at any moment
leaves the older ones.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from plmctl.core.errors import DataError, PlmctlError, list_some
from plmctl.core.lacks import mend_writing
from plmctl.core.shares import is_shared
from plmctl.core.terminal import DETAIL, remark, tell
from plmctl.core.values import Count
from plmctl.models.counted_norms import count_columns
from plmctl.nn.tables import real, token_rows
from plmctl.storage.atomic import write_json
from plmctl.storage.durable import sync
from plmctl.storage.gate import admit
from plmctl.storage.parts.kinds import KINDS, PARTED, WEIGHTS, read_kind
from plmctl.storage.parts.reading import ShardedTensors
from plmctl.storage.parts.writing import FileEntry, describe_file
from plmctl.storage.paths import explain_outside
from plmctl.storage.reading import read_json
from plmctl.training.optim.shards import copy_rows
from plmctl.training.processes.world import World
from plmctl.training.progress import Progress

Say = Callable[[str], None]
SEALED = (WEIGHTS, "trainer.json")  # files of every checkpoint, or PARTED instead of the first
BASE = "base.json"  # of one whose other weights lie elsewhere
OLDER = "use an older checkpoint of the run"


@dataclass
class Snapshot:
    """Everything that a run needs to continue. Read from parts, a tensor is read at each access."""

    model: Mapping[str, Tensor]
    objective: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    random: Mapping[str, Tensor]
    trainer: Mapping[str, Any]  # a `Trained`; only an `Advanced` for a converted model
    elsewhere: Sequence[str] = ()  # tensors of the model that are those of its base
    # of one that processes save in parts: the rows of tokens of padded tables, by "<kind>/<name>";
    # `random` is that of this process. None: whole
    rows: Mapping[str, int] | None = None

    def placed(self, like: Mapping[str, Mapping[str, Tensor]], rows: Mapping[str, int]) -> Snapshot:
        """The same one, of which a process reads its blocks of the tensors that are DTensors in
        `like`, if it was saved in parts.

        Args:
            like: Tensors of each kind by name.
            rows: The rows of tokens of padded tables, as in this class.
        """
        changed: dict[str, Any] = {
            kind: tensors.placed(like[kind], rows)
            for kind in like
            if isinstance(tensors := getattr(self, kind), ShardedTensors)
        }
        return replace(self, **changed)


class Advanced(TypedDict):
    """trainer.json: how far the model was trained."""

    progress: dict[str, Any]


class Trained(Advanced):
    """trainer.json of a run, with all that it needs to continue."""

    reader: dict[str, Any]
    scaler: dict[str, Any]
    meter: dict[str, list[float]]
    processes: Count
    spikes: NotRequired[dict[str, list[float]]]


class Base(TypedDict):
    """base.json: where the tensors lie that a model has from another one."""

    path: str  # path of the checkpoint or published model
    relative: str  # the same, as seen from the folder of the run
    fingerprint: str  # fingerprint of these tensors: `fingerprint_tensors`
    tensors: list[str]


class _Manifest(TypedDict):
    files: dict[str, FileEntry]


@dataclass
class Checkpoints:
    """The checkpoints of one run: writes them, keeps the last `keep_last` and the best, finds the
    newest valid one. Folders are named `<stem>-<number>`; the number is a step, unless they are
    milestones.

    `every`: the updates between two of the last ones, which no former best one replaces; 0: the
    newest alone; None: any are.

    `extras(folder)` writes what the trainer does not know: config.yaml, tokenizer/. The tensors of
    a `base` are not written again.
    """

    folder: Path
    extras: Callable[[Path], None] = lambda folder: None
    keep_last: int = 2
    say: Say = tell
    base: Base | None = None
    stem: str = "step"
    every: int | None = None
    _valid: set[Path] = field(default_factory=set)

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"{self.stem}-{step}"

    def save(self, snapshot: Snapshot, *, step: int, best_step: int | None = None) -> Path:
        """Write `step-N` (never over a valid one), then remove checkpoints that are no longer kept.

        Raises:
            PlmctlError: if it cannot be written, such as on a full disk; older checkpoints stay.
        """
        partial = self.folder / f".{self.path(step).name}.partial"
        try:
            self.begin(partial)
            write(self._leave_out(snapshot), partial)
            self.finish(partial, step)
        except (OSError, SafetensorError) as error:  # a full disk raises one or the other
            reason = getattr(error, "strerror", None) or str(error)
            raise self.give_up(partial, step, reason) from error
        self.note_saved(step)
        self.prune(best_step)
        return self.path(step)

    def begin(self, partial: Path) -> None:
        """Make the folder that becomes a checkpoint, with the files of `extras`."""
        self._clear_leftovers()
        admit(partial).mkdir(parents=True)
        self.extras(partial)
        if self.base is not None:
            write_json(partial / BASE, self.base)

    def begin_shards(self, step: int, trainer: Mapping[str, Any]) -> Path:
        """`begin`, for processes that write together; the folder.

        Its name is used once: a process of a killed run that still writes has another one.
        """
        partial = self.folder / f".{self.path(step).name}.{secrets.token_hex(4)}.partial"
        self.begin(partial)
        write_json(partial / "trainer.json", trainer)
        return partial

    def finish(self, partial: Path, step: int) -> None:
        """Let a sealed folder become `step-N`."""
        target = self.path(step)
        if target.exists():
            self._remove(target)
        os.replace(admit(partial), admit(target))
        sync(self.folder)

    def note_saved(self, step: int) -> None:
        """Note that the checkpoint of a step is valid."""
        self._valid.add(self.path(step))
        remark(f"saved {self.path(step)}", DETAIL)

    def give_up(self, partial: Path, step: int, reason: str) -> PlmctlError:
        """The error for a save that failed; what there is of it is removed."""
        shutil.rmtree(admit(partial), ignore_errors=True)
        last = self.newest()
        kept = f"the last good checkpoint is {last}" if last else "there is no earlier checkpoint"
        before = mend_writing(reason)
        fix = f"{before}, then --resume" if before else "--resume"
        return PlmctlError(f"cannot save {self.path(step)}: {reason}; {kept}\n  fix: {fix}")

    def _leave_out(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot without the tensors of the base."""
        if self.base is None:
            return snapshot
        others = set(self.base["tensors"])
        own = {name: tensor for name, tensor in snapshot.model.items() if name not in others}
        return replace(snapshot, model=own)

    def steps(self) -> list[int]:
        """Steps that have a folder, valid or not, oldest first."""
        folders = (path for path in self.folder.glob(f"{self.stem}-*") if path.is_dir())
        names = (path.name.removeprefix(f"{self.stem}-") for path in folders)
        return sorted(int(name) for name in names if name.isdecimal())

    def newest(self, world: World | None = None) -> Path | None:
        """The newest valid checkpoint; it reports the invalid ones that it skips, and why.

        Args:
            world: Processes that all ask: each reads a share of the files.
        """
        world = world or World()
        for step in reversed(world.exchange(self.steps())[0]):
            path = self.path(step)
            own = "" if path in self._valid else damage(path, share=(world.rank, world.size))
            problem = next((each for each in world.exchange(own) if each), "")
            if not problem:
                self._valid.add(path)
                return path
            self.say(f"skipping {path}: {problem}")
        return None

    def prune(self, best_step: int | None) -> None:
        """Remove checkpoints that are no longer kept."""
        steps = self.steps()
        due = [s for s in steps[:-1] if self.every is None or (self.every and s % self.every == 0)]
        kept = {best_step, *[*due, *steps[-1:]][-max(1, self.keep_last) :]}
        for step in steps:
            if step not in kept:
                self._remove(self.path(step))

    def _remove(self, path: Path) -> None:
        """Rename first: a half-removed checkpoint must not look like one."""
        trash = self.folder / f".{path.name}.trash"
        os.replace(admit(path), admit(trash))
        self._valid.discard(path)
        shutil.rmtree(admit(trash), ignore_errors=True)

    def _clear_leftovers(self) -> None:
        for pattern in (f".{self.stem}-*.partial", f".{self.stem}-*.trash"):
            for leftover in self.folder.glob(pattern):
                shutil.rmtree(admit(leftover), ignore_errors=True)


def write(snapshot: Snapshot, folder: Path) -> None:
    """Write a checkpoint into a folder, with a manifest of all files in it."""
    for name in KINDS:
        tensors = getattr(snapshot, name)
        if tensors or name == "model":
            save_file(
                {k: v.contiguous() for k, v in tensors.items()},
                admit(folder / f"{name}.safetensors"),
                {"format": "pt"},
            )
    write_json(folder / "trainer.json", snapshot.trainer)
    seal(folder)


def seal(folder: Path, known: Mapping[str, FileEntry] = MappingProxyType({})) -> None:
    """Sync every file, then write and sync the manifest, then the folders themselves.

    Args:
        known: Files that other processes have synced and hashed.

    Raises:
        FileNotFoundError: One of these is not here: the processes do not share the folder.
    """
    entries = dict(known)
    for name, entry in known.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != entry["size"]:
            what = f"{folder / name} of another process: all nodes must see one run.dir"
            raise FileNotFoundError(errno.ENOENT, what)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if name not in known:
            sync(path)
            entries[name] = describe_file(path)
    write_json(folder / "manifest.json", {"files": entries})
    sync(folder / "manifest.json")
    for path in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(path)


def damage(folder: Path, *, share: tuple[int, int] = (0, 1)) -> str:
    """A description of the damage to a checkpoint; "" if every file is as it was written.

    Args:
        share: (i, n): the content of each n-th file alone is read, from the i-th on.
    """
    first, every = share
    try:
        files = read_json(folder / "manifest.json", _Manifest)["files"]
    except DataError as error:
        return f"it has no readable manifest.json ({error.message})"
    for number, (name, entry) in enumerate(files.items()):
        path = folder / name
        if why := explain_outside(folder, name):
            return f"{name} {why}"
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) < entry["size"]:
            return f"{name} is truncated or was edited: {size} of {entry['size']} bytes"
        if size > entry["size"]:
            return f"{name} was edited: it has {size} bytes, saved were {entry['size']}"
        if number % every == first and describe_file(path) != entry:
            return f"{name} was edited or damaged: it does not match its hash"
    sealed = (PARTED, *SEALED[1:]) if PARTED in files else SEALED
    missing = [name for name in sealed if name not in files]
    return f"its manifest.json does not name {missing[0]}" if missing else ""


def read(folder: Path, world: World | None = None) -> Snapshot:
    """A checkpoint as it was saved; DataError if it is damaged.

    Args:
        world: Processes that all read it: each looks for damage in a share of the files.
    """
    world = world or World()
    problem = damage(folder, share=(world.rank, world.size))
    if problem:
        raise DataError(problem, file=folder, fix=OLDER)
    tensors: dict[str, Any] = {kind: read_kind(folder, kind, fix=OLDER) for kind in KINDS}
    base = read_base(folder)
    trainer = read_json(folder / "trainer.json", Advanced, fix=OLDER)
    return Snapshot(**tensors, trainer=trainer, elsewhere=base["tensors"] if base else ())


def read_base(folder: Path) -> Base | None:
    """The reference of a checkpoint to the tensors that it has from another model; None: it has its
    own.
    """
    file = folder / BASE
    return read_json(file, Base, fix=OLDER) if file.is_file() else None


def fingerprint_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and numbers, the same in whatever layout they were read."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def progress_of(folder: Path) -> Progress:
    """How far the run was at a checkpoint, without reading its tensors."""
    file = folder / "trainer.json"
    return Progress.from_json(read_json(file, Advanced, fix=OLDER)["progress"], file=file)


def tensors_of(module: nn.Module, *, without: nn.Module | None = None) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name: each once, even if it is tied, and none that
    `without` holds.

    Only the rows of tokens of padded tables.
    """
    excluded = (
        set() if without is None else {id(t) for t in without.state_dict(keep_vars=True).values()}
    )
    tensors, state = {}, module.state_dict(keep_vars=True)
    for name, tensor in real(module, state).items():
        if id(state[name]) not in excluded:
            excluded.add(id(state[name]))
            tensors[name] = tensor.detach()
    return tensors


@dataclass(frozen=True)
class Fit:
    """How the tensors of a file and of a module agree."""

    taken: list[str]
    missing: list[str]  # the module has them, the file does not
    unexpected: list[str]  # the file has them, the module does not
    reshaped: list[str]  # both have them, in different shapes, or one of them in integers

    def __str__(self) -> str:
        parts = [
            f"{word}: {list_some(names)}"
            for word, names in vars(self).items()
            if names and word != "taken"
        ]
        return "; ".join(parts) or "every tensor agrees"


@torch.no_grad()
def load_tensors(
    module: nn.Module, tensors: Mapping[str, Tensor], *, without: nn.Module | None = None
) -> Fit:
    """Copy what agrees in name and shape into `module`, and say what did not. Norms that count
    columns in the file count them in the module, too.
    """
    counts = [name for name in tensors if name.endswith(".counted")]
    if counts:
        count_columns(module, [name.removesuffix(".counted") for name in counts])
    own = tensors_of(module, without=without)
    aliases, rows = module.state_dict(keep_vars=True), token_rows(module)
    copied, reshaped, covered = [], [], set()
    for name, tensor in tensors.items():
        if name not in aliases:
            continue
        own_rows = None if is_shared(tensor) else rows.get(name)
        if problem := _misfit(tensor, aliases[name], own_rows):
            reshaped.append(f"{name} {problem}")
            continue
        copy_rows(tensor, aliases[name])
        copied.append(name)
        covered.add(id(aliases[name]))
    missing = [
        name
        for name in own
        if id(aliases[name]) not in covered and not any(r.startswith(f"{name} ") for r in reshaped)
    ]
    return Fit(copied, missing, [name for name in tensors if name not in aliases], reshaped)


def _misfit(tensor: Tensor, target: Tensor, rows: int | None) -> str:
    """How a tensor differs in shape, or in being integer; "" if it can be copied.

    Args:
        rows: The rows of `target` that are tokens; None: all.
    """
    shape = list(target.shape) if rows is None else [rows, *target.shape[1:]]
    if list(tensor.shape) != shape:
        return f"{list(tensor.shape)} for {shape}"
    other_kind = tensor.is_floating_point() != target.is_floating_point()
    return f"{tensor.dtype} for {target.dtype}" if other_kind else ""


def load_exactly(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    file: Path,
    without: nn.Module | None = None,
    elsewhere: Collection[str] = (),
) -> None:
    """`load_tensors`, where every tensor must agree.

    Args:
        elsewhere: Tensors that the module has already, which may be absent.

    Raises:
        DataError: naming every tensor that is missing, left over or of another shape.
    """
    fit = load_tensors(module, tensors, without=without)
    fit = replace(fit, missing=[name for name in fit.missing if name not in elsewhere])
    if fit.missing or fit.unexpected or fit.reshaped:
        problem = f"the checkpoint does not fit this model: {fit}"
        raise DataError(problem, file=file, fix="use the config in its folder")
