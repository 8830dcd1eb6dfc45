"""`plmctl convert IN OUT --to hf|plmctl`: weights, config and tokenizer in another layout."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from plmctl.report.card import make_card
from plmctl.run.compose import Flags
from plmctl.run.convert import convert


def run(cfg: DictConfig, flags: Flags) -> int:
    """Write the folder."""
    convert(
        Path(cfg.input),
        Path(cfg.out),
        to=cfg.to,
        part=cfg.part,
        plugins=flags.plugins,
        card=partial(make_card, library="transformers"),
    )
    return 0
