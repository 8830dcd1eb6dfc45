"""The search of a published model: what its `generation_config.json` says, where a user chooses
none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.config.compose import attempt
from plmctl.core.errors import raise_all
from plmctl.core.spelling import spell, spell_word
from plmctl.core.terminal import remark
from plmctl.generation.published import FILE, to_settings


def choose_search(spec: Any, loaded: Loaded) -> Any:
    """The spec of `plmctl generate` with the search and the lengths that the model's folder states.

    Settings of the user stay. So does everything where the user names a search or a recipe, and
    where the model was trained on a task, which states its own.
    """
    stated = (loaded.config.get("origin") or {}).get("writing")
    given, backbone = spec.provenance, loaded.model.backbone
    if not stated or loaded.own_task() or given.recipe is not None:
        return spec
    writes = getattr(backbone, "writes", "text") == "target"
    forced = int(getattr(backbone, "forced", None) is not None) if writes else None
    settings, unread = to_settings(stated, forced=forced)
    own = any(key.partition(".")[0] == "search" for key in given.keys)
    found = {
        key: value
        for key, value in settings.items()
        if key not in given.keys and not (own and key.startswith("search"))
    }
    words = tuple(f"{key}={spell(value)}" for key, value in found.items())
    where = f"{loaded.source.folder}: {FILE}"
    if unread:
        shown = ", ".join(f"{key}={stated[key]!r}" for key in unread)
        remark(f"{where} has settings that no search here has; they are not used: {shown}")
    if not words:
        return spec
    remark(f"{where} says how it writes: {' '.join(map(spell_word, words))}")
    composition = attempt(replace(given, overrides=(*words, *given.overrides)))
    raise_all(composition.errors)
    return composition.spec
