"""The facts about a run before it begins: its costs, its length, the metrics that it will have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from plmctl.artifacts.latency import measure_latency
from plmctl.config.glossary import token_targets
from plmctl.config.schema import Finetune, Pretrain
from plmctl.config.spec import thaw
from plmctl.nn.last_maps import find_last_maps
from plmctl.runs.check import Outline, outline_pretraining
from plmctl.runs.estimate import count_row, estimate, estimate_task
from plmctl.runs.pair_sample import ACCURACY
from plmctl.runs.resolve import resolve_finetuning
from plmctl.runs.side_tasks import count_updates
from plmctl.tasks import inference

FALLING = ("loss", "bits_per", "perplexity")  # in names of metrics of which lower is better


@dataclass(frozen=True)
class Prospects:
    """The facts about a run before it begins.

    Args:
        costs: Parameters, forward multiply-adds of a token (macs), training FLOPs of an update, and
            milliseconds of a row (latency) where they are measured.
        updates: The updates of the whole run; 0 where they are not known.
        metrics: {metric of its held-out data: whether lower is better}.
        first: The usual metric.
    """

    costs: Mapping[str, float]
    updates: int
    metrics: Mapping[str, bool]
    first: str


def foresee_pretraining(spec: Pretrain, *, timed: bool = False) -> Prospects:
    """The facts about a pretraining; `timed`: the time of a row is measured, too."""
    outline = outline_pretraining(spec)
    targets = token_targets(thaw(spec), spec.plugins)
    names = list_validation_metrics(
        outline,
        targets,
        grad_norms=spec.train.grad_norms,
        pairs=spec.eval.minimal_pairs is not None,
    )
    metrics = {name: is_falling(name) for name in sorted(names)}
    read, written, _ = count_row(spec)
    costs = _sum_up(estimate(spec, outline, traced=False))
    if timed:
        costs["latency"] = measure_latency(outline.model, (read, written))
    return Prospects(costs, spec.train.steps or 0, metrics, "loss")


def foresee_finetuning(spec: Finetune, *, timed: bool = False) -> Prospects:
    """The same of a fine-tuning, whose files are read."""
    # no folder is made, and none is looked for
    spec, task, outline = resolve_finetuning(spec.replace({"run.dir": "."}))
    metrics = {name: not task.directions.larger(name) for name in (*task.metrics, "loss")}
    examples = len(inference.take_share(task.read("train"), spec.train.share))
    updates = count_updates(spec, examples, max(task.lengths.sides))
    report = estimate_task(spec, outline, task, updates=updates, traced=False)
    costs, whole = _sum_up(report), report["run"]["updates"]
    if timed:
        costs["latency"] = measure_latency(outline.model, task.lengths.sides)
    first = spec.train.best_metric or task.metrics[0]
    return Prospects(costs, whole if isinstance(whole, int) else 0, metrics, first)


def _sum_up(report: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The costs in the report of an estimate."""
    run = report["run"]
    return {
        "parameters": float(sum(report["parameters"].values())),
        "macs": float(sum(report["macs_per_token"].values())),
        "flops": float(run["training FLOPs per token"] * run["tokens per update, at most"]),
    }


def is_falling(name: str) -> bool:
    """Whether lower is better, by the name of a metric of a pretraining."""
    return any(word in name for word in FALLING)


def list_validation_metrics(
    outline: Outline, targets: Collection[str], *, grad_norms: bool, pairs: bool
) -> frozenset[str]:
    """The validation metrics of a pretraining: losses, accuracies, bits per byte of targets made of
    tokens, and what else its objective measures; with `pairs`, the accuracy on minimal pairs.
    """
    terms = outline.objective.facts.terms
    names = {f"{kind}/{name}" for name in terms for kind in ("loss", "acc")}
    names |= {f"bits_per_byte/{name}" for name in terms.intersection(targets)}
    if pairs:
        names.add(ACCURACY)
    if grad_norms:
        names |= {f"start/grad_norm/{name}" for name in find_last_maps(outline.model)}
    return frozenset({"loss", *names, *outline.objective.facts.measures})
