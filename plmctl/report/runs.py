"""What a run directory says about itself, and the page made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.errors import DataError
from plmctl.report.chart import Curve, line_chart
from plmctl.report.page import Block, Chart, Heading, Table, Text, write_page

# the settings a reader wants to see first; a run lacks the ones its command does not have
_CHOICES = (
    "data.path", "tokenizer.kind", "tokenizer.vocab_size", "objective", "noise", "format", "size", "optim.lr", "schedule",
    "task.path", "checkpoint", "train.batch_size", "train.precision", "train.steps", "train.tokens", "train.epochs",
    "train.minutes", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class RunLog:
    """One run directory, read: `series` maps a metric name to its (step, value) points."""

    folder: Path
    config: dict[str, Any]
    series: dict[str, Curve]

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def read(cls, folder: Path) -> RunLog:
        """Needs `metrics.jsonl`; DataError where it is missing, empty or broken (but for a last line that a kill cut short)."""
        file = folder / "metrics.jsonl"
        if not file.is_file():
            raise DataError("this is not a run directory: no metrics.jsonl in it", file=folder)
        series: dict[str, list[tuple[float, float]]] = {}
        text = file.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            for name, point in _points(line, file, number):
                series.setdefault(name, []).append(point)
        if not series:
            raise DataError("no metric has been logged yet", file=file)
        return cls(folder, _config(folder), dict(series))

    def last(self, name: str) -> float | None:
        """The last value of a metric, None where it was never logged."""
        return self.series[name][-1][1] if name in self.series else None

    def curves(self, group: str) -> dict[str, Curve]:
        """The curves under `group` ("loss"), training and evaluation alike: `{"loss/mlm": ..., "valid/loss/mlm": ...}`."""
        return {name: curve for name, curve in self.series.items() if group in name.split("/")[:-1] or name == group}


def write_report(folders: Sequence[Path], out: Path) -> list[Path]:
    """A page on one run, or on several side by side: numbers, curves, settings, layers; returns the files written."""
    logs = [RunLog.read(folder) for folder in folders]
    from plmctl.report.layers import panel  # brings torch, which whoever reads logs does not need

    return write_page(report_blocks(logs) + panel(list(zip(_names(logs), folders, strict=True))), out)


def report_blocks(logs: Sequence[RunLog]) -> list[Block]:
    """The blocks of the page on `logs`."""
    names = _names(logs)
    blocks: list[Block] = [Heading("Report", 1), Text(f"Runs: {', '.join(str(log.folder) for log in logs)}.")]
    metrics = sorted({name for log in logs for name in log.series})
    finals = [[metric, *(_number(log.last(metric)) for log in logs)] for metric in metrics]
    blocks += [Heading("Last values"), Table(["metric", *names], finals)]
    blocks.append(Heading("Curves"))
    for group, title in (("loss", "Loss, nats"), ("acc", "Accuracy")):
        curves = {
            name if len(logs) == 1 else f"{run}: {name}": curve
            for run, log in zip(names, logs, strict=True)
            for name, curve in log.curves(group).items()
        }
        if curves:
            blocks.append(Chart(group, line_chart(curves, title=title, x="update", y=group)))
    rows = [[path, *(_setting(log.config, path) for log in logs)] for path in _CHOICES]
    rows = [row for row in rows if any(row[1:])]
    if rows:
        blocks += [Heading("Settings"), Table(["setting", *names], rows)]
    return blocks


def _points(line: str, file: Path, number: int) -> list[tuple[str, tuple[float, float]]]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or "step" not in record:
        raise DataError("not a JSON object with a 'step'", file=file, line=number)
    step = float(record["step"])
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    return [(name, (step, float(value))) for name, value in numbers.items() if name not in ("step", "share")]


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.yaml"
    if not file.is_file():
        return {}
    import yaml

    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}


def _names(logs: Sequence[RunLog]) -> list[str]:
    """Folder names, or whole paths where two runs share a name."""
    short = [log.name for log in logs]
    return short if len(set(short)) == len(short) else [str(log.folder) for log in logs]


def _setting(config: dict[str, Any], path: str) -> str:
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict):
        return ", ".join(_part(name, part) for name, part in value.items() if name != "_partial_")
    return "" if value is None else str(value)


def _part(name: str, part: Any) -> str:
    if name == "_target_":
        return str(part).rpartition(".")[2]
    if isinstance(part, dict):
        return str(part.get("_target_", name)).rpartition(".")[2]
    return f"{name}={part}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 10_000 else f"{value:.4g}"
