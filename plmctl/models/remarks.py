"""Remarks for the user about a model in rows of a length, and kernels that cannot train it."""

from __future__ import annotations

from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.remarks import remark_on
from plmctl.core.errors import ConfigError, raise_all
from plmctl.models.base import Backbone
from plmctl.models.encoder import Encoder
from plmctl.nn.stack import Stack

JOINED = (
    "joins the tokens of a batch: in training, a causal state depends on the later tokens that it"
    " predicts; in evaluation it does not. Instead: model.stack.residual.norm=layer_norm"
)


def remark_on_model(
    backbone: Backbone, pattern: Pattern, longest: int, *, trained: bool = False
) -> dict[str, str]:
    """{"pattern", "attention", its kernel, and "columns", of cells in parallel, and
    "norm", of a batch in a causal model: a remark}.

    Args:
        longest: The tokens of the longest row.
        trained: Whether a checkpoint brings the settings of the model.

    Raises:
        ConfigError: The kernel cannot train this model.
    """
    memory = getattr(backbone, "memory", 0)
    parts = [part for part in backbone.modules() if isinstance(part, Encoder)]
    problems = find_kernel_problems(backbone, longest)
    if trained:
        problems = [
            ConfigError(error.path, error.value, error.allowed, fix=error.fix.partition(" or ")[0])
            for error in problems
        ]
    raise_all(problems)
    kernels = dict.fromkeys(_remark_on_kernel(part, longest) for part in parts)
    stacks = (part for part in backbone.modules() if isinstance(part, Stack))
    columns = dict.fromkeys(stack.columns_remark for stack in stacks)
    remarks = {
        "pattern": remark_on(pattern, longest + memory),
        "attention": "; ".join(filter(None, kernels)),
        "columns": "; ".join(filter(None, columns)),
        "norm": JOINED if any(map(_joins_later, parts)) else "",
    }
    return {name: remark for name, remark in remarks.items() if remark}


def _joins_later(encoder: Encoder) -> bool:
    """Whether norms over a batch show an encoder what its causal patterns hide."""
    joins = any(getattr(type(part), "joins_tokens", False) for part in encoder.modules())
    return joins and not all(pattern.looks_ahead() for pattern in encoder.layer_patterns)


def find_kernel_problems(backbone: Backbone, length: int) -> list[ConfigError]:
    """The kernels that cannot train in rows of up to `length` tokens."""
    errors = []
    for name, part in backbone.named_modules():
        problem = part.find_kernel_problem(length) if isinstance(part, Encoder) else None
        if problem is not None:
            inside = f"model.{name}." if name else "model."  # model.decoder.stack
            path, fix = (text.replace("model.", inside) for text in (problem.path, problem.fix))
            errors.append(ConfigError(path, problem.value, problem.allowed, fix=fix))
    return errors


def _remark_on_kernel(encoder: Encoder, length: int) -> str:
    """The remark of the kernel about the pattern of each layer; a remark about several layers
    stands once.
    """
    layers: dict[str, list[str]] = {}
    for number, pattern in enumerate(encoder.layer_patterns, start=1):
        layers.setdefault(encoder.kernel.remark(pattern, length), []).append(str(number))
    if len(layers) == 1:
        return next(iter(layers))
    return "; ".join(
        f"{remark or 'kernel dense: all pairs are computed'},"
        f" in layer{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        for remark, numbers in layers.items()
    )
