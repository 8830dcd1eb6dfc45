"""`plmctl data augment`: a larger training set, with words replaced as TinyBERT does (Jiao et al.,
2020, algorithm 1).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from plmctl.core.errors import UsageError
from plmctl.core.terminal import tell
from plmctl.run.augment import augmentation
from plmctl.run.plugins import option
from plmctl.storage.resumable import new_folder

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.distill.augmented import Augmentation
    from plmctl.run.compose import Flags


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    out = new_folder(cfg.out)
    work = augmentation(cfg, flags)
    work.write(out)
    _report(cfg, work, flags)
    return 0


def _report(cfg: DictConfig, work: Augmentation, flags: Flags) -> None:
    before, counted, vectors = work.examples, work.counted, work.augmenter.vectors is not None
    if not counted["replaceable"]:
        told = (
            f"no word of the {before:,} examples could be replaced;"
            f" {cfg.out} is the training set as it was"
        )
        tags = "columns" in cfg.task and "tags" in cfg.task.columns and not cfg.tagged_words
        raise UsageError(
            told + ("\n  fix: tagged_words=true, where no word has the tag O" if tags else "")
        )
    if flags.json:
        tell(json.dumps({"out": cfg.out, "before": before, **counted}))
        return
    several = counted["of several tokens"]
    stayed = (
        f"; {several:,} of several tokens stayed (vectors=<file> replaces them)"
        if several and not vectors
        else ""
    )
    tell(
        f"{cfg.out}: {before:,} examples became {counted['examples']:,}\n  of {counted['words']:,}"
        f" words but function words, {counted['replaceable']:,} may be replaced{stayed}\nnext:"
        f" plmctl finetune task={cfg.task.get('name')} task.path={cfg.out}"
        f" ...{option(flags.plugins)}"
    )
