"""Fine-tuned models that score no better than models without pretraining, in plain words."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from plmctl.core.rounding import round_floats
from plmctl.tasks.scores.metrics import is_larger_better

FILE = "baselines.json"  # a file of a run: the scores of models without pretraining
UNBEATEN = "baselines not beaten"  # the name of the lines in tables of scores
Scores = Mapping[str, Mapping[str, float | None]]  # {split: {metric: value}}
Simple = Mapping[str, Mapping[str, Mapping[str, float]]]  # {split: {model: {metric: value}}}


def list_unbeaten(
    scores: Scores, simple: Simple, metric: str, *, lower: Collection[str] = ()
) -> list[str]:
    """A line for each split on which a model without pretraining has as good a score, or a better
    one. Scores are equal where their stored digits are.

    Args:
        scores: The scores of the fine-tuned model.
        simple: The scores of the others, on the same examples.
        metric: the first one of the task.
        lower: The metrics of the task of which a lower value is better.
    """
    lines, sign = [], 1 if is_larger_better(metric, lower) else -1
    for split, own in scores.items():
        if (value := own.get(metric)) is None:
            continue
        known = {name: of[metric] for name, of in simple.get(split, {}).items() if metric in of}
        ahead = {name: sign * _subtract(other, value) for name, other in known.items()}
        worse = any(gain > 0 for gain in ahead.values())
        named = [name for name, gain in ahead.items() if gain > 0 or (gain == 0 and not worse)]
        if not named:
            continue
        how, end = ("worse than", "better") if worse else ("no better than", "as well")
        others = ", ".join(f"{name} {known[name]:.4f}" for name in named)
        lines.append(
            f"{split}: {metric} {value:.4f} is {how} without pretraining ({others}): a simple"
            f" model, trained in seconds on the same examples, answers {end}"
        )
    return lines


def _subtract(one: float, other: float) -> float:
    return float(round_floats(one) - round_floats(other))
