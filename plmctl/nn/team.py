"""The division of cells among the processes of a team, by torch's `parallelize_module`.

torch's styles divide the rows or the columns of a linear map. A fused map, such as that of queries,
keys and values, is divided block by block:

    whole [q | k | v]    process 0 of 2 [q0 k0 v0]    process 1 [q1 k1 v1]
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn import functional as F

from plmctl.attention.op import BoundOp
from plmctl.core.errors import ConfigError
from plmctl.core.shares import local_of
from plmctl.nn.divided import SETTING, CutColumns, CutRows, Plan, WholeCell
from plmctl.nn.env import Env


class Team(WholeCell):
    """The part of a cell that this process computes.

    Args:
        mesh: The processes of the team.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh, self.size, self.place = mesh, mesh.size(), mesh.get_local_rank()

    def enter(self, x: Tensor) -> Tensor:
        return self._share(x).to_local(grad_placements=[Partial()])

    def cut(self, x: Tensor, dim: int) -> Tensor:
        return self._share(x).redistribute(placements=[Shard(dim)]).to_local()

    def _share(self, x: Tensor) -> DTensor:
        return DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)

    def bind(self, env: Env, name: str) -> BoundOp:
        if env.recorder is not None:
            allowed = "1: this run reads the queries, keys or attention of all heads"
            raise ConfigError(SETTING, self.size, allowed, fix=f"{SETTING}=1")
        op = env.ops[name]
        return replace(op, position=_OwnHeads(op.position, self))  # type: ignore[arg-type]

    @contextmanager
    def draws(self, rate: float) -> Iterator[None]:
        """The time in which this process draws other numbers than the rest of its team. They follow
        from the state of the generators, in which all of the team are alike before and after.
        """
        if not rate:
            yield
            return
        seed = int(torch.randint(2**62, ()))
        cuda = [torch.cuda.current_device()] if self.mesh.device_type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(seed + self.place)
            yield


class _OwnHeads:
    """A position scheme whose bias is that of the heads of this process."""

    def __init__(self, position: Any, team: Team) -> None:
        self._position, self._team = position, team

    def __getattr__(self, name: str) -> Any:
        return getattr(self._position, name)

    @property
    def bias(self) -> Callable[..., Tensor | None]:
        """Its bias; what it is marked as stays."""
        whole = self._position.bias

        def bias(q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
            found = whole(q, q_positions, k_positions)
            return found if found is None or found.shape[1] == 1 else self._team.cut(found, 1)

        bias.__dict__.update(getattr(whole, "__dict__", {}))
        return bias


class Blockwise(ParallelStyle):
    """The rows of a linear map, divided block by block.

    Args:
        parts: The number of blocks.
    """

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        kind = _StridedShard(0, split_factor=self.parts)
        for name, weight in list(module.named_parameters()):
            own = distribute_tensor(weight, device_mesh, [kind], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(own, requires_grad=weight.requires_grad))
        module.forward = partial(_run_own, module, Team(device_mesh))
        return module


def _run_own(linear: Any, team: Team, x: Tensor) -> Tensor:
    """The outputs of a map's own rows: torch has no product with rows that lie in blocks."""
    bias = None if linear.bias is None else local_of(linear.bias)
    return F.linear(team.enter(x), local_of(linear.weight), bias)


def _end(cells: Iterable[nn.Module], before: Mapping[nn.Module, tuple[set[int], set[int]]]) -> None:
    """Let cells compute all that they have, and their maps forget hooks that they had not."""
    for part, known in before.items():
        part.__dict__.pop("forward", None)
        for hooks, own in zip((part._forward_pre_hooks, part._forward_hooks), known, strict=True):
            for number in set(hooks) - own:
                del hooks[number]
    for cell in cells:
        del cell.team


def divide(cells: Mapping[nn.Module, Plan], mesh: DeviceMesh) -> Callable[[], None]:
    """Divide the linear maps of cells, and let them compute their parts; a function that ends
    this, once the weights are whole again.
    """
    # a remark on speed where an optimizer adds up a number over two kinds of groups
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    before = {}
    for cell, plan in cells.items():
        for name in plan:
            part = cell.get_submodule(name)
            before[part] = (set(part._forward_pre_hooks), set(part._forward_hooks))
        styles = {name: _style_of(each) for name, each in plan.items()}
        parallelize_module(cell, mesh, styles, src_data_rank=None)
        cell.team = Team(mesh)  # type: ignore[assignment]
    return partial(_end, cells, before)


def _style_of(each: CutRows | CutColumns) -> ParallelStyle:
    """The style of torch, or ours for blocks."""
    if not hasattr(each, "parts"):
        return RowwiseParallel()
    return ColwiseParallel() if each.parts == 1 else Blockwise(each.parts)
