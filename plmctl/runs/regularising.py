"""The regulariser of a training (`regulariser=`), and whether a model and a task can have one."""

from __future__ import annotations

from typing import Any

from plmctl.config.build import build, class_of
from plmctl.config.part_help import name_part
from plmctl.core.errors import ConfigError
from plmctl.core.locate import parameters
from plmctl.distill.base import Question
from plmctl.distill.questions import Nothing, make_question
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.tasks.task import Task
from plmctl.training.regularisers.base import Regulariser


def build_regulariser(spec: Any, model: Model, objective: Objective) -> Regulariser | None:
    """The part `regulariser`; None without one.

    Args:
        objective: The objective whose predictions it may compare, without its teachers.

    Raises:
        ConfigError: The model has no vectors of words, or there is nothing to compare.
    """
    if not spec.get("regulariser"):
        return None
    none, own = "regulariser=none", name_part(spec, "regulariser")
    if model.backbone.token_embedding is None:
        allowed = "none: this model reads characters and has no table of tokens"
        raise ConfigError("regulariser", own, allowed, fix=none)
    if spec.train.compile is True:
        allowed = "false: a regulariser changes what a compiled model reads"
        raise ConfigError("train.compile", True, allowed, fix="train.compile=false")
    if (kept := spec.train.get("frozen_outputs", "batch")) != "batch":
        allowed = "batch: a regulariser changes what frozen layers read"
        fix = "train.frozen_outputs=batch"
        raise ConfigError("train.frozen_outputs", kept, allowed, fix=fix)
    _check_cut(spec.train, objective)
    question = make_question(objective, model, "predicted")
    given = {"question": question} if _compares(objective, question) else {}
    part = class_of(spec.regulariser, spec.plugins)
    if not given and "question" in parameters(part):
        allowed = "none, fgm, pgd or freelb: nothing is predicted here that could be compared"
        raise ConfigError("regulariser", own, allowed, fix="regulariser=fgm")
    if given and spec.get("beside") and "question" in parameters(part):
        allowed = "none, fgm, pgd or freelb with side tasks: it compares predictions of one task"
        raise ConfigError("regulariser", own, allowed, fix="regulariser=fgm")
    incomparable = objective.facts.incomparable if isinstance(objective, Task) else None
    if incomparable and "question" in parameters(part):
        raise incomparable
    built: Regulariser = build(spec.regulariser, given, spec.plugins, path="regulariser")
    return built


def _check_cut(train: Any, objective: Objective) -> None:
    """ConfigError where the loss of a micro-batch needs rows of others, whose vectors stay."""
    if not objective.facts.contrasts:
        return
    most = None if train.batch_tokens else train.batch_size
    for key, whole in (("processes", 1), ("micro_batch_size", most)):
        if (train[key] or whole) != whole:
            allowed = (
                f"{whole or 'null'} with a regulariser: the loss compares all rows of an update"
            )
            fix = "regulariser=none"
            raise ConfigError(f"train.{key}", train[key], allowed, fix=fix)


def _compares(objective: Objective, question: Question) -> bool:
    """Whether the objective has predictions at known positions: labels or targets of its head."""
    if not isinstance(objective, Task):
        return not isinstance(question, Nothing)
    own = {f"labels.{objective.facts.head}", f"targets.{objective.facts.head}"}
    changed = type(objective).flatten_logits is not Task.flatten_logits
    return objective.facts.has_classes and (changed or bool(own & objective.facts.needs))
