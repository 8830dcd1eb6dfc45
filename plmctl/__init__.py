"""plmctl: pretrain, fine-tune, evaluate and convert language models, by configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plmctl.loading import Loaded


def load(path: str | os.PathLike[str]) -> Loaded:
    """`.model` (in eval mode), `.tokenizer`, `.vocab` and `.config` of a run, a checkpoint, or a Hugging Face folder."""
    from plmctl.loading import load  # torch is imported here and not with the package

    return load(path)
