"""The arithmetic that config files may use: `${portion:share,total}` and nothing else."""

from __future__ import annotations


def portion(share: float, total: int, multiple: int = 1) -> int:
    """`share * total`, rounded to a multiple of `multiple` and at least that: a third of 768 in
    whole heads.

    `${portion:0.25,${size.width},8}` in a config file; what a run saves is the number.
    """
    if not isinstance(share, int | float):
        raise ValueError(f"a share is a number, not {share!r}")
    return max(1, round(share * total / multiple)) * multiple


def register() -> None:
    """Let config files use them; again and again is the same as once."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("portion", portion, replace=True)
