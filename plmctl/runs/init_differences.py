"""Remarks where the model that `init` names was made for another use than this run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from plmctl.artifacts.loading import open_source
from plmctl.artifacts.model_facts import networks, pattern_of
from plmctl.attention.patterns.base import Pattern
from plmctl.config.build import class_of
from plmctl.config.schema import Pretrain
from plmctl.config.spec import thaw
from plmctl.config.walks import scalars_in
from plmctl.core.errors import ConfigError, PlmctlError, flatten, raise_all
from plmctl.models.base import Backbone

_OF_A_KIND = ("model", "objective", "heads")  # slots whose parts fit some kinds of models alone


@contextlib.contextmanager
def naming_kind(spec: Pretrain) -> Iterator[None]:
    """Errors inside that come from a model of another kind than the settings' become one problem,
    at `init`.
    """
    try:
        yield
    except PlmctlError as error:
        raise_all(_name_kind(spec, flatten(error)))


def _name_kind(spec: Pretrain, errors: list[PlmctlError]) -> list[PlmctlError]:
    """`errors`, where one at `init` replaces all errors that its kind explains."""
    names = _name_kinds(spec) if spec.init and not spec.init_into else None
    others = [
        error
        for error in errors
        if not (isinstance(error, ConfigError) and error.path.partition(".")[0] in _OF_A_KIND)
    ]
    if not names or len(others) == len(errors):
        return errors
    theirs, ours = names
    allowed = f"a model of the kind {ours}, for which this config is; this one is {theirs}"
    fix = f"init=<a run whose model is of the kind {ours}>"
    inside = networks(spec.provenance.written["model"])
    fitting = [name for name, node in inside.items() if node["_target_"] == spec.model["_target_"]]
    if fitting:
        fix = f"init_into={fitting[0]}, which it becomes then, or {fix}"
    return [ConfigError("init", spec.init, allowed, fix=fix), *others]


def describe_differences(spec: Pretrain, backbone: Backbone, *, target: int) -> list[str]:
    """Differences between this run and the training of the model of `init`: its pattern, and rows
    without the target that it writes.

    Args:
        backbone: This run's, with the weights of that model.
        target: Tokens of the target in a row.
    """
    if spec.init_into:
        return []
    lines = []
    if names := _name_kinds(spec):
        theirs, ours = names
        lines = [f"the model is that of init={spec.init}: {theirs}, not the {ours} of this config"]
    if backbone.writes == "target" and not target:
        return [
            *lines,
            "rows have no target: encoder and decoder both read their text, and the objectives"
            " ask the states of the decoder",
        ]
    return [*lines, *_compare_patterns(spec, backbone)]


def _name_kinds(spec: Pretrain) -> tuple[str, str] | None:
    """(the kind of model that is adopted, the kind that the settings are written for), where the
    first is no case of the second.
    """
    written: Mapping[str, Any] = spec.provenance.written.get("model") or {}
    if "_target_" not in written:
        return None
    theirs, ours = (_locate(node, spec) for node in (spec.model, written))
    return None if issubclass(theirs, ours) else (theirs.__name__, ours.__name__)


def _locate(node: Mapping[str, Any], spec: Pretrain) -> type:
    part: Any = class_of(node, spec.plugins)
    return part if isinstance(part, type) else Backbone


def _compare_patterns(spec: Pretrain, backbone: Backbone) -> list[str]:
    """The differences between the pattern of this run and that of `init`: whether tokens see those
    behind them, and numbers. Patterns of another kind are the user's choice and not compared.
    """
    pattern: Pattern | None = getattr(backbone, "pattern", None)
    if pattern is None:
        return []
    source = open_source(str(spec.init), thaw(spec.kept_layers), plugins=spec.plugins)
    ahead = pattern.looks_ahead()
    if pattern_of(source.config, spec.plugins).looks_ahead() != ahead:
        was, now = ("did not see", "do") if ahead else ("saw", "do not")
        return [
            f"in the model of init={spec.init} tokens {was} later tokens;"
            f" under this run's pattern they {now}"
        ]
    before = dict(scalars_in(source.config["pattern"], "pattern"))
    after = dict(scalars_in(thaw(spec.pattern), "pattern"))
    kinds = [{k: v for k, v in part.items() if k.endswith("_target_")} for part in (before, after)]
    # another pattern is the user's choice
    if kinds[0] != kinds[1] or before.keys() != after.keys():
        return []
    return [
        f"the model of init={spec.init} was trained with {key}={before[key]};"
        f" this run has {after[key]}"
        for key in after
        if before[key] != after[key]
    ]
