"""`plmctl compress`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import TrainOnTask
from plmctl.core.values import Batch, Share


@dataclass(frozen=True)
class Compress(Command):
    """Make a fine-tuned run smaller and faster, with nearly the same score.

    Numbers of 8 bits come first, then fewer layers, heads and neurons. The run teaches each smaller
    model. The first that reaches the target and keeps the score is written as a folder for serve
    and predict. Start the same command again to continue: finished steps are kept.
    """

    about = About(
        "compress",
        place=92,
        examples=(
            "plmctl compress runs/sst2 target=flops:2x --dry-run",
            "plmctl compress runs/sst2 target=flops:2x keep=0.5 train.steps=20 out=small",
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config dry_run config_dir plugin",
        slots="distill pruning stabiliser optim schedule",
    )

    checkpoint: str = MISSING  # a run that was fine-tuned on a task
    # latency:8x, latency:5ms (of a row), size:4x, size:5MB, flops:4x, memory:2x
    target: str = MISSING
    keep: Share = 0.99  # the least share of the score on dev
    # folder of all steps, the table and the small model; null: compressed/<name of the run>
    out: str | None = None
    to: Literal["onnx", "openvino"] | None = None  # library of the file; null: the best one here
    # rows of a batch, when models are timed; 1: one request after the other
    batch_size: Batch = 32
    # first: stop at the first model that reaches the target; best: train all, and take the best
    # score
    until: Literal["first", "best"] = "first"
    distill: Any = None  # lesson of smaller models: signals from the run
    # methods that take heads and neurons away; the shares follow from the target
    pruning: Any = None
    stabiliser: Any = None  # [quantised]: smaller models learn with numbers of 8 bits
    optim: Any = None  # a part, or single settings of it; the others are those of the run
    schedule: Any = None  # the same
    train: TrainOnTask = (
        TrainOnTask()
    )  # length and settings of each training; the others are those of the run

    def perform(self) -> Result:
        """Climb down the ladder, and say what came of it."""
        from plmctl.compress.run import Wish, compress
        from plmctl.compress.target import parse
        from plmctl.compress.training import Changes

        wish = Wish(
            checkpoint=self.checkpoint,
            target=parse(self.target),
            keep=self.keep,
            out=Path(self.out or Path("compressed", Path(self.checkpoint).name)).expanduser(),
            libraries=(self.to,) if self.to else (),
            batch_size=self.batch_size,
            best=self.until == "best",
            changes=Changes.of(self),
        )
        return compress(wish, self.provenance)
