"""`--dry-run` of pretrain and finetune: what a run would cost, from its config and a vocabulary
alone; nothing is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.table import Table

from plmctl.core.progress import clock
from plmctl.core.terminal import screen, tell
from plmctl.data.loader import row_lengths
from plmctl.models.base import Model
from plmctl.nn.stack import checkpoint_stacks
from plmctl.nn.tables import real, token_rows
from plmctl.noise.base import Chain
from plmctl.run.assemble import build_model, build_objective, known_to_objectives, without_weights
from plmctl.run.build import build
from plmctl.run.check import vocabulary_size
from plmctl.run.cost import Cost, cost
from plmctl.run.model_facts import remark_on_pattern
from plmctl.run.schema import Finetune, Pretrain, Train
from plmctl.run.stand_in import TINY
from plmctl.run.teachers import outline_teacher
from plmctl.tasks.base import Task
from plmctl.tasks.generation import Generation
from plmctl.training.device.peak import peak_flops
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of

# of the device's peak: what a first estimate of the time takes; the run itself prints the real
# share
ASSUMED = 0.3


def show(spec: Pretrain, outline: Model) -> None:
    """Print parameters by part, multiply-adds by module, FLOPs, memory, tokens, updates and time
    (`--json`: as one object).
    """
    report = estimate(spec, outline)
    if spec.provenance.json:
        tell(json.dumps(report, indent=1))
    else:
        print_tables(report)


def print_tables(report: Mapping[str, dict[str, Any]]) -> None:
    """The numbers of `estimate` or `estimate_task`, for people."""
    console = screen()
    console.print(_table("Parameters", report["parameters"], total=True))
    console.print(_table("Multiply-adds per token, forward", report["macs_per_token"], total=True))
    console.print(_table("Memory of one process, bytes (estimated)", report["memory"], total=True))
    console.print(_table("The run", report["run"]))


def estimate(spec: Pretrain, outline: Model | None = None) -> dict[str, dict[str, Any]]:
    """The numbers that `show` prints.

    Args:
        outline: The model without weights, where it is built already.
    """
    train, plugins = spec.train, spec.plugins
    precision = choose(train.precision, device_of(train.device))
    with without_weights():
        size = vocabulary_size(spec)
        model = outline or build_model(spec, vocab_size=size, vocab=TINY, plugins=plugins)
        known = {"vocab": TINY, **known_to_objectives(model, vocab_size=size)}
        objective = outline_teacher(spec, model, build_objective(spec, known, plugins))
        if train.checkpoint_activations:
            checkpoint_stacks(model, objective)
        format = build(spec.format, {"vocab": TINY}, plugins, path="format")
        noises = build(spec.noise or {}, {"vocab": TINY}, plugins, path="noise")
        noise = Chain(list(noises.values()))
    length, target = row_lengths(format, noise)
    rates = [
        node.get("rate") for node in (spec.noise or {}).values() if node.get("rate") is not None
    ]
    share = (
        noise.capacity(length).get("seq2seq", target) / (length + target)
        if target
        else rates[0]
        if rates
        else 1.0
    )
    helped = {name for _, names in objective.facts.helpers for name in names}
    predicted = dict.fromkeys([*model.heads, *helped], share)
    costs = cost(
        model, length=length, target_length=target, predicted=predicted, objective=objective
    )
    micro = train.micro_batch_size or max(1, train.batch_size // train.processes)
    told = _vocabulary(model) | remark_on_pattern(spec, model.backbone, plugins)
    bytes_each = 4 if precision.name == "fp32" else 2
    return {
        "parameters": costs.parameters,
        "macs_per_token": {name: round(value) for name, value in costs.macs_per_token.items()},
        "memory": {
            name: round(value)
            for name, value in costs.memory(rows=micro, activation_bytes=bytes_each).items()
        },
        "run": told | _decided(spec) | _run(train, costs, length + target, peak_flops(precision)),
    }


def estimate_task(
    spec: Finetune, model: Model, task: Task, *, updates: int
) -> dict[str, dict[str, Any]]:
    """The same of a fine-tuning of so many updates an epoch, whose rows are at most as long as
    the task allows.
    """
    train = spec.train
    if train.epochs and not train.steps:
        train = replace(train, steps=math.ceil(train.epochs * updates))
    precision = choose(train.precision, device_of(train.device))
    written = task.max_target if isinstance(task, Generation) else 0
    apart = written if isinstance(task, Generation) and task.writes == "target" else 0
    length = task.max_length if apart else task.longest
    predicted = dict.fromkeys(model.heads, written / (length + apart))
    objective = outline_teacher(spec, model, task)
    if train.checkpoint_activations:
        checkpoint_stacks(model, objective)
    costs = cost(
        model, length=length, target_length=apart, predicted=predicted, objective=objective
    )
    trained = sum(
        p.numel() for p in real(model, dict(model.named_parameters())).values() if p.requires_grad
    )
    micro = train.micro_batch_size or max(1, train.batch_size // train.processes)
    memory = costs.memory(rows=micro, activation_bytes=4 if precision.name == "fp32" else 2)
    memory |= {"gradients": 4.0 * trained, "optimizer": 8.0 * trained}
    return {
        "parameters": costs.parameters,
        "macs_per_token": {name: round(value) for name, value in costs.macs_per_token.items()},
        "memory": {name: round(value) for name, value in memory.items()},
        "run": {
            "parameters that are trained": trained,
            **_decided(spec),
            **_run(train, costs, length + apart, peak_flops(precision)),
        },
    }


def _decided(spec: Pretrain | Finetune) -> dict[str, str]:
    """What was decided for the whole run that its settings may have left open."""
    there = {"precision": spec.train.precision, "run.dir": spec.run.dir}
    return {name: value for name, value in there.items() if value not in (None, "auto")}


def _vocabulary(model: Model) -> dict[str, str]:
    """What of the tables is not counted above."""
    named, rows = dict(model.named_parameters()), token_rows(model)
    name = next((name for name in named if name in rows and len(named[name]) > rows[name]), None)
    if name is None:
        return {}
    return {
        "vocabulary": (
            f"{rows[name]:,} tokens in tables of {len(named[name]):,} rows;"
            " spare ones are not counted above"
        )
    }


def _run(train: Train, costs: Cost, length: int, peak: float | None) -> dict[str, Any]:
    per_update = train.batch_size * length
    tokens = train.tokens or (train.steps * per_update if train.steps else None)
    found: dict[str, Any] = {
        "training FLOPs per token": round(costs.flops_per_token),
        "tokens per update, at most": per_update,
        "updates": (
            train.steps
            or (
                math.ceil(train.tokens / per_update)
                if train.tokens
                else "known once the corpus is tokenized"
            )
        ),
        "tokens": tokens or "known once the corpus is tokenized",
    }
    if train.minutes:
        found |= {
            "updates": "as many as fit",
            "tokens": "as many as fit",
            "time": clock(60 * train.minutes),
        }
    elif tokens:
        found["training FLOPs"] = f"{costs.flops_per_token * tokens:.3g}"
        if peak:
            found[f"time at {ASSUMED:.0%} of this device's {peak / 1e12:.2f} TFLOP/s"] = clock(
                (costs.flops_per_token + costs.recomputed_flops_per_token)
                * tokens
                / (ASSUMED * peak * train.processes)
            )
    return found


def _table(title: str, rows: dict[str, Any], *, total: bool = False) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    if total:
        table.add_section()
        table.add_row("total", f"{sum(rows.values()):,}")
    return table
