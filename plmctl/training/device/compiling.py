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
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.training.budget import Budget

# Seconds of computing from which compiling pays on a GPU, of a run and of one pass. Compiling takes
# 20 to 60 seconds. A shorter pass waits for Python, compiled or not (H200: 4,096 tokens of models
# of 2 and 4 layers became slower, 65,536 of 12 layers faster)
RUN, PASS = 60, 3e-3
OFTEN = 100  # batches of a kind after which it is compiled for, too: about as long as it takes


def find_whether(
    mode: str | bool, device: torch.device, *, waste: str = "", say: Callable[[str], None] = tell
) -> bool:
    """Whether models are compiled.

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
    return True


def compile_parts(modules: Iterable[nn.Module], device: torch.device) -> None:
    """Compile the backbones in `modules` in place, each at its first call and with those inside it;
    on a GPU also what the losses of their heads do with logits, which on a CPU go by its caches.
    """
    # a graph that cannot be compiled runs as it is, with torch's warning
    torch._dynamo.config.suppress_errors = True
    parts = dict.fromkeys(part for module in modules for part in module.modules())
    whole = [part for part in parts if isinstance(part, Backbone)]
    inside = {inner for part in whole for inner in part.modules() if inner is not part}
    for part in parts:
        if isinstance(part, Backbone) and part not in inside:
            part.compile()
            part._compiled_call_impl = PatientCall(part._call_impl, part._compiled_call_impl)
        elif isinstance(part, Head):
            part.compiled = device.type == "cuda"


def foresee_waste(
    budget: Budget, model: Model, *, rows: tuple[int, int], length: int, processes: int, rate: float
) -> str:
    """Why compiling would not pay in this run, or "": every weight counts 6 operations a token.

    Args:
        budget: The end of the run.
        rows: The rows of an update, and of a pass, of one process.
        length: Tokens of a row.
        rate: FLOP/s that one process reaches; 0: not known.
    """
    if not rate:
        return ""
    seconds = 6 * sum(p.numel() for p in model.parameters()) * length / rate  # seconds of a row
    run = None if budget.minutes is None else 60 * budget.minutes
    if budget.steps is not None:
        run = budget.steps * rows[0] * seconds
    elif (read := budget.tokens or budget.words) is not None:  # a word is at least a token
        run = read / processes / length * seconds
    return describe_waste(of_pass=rows[1] * seconds, of_run=run)


def describe_waste(*, of_pass: float, of_run: float | None) -> str:
    """Why compiling would cost more than it spares, or "".

    Args:
        of_pass: Seconds that a GPU computes for one pass, forward and backward.
        of_run: The seconds of all passes; None: not known.
    """
    if of_pass < PASS:
        return f"{1e3 * of_pass:.2g} ms of computing a pass are too little to gain"
    if of_run is not None and of_run < RUN:
        return f"{of_run:.2g} s of computing in this run are less than it takes to compile"
    return ""


class PatientCall:
    """Calls `compiled` for batches of the first kind, and of every kind that has come up `OFTEN`
    times; for others `plain`, the same computation.

    A new kind is compiled anew, which takes as long as hundreds of updates. It does not pay for the
    one row of a corpus that is not full, or for a short validation. Batches of a kind may have rows
    of any length; all of them that have another number of rows than the first one are a kind of
    their own.
    """

    def __init__(self, plain: Callable[..., Hidden], compiled: Any) -> None:
        self.plain, self.compiled = plain, compiled
        self.seen: Counter[Hashable] = Counter()
        self.rows: dict[Hashable, int] = {}  # rows of the first batch of a kind

    def __call__(
        self, batch: Batch, state: Any = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        kind, rows = describe_kind(batch, state, record), len(batch.key)
        key = (kind, rows == self.rows.setdefault(kind, rows))
        self.seen[key] += 1
        known = self.seen[key] > OFTEN or key == next(iter(self.seen))
        return (self.compiled if known else self.plain)(batch, state, record)


def describe_kind(batch: Batch, state: Any, record: frozenset[str]) -> Hashable:
    """The facts that a compiled graph depends on, except the number and the length of rows."""
    seqs = tuple(
        (name, seq.full, tuple(sorted(seq.tracks))) for name, seq in sorted(batch.seqs.items())
    )
    return seqs, tuple(sorted(batch.spans)), state is None, record, torch.is_grad_enabled()
