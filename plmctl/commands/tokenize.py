"""`plmctl tokenize`: text to a token directory, with a tokenizer trained on it or a given one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.core.errors import ConfigError
from plmctl.core.terminal import tell
from plmctl.data import tokenizing
from plmctl.data.described import describe_tokens, refuse_other_tokens
from plmctl.data.shards import is_tokens
from plmctl.run.build import plain
from plmctl.run.tokenize import again, job, progress

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    path = plain(cfg.data.path)
    if is_tokens(path):
        raise ConfigError(
            "data.path", path, "holds tokens already; give the text they were made from"
        )
    with progress(again(flags)) as say:
        made = job(cfg, path, say=say, processes=cfg.processes, plugins=flags.plugins)
        refuse_other_tokens(made, Path(cfg.out).expanduser())
        manifest = tokenizing.tokenize(made, cfg.out)
    tell("\n".join(describe_tokens(manifest, cfg.out)))
    return 0
