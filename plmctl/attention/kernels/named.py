"""Kernels by the names that a model's setting `kernel` takes."""

from __future__ import annotations

from collections.abc import Callable

from plmctl.attention.kernels.auto import Auto
from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.kernels.flex import Flex
from plmctl.core.errors import ConfigError, nearest

KERNELS: dict[str, Callable[[], Kernel]] = {
    "auto": Auto,
    "dense": Dense,
    "banded": Banded,
    "flex": Flex,
}


def find_kernel(chosen: str | Kernel) -> Kernel:
    """The kernel of this name, or `chosen` itself.

    Raises:
        ConfigError: if there is no such kernel; it names the nearest one.
    """
    if isinstance(chosen, Kernel):
        return chosen
    if chosen not in KERNELS:
        allowed = f"{', '.join(KERNELS)}, or a part of the slot 'kernel'{nearest(chosen, KERNELS)}"
        raise ConfigError("kernel", chosen, allowed)
    return KERNELS[chosen]()
