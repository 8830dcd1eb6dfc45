"""The remarks of a fine-tuning on its length and its rate before it begins."""

from __future__ import annotations

import math
from collections.abc import Iterator

from plmctl.config.schema import Finetune
from plmctl.core.terminal import counted

FEW = 100  # updates of a fine-tuning, by which a model learns little
LOW = 1e-5 * 768  # rate times width, below which it learns little by any number of them


def describe_shortness(
    spec: Finetune, steps: int | None, width: int, epoch: float
) -> Iterator[str]:
    """A line where train.least_steps makes more epochs of `epoch` updates, or the settings of a
    task are made for more examples. Another line where they are made for wider models.
    """
    train, rate = spec.train, spec.optim.get("lr")
    if train.epochs and steps and steps > (asked := math.ceil(round(train.epochs * epoch, 6))):
        epochs = f"{train.epochs:g} epoch{'s are' if train.epochs != 1 else ' is'}"
        yield f"{epochs} {counted(asked, 'update')}: {steps:,} by train.least_steps"
    if train.epochs and not train.least_steps and steps and steps < FEW:
        more = "tuning=stable makes more of few examples, and so does train.epochs"
        yield f"only {steps} updates: a model learns little by so few; {more}"
    if rate and not train.lr_width and rate * width < LOW:
        yield f"optim.lr={rate:g} is low for width {width}; tuning=stable takes one that suits it"
