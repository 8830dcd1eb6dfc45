"""The learning rate of a run whose `optim.lr` is that of a model of another width."""

from __future__ import annotations

from typing import TypeVar

from plmctl.config.spec import RunSpec
from plmctl.core.errors import ConfigError

Spec = TypeVar("Spec", bound=RunSpec)
REFERENCE = "train.lr_width"


def scale_rate(rate: float, reference: int | None, width: int) -> float:
    """The learning rate of a model of the width `reference`, adapted to `width`. Half the width has
    twice the rate (None: as it stands).
    """
    return rate if reference is None else float(f"{rate * reference / width:.3g}")


def settle_rate(spec: Spec, width: int) -> tuple[Spec, str]:
    """The spec with the rate that is used, which is that of a model of its own width, and a line
    that says so; "" where it is the stated one.

    Raises:
        ConfigError: The optimizer has no `lr`.
    """
    reference, optim = spec["train"].lr_width, spec["optim"]
    if reference is None:
        return spec, ""
    if "lr" not in optim:
        allowed = "null: the optimizer has no lr"
        raise ConfigError(REFERENCE, reference, allowed, fix=f"{REFERENCE}=null")
    rate = scale_rate(optim["lr"], reference, width)
    if rate == optim["lr"]:
        return spec, ""
    own = f"a model of width {width}; {REFERENCE}={reference}"
    line = f"optim.lr={optim['lr']:g} becomes {rate:g}, for {own}"
    return spec.replace({"optim.lr": rate, REFERENCE: width}), line
