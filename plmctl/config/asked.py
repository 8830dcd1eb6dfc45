"""Whether the user wrote a setting, or it has the value that shipped files give it."""

from __future__ import annotations

from plmctl.config.recipes import find_recipe, is_shipped, load
from plmctl.config.spec import Provenance
from plmctl.config.walks import select


def is_asked(given: Provenance, key: str) -> bool:
    """Whether a setting stands on the command line, or in a recipe of the user's own. A job of a
    study has no command line: all of its config counts.
    """
    if given.within and not given.overrides:
        return True
    if key in given.keys or given.recipe is None:
        return key in given.keys
    file = find_recipe(given.recipe, given.config_dirs)
    return not is_shipped(str(file)) and select(load(file), key) is not None


def find_ids(given: Provenance) -> list[str]:
    """The setting of the column of ids, if the user wrote it. Columns of bundles and slices are not
    among these, since files without labels may lack them.
    """
    key = "task.columns.id"
    return [key] if not given.within and is_asked(given, key) else []
