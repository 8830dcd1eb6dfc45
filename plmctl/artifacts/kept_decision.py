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
from plmctl.tasks.calibration import SURE, TEMPERATURE, THRESHOLD, LabelDecision
from plmctl.tasks.fitted_rows import FittedRows

FILE = "decision.json"  # in the folder of a checkpoint
KEY = "plmctl_decision"  # in config.json of Hugging Face's layout


class _FittedRows(TypedDict):
    split: str
    rows: int
    files: list[str]
    sample: str


class _Kept(TypedDict):
    temperature: float
    threshold: float | dict[str, float] | None
    label: str | None
    fitted: str | dict[str, list[_FittedRows]]  # earlier versions: the split of all parts
    sure: NotRequired[float]
    goal: NotRequired[float]


def read_decision(folder: Path) -> LabelDecision | None:
    """The decision that an earlier evaluation fitted for a checkpoint, or for the source of an
    exported Hugging Face folder; None without one.
    """
    if (file := folder / FILE).is_file():
        return _parse(read_json(file, _Kept))
    file = folder / "config.json"
    kept = read_json(file).get(KEY) if file.is_file() else None
    return None if kept is None else _parse(fit_stored(kept, _Kept, file=file))


def _parse(kept: dict[str, Any]) -> LabelDecision:
    """The decision of a file."""
    fitted, rest = kept["fitted"], {name: kept[name] for name in kept if name != "fitted"}
    if isinstance(fitted, str):
        return LabelDecision.fitted_on(fitted, **rest)
    origins = {
        part: tuple(
            FittedRows(own["split"], own["rows"], tuple(own["files"]), own["sample"])
            for own in known
        )
        for part, known in fitted.items()
    }
    return LabelDecision(**rest, fitted=origins)


def write_decision(decision: LabelDecision, folder: Path) -> None:
    """Keep it in the folder of a checkpoint."""
    write_json(folder / FILE, asdict(decision))


def spell_decision(decision: LabelDecision | None) -> dict[str, Any]:
    """The part of it that goes to the `config.json` of an export."""
    if decision is None or decision == LabelDecision(fitted=decision.fitted):
        return {}
    fitted = {
        part: tuple(replace(own, sample="") for own in origins)  # no text can be known by it
        for part, origins in decision.fitted.items()
    }
    return {KEY: asdict(replace(decision, fitted=fitted))}


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

    def spell(part: str) -> str:
        origin = whole.spell_origin(part)
        return f", fitted on {origin}," if origin else ""

    if whole.temperature != left.temperature:
        temperature = f"the temperature {whole.temperature:.4g}{spell(TEMPERATURE)}"
        yield f"{temperature} is in the weights: the softmax has the calibrated probabilities"
    elif left.temperature != 1:
        temperature = f"the temperature {left.temperature:.4g}{spell(TEMPERATURE)}"
        yield f"{temperature} is in config.json ({KEY}), and only plmctl divides logits by it"
    where = f"is in config.json ({KEY}): plmctl uses it, and transformers does not"
    if left.sure:
        yield f"unsure below a probability of {left.sure:.4g}{spell(SURE)} {where}"
    if left.threshold is None:
        return
    if left.label:
        rule = f"{left.label} from a probability of {left.threshold:.4g} on"
    else:
        rule = LabelDecision(threshold=left.threshold).describe()
    yield f"{rule}{spell(THRESHOLD)} {where}"
