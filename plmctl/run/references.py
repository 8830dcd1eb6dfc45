"""References in settings, ${size.width} and ${portion:share,total}, and what they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class UnresolvedReference(ValueError):
    """A setting that refers to what is not there; `path` is its dotted key."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


def portion(share: float, total: int, multiple: int = 1) -> int:
    """`share * total`, rounded to a multiple of `multiple` and at least that: a third of 768 in
    whole heads.

    `${portion:0.25,${size.width},8}` in a config file; what a run saves is the number.
    """
    if not isinstance(share, int | float):
        raise ValueError(f"a share is a number, not {share!r}")
    return max(1, round(share * total / multiple)) * multiple


def register() -> None:
    """Let config files use `portion`; again and again is the same as once."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("portion", portion, replace=True)


def work_out(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings with the value of everything that they refer to (${size.width}).

    Raises:
        UnresolvedReference: There is no such value.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    try:
        values = OmegaConf.to_container(OmegaConf.create(dict(settings)), resolve=True)
    except OmegaConfBaseException as error:
        path = getattr(error, "full_key", None) or "config"
        raise UnresolvedReference(path, str(error).splitlines()[0]) from error
    return {str(key): value for key, value in dict(values).items()}  # type: ignore[arg-type]
