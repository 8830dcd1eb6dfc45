"""Where what `plmctl eval calibrate=` fitted lies: `decision.json` of a checkpoint, and in Hugging
Face's layout the weights of the head and a key of `config.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.artifacts.label_rows import facts_of
from plmctl.artifacts.loading import Source
from plmctl.storage.atomic import write_json
from plmctl.storage.reading import fit_stored, read_json
from plmctl.tasks.calibration import LabelDecision

FILE = "decision.json"  # in the folder of a checkpoint
KEY = "plmctl_decision"  # in config.json of Hugging Face's layout


class _Kept(TypedDict):
    temperature: float
    threshold: float | dict[str, float] | None
    label: str | None
    fitted: str
    sure: NotRequired[float]


def read_decision(folder: Path) -> LabelDecision | None:
    """The decision that an earlier evaluation fitted for a checkpoint, or for the source of an
    exported Hugging Face folder; None without one.
    """
    if (file := folder / FILE).is_file():
        return LabelDecision(**read_json(file, _Kept))
    file = folder / "config.json"
    kept = read_json(file).get(KEY) if file.is_file() else None
    return None if kept is None else LabelDecision(**fit_stored(kept, _Kept, file=file))


def write_decision(decision: LabelDecision, folder: Path) -> None:
    """Keep it in the folder of a checkpoint."""
    write_json(folder / FILE, asdict(decision))


def spell_decision(decision: LabelDecision | None) -> dict[str, Any]:
    """The part of it that goes to the `config.json` of an export."""
    if decision is None or decision == LabelDecision(fitted=decision.fitted):
        return {}
    return {KEY: asdict(decision)}


def find_head(source: Source) -> str:
    """`heads.<name>` of the task that the model was fine-tuned on; of an imported one that of
    classes.
    """
    task = source.own_task()
    return f"heads.{facts_of(task, source.plugins).head if task else 'class'}"


def fold_temperature(source: Source, decision: LabelDecision) -> tuple[Source, LabelDecision]:
    """The model whose last linear layer divides its logits by the temperature, `z / T = (W / T) h +
    b / T`, and what is left of the decision; both as they are where the head ends otherwise.
    """
    layer = f"{find_head(source)}.linear"
    if f"{layer}.weight" not in source.tensors:
        return source, decision
    own = {
        name: source.tensors[name] / decision.temperature
        for name in (f"{layer}.weight", f"{layer}.bias")
        if name in source.tensors
    }
    return replace(source, tensors={**source.tensors, **own}), replace(decision, temperature=1.0)


def describe_export(whole: LabelDecision, left: LabelDecision) -> Iterator[str]:
    """The facts of a decision that a user of the export needs, and those of its part `left` when
    its temperature was folded.
    """
    fitted = f", fitted on {whole.fitted}," if whole.fitted else ""
    if whole.temperature != left.temperature:
        temperature = f"the temperature {whole.temperature:.4g}{fitted}"
        yield f"{temperature} is in the weights: the softmax has the calibrated probabilities"
    elif left.temperature != 1:
        temperature = f"the temperature {left.temperature:.4g}{fitted}"
        yield f"{temperature} is in config.json ({KEY}), and only plmctl divides logits by it"
    where = f"is in config.json ({KEY}): plmctl uses it, and transformers does not"
    if left.sure:
        yield f"unsure below a probability of {left.sure:.4g}{fitted} {where}"
    if left.threshold is None:
        return
    if left.label:
        rule = f"{left.label} from a probability of {left.threshold:.4g} on"
    else:
        rule = replace(left, temperature=1.0, fitted="", sure=0.0).describe()
    yield f"{rule}{fitted} {where}"
