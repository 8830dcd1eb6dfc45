"""Checkpoint folders: complete or absent, checked by size and hash, without pickle. A run continues
from the newest valid one.

    checkpoints/step-1000/
        model.safetensors       backbone.* and heads.*, tied tensors once; of a model whose
                                weights are mostly those of another one, what is its own
        base.json               the other one, if any, and the names of its tensors
        objective.safetensors   the state that only training needs, if any
        optimizer.safetensors   "<state>/<parameter name>"
        random.safetensors      "<generator>/<rank>", and recurrent memory as
                                "memory/<rank>/<slot>/<leaf>"
        trainer.json            counters, reader state, loss scaler, sums since the last log line
        config.yaml, tokenizer/ from the caller
        manifest.json           size and SHA-256 of each file, written last

A save writes to `.step-1000.partial`, syncs every file, and renames: a process killed at any moment
leaves the older ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from plmctl.core.errors import DataError, PlmctlError, list_some
from plmctl.core.terminal import DETAIL, remark, tell
from plmctl.core.values import Count, Whole
from plmctl.models.counted_norms import count_columns
from plmctl.nn.tables import real
from plmctl.storage.atomic import write_json
from plmctl.storage.durable import sync
from plmctl.storage.gate import admit
from plmctl.storage.paths import explain_outside
from plmctl.storage.reading import read_json, read_tensors
from plmctl.training.progress import Progress

Say = Callable[[str], None]
WEIGHTS = "model.safetensors"
SEALED = (WEIGHTS, "trainer.json")  # files of every checkpoint
BASE = "base.json"  # of one whose other weights lie elsewhere
OLDER = "use an older checkpoint of the run"


@dataclass
class Snapshot:
    """Everything that a run needs to continue, in host memory."""

    model: dict[str, Tensor]
    objective: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    random: dict[str, Tensor]
    trainer: Mapping[str, Any]  # a `Trained`; only an `Advanced` for a converted model
    elsewhere: Sequence[str] = ()  # tensors of the model that are those of its base


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


class _File(TypedDict):
    size: Whole
    sha256: str


class _Manifest(TypedDict):
    files: dict[str, _File]


@dataclass
class Checkpoints:
    """The checkpoints of one run: writes them, keeps the last `keep_last` and the best, finds the
    newest valid one.

    `extras(folder)` writes what the trainer does not know: config.yaml, tokenizer/. The tensors of
    a `base` are not written again.
    """

    folder: Path
    extras: Callable[[Path], None] = lambda folder: None
    keep_last: int = 2
    say: Say = tell
    base: Base | None = None
    _valid: set[Path] = field(default_factory=set)

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"step-{step}"

    def save(self, snapshot: Snapshot, *, step: int, best_step: int | None = None) -> Path:
        """Write `step-N` (never over a valid one), then remove checkpoints that are no longer kept.

        Raises:
            PlmctlError: if it cannot be written, such as on a full disk; older checkpoints stay.
        """
        target = self.path(step)
        partial = self.folder / f".step-{step}.partial"
        try:
            self._clear_leftovers()
            admit(partial).mkdir(parents=True)
            self.extras(partial)
            write(self._leave_out(snapshot, partial), partial)
            if target.exists():
                self._remove(target)
            os.replace(admit(partial), admit(target))
            sync(self.folder)
        except (OSError, SafetensorError) as error:  # a full disk raises one or the other
            shutil.rmtree(admit(partial), ignore_errors=True)
            last = self.newest()
            kept = (
                f"the last good checkpoint is {last}" if last else "there is no earlier checkpoint"
            )
            reason = getattr(error, "strerror", None) or str(error)
            fix = (
                "free some space, then --resume" if last else "free some space, or another run.dir"
            )
            raise PlmctlError(f"cannot save {target}: {reason}; {kept}\n  fix: {fix}") from error
        self._valid.add(target)
        self._prune(best_step)
        remark(f"saved {target}", DETAIL)
        return target

    def _leave_out(self, snapshot: Snapshot, folder: Path) -> Snapshot:
        """A snapshot without the tensors of the base, which `folder` names."""
        if self.base is None:
            return snapshot
        write_json(folder / BASE, self.base)
        others = set(self.base["tensors"])
        own = {name: tensor for name, tensor in snapshot.model.items() if name not in others}
        return replace(snapshot, model=own)

    def steps(self) -> list[int]:
        """Steps that have a folder, valid or not, oldest first."""
        names = (p.name.removeprefix("step-") for p in self.folder.glob("step-*") if p.is_dir())
        return sorted(int(name) for name in names if name.isdecimal())

    def newest(self) -> Path | None:
        """The newest valid checkpoint; it reports the invalid ones that it skips, and why."""
        for step in reversed(self.steps()):
            path = self.path(step)
            problem = "" if path in self._valid else damage(path)
            if not problem:
                self._valid.add(path)
                return path
            self.say(f"skipping {path}: {problem}")
        return None

    def _prune(self, best_step: int | None) -> None:
        steps = self.steps()
        for step in steps[: -max(1, self.keep_last)]:
            if step != best_step:
                self._remove(self.path(step))

    def _remove(self, path: Path) -> None:
        """Rename first: a half-removed checkpoint must not look like one."""
        trash = self.folder / f".{path.name}.trash"
        os.replace(admit(path), admit(trash))
        self._valid.discard(path)
        shutil.rmtree(admit(trash), ignore_errors=True)

    def _clear_leftovers(self) -> None:
        for pattern in (".step-*.partial", ".step-*.trash"):
            for leftover in self.folder.glob(pattern):
                shutil.rmtree(admit(leftover), ignore_errors=True)


def write(snapshot: Snapshot, folder: Path) -> None:
    """Write a checkpoint into a folder, with a manifest of all files in it."""
    for name in ("model", "objective", "optimizer", "random"):
        tensors = getattr(snapshot, name)
        if tensors or name == "model":
            save_file(
                {k: v.contiguous() for k, v in tensors.items()},
                admit(folder / f"{name}.safetensors"),
                {"format": "pt"},
            )
    write_json(folder / "trainer.json", snapshot.trainer)
    _seal(folder)


def _seal(folder: Path) -> None:
    """Sync every file, then write and sync the manifest, then the folders themselves."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    for path in files:
        sync(path)
    entries = {
        str(p.relative_to(folder)): {"size": p.stat().st_size, "sha256": _sha256(p)} for p in files
    }
    write_json(folder / "manifest.json", {"files": entries})
    sync(folder / "manifest.json")
    for path in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damage(folder: Path) -> str:
    """A description of the damage to a checkpoint; "" if every file is as it was written."""
    try:
        files = read_json(folder / "manifest.json", _Manifest)["files"]
    except DataError as error:
        return f"it has no readable manifest.json ({error.message})"
    for name, entry in files.items():
        path = folder / name
        if why := explain_outside(folder, name):
            return f"{name} {why}"
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) < entry["size"]:
            return f"{name} is truncated or was edited: {size} of {entry['size']} bytes"
        if size > entry["size"]:
            return f"{name} was edited: it has {size} bytes, saved were {entry['size']}"
        if _sha256(path) != entry["sha256"]:
            return f"{name} was edited or damaged: it does not match its hash"
    missing = [name for name in SEALED if name not in files]
    return f"its manifest.json does not name {missing[0]}" if missing else ""


def read(folder: Path) -> Snapshot:
    """A checkpoint as it was saved; DataError if it is damaged."""
    problem = damage(folder)
    if problem:
        raise DataError(problem, file=folder, fix=OLDER)
    tensors = {
        name: (
            read_tensors(path, fix=OLDER)
            if (path := folder / f"{name}.safetensors").exists()
            else {}
        )
        for name in ("model", "objective", "optimizer", "random")
    }
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
    aliases = module.state_dict(keep_vars=True)
    targets = real(module, aliases)
    copied, reshaped, covered = [], [], set()
    for name, tensor in tensors.items():
        if name not in aliases:
            continue
        if problem := _misfit(tensor, targets[name]):
            reshaped.append(f"{name} {problem}")
            continue
        targets[name].copy_(tensor)
        copied.append(name)
        covered.add(id(aliases[name]))
    missing = [
        name
        for name in own
        if id(aliases[name]) not in covered and not any(r.startswith(f"{name} ") for r in reshaped)
    ]
    return Fit(copied, missing, [name for name in tensors if name not in aliases], reshaped)


def _misfit(tensor: Tensor, target: Tensor) -> str:
    """How a tensor differs in shape, or in being integer; "" if it can be copied."""
    if tensor.shape != target.shape:
        return f"{list(tensor.shape)} for {list(target.shape)}"
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
        raise DataError(
            f"the checkpoint does not fit this model: {fit}",
            file=file,
            fix="use the config in its folder",
        )
