"""What finetune and eval share: one split scored, its predictions written, a table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plmctl.attention.patterns import Pattern
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import screen, tell
from plmctl.models.base import Backbone, Model
from plmctl.run.assemble import row_lengths
from plmctl.run.build import build, locate, plain
from plmctl.storage.atomic import write_text
from plmctl.storage.paths import inside
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.inference import Split
from plmctl.training.precision import Precision

# rows of an evaluation batch, the default of `plmctl eval`: the same batches give the same digits
BATCH = 32
DIGITS = 6  # significant ones of a metric


def pooling(config: Any, plugins: Sequence[str] = ()) -> str:
    """Which token stands for a row: what `model.classifier.pooling` says; else the "last" where
    some see none behind them.
    """
    told = (config["model"].get("classifier") or {}).get("pooling")
    if told:
        return str(told)
    pattern = pattern_of(config, plugins)
    return "first" if all(pattern.looks_ahead(segment) for segment in (0, 1)) else "last"


def reading(config: Any, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """What tasks ask about the model of `config`.

    `kind`: its class; `pooling`: which token stands for a row; `writes`: the sequence that is
    written; `directed`: no token of what is written sees a later one; `causal`: no token of any
    text does; `segments`: numbers of what is read and written.
    """
    part = locate(config["model"]["_target_"], plugins)
    writes = getattr(part, "writes", "text")
    pattern = pattern_of(config, plugins)
    read, written = pattern.prefix_segments or (0, 1)
    directed = writes == "target" or (writes == "text" and not pattern.looks_ahead(written))
    causal = writes == "text" and not pattern.looks_ahead()
    return {
        "kind": part.__name__,
        "pooling": pooling(config, plugins),
        "writes": writes,
        "directed": directed,
        "causal": causal,
        "segments": (read, written),
    }


def remark_on_pattern(
    config: Any, backbone: Backbone, plugins: Sequence[str], length: int | None = None
) -> dict[str, str]:
    """{"pattern": what one should know of it in rows of `length` tokens, of the formats without
    one}; or nothing.
    """
    longest = max(row_lengths(plain(config)).values()) if length is None else length
    told = pattern_of(config, plugins).remark(longest + getattr(backbone, "memory", 0))
    return {"pattern": told} if told else {}


def pattern_of(config: Any, plugins: Sequence[str]) -> Pattern:
    pattern: Pattern = build(config["pattern"], plugins=plugins, path="pattern")
    return pattern


def predict(
    model: Model,
    task: Task,
    split: Split,
    *,
    precision: Precision,
    batch_size: int = BATCH,
    digits: int | None = None,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """(predictions, metrics with the mean loss) of one split; no metrics where it has no labels.

    `digits`: how many significant ones the numbers of predictions keep, before they are scored;
    None: all.
    """
    training = model.training
    model.eval()
    with torch.no_grad(), precision.autocast():
        found, loss = inference.predictions(
            model, task, split, batch_size=batch_size, device=precision.device
        )
    model.train(training)
    found = found if digits is None else rounded(found, digits)
    labelled = loss is not None and all(
        example.label is not None or "answers" in example.fields for example in split.examples
    )
    return found, {**task.score(found), "loss": loss} if labelled and loss is not None else {}


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """`value`, plain data, with so many significant digits of every float in it."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(part, digits) for key, part in value.items()}
    return [rounded(part, digits) for part in value] if isinstance(value, list | tuple) else value


def write_predictions(folder: Path, split: str, predictions: Sequence[Mapping[str, Any]]) -> Path:
    """`<folder>/<split>.jsonl`, one prediction a line."""
    folder.mkdir(parents=True, exist_ok=True)
    file = inside(folder, f"{split}.jsonl", partial(ConfigError, "split", split))
    write_text(file, "".join(json.dumps(p, ensure_ascii=False) + "\n" for p in predictions))
    return file


def write_submission(folder: Path, name: str, predictions: Sequence[Mapping[str, Any]]) -> Path:
    """A file as GLUE's server takes it: `index <tab> prediction`, labels by name, scores with
    three digits.
    """
    file = submission(folder, name)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        (
            f"{p['id']}\t{p['guess']:.3f}"
            if isinstance(p["guess"], float)
            else f"{p['id']}\t{p['guess']}"
        )
        for p in predictions
    ]
    write_text(file, "\n".join(["index\tprediction", *lines]) + "\n")
    return file


def submission(folder: Path, name: str) -> Path:
    """Where that file is; ConfigError for a name that leads out of `folder`."""
    return inside(folder, name, partial(ConfigError, "task.submission", name))


def show(
    title: str,
    metrics: Mapping[str, Mapping[str, float]],
    *,
    as_json: bool,
    extra: Mapping[str, Any],
) -> None:
    """One column a split on a terminal, or one JSON object."""
    if as_json:
        tell(json.dumps({**extra, "metrics": rounded(metrics)}))
        return
    from rich.table import Table

    table = Table(title=title)
    table.add_column("metric")
    for split in metrics:
        table.add_column(split, justify="right")
    for name in dict.fromkeys(name for column in metrics.values() for name in column):
        table.add_row(name, *(_number(column.get(name)) for column in metrics.values()))
    console = screen()
    if metrics:
        console.print(table)
    for name, value in extra.items():
        console.print(f"{name}: {value}", soft_wrap=True)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4f}"
