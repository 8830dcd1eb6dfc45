"""What each part of a pretraining says of its own numbers, whatever stands beside it: known even
where other settings are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plmctl.artifacts.assemble import without_weights
from plmctl.artifacts.contract.stand_in import TINY
from plmctl.config.build import build
from plmctl.config.spec import RunSpec, thaw
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, PlmctlError, collect
from plmctl.core.unwritten import describe_unwritten
from plmctl.objectives.base import Objective

OF_VOCABULARY = ("format", "noise", "eval.noise")  # parts that are given a vocabulary alone
# parts that are given the numbers of `size`
OF_SIZE = ("pattern", "position", "kernel", "first_vectors")


def find_wrong_parts(spec: RunSpec, known: Sequence[PlmctlError]) -> list[PlmctlError]:
    """What the parts of a spec refuse, each built by itself; those that `known` errors are about
    are not.
    """
    wrong = {error.path for error in known if isinstance(error, ConfigError)}

    def is_wrong(path: str) -> bool:
        return any(other == path or other.startswith(f"{path}.") for other in wrong)

    config: dict[str, Any] = thaw(spec)
    given: dict[str, dict[str, Any]] = {path: {"vocab": TINY} for path in OF_VOCABULARY}
    if not is_wrong("size"):
        sizes = {"vocab_size": TINY.size, "max_length": 8, **(config.get("size") or {})}
        given |= {path: sizes for path in OF_SIZE}
    errors: list[PlmctlError] = []
    for path, values in given.items():
        node = None if is_wrong(path) else select(config, path)
        if isinstance(node, Mapping):
            with collect(errors), without_weights():
                build(node, values, spec.plugins, path=path)
    whole = {slot: config.get(slot) for slot in ("optim", "schedule") if not is_wrong(slot)}
    return [*errors, *find_wrong_numbers(whole, spec.plugins)]


def find_wrong_numbers(config: Mapping[str, Any], plugins: Sequence[str]) -> list[PlmctlError]:
    """What optimizer and schedule say of their numbers, asked over a small matrix of the blocks
    and a vector of the rest.
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


def find_unwritten(path: str, objective: Objective) -> Iterator[ConfigError]:
    """Every method that an objective must have of its own, and has not."""
    for method in ("counts", "forward"):
        if getattr(type(objective), method) is getattr(Objective, method):
            allowed, fix = describe_unwritten(type(objective), method)
            yield ConfigError(path, ..., allowed, fix=fix)
