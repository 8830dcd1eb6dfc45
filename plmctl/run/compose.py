"""From a command line to one checked config: `compose` runs Hydra on conf/ and recipes/ and
reports every problem at once.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from plmctl.core.errors import ConfigError, PlmctlError, UsageError, raise_all
from plmctl.run.composer import open_composer, set_values, store_recipe, to_plain
from plmctl.run.finish import finish
from plmctl.run.overrides import OverrideWord, read, settle
from plmctl.run.recipes import find_study, is_shipped, option_name
from plmctl.run.spec import Provenance, RunSpec

# what shipped files made together: they do not change while a process runs
_SHIPPED: dict[tuple[str, ...], bytes] = {}


@dataclass(frozen=True)
class Composition:
    """What a command line composes, and every problem in it; a setting with one stays as it is."""

    spec: RunSpec
    words: list[OverrideWord]  # the overrides as Hydra was given them
    errors: list[PlmctlError]


def compose(
    verb: str,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    *,
    config_dirs: Sequence[str] = (),
    plugins: Sequence[str] = (),
) -> Any:
    """The settings of `plmctl <verb> [recipe] [overrides]`, a `RunSpec`.

    Raises:
        UsageError: Every problem together (exit code 2).
    """
    given = Provenance(verb, recipe, tuple(overrides), tuple(config_dirs), tuple(plugins))
    return composed(given).spec


def composed(
    given: Provenance, *, sweep: bool = False, known: dict[tuple[str, ...], bytes] | None = None
) -> Composition:
    """What `attempt` composes; UsageError for every problem in it together."""
    composition = attempt(given, sweep=sweep, known=known)
    raise_all(composition.errors)
    return composition


def attempt(
    given: Provenance, *, sweep: bool = False, known: dict[tuple[str, ...], bytes] | None = None
) -> Composition:
    """Compose a command line, with all problems in place of an error.

    Args:
        given: The command line.
        sweep: It is that of a sweep, whose first job is composed.
        known: Remembers what a user's part files made together, for callers that compose many
            configs of few choices in a row.
    """
    verb, recipe, config_dirs = given.verb, given.recipe, given.config_dirs
    if verb == "ablate":
        recipe = str(find_study(recipe or "", config_dirs))
    names = [name for name in ((recipe or "").split(",") if sweep else [recipe]) if name]
    if recipe and verb != "pretrain" and not recipe.endswith((".yaml", ".yml")):
        raise UsageError(
            f"'{recipe}': recipes are for pretrain;"
            f" {verb} takes key=value settings, or your own ./file.yaml of them"
        )
    with open_composer(verb, config_dirs) as composer:
        if not config_dirs and all(map(is_shipped, names)):
            known = _SHIPPED
        chosen = [f"recipe={option_name(name)}" for name in names[:1]]
        words, errors = read(given.overrides, composer, sweep=sweep)
        groups = [word for word in words if word.group]
        choices = (verb, *chosen, *(word.sample for word in groups))
        bad: list[UsageError] = []
        if known and choices in known:
            config = pickle.loads(known[choices])
        else:
            for name in names:
                store_recipe(name, config_dirs)
            config, bad = composer.compose_all(chosen, [word.sample for word in groups])
            if known is not None and not bad:
                known[choices] = pickle.dumps(config)
        values, unknown = settle(
            [word for word in words if not word.group and word.sample],
            to_plain(config),
            given.plugins,
            composer,
        )
        unset = set_values(config, [word.sample for word in values])
    words = groups + values + [word for word in words if not word.sample]
    known_by = replace(given, recipe=names[0] if names else None)
    spec, misfits = finish(to_plain(config), words, known_by)
    problems = [*errors, *bad, *_no_echoes(errors, [*unknown, *unset], misfits)]
    if spec is None:
        raise_all(problems)
    assert spec is not None
    return Composition(spec, words, problems)


def _no_echoes(
    errors: Sequence[PlmctlError], unknown: Sequence[PlmctlError], misfits: Sequence[PlmctlError]
) -> list[PlmctlError]:
    """`unknown` and `misfits`, less what is only so because a part that is needed was chosen by a
    name that does not exist.

    All of its settings look unknown then, and what it would have brought is missing.
    """
    wrong, missing = (
        {error.path for error in some if isinstance(error, ConfigError)}
        for some in (errors, misfits)
    )
    lost = tuple(f"{path}." for path in wrong & missing)
    if not lost:
        return [*unknown, *misfits]
    return [
        error
        for error in unknown
        if not (isinstance(error, ConfigError) and error.path.startswith(lost))
    ]
