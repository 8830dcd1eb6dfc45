"""`torch.compile` where it pays and where it can work; names of parameters do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import find_compiler
from plmctl.core.terminal import tell
from plmctl.heads.base import Head
from plmctl.models.base import Backbone, Hidden

# Seconds of computing from which compiling pays on a GPU, of a run, since it takes 20 to 60
# seconds, and of one pass: a shorter one waits for Python, compiled or not (H200: 4,096 tokens of
# models of 2 and 4 layers became slower, 65,536 of 12 layers faster)
RUN, PASS = 60, 3e-3
OFTEN = 100  # batches of a kind after which it is compiled for, too: about as long as it takes


def compile_backbone(
    backbone: Backbone,
    mode: str | bool,
    device: torch.device,
    *,
    waste: str = "",
    say: Callable[[str], None] = tell,
) -> bool:
    """Compile `backbone` in place (at its first call) and return whether it will be compiled.

    `auto`: on a GPU, unless it is a `waste` (`describe_waste`); not on a CPU, where compiling takes
    longer than short runs gain. Without a C++ compiler one line says so and the run continues
    uncompiled.
    """
    mode = {"true": True, "false": False}.get(str(mode).lower(), mode)
    if mode not in (True, False, "auto"):
        raise ConfigError("train.compile", mode, "auto, true or false")
    if mode is False or (mode == "auto" and device.type != "cuda"):
        return False
    if mode == "auto" and waste:
        say(f"train.compile=auto: not compiled, {waste} (train.compile=true compiles)")
        return False
    if not find_compiler():
        say("train.compile: no C++ compiler found, continuing without (set CXX, or install g++)")
        return False
    # a graph that cannot be compiled runs as it is, with torch's warning
    torch._dynamo.config.suppress_errors = True
    backbone.compile()
    backbone._compiled_call_impl = PatientCall(backbone._call_impl, backbone._compiled_call_impl)
    return True


def describe_waste(*, of_pass: float, of_run: float | None) -> str:
    """Why compiling would cost more than it spares, or "".

    Args:
        of_pass: Seconds that a GPU computes for one pass, forward and backward.
        of_run: For all of them; None: not known.
    """
    if of_pass < PASS:
        return f"{1e3 * of_pass:.2g} ms of computing a pass are too little to gain"
    if of_run is not None and of_run < RUN:
        return f"{of_run:.2g} s of computing in this run are less than it takes to compile"
    return ""


class PatientCall:
    """Calls `compiled` for batches of the first kind, and of every kind that has come up `OFTEN`
    times; for others `plain`, the same computation.

    A new kind is compiled anew, which takes as long as hundreds of updates: it is not worth it for
    the one row of a corpus that is not full, or for a short validation. Only the length of its rows
    does not make another kind.
    """

    def __init__(self, plain: Callable[..., Hidden], compiled: Any) -> None:
        self.plain, self.compiled = plain, compiled
        self.seen: Counter[Hashable] = Counter()

    def __call__(
        self, batch: Batch, state: Any = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        kind = describe_kind(batch, state, record)
        self.seen[kind] += 1
        known = self.seen[kind] > OFTEN or kind == next(iter(self.seen))
        return (self.compiled if known else self.plain)(batch, state, record)


def describe_kind(batch: Batch, state: Any, record: frozenset[str]) -> Hashable:
    """What a compiled graph is made for, beside the length of rows."""
    seqs = tuple(
        (name, len(seq.ids), seq.full, tuple(sorted(seq.tracks)))
        for name, seq in sorted(batch.seqs.items())
    )
    return seqs, tuple(sorted(batch.spans)), state is None, record, torch.is_grad_enabled()


def compile_losses(modules: Iterable[nn.Module], device: torch.device) -> None:
    """Have the heads in `modules` compile what their losses do with logits; only on a GPU: on a CPU
    they go by its caches.
    """
    for part in (part for module in modules for part in module.modules()):
        if isinstance(part, Head):
            part.compiled = device.type == "cuda"
