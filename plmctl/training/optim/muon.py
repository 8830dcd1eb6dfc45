"""Muon for the hidden matrices, AdamW for the rest (Jordan et al., 2024,
github.com/KellerJordan/Muon).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.shares import local_of
from plmctl.training.optim.groups import Named, can_fuse, check_numbers, groups
from plmctl.training.optim.shards import change_whole, move_together
from plmctl.training.optim.uncompiled import Uncompiled, UncompiledAdamW

# the steepest polynomial at 0 that keeps singular values near 1 (Jordan et al., 2024)
QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrix: Tensor, *, iterations: int = 5) -> Tensor:
    """[R, C] -> [R, C] with the same singular vectors and singular values of about 1, by
    Newton-Schulz in bf16. On a CPU it computes in fp32: without units for bf16, products in bf16
    take thirty times as long.

    `X <- aX + (bA + cAA)X, A = XX^T`, from X = matrix / |matrix|; the smallest singular values of
    square matrices stay small.
    """
    a, b, c = QUINTIC
    x = matrix.float() if matrix.device.type == "cpu" else matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).to(matrix.dtype)


@part_of("optim")
class Muon(Uncompiled):
    """`M <- lerp(M, G, 1-momentum); U = lerp(G, M, momentum); theta -= lr (s orthogonalize(U) +
    weight_decay theta)`.

    For 2-D parameters whose name matches `matrices`; everything else (embeddings, heads, biases,
    norms) goes to AdamW with the same `lr`, made comparable by s = 0.2 sqrt(max(R, C)) (Liu et al.,
    2025, arXiv:2502.16982, sec. 2.2).
    `fused`: glob -> number of equal row blocks that are separate matrices (a fused qkv has 3),
    orthogonalised separately.
    """

    def __init__(
        self,
        *,
        parameters: Named,
        lr: float,
        momentum: float,
        weight_decay: float,
        matrices: Sequence[str],
        fused: Mapping[str, int],
        betas: Sequence[float],
        eps: float,
    ) -> None:
        check_numbers(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.momentum = momentum
        mine = [
            (name, p)
            for name, p in parameters
            if p.ndim == 2 and any(fnmatchcase(name, glob) for glob in matrices)
        ]
        if not mine:
            allowed = "at least one pattern that matches a matrix of the model"
            raise ConfigError("optim.matrices", list(matrices), allowed)
        others = [(name, p) for name, p in parameters if all(p is not q for _, q in mine)]
        self._adamw: UncompiledAdamW | None = None  # where everything is a matrix
        mixed: list[dict[str, Any]] = []
        if rest := groups(others, lr=lr, weight_decay=weight_decay, blocks=0):
            self._adamw = UncompiledAdamW(
                rest, lr=lr, betas=(betas[0], betas[1]), eps=eps, fused=can_fuse(others)
            )
            mixed = [{**self._adamw.defaults, **group} for group in rest]
        mine_groups: list[dict[str, Any]] = []
        for count in sorted({_blocks(name, fused) for name, _ in mine}):
            part = [(name, p) for name, p in mine if _blocks(name, fused) == count]
            mine_groups += groups(part, lr=lr, weight_decay=weight_decay, blocks=count)
        super().__init__([*mine_groups, *mixed], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make one update."""
        for group in self.param_groups:
            for some in move_together(group["params"] if group["blocks"] else []):
                self._move_together(some, group)
        if self._adamw is None:
            return
        # the same groups and state, also after load_state_dict has replaced them
        self._adamw.param_groups = [group for group in self.param_groups if not group["blocks"]]
        self._adamw.state = self.state
        self._adamw.step()

    def _move_together(self, matrices: Sequence[Tensor], group: Mapping[str, Any]) -> None:
        """Make the step of matrices; one of several processes orthogonalises a matrix that they
        share.
        """
        updates = []
        for p in matrices:
            state, grad = self.state[p], local_of(p.grad)
            if not state:
                state["momentum"] = torch.zeros_like(p)
            momentum = local_of(state["momentum"]).lerp_(grad, 1 - self.momentum)
            updates.append(grad.lerp(momentum, self.momentum))

        def turn(matrix: Tensor) -> Tensor:
            return torch.cat([orthogonalize(block) for block in matrix.chunk(group["blocks"])])

        for p, turned in zip(matrices, change_whole(updates, matrices, turn), strict=True):
            size = 0.2 * max(p.shape[0] // group["blocks"], p.shape[1]) ** 0.5
            own = local_of(p)
            own.mul_(1 - group["lr"] * group["weight_decay"])
            own.add_(turned, alpha=-group["lr"] * size)


def _blocks(name: str, fused: Mapping[str, int]) -> int:
    return next((count for glob, count in fused.items() if fnmatchcase(name, glob)), 1)
