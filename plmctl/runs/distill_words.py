"""`plmctl distill` is a `plmctl pretrain`, or with `task=` a `plmctl finetune`, with a teacher:
the words that make it one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from plmctl.config.recipes import find_recipe, load
from plmctl.config.saved import read_spec
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError

# the setting of a command that names the first weights
BEGINS = {"finetune": "checkpoint", "pretrain": "init"}
DEFAULT = "kd"  # the method where none is chosen


def as_training(flags: Provenance) -> Provenance:
    """`flags` of the command that trains, with a word for every setting that the user left out.

    That is: the method; a run directory under runs/distill; and in fine-tuning the first weights of
    the student. These are the teacher's where `kept_layers` picks some of its layers, and new ones
    otherwise.
    """
    if flags.resume:
        return replace(
            flags, verb="finetune" if "task" in _saved(flags) else "pretrain", front=flags.verb
        )
    own = load(find_recipe(flags.recipe, flags.config_dirs)) if flags.recipe else {}
    said = flags.keys | _keys(own)
    verb = "finetune" if "task" in said else "pretrain"
    if verb == "pretrain" and "teacher_cache" in said:
        raise UsageError(
            "teacher_cache: in pretraining rows are cut and noised anew in every epoch, so that no"
            " answer would be read again\n  fix: leave it out, or task=<name> to learn on labelled"
            " data"
        )
    words = [] if "distill" in said else [f"distill={DEFAULT}"]
    words += [] if "run.name" in said else [f"run.name={flags.verb}"]
    if BEGINS[verb] not in said and ("kept_layers" in said or verb == "finetune"):
        words.append(f"{BEGINS[verb]}={'${teacher}' if 'kept_layers' in said else 'null'}")
    recipe = flags.recipe if flags.recipe or verb == "finetune" else "bert"
    return replace(
        flags, verb=verb, front=flags.verb, recipe=recipe, overrides=(*words, *flags.overrides)
    )


def _saved(flags: Provenance) -> Collection[str]:
    """The settings of the run that goes on; where nothing was saved yet, those of the command
    line.
    """
    from plmctl.runs.resume import run_dir

    saved = read_spec(run_dir(flags))
    return flags.keys if saved is None else saved


def _keys(recipe: Mapping[Any, Any]) -> set[str]:
    """The settings and the slots that a recipe decides."""
    slots = {
        str(key).split("/")[-1]
        for item in recipe.get("defaults") or ()
        if isinstance(item, Mapping)
        for key in item
    }
    inner = {
        f"{key}.{name}"
        for key, node in recipe.items()
        if isinstance(node, Mapping)
        for name in node
    }
    return {*(str(key) for key in recipe), *inner, *slots}
