"""plmctl: pretrain, fine-tune, evaluate and convert language models, by configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plmctl.run.loading import Loaded
    from plmctl.run.shared_base import SharedBase


def load(path: str | os.PathLike[str], *, plugins: Sequence[str] = ()) -> Loaded:
    """`.model` (in eval mode), `.tokenizer`, `.vocab` and `.config` of a run, a checkpoint, or a
    Hugging Face folder.

    `plugins`: the packages outside plmctl that it may be made of; one that is not named here is not
    imported.
    """
    from plmctl.run.loading import load  # torch is imported here and not with the package
    from plmctl.run.plugins import Unconfirmed

    try:
        return load(path, plugins=plugins)
    except Unconfirmed as error:
        raise error.for_python() from None


def load_adapters(
    paths: Mapping[str, str | os.PathLike[str]], *, plugins: Sequence[str] = (), device: str = "cpu"
) -> SharedBase:
    """The model that several runs with `peft=` were trained beside, once, with what each of them
    has learned: `.predict(lines, tasks)` asks it for rows of all tasks together.

    `paths`: {a name of the task: its run or checkpoint}; `plugins` as of `load`.
    """
    from plmctl.run.plugins import Unconfirmed
    from plmctl.run.shared_base import load_adapters

    try:
        return load_adapters(paths, plugins=plugins, device=device)
    except Unconfirmed as error:
        raise error.for_python() from None
