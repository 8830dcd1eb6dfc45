"""One process of test_strategy: `python -m toy_strategy <folder> <strategy> ...` trains a small
model twice with each strategy and leaves what it saw in `<folder>/<strategy>-<rank>.pt`.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.core.errors import PlmctlError
from plmctl.core.shares import whole_of
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.optim.adamw import AdamW
from plmctl.training.processes.world import World, join, leave
from plmctl.training.strategy.base import Strategy
from plmctl.training.strategy.choose import choose_strategy
from plmctl.training.strategy.replicated import Replicated
from plmctl.training.strategy.single import Single

# name: processes, and how each makes its strategy
STRATEGIES: dict[str, tuple[int, Callable[[World], Strategy]]] = {
    "single": (1, Single),
    "replicated": (2, Replicated),
    "replicated, small buckets": (2, lambda world: Replicated(world, bucket_bytes=256)),
    "sharded": (2, partial(choose_strategy, parallel="sharded")),
    "sharded, offloaded": (2, partial(choose_strategy, parallel="sharded", offload=True)),
    "hybrid": (4, partial(choose_strategy, parallel="hybrid", shard_size=2)),
}
ROWS, LARGEST, SECONDS = 6, 0.5, 60
# the heads of each update, and the rows that use each
UPDATES: list[dict[str, set[int]]] = [
    {"a": set(range(ROWS)), "b": {0}},  # one process leaves b unused, nobody uses c
    {"a": set(range(ROWS)), "c": set(range(ROWS))},  # now b is unused, and c is used
    {"b": {5}},  # a is unused: processes without row 5 have no backward pass at all
    {"a": {1, 4}, "b": {2}, "c": {3}},
]


class Toy(Objective):
    """Rows of a module with a stem and heads, of which an update uses some."""

    def forward(self, module: Any, rows: Any, state: Any = None) -> Output:
        """The loss of these rows: (row, heads that it uses) each."""
        losses = [loss_of(module, row, used) for row, used in rows]
        return Output({"toy": Term(torch.stack(losses).sum())})


def make_module() -> nn.Module:
    module = nn.Module()
    module.stem = nn.Linear(4, 8)
    module.frozen = nn.Linear(8, 8).requires_grad_(False)
    module.heads = nn.ModuleDict({name: nn.Linear(8, 3) for name in "abc"})
    module.register_buffer("shift", torch.randn(8))
    return module.double()


def loss_of(module: Any, row: int, heads: list[str]) -> Tensor:
    x = torch.linspace(-1, 1 + row, 4, dtype=torch.float64)
    state = module.frozen(torch.tanh(module.stem(x)) + module.shift)
    return sum(((module.heads[name](state) ** 2).sum() for name in heads), 0 * state.sum()) / ROWS


def heads_of(cells_of: dict[str, set[int]], row: int) -> list[str]:
    return [name for name, users in cells_of.items() if row in users]


def micro_batches(world: World) -> list[list[int]]:
    """The rows of this process: the main one takes them one by one, others all at once."""
    own = list(range(ROWS * world.rank // world.size, ROWS * (world.rank + 1) // world.size))
    return [[row] for row in own] if world.main else [own]


def optimizer_of(module: nn.Module) -> AdamW:
    named = list(module.named_parameters())
    return AdamW(parameters=named, lr=0.01, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.1)


def gradients(module: nn.Module) -> dict[str, Tensor | None]:
    return {
        name: None if p.grad is None else whole_of(p.grad).clone()
        for name, p in module.named_parameters()
    }


def trained(strategy: Strategy, seed: int) -> tuple[list[dict[str, Any]], nn.Module, AdamW]:
    """(what was seen in each update, the module, its optimizer)."""
    torch.manual_seed(seed)
    module, objective = strategy.place(make_module()), Toy()
    run = strategy.unite(module, objective)
    optimizer, seen = optimizer_of(module), []
    strategy.train(list(module.parameters()))
    for cells_of in UPDATES:
        batches = [
            used
            for rows in micro_batches(strategy.world)
            if (used := [(row, heads) for row in rows if (heads := heads_of(cells_of, row))])
        ]
        passes = strategy.passes(len(batches))
        for number in range(passes):
            rows = batches[number] if number < len(batches) else [(0, [])]
            loss = run(module, rows).terms["toy"].total
            strategy.backward(loss, last=number == passes - 1)
        strategy.finish_backward()
        norm = strategy.gradient_norm()
        update = {"norm": norm, "whole": gradients(module)}
        strategy.clip(norm.item(), largest=LARGEST)
        seen.append({**update, "clipped": gradients(module)})
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return seen, module, optimizer


def counts(strategy: Strategy) -> dict[str, Any]:
    rank = strategy.world.rank
    seen: dict[str, Any] = {"sums": strategy.sum_counts({"rows": rank + 1, "updates": 1})}
    try:
        strategy.sum_counts({f"only/{rank}": 1})
    except PlmctlError as error:
        seen["refused"] = str(error)
    return seen


def state(strategy: Strategy, module: nn.Module, optimizer: AdamW) -> dict[str, dict[str, Tensor]]:
    named = list(module.named_parameters())
    parts = {
        "module": strategy.module_tensors(module),
        "without": strategy.module_tensors(module, without=module.stem),
        "optimizer": strategy.optimizer_tensors(optimizer, named, rows={}),
    }
    return {kind: {n: whole_of(t) for n, t in part.items()} for kind, part in parts.items()}


def main(folder: str, *names: str) -> None:
    world = join("cpu")
    for name in names:
        leave_what_is_seen(name, world, Path(folder))


def leave_what_is_seen(name: str, world: World, folder: Path) -> None:
    strategy = STRATEGIES[name][1](world)
    updates, module, optimizer = trained(strategy, seed=world.rank)
    saved = state(strategy, module, optimizer)
    again, _, _ = trained(STRATEGIES[name][1](world), seed=world.rank)

    torch.manual_seed(99)
    other = strategy.place(make_module())
    fresh, named = optimizer_of(other), list(other.named_parameters())
    saved = world.broadcast(saved)  # as if read from one file
    strategy.load_module(other, saved["module"], file=Path("model.safetensors"))
    strategy.load_optimizer(fresh, named, saved["optimizer"], rows={})
    seen = {"updates": updates, "again": again, "counts": counts(strategy), "saved": saved}
    loaded = state(strategy, other, fresh)
    torch.save({**seen, "loaded": loaded}, folder / f"{name}-{world.rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(SECONDS, exit=True)  # processes that wait for each other
    try:
        main(*sys.argv[1:])
    finally:
        leave()
