"""The training of a smaller model: as the run was trained, with the run as its teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plmctl.compress.shape import UNITS, Shape
from plmctl.config import groups
from plmctl.config.build import build, check_parts
from plmctl.config.saved import read_spec
from plmctl.config.spec import Provenance, RunSpec, thaw
from plmctl.core.errors import ConfigError, ConfigErrors, UsageError, list_problems
from plmctl.core.spelling import spell_line
from plmctl.jobs.configs import Configs
from plmctl.jobs.job import Config

TUNE, NEW = "finetune", ("task=classification", "task.path=builtin", "checkpoint=null")
SLOTS = ("distill", "pruning", "stabiliser", "optim", "schedule")
# settings of the run that a smaller model does without
FREE: Config = {
    **dict.fromkeys(("recipe", "checkpoint_into", "peft", "first_vectors", "teacher_weights")),
    **dict.fromkeys(("teacher_cache", "head_seed", "kept_layers")),
    "beside": {},
    "run": thaw(groups.Run()),
}


@dataclass(frozen=True)
class Changes:
    """The settings of the command line for the trainings.

    Args:
        parts: {slot: its part}, named by the user, and the lesson of the teacher.
        pruning: {name: pruning}, whose sparsity follows from the shape.
        values: {dotted key: value}.
    """

    parts: Mapping[str, Any]
    pruning: Mapping[str, Any]
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: RunSpec) -> Changes:
        """The changes that a command line asks for."""
        keys, train = asked.provenance.keys, asked["train"]
        lengths = {f"train.{name}": train[name] for name in groups.LENGTHS if name in train}
        named = {slot for slot in SLOTS if slot in keys} | {"distill"}
        inner = {key for key in keys if key.partition(".")[0] in {*SLOTS, "train"} - named}
        inner -= {key for key in inner if key.startswith("pruning.")}
        parts = {slot: thaw(asked.select(slot)) for slot in named - {"pruning"}}
        values = lengths | {key: thaw(asked.select(key)) for key in inner}
        return cls(parts, thaw(asked.select("pruning")) or {}, values)

    def prune(self, sparsity: float) -> Config:
        """The prunings that take this share of units from each layer.

        Raises:
            ConfigError: One of them takes no shares of units.
        """
        decided = {"sparsity": sparsity, "scope": "layer"}
        config = {name: node | decided for name, node in self.pruning.items()}
        if wrong := check_parts(config, path="pruning"):
            said = list_problems(ConfigErrors(wrong))
            allowed = f"heads and neurons, shares of each layer: {said}"
            fix = "pruning=[heads,neurons]"
            raise ConfigError("pruning", list(self.pruning), allowed, fix=fix)
        return config

    def find_units(self, plugins: Sequence[str]) -> tuple[str, ...]:
        """The units that the prunings take away, by the settings that count them."""
        parts = [build(node, {}, plugins, path="pruning") for node in self.prune(0.5).values()]
        return tuple(name for name in UNITS if any(part.setting == name for part in parts))


def plan_training(folder: Path, shape: Shape, changes: Changes) -> Config:
    """The config of the fine-tuning that gives a run this shape.

    Args:
        folder: The checkpoint of the run, which is the teacher and the first weights.
        changes: The differences to the training of the run.
    """
    spec = read_spec(folder)
    if spec is None or "task" not in spec:
        fix = spell_line("finetune", "task=<name>", f"checkpoint={folder}")
        raise UsageError(f"{folder} has no settings of a fine-tuning\n  fix: {fix}")
    spec = spec.replace(changes.values)
    own = {name: value for name, value in thaw(spec).items() if value is not None}
    config: Config = {**Configs(Provenance(TUNE)).compose(TUNE, NEW), **own, **FREE}
    config |= changes.parts
    config |= {"checkpoint": str(folder), "teacher": str(folder)}
    config["kept_layers"] = shape.kept_layers
    config["pruning"] = None
    if shape.width < 1:
        config["pruning"] = changes.prune(float(1 - shape.width))
    return config
