"""The settings in which runs differ, for a single run its most important ones; and all settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.analysis.runs import CONFIG, find_standing
from plmctl.config.first_session import read_first_session
from plmctl.config.walks import leaves
from plmctl.core.used_cells import drop_unused_cells
from plmctl.report.page import Block, Code, Folded, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject
from plmctl.report.text import describe_warmup, format_setting
from plmctl.storage.reading import read_text

FIRST = (
    "data.path",
    "tokenizer.kind",
    "tokenizer.vocab_size",
    "objective",
    "noise",
    "format",
    "size",
    "optim",
    "optim.lr",
    "schedule",
    "peft",
    "stabiliser",
    "pruning",
    "task.name",
    "task.path",
    "task.max_length",
    "task.class_weights",
    "checkpoint",
    "train.batch_size",
    "train.batch_tokens",
    "train.precision",
    "train.steps",
    "train.tokens",
    "train.words",
    "train.epochs",
    "train.minutes",
    "train.least_steps",
    "train.lr_width",
    "train.trainable",
    "seed",
)
# settings that not all runs have, as those of a pretraining and a fine-tuning: more are folded
FEW = 12
CONFIGS = 8  # runs whose settings are all shown; of more, only those of the first
OWN = ("run.", "train.threads")  # settings that no reader compares


@panel_of(Subject, order=85, title="Settings")
def choices(subject: Subject) -> list[Block]:
    """A table of the most important settings of a single run."""
    configs = _read_configs(subject)
    if len(configs) != 1:
        return []
    # a run from a checkpoint has the tokenizer of that
    unused = "tokenizer." if configs[0].get("checkpoint") else "-"
    rows = [
        [path, part]
        for path in FIRST
        if not path.startswith(unused) and (part := _find_choice(configs[0], path))
    ]
    log = subject.runs[0].log
    made = log.step if find_standing(log).state == "finished" else None
    steps = (configs[0].get("train") or {}).get("steps") or made
    if warmup := describe_warmup(configs[0].get("schedule") or {}, steps):
        rows.append(["warm-up", warmup])
    return [TableBlock(["setting", subject.runs[0].name], rows)]


@panel_of(Subject, order=3)
def panel(subject: Subject) -> list[Block]:
    """A table of the settings in which several runs differ."""
    configs = _read_configs(subject)
    if len(configs) < 2:
        return []
    names = [run.name for run in subject.runs]
    code = [{"code": dict(read_first_session(run.folder).code)} for run in subject.runs]
    rows = find_differences([config | own for config, own in zip(configs, code, strict=True)])
    if not rows:
        return [
            Heading("Settings that differ"),
            Paragraph("None: these runs have the same settings."),
        ]
    shared = [row for row in rows if all(row[1:])]
    if len(rows) - len(shared) <= FEW:
        return [Heading("Settings that differ"), TableBlock(["setting", *names], rows)]
    others = [row for row in rows if not all(row[1:])]
    folded = Folded(
        f"{len(others)} settings that not all of them have",
        [TableBlock(["setting", *names], others)],
    )
    shown = [*_parts(configs, others), *shared]
    return [
        Heading("Settings that differ"),
        *([TableBlock(["setting", *names], shown)] if shown else []),
        folded,
    ]


def _read_configs(subject: Subject) -> list[dict[str, Any]]:
    """The configs of the runs; empty where none has one."""
    # runs of older versions have saved all cells
    configs = [drop_unused_cells(run.log.config) for run in subject.runs]
    return configs if any(configs) else []


def _parts(configs: list[dict[str, Any]], rows: list[list[str]]) -> list[list[str]]:
    """The chosen parts of the slots in which runs differ."""
    slots = dict.fromkeys(path.split(".")[0] for path, *_ in rows)
    parts = [[slot, *(_name_part(config.get(slot)) for config in configs)] for slot in slots]
    return [row for row in parts if len(set(row[1:])) > 1]


def _name_part(slot: Any) -> str:
    """The class of a part, or the names of the parts in a slot."""
    if not isinstance(slot, dict):
        return ""
    inner = [
        str(name) for name, part in slot.items() if isinstance(part, dict) and "_target_" in part
    ]
    return format_setting(slot["_target_"]) if "_target_" in slot else ", ".join(inner)


def find_differences(configs: list[dict[str, Any]]) -> list[list[str]]:
    """One line for each setting that differs; the cell of a run without it is empty."""
    settings = [dict(leaves(config)) for config in configs]
    paths = dict.fromkeys(
        path for run_settings in settings for path in run_settings if not path.startswith(OWN)
    )
    rows = []
    for path in paths:
        cells = [
            format_setting(run_settings[path]) if path in run_settings else ""
            for run_settings in settings
        ]
        if any(
            run_settings.get(path, ...) != settings[0].get(path, ...)
            for run_settings in settings[1:]
        ):
            rows.append([path, *cells])
    return rows


def _find_choice(config: Mapping[str, Any], path: str) -> str:
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


@panel_of(Subject, order=90, title="All settings")
def settings(subject: Subject) -> list[Block]:
    """For each run a folded block with its overrides and its config."""
    blocks: list[Block] = []
    for run in subject.runs[: CONFIGS if len(subject.runs) <= CONFIGS else 1]:
        file = run.folder / CONFIG
        if file.is_file():
            given = run.folder / "overrides.txt"
            words = read_text(given).strip() if given.is_file() else ""
            inner: list[Block] = [*([Code(words)] if words else []), Code(read_text(file).rstrip())]
            blocks.append(Folded(f"All settings of {run.name}", inner))
    return blocks
