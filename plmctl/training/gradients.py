"""The size of each layer's gradient, which shows whether a model can begin without warm-up (Xiong
et al., 2020).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plmctl.training.optim.shards import find_norms


def measure_gradient_norms(weights: Mapping[str, Tensor]) -> dict[str, float]:
    """`||dL / dW||_2` of each weight with a gradient (Xiong et al., 2020, arXiv:2002.04745, sec.
    3.4, fig. 3).
    """
    live = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    norms = find_norms(list(live.values()))
    return {f"start/grad_norm/{name}": norm.item() for name, norm in zip(live, norms, strict=True)}
