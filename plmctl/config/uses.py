"""The settings of plmctl eval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.groups import Data
from plmctl.config.schema import TaskUser
from plmctl.core.values import Batch


@dataclass(frozen=True)
class Evaluate(TaskUser):
    # several of one task: an ensemble
    checkpoint: str | tuple[str, ...] = MISSING
    # rule that joins several models: the mean of their probabilities, or one vote each
    joined: Literal["mean", "votes"] = "mean"
    # column of `input` that names the model for a row, where several models share one base and each
    # has its own task; null: an ensemble
    by: str | None = None
    # [temperature,threshold] are fitted to the labels of this split, stored in the checkpoint, and
    # used from then on; threshold: the best by the first metric, for two labels or any number each;
    # thresholds: one for each of any number, the best by its own F1
    calibrate: tuple[Literal["temperature", "threshold", "thresholds"], ...] = ()
    task: Any = None  # null: the one the checkpoint was fine-tuned on
    format: Any = None  # this and noise: of task=held_out; null: as in the checkpoint's own run
    noise: Any = None
    # texts that are also scored when they are changed: [typos,case]
    perturb: Any = None
    runtime: Any = None  # library of the computation: torch, onnx, openvino, auto; null: torch
    # dev, test, train, or another that the task's files have (mnli: dev_mismatched); valid means
    # dev
    split: str = "dev"
    data: Data = Data()  # corpus for task=lm and task=held_out
    # unlabelled lines, or a .csv, .tsv or .jsonl table, to be labelled; -: standard input
    input: str | None = None
    # a .csv, .tsv or .jsonl file of predictions, or a folder of them, where earlier ones are kept;
    # -: standard output; null: that for input=-, else eval/ in the run, of a model without one
    # eval/<its name>
    out: str | None = None
    overwrite: bool = False  # replace such a file, or an earlier one in the folder
    # put a ' before texts that a spreadsheet would run (=, +, -, @), in tables that are written
    guard_cells: bool = True
    batch_size: Batch = 32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0
