"""One process of test_team: `python -m toy_team <folder> <part>...` compares cells that a team of
processes computes together with whole ones, and leaves what it saw in `<folder>/<part>-<rank>.pt`.
"""

from __future__ import annotations

import copy
import faulthandler
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp, GlobalRows
from plmctl.core.shares import local_of, whole_of
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.base import Cell
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.cells.global_attention import GlobalAttention
from plmctl.nn.cells.glu import GLU
from plmctl.nn.cells.local_attention import LocalAttention
from plmctl.nn.cells.relative_attention import RelativeAttention
from plmctl.nn.divided import find_divided
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import ALiBi, NoPosition, RelativeBuckets, Rotary
from plmctl.nn.relations import RelativeOp, make_relations
from plmctl.objectives.base import Objective, Output, Term
from plmctl.runs.dividing import divide_cells
from plmctl.training.optim import muon
from plmctl.training.processes.world import World, form_teams, join, leave
from plmctl.training.strategy.choose import choose_strategy
from tests.training import toy
from tests.training.toy_shards import OPTIMIZERS, count_bytes, list_numbers, turn

B, T, W, H, INNER, UPDATES, SECONDS = 3, 5, 8, 4, 12, 3, 300
HEADS: dict[str, Any] = {"width": W, "num_heads": H, "dropout": 0.0}
CELLS: dict[str, tuple[Callable[[], Cell], Callable[[], nn.Module]]] = {
    "feed-forward": (
        lambda: FeedForward(width=W, inner_width=INNER, activation="gelu"),
        NoPosition,
    ),
    "in slices": (
        lambda: FeedForward(width=W, inner_width=INNER, activation="gelu", chunk=2),
        NoPosition,
    ),
    "gated": (lambda: GLU(width=W, inner_width=INNER, activation="silu", bias=True), NoPosition),
    "attention": (lambda: Attention(**HEADS), Rotary),
    "shared maps": (lambda: Attention(**HEADS, projections="shared", bias=False), NoPosition),
    "normed queries": (lambda: Attention(**HEADS, qk_norm=True), partial(ALiBi, num_heads=H)),
    "buckets": (
        lambda: Attention(**HEADS, scores="dot", bias=False),
        partial(RelativeBuckets, num_heads=H, bidirectional=True, buckets=8, max_distance=16),
    ),
    "global": (lambda: GlobalAttention(**HEADS), partial(ALiBi, num_heads=H)),
    "local": (lambda: LocalAttention(**HEADS, chunk=2, causal=False), partial(ALiBi, num_heads=H)),
    "source": (lambda: CrossAttention(**HEADS), NoPosition),
    "relative": (lambda: RelativeAttention(**HEADS, segments=True), NoPosition),
}


class Layer(nn.Module):
    """A cell with all that it reads."""

    def __init__(self, name: str) -> None:
        super().__init__()
        cell, position = CELLS[name]
        self.cell, self.position, self.relative = cell(), position(), name == "relative"

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])[None]
        op = BoundOp(Mask(None), self.position, places)  # type: ignore[arg-type]
        if self.relative:
            apart = (places[:, None, :, None] > 2) != (places[:, None, None] > 2)
            relations = make_relations(width=W, first=0, rows=x.shape[1], like=x, apart=apart)
            op = RelativeOp(**vars(op), relations=relations)
        index = torch.tensor([[0, 2]] * len(x))
        rows = GlobalRows(index, torch.ones_like(index, dtype=torch.bool), Mask(None))
        env = Env({"text": replace(op, global_rows=rows), "source": op})
        return x + self.cell(Streams({"text": x, "source": x.flip(1)}), env)


class Squares(Objective):
    """The squares of what layers give."""

    def forward(self, model: Any, batch: Any, state: Any = None) -> Output:
        return Output({"toy": Term(model(batch).square().sum())})


def run_cell(name: str, mesh: Any, broken: bool = False) -> dict[str, Any]:
    """The result and all gradients of a cell, whole and divided."""
    from torch.distributed.tensor import Partial
    from torch.distributed.tensor.parallel import RowwiseParallel

    from plmctl.nn import team

    torch.manual_seed(1)
    whole = Layer(name).double()
    for weight in whole.parameters():
        nn.init.normal_(weight, std=0.5)
    divided, x = copy.deepcopy(whole), torch.randn(B, T, W).double()
    plans = find_divided(divided, nn.Module(), mesh.size())
    if broken:
        team.RowwiseParallel = partial(RowwiseParallel, output_layouts=Partial())  # type: ignore
    end = team.divide(plans, mesh)
    team.RowwiseParallel = RowwiseParallel  # type: ignore[misc]
    found: dict[str, Any] = {}
    for kind, layer in (("whole", whole), ("divided", divided)):
        read = x.clone().requires_grad_()
        result = layer(read)
        (result * torch.linspace(-1, 1, W)).square().sum().backward()
        named = {
            n: whole_of(p.grad).clone() for n, p in layer.named_parameters() if p.grad is not None
        }
        found[kind] = {"result": result.detach(), "x": read.grad, **named}
        found[f"{kind} numbers"] = sum(local_of(p).numel() for p in layer.parameters())
    for layer in divided.modules():
        for key, weight in layer._parameters.items():
            if weight is not None:
                layer._parameters[key] = nn.Parameter(whole_of(weight.detach()))
    end()
    found["again"] = divided(x).detach()
    return found


def run_cells(world: World) -> dict[str, Any]:
    """The outputs of every kind of cell and of a broken plan, and the draws of dropout."""
    from torch.distributed.device_mesh import init_device_mesh

    from plmctl.nn.team import Team

    mesh = init_device_mesh("cpu", (world.size,))
    seen: dict[str, Any] = {name: run_cell(name, mesh) for name in CELLS}
    seen["broken"] = run_cell("feed-forward", mesh, broken=True)
    torch.manual_seed(5)
    with Team(mesh).draws(0.1):
        seen["drawn"] = torch.rand(4)
    seen["drawn after"] = torch.rand(4)
    return seen


def make_layers() -> nn.Module:
    torch.manual_seed(0)
    names = ("feed-forward", "buckets", "normed queries", "gated")
    return nn.Sequential(*map(Layer, names), nn.Linear(W, 3)).double()


def train(kind: Any, world: World, parallel: str, shard_size: int | None) -> Any:
    """A model after some updates, its optimizer, and the norms of its gradients."""
    layers, norms = make_layers(), []
    strategy = choose_strategy(
        world,
        parallel,
        shard_size=shard_size,
        divide=divide_cells,
        find_units=lambda model, _: {part.cell: () for part in list(model)[:3]},
    )
    strategy.place(layers)
    run = strategy.unite(layers, Squares())
    optimizer = kind(parameters=list(layers.named_parameters()))
    strategy.train(list(layers.parameters()))
    torch.manual_seed(3)
    for _ in range(UPDATES):
        rows = torch.randn(4, T, W).double()
        own = rows[world.rank :: world.size]
        strategy.backward(run(layers, own).terms["toy"].total, last=True)
        strategy.finish_backward()
        norms.append(strategy.gradient_norm().item())
        optimizer.step()
        optimizer.zero_grad()
    return layers, optimizer, norms


def run_optimizers(
    world: World, parallel: str, shard_size: int | None, names: list[str]
) -> dict[str, Any]:
    """The steps of optimizers on whole and on divided weights."""
    seen = {}
    muon.orthogonalize = turn
    parts = {
        **OPTIMIZERS,
        "muon": partial(OPTIMIZERS["muon"], matrices=["*.cell.*"], fused={"*qkv*": 3}),
    }
    for name in names or parts:
        kind = parts[name]
        whole, own, norms = train(kind, World(), "replicated", None)
        layers, optimizer, others = train(kind, form_teams(world, 2), parallel, shard_size)
        seen[name] = {
            "whole": list_numbers(whole, own),
            "shares": list_numbers(layers, optimizer),
            "norms": (norms, others),
            "bytes": (count_bytes(whole, own), count_bytes(layers, optimizer)),
        }
    return seen


class CellBackbone(toy.ToyBackbone):
    """A backbone whose block is a feed-forward cell."""

    def __init__(self, dropout: float) -> None:
        super().__init__(dropout)
        cell = FeedForward(width=toy.W, inner_width=12, activation="gelu", dropout=dropout)
        attention = Attention(width=toy.W, num_heads=2, dropout=dropout)
        self.block = nn.ModuleList([attention, cell])

    def encode(self, x: Tensor, batch: Any, state: Any = None, record: Any = frozenset()) -> Any:
        places = torch.arange(x.shape[1])[None]
        env = Env({"text": BoundOp(Mask(None), NoPosition(), places)})  # type: ignore[arg-type]
        for cell in self.block:
            x = x + cell(Streams({"text": x}), env)
        return toy.Hidden(x)


def make_run(folder: Path, world: World, parallel: str, **settings: Any) -> Any:
    """A trainer of cells, in teams or alone."""
    choose: Any = partial(choose_strategy, parallel=parallel, divide=divide_cells)
    toy.choose_strategy = choose
    own = {"log_every": 1, "save_every": 2, **settings.pop("settings", {})}
    return toy.make_trainer(
        folder, world=world, rows=4, backbone=CellBackbone, settings=own, **settings
    )


def state_of(trainer: Any) -> dict[str, Tensor]:
    """The model and the state of its optimizer, by name, whole."""
    found = {
        **trainer.strategy.module_tensors(trainer.model),
        **trainer.strategy.module_tensors(trainer.objective, without=trainer.model),
        **trainer.strategy.optimizer_tensors(trainer.optimizer, trainer.parameters, rows={}),
    }
    return {name: whole_of(tensor).detach().clone() for name, tensor in found.items()}


def run_training(world: World, folder: Path, parallel: str) -> dict[str, Any]:
    """Runs with and without dropout, stopped and gone on with, and whole ones beside them."""
    teams, seen = form_teams(world, 2), dict[str, Any]()
    if world.main:
        alone = make_run(folder / "alone", World(), "replicated", steps=4, dropout=0.0)
        alone.fit()
        seen["alone"] = state_of(alone)
    for name, dropout in (("plain", 0.0), ("dropping", 0.3)):
        run = make_run(folder / name, teams, parallel, steps=4, dropout=dropout)
        run.fit()
        seen[name] = state_of(run)
        seen["local"] = sum(local_of(p).numel() for _, p in run.parameters)
    short = make_run(folder / "stopped", teams, parallel, dropout=0.3, budget=toy.Budget(steps=4))
    short.stop.number = 15  # as if SIGTERM had come in the first update
    short.fit()
    world.barrier()
    again = make_run(folder / "stopped", teams, parallel, steps=4, dropout=0.3)
    seen["stopped at"] = again.resume(again.checkpoints.newest(world)).step
    again.fit()
    seen["stopped"] = state_of(again)
    run.strategy.release()
    if world.main:
        seen["released"] = {name: p.detach().clone() for name, p in run.model.named_parameters()}
        run.model.eval()
        with torch.no_grad():
            seen["after"] = run.model(toy.make_batch([1, 2])).last
    return seen


def main(folder: str, part: str, parallel: str, shard_size: str, *names: str) -> None:
    world, share = join("cpu"), int(shard_size) or None
    if part == "optimizers":
        seen = run_optimizers(world, parallel, share, list(names))
    else:
        seen = {**run_cells(world), "run": run_training(world, Path(folder), parallel)}
    torch.save(seen, Path(folder) / f"{world.rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(SECONDS, exit=True)  # processes that wait for each other
    try:
        main(*sys.argv[1:])
    finally:
        leave()
