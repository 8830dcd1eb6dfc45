"""Outputs of frozen layers, computed once and kept in a file: later epochs read them.

<run>/frozen/<split>.bin    states of all tokens: [states, tokens of all rows, W]
<split>.json                what made them, written when they are complete
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, PlmctlError
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.models.capabilities import Layered, find_halting, find_own_losses, list_layer_parts
from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit
from plmctl.storage.reading import parse_json
from plmctl.tasks import inference
from plmctl.tasks.batches import fingerprint
from plmctl.training.checkpoint import Say, fingerprint_tensors, tensors_of
from plmctl.training.device.precision import Precision
from plmctl.training.processes.world import World
from plmctl.training.randomness import keep_random_state

SETTING = "train.frozen_outputs"
HIDDEN = frozenset({"hidden"})
BYTES = 4  # bytes of a number, at most
TRAIN = "train"


@dataclass(frozen=True)
class FrozenPart:
    """The part of a model from its input up to a layer, none of whose weights is trained."""

    layers: int
    whole: bool  # whether all of the backbone is frozen, including the parts after its last layer
    states: int  # states that heads read: 1, the last one, or one for each layer and the input

    @classmethod
    def of(cls, model: Model, asked: str) -> FrozenPart:
        """The frozen part of a model whose weights have been frozen.

        Raises:
            ConfigError: No part is frozen, or the frozen part gives more than states.
        """
        backbone = model.backbone
        mixed = bool({"features", "output"} & set(model.heads))
        trained = [name for name, weight in backbone.named_parameters() if weight.requires_grad]
        if not trained:
            _refuse_more(backbone, asked)
            return cls(backbone.num_layers, True, backbone.num_layers + 1 if mixed else 1)
        parts, fix = list_layer_parts(backbone), f"train.frozen=[backbone], or {SETTING}=batch"
        if not parts:
            allowed = f"batch: a {type(backbone).__name__} has to be frozen as a whole"
            raise ConfigError(SETTING, asked, allowed, fix=fix)
        trains = [any(w.requires_grad for part in own for w in part.parameters()) for own in parts]
        layers = trains.index(True) - 1 if True in trains else backbone.num_layers - 1
        if layers < 1:
            name = next((n for n in trained if _is_in(n, backbone, parts[:2])), trained[0])
            allowed = f"batch: backbone.{name} is trained, below which no layer is frozen"
            raise ConfigError(SETTING, asked, allowed, fix=fix)
        return cls(layers, False, layers + 1 if mixed else 1)

    def read(self, backbone: Backbone, batch: Batch) -> list[Tensor]:
        """[B, T, W] the states that are kept, by running the model."""
        if self.whole and self.states == 1:
            hidden: Hidden = backbone(batch)
            states = [hidden.last]
        else:
            hidden = backbone(batch, None, HIDDEN)
            states = hidden.recorded["hidden"][: self.layers + 1][-self.states :]
        if hidden.noted and self.whole:
            allowed = "batch: parts of this model state something of each pass"
            raise ConfigError(SETTING, "once", allowed, fix=f"{SETTING}=batch")
        return states

    def go_on(
        self, backbone: Backbone, states: list[Tensor], batch: Batch, record: frozenset[str]
    ) -> Hidden | None:
        """The result of the backbone from `states`; None where more is recorded than is kept."""
        if record - HIDDEN or (record and self.states == 1):
            return None
        if not self.whole:
            below = states if self.states > 1 else states * (self.layers + 1)
            assert isinstance(backbone, Layered)
            return backbone.go_on(below, batch, record)
        return Hidden(states[-1], recorded={"hidden": states} if record else {})


def _refuse_more(backbone: Backbone, asked: str) -> None:
    """ConfigError for a model whose heads or losses read more than states."""
    if backbone.streams or find_halting(backbone) or find_own_losses(backbone):
        allowed = f"batch: a {type(backbone).__name__} gives more than the states of tokens"
        raise ConfigError(SETTING, asked, allowed, fix=f"{SETTING}=batch")


def _is_in(name: str, backbone: Backbone, parts: list[list[nn.Module]]) -> bool:
    weight = backbone.get_parameter(name)
    return any(weight is own for group in parts for part in group for own in part.parameters())


class RowStates:
    """The kept states of the rows of one split."""

    def __init__(self, rows: Rows, *, number: int, file: Path) -> None:
        self.ids, self.length = rows.seqs["text"].ids, rows.seqs["text"].length
        self.place = {int(key): row for row, key in enumerate(rows.key)}
        self.start = np.cumsum(self.length) - self.length  # [n]
        self.rows, self.number, self.file = rows, number, file
        self.states: Tensor | None = None  # [states, tokens, W], in the file

    def open(self, width: int, dtype: torch.dtype) -> None:
        """Read the file, which is written first if it is missing."""
        shape = (self.number, int(self.length.sum()), width)
        size = int(np.prod(shape))
        stored = torch.from_file(str(admit(self.file)), shared=True, size=size, dtype=dtype)
        self.states = stored.view(shape)

    def write(self, index: np.ndarray, states: list[Tensor]) -> None:
        """Keep `states [B, T, W]` of the rows `index`."""
        if self.states is None:
            self.open(states[0].shape[-1], states[0].dtype)
        assert self.states is not None
        real, tokens = self._find(index, states[0].shape[1])
        for number, state in enumerate(states):
            self.states[number, tokens] = state.cpu()[real]

    def read(self, batch: Batch) -> list[Tensor] | None:
        """[B, T, W] each, 0 at padding; None for tokens that are not those of these rows."""
        keys = batch.key.tolist()
        if self.states is None or any(key not in self.place for key in keys):
            return None
        index, ids = np.array([self.place[key] for key in keys]), batch.text.ids.cpu().numpy()
        length = ids.shape[1]
        if length > self.ids.shape[1] or (self.ids[index, :length] != ids).any():
            return None
        real, tokens = self._find(index, length)
        found = []
        for own in self.states:
            state = own.new_zeros(*ids.shape, own.shape[-1])
            state[real] = own[tokens]
            found.append(state.to(batch.key.device))
        return found

    def _find(self, index: np.ndarray, length: int) -> tuple[Tensor, Tensor]:
        """[B, T] which positions are tokens, and [N] their rows in the file."""
        columns = np.arange(length)
        real = columns < self.length[index][:, None]
        tokens = (self.start[index][:, None] + columns)[real]
        return torch.from_numpy(real), torch.from_numpy(tokens)


class FrozenOutputs:
    """The outputs of the frozen part of a model for the rows of splits (`Model.kept`).

    Rows are computed in the batches of an evaluation, whatever the order of training. The numbers
    therefore depend only on the rows and the weights. A row is the same in every epoch, and in a
    run that was resumed. Frozen layers have no dropout, as features have none (Devlin et al., 2019,
    sec. 5.3; Peters et al., 2018).

    Args:
        often: Train rows are computed "once", or anew before each "epoch".
        limit: Bytes that the file of a split may take.
        batch_size: The batch size of an evaluation.
    """

    def __init__(
        self,
        *,
        model: Model,
        part: FrozenPart,
        often: Literal["epoch", "once"],
        splits: dict[str, Rows],
        folder: Path,
        limit: float,
        precision: Precision,
        world: World,
        batch_size: int,
        say: Say,
    ) -> None:
        _check_rows(splits[TRAIN], often)
        self.model, self.part, self.often, self.folder = model, part, often, folder
        self.precision, self.world, self.batch_size, self.say = precision, world, batch_size, say
        self.splits = {
            name: RowStates(rows, number=part.states, file=folder / f"{name}.bin")
            for name, rows in splits.items()
            if often == "once" or name == TRAIN
        }
        self.current, self._complete = "", set[str]()
        self._check_size(limit)

    def before_epoch(self, epoch: int) -> None:
        """Prepare the rows of training, computed anew if the settings say so."""
        if self.often == "epoch":
            self._complete.discard(TRAIN)
        self._prepare(TRAIN)
        self.current = TRAIN

    @contextmanager
    def of(self, split: str) -> Iterator[None]:
        """Read the rows of another split meanwhile; where they are computed anew, keep none."""
        before, self.current = self.current, ""
        if split in self.splits:
            self._prepare(split)
            self.current = split
        yield
        self.current = before

    def find(self, backbone: Backbone, batch: Batch, record: frozenset[str]) -> Hidden | None:
        """The result of the backbone from what is kept; None: it has to run."""
        states = self.splits[self.current].read(batch) if self.current else None
        return None if states is None else self.part.go_on(backbone, states, batch, record)

    def remove(self) -> None:
        """Take the files away."""
        self.current = ""
        for split in self.splits.values():
            split.states = None
        if self.world.main:
            shutil.rmtree(admit(self.folder), ignore_errors=True)

    def _prepare(self, name: str) -> None:
        """Compute the states of a split if they are missing; the main process writes them."""
        if name in self._complete:
            return
        split, note = self.splits[name], self.folder / f"{name}.json"
        made = self._describe(split)
        if self.world.main:
            if self.often == "once" and _is_made(note, split.file, made):
                self.say(f"outputs of frozen layers: those of {name} are in {split.file}")
            else:
                admit(note).unlink(missing_ok=True)
                self._compute(split)
                assert split.states is not None
                kind = {"width": split.states.shape[-1], "dtype": str(split.states.dtype)}
                write_json(note, {"made": made, "bytes": split.states.nbytes, **kind})
        if name == TRAIN:  # the main process evaluates alone
            self.world.barrier()
        known = parse_json(note.read_text(encoding="utf-8"))
        if split.states is None:
            split.open(known["width"], getattr(torch, known["dtype"].removeprefix("torch.")))
        self._complete.add(name)

    def _compute(self, split: RowStates) -> None:
        admit(self.folder).mkdir(exist_ok=True)
        before, training, self.current = self.current, self.model.training, ""
        with keep_random_state(self.world.device), torch.no_grad(), self.precision.autocast():
            self.model.eval()
            for index, batch in inference.list_batches(split.rows, self.batch_size):
                batch = batch.to(self.world.device)
                split.write(index, self.part.read(self.model.backbone, batch))
            self.model.train(training)
        self.current = before

    def _describe(self, split: RowStates) -> str:
        """The facts that determine the states of a split."""
        words = [fingerprint_tensors(tensors_of(self.model.backbone)), fingerprint(split.rows)]
        if not self.part.whole:  # parts that are trained above do not change it
            frozen = {
                name: weight
                for name, weight in self.model.backbone.named_parameters()
                if not weight.requires_grad
            }
            words[0] = fingerprint_tensors(frozen)
        numbers = [self.part.layers, self.part.states, self.batch_size, self.precision.name]
        return " ".join(map(str, [*words, *numbers, self.world.device.type, torch.__version__]))

    def _check_size(self, limit: float) -> None:
        width = self.model.backbone.width
        tokens = sum(int(split.length.sum()) for split in self.splits.values())
        size = tokens * self.part.states * width * BYTES
        states = "1 state" if self.part.states == 1 else f"{self.part.states} states"
        self.say(
            f"outputs of {self.part.layers} frozen layers are computed {_OFTEN[self.often]}:"
            f" {states} of {tokens:,} tokens, {size / 1e9:.3g} GB"
        )
        if size > limit:
            allowed = f"{size / 1e9:.3g} or more: {states} of {tokens:,} tokens, {width} wide"
            fix = f"train.frozen_limit={size / 1e9 + 0.01:.3g}, or {SETTING}=batch"
            raise ConfigError("train.frozen_limit", limit / 1e9, allowed, fix=fix)
        free = shutil.disk_usage(self.folder.parent).free
        if size > free:
            raise PlmctlError(
                f"{SETTING}: {free / 1e9:.3g} GB are free for {size / 1e9:.3g} GB in {self.folder}"
                f"\n  fix: free some space, another run.dir, or {SETTING}=batch"
            )


_OFTEN = {"once": "once", "epoch": "once an epoch"}


def _is_made(note: Path, file: Path, made: str) -> bool:
    """Whether complete states were made of the same rows and weights."""
    try:
        known = parse_json(note.read_text(encoding="utf-8"))
        return bool(known["made"] == made and file.stat().st_size == known["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _check_rows(rows: Rows, asked: str) -> None:
    """ConfigError for rows of several texts, which a model reads one after the other."""
    if {name for name, seq in rows.seqs.items() if not seq.view} != {"text"}:
        allowed = "batch: rows of this task have more than one text that a model reads"
        raise ConfigError(SETTING, asked, allowed, fix=f"{SETTING}=batch")
