"""The remarks of a fine-tuning on its length and its rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from plmctl.config.schema import Finetune
from plmctl.core.progress import clock
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


def describe_outside(spec: Finetune, scored: Sequence[str]) -> str:
    """A line on the work behind `train.minutes`; "" by other lengths, and without scored splits."""
    if spec.train.minutes is None or not scored:
        return ""
    return (
        f"train.minutes={spec.train.minutes:g} are updates and validations; not in them are a last"
        f" validation, scores of {', '.join(scored)} in fp32, and models without pretraining"
    )


def describe_scoring(seconds: float) -> str:
    """A line on the time of a validation, and so of that work."""
    took, twice = clock(seconds), clock(2 * seconds)
    return f"a validation takes {took}: behind train.minutes dev is scored in about {twice}"


def describe_few(spec: Finetune, updates: int) -> str:
    """A line where few updates have fitted into `train.minutes`; "" elsewhere."""
    if spec.train.minutes is None or updates >= FEW:
        return ""
    fitted = f"only {counted(updates, 'update')} fitted into train.minutes={spec.train.minutes:g}"
    return f"{fitted}: a model learns little by so few"
