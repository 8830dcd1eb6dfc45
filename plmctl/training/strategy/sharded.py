"""Sharded training: every process keeps a share of each tensor, and gathers the shares of others
for the time in which a cell runs.

torch's own `fully_shard` does it (Rajbhandari et al., 2020, arXiv:1910.02054, stage 3; Zhao et al.,
2023, arXiv:2304.11277). The weights of each cell form a group. It is gathered before the cell runs
and given back after it. All other weights form one group, which is gathered from the beginning of
a forward pass to the end of its backward pass. So an objective may read weights of heads and
embeddings wherever it likes, and those of a cell only inside of it.

    forward    gather rest | gather a.0, run, free | gather f.0, run, free | heads
    backward   gather f.0, gradient, sum and split, free | gather a.0, ... | rest: sum and split
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import Shard
from torch.optim import Optimizer

from plmctl.core.errors import ConfigError, PlmctlError
from plmctl.core.shares import cuts, is_shared, local_of, whole_of
from plmctl.objectives.base import Objective
from plmctl.training.optim.groups import Named
from plmctl.training.optim.shards import find_norm, lay_out
from plmctl.training.processes.parallel import TEAMS
from plmctl.training.processes.world import World, explain_loss_of_process
from plmctl.training.strategy.base import Divide, FindUnits, Run, no_cells
from plmctl.training.strategy.replicated import copy_from_main
from plmctl.training.strategy.single import M, Single


class United(nn.Module):
    """A model and its objective as the one module whose forward pass gathers weights."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, *args: Any) -> Any:
        """The objective's output; its arguments are those of the objective."""
        return self.objective(*args)

    def weigh(self, loss: Callable[[], Tensor], factor: int) -> Tensor:
        """A loss times a factor. Gradients of a loss that no forward pass has seen, such as one of
        joined vectors, are summed because it went through here.
        """
        return loss() * factor


class Sharded(Single):
    """Training in which parameters, gradients and the optimizer's state are divided.

    Differs: a gradient is the mean over processes in torch's engine; the loss is multiplied by
    their number, so that it is the sum.

    Args:
        world: The processes.
        mesh: Their arrangement: [shard], or [replicate, shard].
        team: The processes with the rows of this one, among which cells are divided; None: it has
            its rows alone.
        divide: The function that divides the cells among them.
        find_units: Finds the cells, whose weights are gathered one cell after the other, each with
            the names of methods that read its weights, too.
        dtype: The number type in which the weights of cells are gathered; None: their own. They are
            kept, and gradients are summed, in fp32.
        offload: Keep the shares in the memory of the host.
    """

    # single numbers, which every process has, and biases of which every team has all
    numbers: set[nn.Parameter]
    end_division: Callable[[], None]
    whole: Any  # a `United` that torch's engine has taken over

    def __init__(
        self,
        world: World,
        mesh: DeviceMesh,
        *,
        team: DeviceMesh | None = None,
        divide: Divide = no_cells,
        find_units: FindUnits = lambda *modules: {},
        dtype: torch.dtype | None = None,
        offload: bool = False,
    ) -> None:
        super().__init__(world)
        self.mesh, self.team, self.find_units, self.divide = mesh, team, find_units, divide
        self.dtype, self.offload = dtype, offload
        self._used: dict[str, bool] = {}  # by the name of a parameter, in this update
        self._began = False
        self._ran = 0  # a checksum of the cells that ran in this update, in their order

    def place(self, module: M) -> M:
        return copy_from_main(module, self.world.device)

    def unite(self, model: nn.Module, objective: Objective) -> Run:
        _refuse_whole(objective, self.team)
        # results of cells are views, and nothing writes into them
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        whole: Any = United(model, objective)
        units = self.find_units(model, objective)
        cells = _own_weights(list(units), whole)
        if self.team is not None:
            self.end_division = self.divide(model, objective, self.team)
            _refuse_uneven(whole, self.mesh.size(-1))
        # torch's engine divides no single numbers, and a dimension only once
        self.numbers = {
            weight
            for weight in whole.parameters()
            if not weight.dim() or (weight.dim() == 1 and _is_cut(weight))
        }
        shard = partial(
            fully_shard,
            mesh=self.mesh,
            offload_policy=self._find_offload(),
            ignored_params=self.numbers,
            shard_placement_fn=_find_free if self.team is not None else None,
        )
        policy = MixedPrecisionPolicy(
            param_dtype=self.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        plain = MixedPrecisionPolicy(cast_forward_inputs=False)
        for number, cell in enumerate(cells):
            shard(cell, mp_policy=policy if self.dtype else plain)
            for method in units[cell]:
                register_fsdp_forward_method(cell, method)
            cell.register_forward_pre_hook(partial(self._note, number))
            cell.register_forward_hook(partial(self._note_way_back, ~number))
        shard(whole, mp_policy=plain)
        register_fsdp_forward_method(whole, "weigh")
        whole.set_reduce_scatter_unused_params(True)
        self.whole = whole
        for module in objective.modules():
            if divide := getattr(module, "divide", None):
                divide(dict(model.named_parameters()))
        self._watch()
        return self.whole

    @property
    def _name(self) -> str:
        return "train.parallel=sharded" if self.team is None else TEAMS

    @property
    def _fix(self) -> str:
        """The settings without which this process has all weights."""
        whole = "train.parallel=replicated"
        return whole if self.team is None else f"{whole} {TEAMS}=1"

    def _find_offload(self) -> OffloadPolicy:
        if not self.offload:
            return OffloadPolicy()
        return CPUOffloadPolicy(pin_memory=self.world.device.type == "cuda")

    def _note(self, number: int, *_: Any) -> None:
        self._ran = zlib.crc32(number.to_bytes(4, "little", signed=True), self._ran)

    def _note_way_back(self, number: int, cell: nn.Module, given: Any, result: Any) -> None:
        if isinstance(result, Tensor) and result.requires_grad:
            result.register_hook(partial(self._note, number))

    def _watch(self) -> None:
        """Note which weights get a gradient: torch's engine gives 0 to all others."""
        with self.gathered():
            for name, weight in self.whole.named_parameters():
                trained = weight.requires_grad
                weight.requires_grad_(True).register_post_accumulate_grad_hook(
                    partial(self._use, name)
                )
                weight.requires_grad_(trained)

    def _use(self, name: str, _: Tensor) -> None:
        self._used[name] = True

    def train(self, parameters: Sequence[nn.Parameter]) -> None:
        super().train(parameters)
        missing = [p for p in parameters if not is_shared(p) and p not in self.numbers]
        assert not missing, "the optimizer was built before the weights were divided"

    def passes(self, count: int) -> int:
        most = torch.tensor(count)
        with explain_loss_of_process():
            dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        self._began = True
        self.whole.set_is_last_backward(last)
        self.whole.set_requires_gradient_sync(last)
        # hidden in a function: the sums would begin as soon as the gradient of an argument is there
        self.whole.weigh(lambda: loss, self.mesh.size()).backward()
        self.whole.set_requires_gradient_sync(False)  # nor in a gradient of vectors alone

    def finish_backward(self) -> None:
        named = dict(self.whole.named_parameters())
        seen = [self._used.get(name, False) for name in named]
        flags = torch.tensor([*seen, self._ran, -self._ran], dtype=torch.int64)
        with explain_loss_of_process():
            dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        *used, most, least = flags.tolist()
        if most != -least:
            raise PlmctlError(
                "the processes ran different cells of the model in this update, which"
                f" {self._name} cannot join\n  fix: {self._fix}"
            )
        live = [weight for weight, flag in zip(named.values(), used, strict=True) if flag]
        for weight in set(named.values()) - set(live):
            weight.grad = None
        if numbers := [weight for weight in live if weight in self.numbers]:
            for weight in numbers:
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            parts = [local_of(weight.grad) for weight in numbers]
            flat = torch.cat([part.flatten() for part in parts]) / self.mesh.size()
            with explain_loss_of_process():
                dist.all_reduce(flat, group=self.world.group)
            for part, total in zip(parts, flat.split([p.numel() for p in parts]), strict=True):
                part.copy_(total.view_as(part))
        self._used, self._ran = {}, 0

    def gradient_norm(self) -> Tensor:
        norm = find_norm([p.grad for p in self.parameters if p.grad is not None])
        if self.team is not None:  # whole tensors are added up by each process of a team
            norm = norm.to(self.world.device) / self.team.size()
            with explain_loss_of_process():
                dist.all_reduce(norm, group=self.team.get_group())
        return norm

    def clip(self, norm: float, *, largest: float) -> None:
        if norm > largest:
            for p in self.parameters:
                if p.grad is not None:
                    local_of(p.grad).mul_(largest / (norm + 1e-6))  # as torch does it

    def load_optimizer(
        self,
        optimizer: Optimizer,
        parameters: Named,
        tensors: Mapping[str, Tensor],
        *,
        rows: Mapping[str, int],
    ) -> None:
        named = dict(parameters)
        shares = {}
        for key, value in tensors.items():
            weight = named.get(key.partition("/")[2])
            shares[key] = value if weight is None else lay_out(value, weight)
        super().load_optimizer(optimizer, parameters, shares, rows=rows)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        parts, ran = self._list_parts(), self._ran
        for part in parts:
            part.unshard()
            part.set_reshard_after_forward(False, recurse=False)
        try:
            yield
        finally:
            for part in parts:
                part.set_reshard_after_forward(part is not self.whole, recurse=False)
                part.reshard()
            self._ran = ran
            # forgets what ran here, which may be nothing in other processes
            if self._began:
                self.whole.reset_iter_state()

    def release(self) -> None:
        made: dict[nn.Parameter, nn.Parameter] = {}
        for owner in self.whole.modules():
            for name, weight in owner._parameters.items():
                if is_shared(weight):
                    if weight not in made:
                        whole = whole_of(weight.detach())
                        free = nn.Parameter(whole, requires_grad=weight.requires_grad)
                        made[weight] = free if self.world.main else weight
                    owner._parameters[name] = made[weight]
        for part in self._list_parts():
            state = part._get_fsdp_state()
            state._pre_forward_hook_handle.remove()
            state._post_forward_hook_handle.remove()
            part.__dict__.pop("prepare", None)
            part.__class__ = type(part).__mro__[2]  # engine's class, FSDPModule, its own
        if self.team is not None:
            self.end_division()

    def _list_parts(self) -> list[Any]:
        """The modules that torch's engine has taken over, the root first."""
        return [part for part in self.whole.modules() if isinstance(part, FSDPModule)]


def _is_cut(weight: Any) -> bool:
    """Whether a team divides a weight."""
    return any(map(cuts, getattr(weight, "placements", ())))


def _refuse_uneven(whole: nn.Module, shares: int) -> None:
    """ConfigError where the columns of a map whose rows a team divides are no multiple of so many
    shares, which torch's engine needs.
    """
    for weight in filter(_is_cut, whole.parameters()):
        dim = _find_free(weight).dim if weight.dim() > 1 else 0
        if dim and weight.shape[dim] % shares:
            allowed = f"replicated: {shares} shares of the {weight.shape[dim]} columns of a map"
            allowed += f" with {TEAMS} would be uneven"
            fix = "train.parallel=replicated train.shard_size=null"
            raise ConfigError("train.parallel", "sharded", allowed, fix=fix)


def _find_free(weight: Any) -> Shard:
    """The dimension in which processes of other rows divide a weight: one that a team leaves
    whole.
    """
    taken = {kind.dim for kind in getattr(weight, "placements", ()) if cuts(kind)}
    return Shard(next(dim for dim in range(weight.dim()) if dim not in taken))


def _refuse_whole(objective: Objective, team: DeviceMesh | None) -> None:
    """ConfigError for a part that reads or changes weights which no process has whole."""
    for module in objective.modules():
        if getattr(module, "whole_weights", False):
            needs = f"{type(module).__name__} needs whole weights in every process"
            if team is not None:
                fix = f"{TEAMS}=1 train.parallel=replicated"
                raise ConfigError(TEAMS, team.size(), f"1: {needs}", fix=fix)
            fix = "train.parallel=replicated"
            raise ConfigError("train.parallel", "sharded", f"replicated: {needs}", fix=fix)


def _own_weights(cells: Sequence[nn.Module], whole: nn.Module) -> list[nn.Module]:
    """The cells with weights that nothing outside of them has."""
    owners: dict[nn.Parameter, set[nn.Module]] = {}
    for module in whole.modules():
        for weight in module.parameters(recurse=False):
            owners.setdefault(weight, set()).add(module)
    found = []
    for cell in cells:
        inside, weights = set(cell.modules()), list(cell.parameters())
        if weights and all(owners[weight] <= inside for weight in weights):
            found.append(cell)
    return found
