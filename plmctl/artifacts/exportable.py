"""Whether a published class has the structure of a model, as its export knows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    if source.config.get("peft"):
        return ""
    try:
        hf.check_class(
            source.config, source.tensors, pad=source.vocab.pad if source.vocab else None
        )
    except ConfigError as error:
        first, *differences = error.allowed.splitlines()
        why = f"{len(differences)} differences from the nearest" if differences else first
        line = spell_line("convert", run, "--to", "hf", "--out")
        return f"transformers has no class for this model ({why}): {line} <a folder> lists them"
    return ""
