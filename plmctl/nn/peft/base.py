"""The base of the methods of parameter-efficient fine-tuning, and how their parts are added to a
model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import base_of
from plmctl.nn.cells.base import Cell, LinearRows
from plmctl.nn.residual import Block
from plmctl.nn.stack import Stack
from plmctl.nn.starting import Starting

WIDEST = 16  # times the width of a model: a network inside may be so wide
LONGEST = 4096  # learned vectors before a row, where a model has no number of positions


def check_size(name: str, value: int, most: int, why: str) -> None:
    """Raise ConfigError for a size that `most`, by what `why` says, would hold: before it takes
    memory.
    """
    if value > most:
        raise ConfigError(name, value, f"at most {most}, {why}", fix=f"{name}={most}")


def check_kinds(stated: Sequence[str], cells: Iterable[Cell]) -> None:
    """ConfigError for kinds of cells that a model does not have, and for no kind.

    Args:
        stated: The kinds, such as attention and feed-forward.
    """
    weights: dict[str, int] = {}
    for cell in cells:
        if kind := cell.facts.computes:
            weights[kind] = weights.get(kind, 0) + sum(1 for _ in cell.parameters())
    if not weights:
        allowed = "for models of attention and feed-forward: this one has no such cells"
        raise ConfigError("cells", list(stated), allowed, fix="peft=[bitfit]")
    wrong = [name for name in stated if name not in weights]
    if wrong or not stated:
        allowed = f"kinds of cells of this model: {', '.join(weights)}"
        fitting = [name for name in stated if name in weights]
        fitting = fitting or [name for name, count in weights.items() if count]
        fix = f"cells=[{','.join(fitting)}]" if fitting else "peft=[bitfit]"
        value, near = (wrong[0], nearest(wrong[0], weights)) if wrong else ([], "")
        raise ConfigError("cells", value, allowed + near, fix=fix)


@base_of("peft")
class Method:
    """Adds what is trained to a model whose other weights stay as they are.

    `mark`: the name of the method in each module that it adds to, and so in the names of the
    parameters that it trains.
    """

    mark: str = ""
    places: int = 0  # columns of a row that it takes in addition to the tokens
    # whether its setting `adapters` is what the checkpoints of its setting `runs` have learned
    takes_runs: bool = False

    def add_to(self, model: nn.Module) -> None:
        """Add its parts to a model, before any weights are drawn or loaded.

        Raises:
            ConfigError: The model has no modules for them.
        """

    def trains(self, model: nn.Module) -> list[str]:
        """The names of the parameters that it trains, of a model that it was added to."""
        inside = f".{self.mark}."
        return [name for name, _ in model.named_parameters() if inside in f".{name}"]

    def prepare(self, model: nn.Module, tokenizer: Any) -> None:
        """Read what the first weights of the method need from a tokenizer, before the weights of
        the model exist.
        """

    def check_folding(self) -> None:
        """Raise ConfigError where no weights of a model compute what it adds."""

    def refuse_folding(self, learned: str) -> ConfigError:
        """The error of a method that cannot be put into the weights; `learned`: what it is."""
        allowed = f"not to be put into the weights of the model: what it has learned is {learned}"
        return ConfigError("peft", self.mark, allowed)


class Added(Starting):
    """A module that a method adds to another one, whose input or result it changes.

    `rows`: the rows of a linear map that it changes, by what they give.
    """

    rows: Mapping[str, slice] = MappingProxyType({})

    def change_input(self, x: Tensor) -> Tensor:
        """The input that the module reads instead of `x`."""
        return x

    def change(self, x: Any, y: Tensor) -> Tensor:
        """The output of the module instead of `y`, its result for `x`."""
        return y

    def find_read(self, x: Any, y: Tensor) -> Tensor:
        """[B, T, W] what it reads behind a cell: its input `x`, its result `y`, or both."""
        return y

    def fold_result(self, owner: nn.Module) -> None:
        """Change the weights of `owner` so that its result alone is what `change` makes of it."""

    def fold_input(self, owner: nn.Module) -> None:
        """The same of `change_input`."""

    def settle(self) -> None:
        """Let go of everything that only training needs: nothing is learned from now on."""


@dataclass(frozen=True)
class _Before:
    """Changes what a module reads; it knows the part by name, so that copies have their own."""

    mark: str

    def __call__(self, owner: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        added: Any = owner._modules[self.mark]
        return (added.change_input(inputs[0]), *inputs[1:])


@dataclass(frozen=True)
class _Behind:
    """Changes what a module gives."""

    mark: str

    def __call__(self, owner: nn.Module, inputs: tuple[Any, ...], result: Tensor) -> Tensor:
        added: Any = owner._modules[self.mark]
        changed: Tensor = added.change(inputs[0], result)
        return changed


def attach(owner: nn.Module, mark: str, added: Added) -> None:
    """Let `added`, a part of `owner` from now on, change what it reads and gives.

    Methods act in the order in which they are added, and the weights of `owner` keep their names.

    Raises:
        ConfigError: There is one of this name already.
    """
    if mark in owner._modules:
        raise ConfigError("peft", mark, "once: two parts of a method would have one name")
    owner.add_module(mark, added)
    owner.register_forward_pre_hook(_Before(mark))
    owner.register_forward_hook(_Behind(mark))


def detach(owner: nn.Module, mark: str) -> None:
    """Undo `attach`."""
    del owner._modules[mark]
    for hooks in (owner._forward_pre_hooks, owner._forward_hooks):
        for key in [key for key, hook in hooks.items() if getattr(hook, "mark", "") == mark]:
            del hooks[key]


def fold(model: nn.Module, methods: Sequence[Method]) -> None:
    """Put what was learned into the weights of a model, and leave it as it was built.

    Results change in the order of the methods, inputs before all of them: of `l_out * (W + BA)(l_in
    * x)`, first BA is put into W, then l_out, then l_in.

    Raises:
        ConfigError: No weights of the model compute the same.
    """
    for method in methods:
        method.check_folding()
    marks = [method.mark for method in methods]
    found = [
        (owner, mark, added)
        for mark in marks
        for owner in list(model.modules())
        if isinstance(added := owner._modules.get(mark), Added)
    ]
    for mark in marks:
        if mark and mark not in {own for _, own, _ in found}:
            allowed = (
                "in this model: there is nothing to put into its weights, or it was done before"
            )
            raise ConfigError("peft", mark, allowed)
    for owner, _, added in found:
        added.fold_result(owner)
    for owner, _, added in reversed(found):
        added.fold_input(owner)
    for owner, mark, _ in found:
        detach(owner, mark)


def find_blocks(model: nn.Module) -> Iterator[Block]:
    """The blocks of all stacks of a model, each once."""
    for stack in [part for part in model.modules() if isinstance(part, Stack)]:
        for blocks in stack.blocks.values():
            yield from blocks  # type: ignore[misc]


def find_low_blocks(model: nn.Module, layers: int) -> set[int]:
    """The ids of the blocks in the lowest layers of each stack."""
    stacks = [part for part in model.modules() if isinstance(part, Stack)]
    return {
        id(stack.block(step))
        for stack in stacks
        for steps in (steps for layer in stack.rounds[:layers] for steps in layer)
        for _, step in steps
    }


def find_cells(model: nn.Module) -> Iterator[Cell]:
    """The cells of all stacks of a model, each once."""
    return (block.cell for block in find_blocks(model))


def find_maps(
    model: nn.Module, names: Sequence[str], method: str, path: str
) -> list[dict[str, LinearRows]]:
    """For each linear map of a model that gives one of `names`, {name: its rows}.

    Args:
        method: The usual name of the method that changes them.
        path: The config path of `names` in it.

    Raises:
        ConfigError: No cell of the model has a map of some name.
    """
    known: dict[str, None] = {}
    found: list[dict[str, LinearRows]] = []
    for cell in find_cells(model):
        own: dict[int, dict[str, LinearRows]] = {}
        for name, part in cell.projections().maps.items():
            known[name] = None
            if name in names:
                own.setdefault(id(part.linear), {})[name] = part
        found += own.values()
    if not known:
        allowed = "for models of attention and feed-forward: no cell of this one has such maps"
        raise ConfigError(path, list(names), allowed, fix="peft=[bitfit]")
    if unknown := [name for name in names if name not in known]:
        allowed = f"maps of this model: {', '.join(known)}{nearest(unknown[0], known)}"
        fix = f"peft.{method}.{path}=[{','.join(known)}]"
        raise ConfigError(path, unknown[0], allowed, fix=fix)
    if not names:
        raise ConfigError(path, [], f"one map at least: {', '.join(known)}")
    return found
