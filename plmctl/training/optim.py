"""Optimizers as parts: each takes named parameters and numbers, and decides which of them decay.

A part's YAML is `_partial_: true`; the trainer calls the factory with `parameters=[(name,
parameter), ...]`. The learning
rates given here are peaks: the trainer multiplies each group's `initial_lr` by the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of

Named = Sequence[tuple[str, nn.Parameter]]
OptimizerFactory = Callable[..., Optimizer]  # (*, parameters: Named)

NO_CORRECTION = 1e6  # a step count from which 1 - 0.999^step is 1 in every floating type


def decays(name: str, parameter: Tensor) -> bool:
    """Matrices and embeddings decay; biases, norm gains and other vectors do not (Devlin et al.,
    2019, code).
    """
    return parameter.ndim >= 2 and not name.endswith("bias")


def groups(
    parameters: Named,
    *,
    lr: float,
    weight_decay: float,
    scales: Mapping[str, float] | None = None,
    layer_decay: float = 1.0,
    **extra: Any,
) -> list[dict[str, Any]]:
    """Parameter groups by (decays or not, rate scale); `scales`: glob over names -> factor of lr,
    the last match counts.

    Without a match the factor is that of `layer_scales`.
    """
    found: dict[tuple[bool, float], list[tuple[str, nn.Parameter]]] = {}
    by_layer = layer_scales([name for name, _ in parameters], layer_decay)
    for name, parameter in parameters:
        scale = by_layer[name]
        for pattern, factor in (scales or {}).items():
            scale = factor if fnmatchcase(name, pattern) else scale
        found.setdefault((decays(name, parameter), scale), []).append((name, parameter))
    return [
        {
            "params": named,
            "lr": lr * scale,
            "initial_lr": lr * scale,
            "weight_decay": weight_decay if decay else 0.0,
            **extra,
        }
        for (decay, scale), named in found.items()
    ]


def layer_scales(names: Sequence[str], decay: float) -> dict[str, float]:
    """{name: d^(L + 2 - depth)}: depth 0 for embeddings, i + 1 for layer i, L for what follows the
    last, L + 2 for heads.

    As in ELECTRA's code (Clark et al., 2020, `optimization.py`). A block that serves several layers
    has the depth of the last
    of them, and L counts distinct layers: one for ALBERT. Blocks of a letter are taken as spread
    evenly over the layers.
    """
    block = re.compile(r"backbone\.stack\.blocks\.([a-z]+)\.([0-9]+)\.")
    places = {name: (found[1], int(found[2]) + 1) for name in names if (found := block.match(name))}
    copies = {
        letter: max(n for other, n in places.values() if other == letter)
        for letter, _ in places.values()
    }
    layers = max(copies.values(), default=0)
    depths: dict[str, float] = {}
    for name in names:
        letter, place = places.get(name, ("", 0))
        stack = layers if name.startswith("backbone.stack.") else 0
        depths[name] = (
            place * layers / copies[letter]
            if place
            else stack
            if name.startswith("backbone.")
            else layers + 2
        )
    return {name: decay ** (layers + 2 - depth) for name, depth in depths.items()}


def check(*, lr: float, betas: Sequence[float], eps: float, weight_decay: float) -> None:
    """ConfigError for numbers outside their range."""
    if not lr >= 0:
        raise ConfigError("optim.lr", lr, "0 or more")
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ConfigError("optim.betas", list(betas), "two numbers, 0 <= beta < 1")
    if not eps >= 0:
        raise ConfigError("optim.eps", eps, "0 or more")
    if not weight_decay >= 0:
        raise ConfigError("optim.weight_decay", weight_decay, "0 or more")


@part_of("optim")
class AdamW(torch.optim.AdamW):
    """`theta -= lr (m̂ / (sqrt(v̂) + eps) + weight_decay theta)` (Loshchilov and Hutter, 2019,
    arXiv:1711.05101).

    torch's own, with its fused kernel. `bias_correction=False` takes m and v as they are, as BERT's
    code does (google-research/bert `optimization.py`): the first update is then
    (1-beta1)/sqrt(1-beta2) = 3.2 times larger. It is had by letting the step count begin at a
    million.
    """

    def __init__(
        self,
        *,
        parameters: Named,
        lr: float,
        betas: Sequence[float],
        eps: float,
        weight_decay: float,
        bias_correction: bool = True,
        scales: Mapping[str, float] | None = None,
        layer_decay: float = 1.0,
    ) -> None:
        check(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        if not 0 < layer_decay <= 1:
            raise ConfigError(
                "optim.layer_decay",
                layer_decay,
                "0 < layer_decay <= 1; 1 is the same rate for all layers",
            )
        self.bias_correction = bias_correction
        named = groups(
            parameters, lr=lr, weight_decay=weight_decay, scales=scales, layer_decay=layer_decay
        )
        super().__init__(
            named, lr=lr, betas=(betas[0], betas[1]), eps=eps, fused=fusable(parameters)
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if not self.bias_correction:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None and not self.state[p]:
                        self.state[p] = _moments(p, step=NO_CORRECTION, fused=bool(group["fused"]))
        super().step(closure)


def fusable(parameters: Named) -> bool:
    """torch's fused kernels run on CUDA and on the CPU, for floating types."""
    return all(p.device.type in ("cuda", "cpu") and p.is_floating_point() for _, p in parameters)


def _moments(p: Tensor, *, step: float, fused: bool) -> dict[str, Tensor]:
    """AdamW's state for one parameter, as torch itself lays it out."""
    return {
        "step": torch.tensor(step, dtype=torch.float32, device=p.device if fused else "cpu"),
        "exp_avg": torch.zeros_like(p),
        "exp_avg_sq": torch.zeros_like(p),
    }


@part_of("optim")
class Lamb(Optimizer):
    """AdamW's step, made as long as the tensor it changes (You et al., 2020, arXiv:1904.00962,
    algorithm 2).

    `r = m̂ / (sqrt(v̂) + eps) + weight_decay theta; theta -= lr min(|theta|, clamp) / |r| r`, ratio
    1 where either norm is 0. Tensors that do not decay (biases, norms) take the plain Adam step.
    Differs: no lower bound on |theta|.
    """

    def __init__(
        self,
        *,
        parameters: Named,
        lr: float,
        betas: Sequence[float],
        eps: float,
        weight_decay: float,
        bias_correction: bool = True,
        clamp: float = 10.0,
    ) -> None:
        check(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.betas, self.eps, self.bias_correction, self.clamp = betas, eps, bias_correction, clamp
        matrices = [(name, p) for name, p in parameters if decays(name, p)]
        vectors = [(name, p) for name, p in parameters if not decays(name, p)]
        super().__init__(
            [
                *groups(matrices, lr=lr, weight_decay=weight_decay, trust=True),
                *groups(vectors, lr=lr, weight_decay=0, trust=False),
            ],
            {"lr": lr},
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, p.grad, group)

    def _move(self, p: Tensor, grad: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state.update(
                _moments(p, step=0 if self.bias_correction else NO_CORRECTION, fused=False)
            )
        state["step"] += 1
        (beta1, beta2), step = self.betas, float(state["step"])
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt_().add_(self.eps)
        r = (state["exp_avg"] / (1 - beta1**step)).div_(root).add_(p, alpha=group["weight_decay"])
        if group["trust"]:
            size, length = p.norm().clamp(max=self.clamp), r.norm()
            r *= torch.where((size > 0) & (length > 0), size / length, 1.0)
        p.add_(r, alpha=-group["lr"])
