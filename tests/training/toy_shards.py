"""One process of test_shards: `python -m toy_shards <folder>` compares optimizers of divided
weights with those of whole ones, and leaves what it saw in `<folder>/<rank>.pt`.
"""

from __future__ import annotations

import faulthandler
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.core.errors import PlmctlError
from plmctl.core.shares import is_shared, local_of, whole_of
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.optim import muon
from plmctl.training.optim.adafactor import Adafactor
from plmctl.training.optim.adagrad import Adagrad
from plmctl.training.optim.adamw import AdamW
from plmctl.training.optim.lamb import Lamb
from plmctl.training.optim.momentum import Momentum
from plmctl.training.optim.stable_adamw import StableAdamW
from plmctl.training.processes.world import World, join, leave
from plmctl.training.strategy.choose import choose_strategy

ADAM: dict[str, Any] = {"lr": 0.01, "betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": 0.1}
OPTIMIZERS = {
    "adamw": partial(AdamW, **ADAM),
    "lamb": partial(Lamb, **ADAM),
    "stable_adamw": partial(StableAdamW, **ADAM),
    "adafactor": partial(Adafactor, lr=0.01, factored_from=3, momentum=0.9, weight_decay=0.1),
    "adagrad": partial(Adagrad, lr=0.1, start=0.1, eps=1e-8, weight_decay=0.1, clip=0.01),
    "momentum": partial(Momentum, lr=0.1, momentum=0.9),
    "muon": partial(muon.Muon, momentum=0.95, matrices=["0.*", "1.*"], fused={"1.*": 3}, **ADAM),
}
SECONDS, UPDATES = 60, 3


def turn(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Newton-Schulz in the type of the matrix: bf16 would hide what is compared."""
    (a, b, c), x = muon.QUINTIC, matrix / matrix.norm()
    for _ in range(iterations):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def make_layers() -> nn.Sequential:
    """Sizes that no two processes share evenly, and a single number."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 9, bias=False), nn.Linear(9, 1))
    layers.register_parameter("scale", nn.Parameter(torch.tensor(1.5)))
    return layers.double()


class Squares(Objective):
    """The squares of what layers give."""

    def forward(self, model: Any, batch: Any, state: Any = None) -> Output:
        return Output({"toy": Term((model.scale * model(batch)).square().sum())})


def train(kind: Any, world: World, parallel: str) -> tuple[nn.Module, Any, list[float]]:
    """A model after some updates, its optimizer, and the norms of its gradients."""
    layers, norms = make_layers(), []
    # each layer as a cell
    strategy = choose_strategy(
        world, parallel, find_units=lambda model, _: dict.fromkeys(model.children(), ())
    )
    strategy.place(layers)
    run = strategy.unite(layers, Squares())
    optimizer = kind(parameters=list(layers.named_parameters()))
    strategy.train(list(layers.parameters()))
    torch.manual_seed(3)
    for _ in range(UPDATES):
        rows = torch.randn(8, 5).double()
        own = rows[world.rank :: world.size]
        strategy.backward(run(layers, own).terms["toy"].total, last=True)
        strategy.finish_backward()
        norms.append(strategy.gradient_norm().item())
        optimizer.step()
        optimizer.zero_grad()
    return layers, optimizer, norms


def list_numbers(layers: nn.Module, optimizer: Any) -> dict[str, Tensor]:
    """Weights and states, whole."""
    found = {name: whole_of(weight).detach().clone() for name, weight in layers.named_parameters()}
    for name, weight in layers.named_parameters():
        for key, value in optimizer.state[weight].items():
            found[f"{key}/{name}"] = whole_of(value).clone()
    return found


def count_bytes(layers: nn.Module, optimizer: Any) -> int:
    """The bytes of weights, gradients and states in this process, without single numbers."""
    tensors = [each for p in layers.parameters() for each in (p, *optimizer.state[p].values())]
    return sum(local_of(t).numel() * t.element_size() for t in tensors if t.dim())


def run_apart(world: World) -> str:
    """The message where the processes run cells in another order."""
    units = ("0", "1")
    strategy = choose_strategy(
        world, "sharded", find_units=lambda model, _: {model.get_submodule(n): [] for n in units}
    )
    twins = nn.ModuleDict({name: nn.Linear(4, 4) for name in units})
    strategy.place(twins)

    class Other(Objective):
        def forward(self, model: Any, batch: Any, state: Any = None) -> Output:
            first, second = units if world.main else reversed(units)
            return Output({"toy": Term(model[second](model[first](batch)).sum())})

    run = strategy.unite(twins, Other())
    strategy.backward(run(twins, torch.ones(1, 4)).terms["toy"].total, last=True)
    try:
        strategy.finish_backward()
    except PlmctlError as error:
        return str(error)
    return ""


def main(folder: str) -> None:
    world, seen = join("cpu"), dict[str, Any]()
    muon.orthogonalize = turn
    for name, kind in OPTIMIZERS.items():
        whole, own, norms = train(kind, World(), "replicated")
        layers, optimizer, others = train(kind, world, "sharded")
        seen[name] = {
            "whole": list_numbers(whole, own),
            "shares": list_numbers(layers, optimizer),
            "norms": (norms, others),
            "bytes": (count_bytes(whole, own), count_bytes(layers, optimizer)),
            "divided": all(is_shared(p) for p in layers.parameters() if p.dim()),
        }
    seen["apart"] = run_apart(world)
    torch.save(seen, Path(folder) / f"{world.rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(SECONDS, exit=True)  # processes that wait for each other
    try:
        main(*sys.argv[1:])
    finally:
        leave()
