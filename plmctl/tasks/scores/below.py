"""Fine-tuned models that score below models without pretraining, in plain words."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from plmctl.tasks.scores.metrics import is_larger_better

FILE = "baselines.json"  # a file of a run: the scores of models without pretraining
Scores = Mapping[str, Mapping[str, float | None]]  # {split: {metric: value}}
Simple = Mapping[str, Mapping[str, Mapping[str, float]]]  # {split: {model: {metric: value}}}


def list_below(
    scores: Scores, simple: Simple, metric: str, *, lower: Collection[str] = ()
) -> list[str]:
    """A line for each split on which models without pretraining have a better score.

    Args:
        scores: The scores of the fine-tuned model.
        simple: The scores of the others, on the same examples.
        metric: the first one of the task.
        lower: The metrics of the task of which a lower value is better.
    """
    lines, larger = [], is_larger_better(metric, lower)
    for split, own in scores.items():
        value = own.get(metric)
        if value is None:
            continue
        better = {
            name: known[metric]
            for name, known in simple.get(split, {}).items()
            if metric in known and (known[metric] > value if larger else known[metric] < value)
        }
        if better:
            named = ", ".join(f"{name} {known:.4f}" for name, known in better.items())
            lines.append(
                f"{split}: {metric} {value:.4f} is worse than without any pretrained model"
                f" ({named}): this model has learned less than can be counted"
            )
    return lines
