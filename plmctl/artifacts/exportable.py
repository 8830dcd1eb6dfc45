"""Whether a published class has the structure of a model, as its export knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from plmctl.artifacts.loading import open_source
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_line
from plmctl.interop import hf


def describe_unexportable(checkpoint: Path, run: Path, *, plugins: Sequence[str] = ()) -> str:
    """A line for the end of a run whose model no class of transformers can read, else "".

    A model that was trained inside another one, or as a few parameters of it, is folded before it
    is exported; convert says how.
    """
    source = open_source(checkpoint, plugins=plugins)
    pad = source.vocab.pad if source.vocab else None
    if why := explain_classless(source.config, source.tensors, pad=pad):
        line = spell_line("convert", run, "--to", "hf", "--out")
        return f"transformers {why}: {line} <a folder> lists them"
    return ""


def explain_classless(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, pad: int | None = None
) -> str:
    """`has no class for this model (2 differences from the nearest)`; "" where transformers has
    one, or the model is folded first. Tensors may have no values.
    """
    if config.get("peft"):
        return ""
    try:
        hf.check_class(config, tensors, pad=pad)
    except ConfigError as error:
        first, *differences = error.allowed.splitlines()
        why = f"{len(differences)} differences from the nearest" if differences else first
        return f"has no class for this model ({why})"
    return ""
