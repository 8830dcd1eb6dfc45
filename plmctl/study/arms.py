"""Grids in Hydra's sweep grammar: every combination of their values, and an arm for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plmctl.config.composer import open_composer
from plmctl.config.quoting import quote
from plmctl.config.recipes import LISTED, UnknownRecipe, find_recipe
from plmctl.config.word_grammar import parse_word
from plmctl.core.errors import ConfigError, UsageError, did_you_mean
from plmctl.core.spelling import spell_setting
from plmctl.study.study import Arm


def make_arm(point: Sequence[str], recipe: str) -> Arm:
    """The arm of a point of a grid, named by its overrides (by the value of a single one);
    `recipe=bert` may be one of them.
    """
    recipes = [word.partition("=")[2] for word in point if word.startswith("recipe=")]
    others = tuple(word for word in point if not word.startswith("recipe="))
    name = point[0].partition("=")[2] if len(point) == 1 else " ".join(point)
    return Arm(name, recipes[-1] if recipes else recipe, others)


def expand(words: Sequence[str], config_dirs: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Every combination of the values of `words`, the last one changing fastest; one empty
    combination for no words.
    """
    if not words:
        return [()]
    dimensions: list[list[str]] = []
    with open_composer("pretrain", config_dirs) as composer:
        for word in words:
            try:
                override = parse_word(quote(word, sweep=True), composer)
            except ValueError as error:
                raise UsageError(f"grid: {word}: cannot be read ({error})") from None
            if override.endless:
                problem = "an interval has no end of values\n  fix: range(...) or choice(...)"
                raise UsageError(f"grid: {word}: {problem}")
            dimensions.append(list(override.words()) if override.sweeps else [word])
    return list(itertools.product(*dimensions))


def find_unknown_recipes(
    arms: Mapping[str, Arm], rows: Mapping[str, Any], shared: str, config_dirs: Sequence[str] = ()
) -> Iterator[ConfigError]:
    """Every recipe of `arms` that does not exist, at the key of the file that names it.

    Args:
        rows: The arms as the file has them; the others are of its grid.
        shared: The recipe of arms that name none.
    """
    for recipe in dict.fromkeys(str(arm.recipe) for arm in arms.values()):
        try:
            find_recipe(recipe, config_dirs)
        except UnknownRecipe as error:
            own = [
                f"arms.{name}.recipe"
                for name, row in rows.items()
                if isinstance(row, Mapping) and row.get("recipe") == recipe
            ]
            elsewhere = "pretrain.recipe" if recipe == shared else "recipe"  # a word of the grid
            near = did_you_mean([error.meant] if error.meant else [])
            allowed = f"there is no such recipe{near}; {LISTED}"
            for path in own or [elsewhere]:
                fix = spell_setting(path, error.meant) if error.meant else LISTED
                yield ConfigError(path, recipe, allowed, fix=fix)
        except UsageError:  # a missing file: the arms report it
            continue
