"""The mistakes that each part of a pretraining finds in its own numbers, whatever the other parts
are: known even where other settings are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plmctl.config.build import build
from plmctl.core.errors import ConfigError, PlmctlError, collect
from plmctl.core.unwritten import describe_unwritten
from plmctl.objectives.base import Objective
from plmctl.training.budget import Budget
from plmctl.training.milestones import Milestones


def find_wrong_numbers(config: Mapping[str, Any], plugins: Sequence[str]) -> list[PlmctlError]:
    """The mistakes that optimizer and schedule find in their numbers, over a small matrix of the
    blocks and a vector of the rest.
    """
    import torch

    errors: list[PlmctlError] = []
    shapes = {
        "backbone.stack.blocks.f.0.cell.up.weight": (2, 2),
        "backbone.embedding.norm.weight": (2,),
    }
    small = [(name, torch.nn.Parameter(torch.zeros(shape))) for name, shape in shapes.items()]
    for slot in ("optim", "schedule"):
        with collect(errors):
            part = build(config[slot], plugins=plugins, path=slot) if config.get(slot) else None
            if slot == "optim" and callable(part):  # a factory, of parameters
                part(parameters=small)
    return errors


def check_milestones(config: Mapping[str, Any]) -> None:
    """ConfigError for a wrong `train.save_at`, as far as settings alone give a run's length."""
    if stated := config["train"].get("save_at"):
        lengths = {name: config["train"].get(name) for name in ("steps", "tokens", "words")}
        Milestones.read(stated, Budget(**lengths))


def find_unwritten(path: str, objective: Objective) -> Iterator[ConfigError]:
    """Every method that an objective must have of its own, and has not."""
    for method in ("counts", "forward"):
        if getattr(type(objective), method) is getattr(Objective, method):
            allowed, fix = describe_unwritten(type(objective), method)
            yield ConfigError(path, ..., allowed, fix=fix)
