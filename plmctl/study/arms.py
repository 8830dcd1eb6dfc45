"""The arms of a study: rows of overrides, and grids in Hydra's sweep grammar."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from plmctl.core.errors import UsageError
from plmctl.core.values import Amount
from plmctl.run.composer import open_composer
from plmctl.run.overrides import quote


@dataclass(frozen=True)
class ArmNode:
    """An arm as a study writes it."""

    recipe: str | None = None  # null: that of the study
    overrides: list[str] = field(default_factory=list)  # of pretraining
    finetune: list[str] = field(default_factory=list)  # of fine-tuning
    pretrain: bool = True  # false: fine-tuned from first weights
    checkpoint: str | None = None  # fine-tuned from these weights instead
    times: Amount = 1.0  # the study's budget, where it is length that is compared
    # an arm before this one: what it becomes on a task, at the same seed, teaches (distill=kd)
    teacher: str | None = None
    from_teacher: bool = False  # and is what it begins with (kept_layers=...)


@dataclass(frozen=True)
class Arm:
    """One of the things compared."""

    name: str
    recipe: str
    overrides: tuple[str, ...] = ()
    finetune: tuple[str, ...] = ()
    pretrain: bool = True
    checkpoint: str | None = None
    times: float = 1.0
    teacher: str | None = None
    from_teacher: bool = False

    @classmethod
    def of(cls, name: str, node: ArmNode, recipe: str) -> Arm:
        """The arm that a study writes so; `recipe`: that of the study."""
        pretrain = node.pretrain and node.checkpoint is None and not node.from_teacher
        lists = {"overrides": tuple(node.overrides), "finetune": tuple(node.finetune)}
        own = {"recipe": node.recipe or recipe, "pretrain": pretrain}
        return cls(**{**vars(node), **lists, **own, "name": name})


def expand_arms(
    grid: Sequence[str], recipe: str, config_dirs: Sequence[str] = ()
) -> dict[str, Arm]:
    """An arm for each point of a grid, named by its overrides (by the value of a single one);
    `recipe=a,b` may be one.
    """
    arms = {}
    for words in expand(grid, config_dirs) if grid else []:
        recipes = [word.partition("=")[2] for word in words if word.startswith("recipe=")]
        others = tuple(word for word in words if not word.startswith("recipe="))
        name = words[0].partition("=")[2] if len(words) == 1 else " ".join(words)
        arms[name] = Arm(name, recipes[-1] if recipes else recipe, others)
    return arms


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
                override = composer.parse(quote(word, sweep=True))
            except ValueError as error:
                raise UsageError(f"grid: {word}: cannot be read ({error})") from None
            if override.endless:
                problem = "an interval has no end of values\n  fix: range(...) or choice(...)"
                raise UsageError(f"grid: {word}: {problem}")
            dimensions.append(list(override.words()) if override.sweeps else [word])
    return list(itertools.product(*dimensions))
