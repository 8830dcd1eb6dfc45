"""The choice of trained parameters: `trainable` and `frozen` globs over their names, of a whole run
or of a stage; also the parameters that start a stage from values of others.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Protocol, runtime_checkable

from torch import nn

from plmctl.core.errors import ConfigError, find_alike, nearest


@runtime_checkable
class Refitted(Protocol):
    """A module some of whose weights follow from others, until they are trained themselves."""

    def refit(self) -> None:
        """Set them anew from what the others have become."""


def apply_freezing(
    model: nn.Module, *, trainable: Sequence[str] = (), frozen: Sequence[str] = ()
) -> None:
    """Train what matches `trainable` (everything if empty) and not `frozen`; an earlier call is
    undone.

    Frozen = no gradient, and every module without a trainable parameter stays in eval mode whatever
    `.train()` says. A pattern is a glob over names such as `backbone.stack.blocks.*.0.*`, or the
    name of a module. A parameter that never has a gradient never has a state in the optimizer.
    """
    named = dict(model.named_parameters())
    for path, patterns in (("trainable", trainable), ("frozen", frozen)):
        for pattern in patterns:
            if not any(matches(name, [pattern]) for name in named):
                known = _prefixes(named)
                meant = find_alike(pattern, known)
                others = [other for other in patterns if other != pattern]
                fix = f"train.{path}=[{','.join([*others, *meant])}]"
                allowed = f"matches no parameter{nearest(pattern, known)}"
                if not meant:
                    parts = (name for name in known if name.count(".") == 1)
                    allowed += f"; there are {', '.join(parts)}, and more inside"
                raise ConfigError(f"train.{path}", pattern, allowed, fix=fix)
    for name, parameter in named.items():
        parameter.requires_grad_(
            (not trainable or matches(name, trainable)) and not matches(name, frozen)
        )
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            module.train = types.MethodType(_stay_in_eval, module)  # type: ignore[method-assign]
            module.eval()
        else:
            module.__dict__.pop("train", None)


def find_refitted(model: nn.Module, names: Sequence[str]) -> list[Refitted]:
    """The modules that match these globs and have weights that follow from others; ConfigError
    where a name is none of those.
    """
    able = {name: part for name, part in model.named_modules() if isinstance(part, Refitted)}
    for pattern in names:
        if not any(fnmatchcase(name, pattern) for name in able):
            there = f"one of {', '.join(able)}" if able else "none: no part of this model follows"
            fix = f"refit=[{','.join(able)}]"
            raise ConfigError("refit", pattern, f"{there}{nearest(pattern, able)}", fix=fix)
    return [
        part for name, part in able.items() if any(fnmatchcase(name, pattern) for pattern in names)
    ]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a parameter has one of these globs as its name, or is in a module called so."""
    return any(fnmatchcase(name, pattern) or name.startswith(pattern + ".") for pattern in patterns)


def _prefixes(names: Sequence[str] | dict) -> list[str]:
    return sorted(
        {name.rsplit(".", depth)[0] for name in names for depth in range(name.count(".") + 1)}
    )


def _stay_in_eval(module: nn.Module, mode: bool = True) -> nn.Module:
    return nn.Module.train(module, False)
