"""The learning rate of a run whose `optim.lr` is that of a model of another width."""

from __future__ import annotations

from typing import TypeVar

from plmctl.config.spec import Part, RunSpec
from plmctl.core.errors import ConfigError

Spec = TypeVar("Spec", bound=RunSpec)
REFERENCE = "train.lr_width"


def scale_rate(optim: Part, reference: int | None, width: int) -> Part:
    """An optimizer whose `lr` is that of a model of the width `reference`, adapted to `width`. Half
    the width has twice the rate (None: as it stands).

    Raises:
        ConfigError: It has no `lr`.
    """
    if reference is None:
        return optim
    if "lr" not in optim:
        allowed = "null: the optimizer has no lr"
        raise ConfigError(REFERENCE, reference, allowed, fix=f"{REFERENCE}=null")
    return optim.with_value("lr", float(f"{optim['lr'] * reference / width:.3g}"))


def settle_rate(spec: Spec, width: int) -> tuple[Spec, str]:
    """The spec with the rate that is used, which is that of a model of its own width, and a line
    that says so; "" where it is the stated one.
    """
    reference, optim = spec.select(REFERENCE), spec.select("optim")
    scaled = scale_rate(optim, reference, width)
    if scaled == optim:
        return spec, ""
    own = f"a model of width {width}; {REFERENCE}={reference}"
    line = f"optim.lr={optim['lr']:g} becomes {scaled['lr']:g}, for {own}"
    return spec.replace({"optim.lr": scaled["lr"], REFERENCE: width}), line
