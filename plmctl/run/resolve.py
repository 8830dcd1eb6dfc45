"""From what was written to what is run: the only place that opens checkpoints, teachers,
tokenizers and task files to decide something, and fills in what they say.
"""

from __future__ import annotations

from plmctl.core.errors import ConfigError, ConfigErrors, UsageError
from plmctl.models.base import Model
from plmctl.run.adapt import adapt, check_length, complete, fit_language_heads, fit_task
from plmctl.run.build import build
from plmctl.run.check import check_finetuning, check_pretraining, check_settings
from plmctl.run.headers import naming_source
from plmctl.run.model_facts import reading
from plmctl.run.schema import Finetune, Pretrain
from plmctl.run.teachers import with_tokenizer
from plmctl.tasks import inference
from plmctl.tasks.base import Task


def resolve_pretraining(spec: Pretrain) -> tuple[Pretrain, Model | None, UsageError | None]:
    """The spec as it will be run, its model without weights, and what does not fit.

    Raises:
        UsageError: All problems together; with `--preview` those that rows can be shown despite of
            are returned.
    """
    check_settings(spec)
    if not spec.provenance.resume:
        spec = adapt(spec)
        spec = with_tokenizer(spec, spec.init)
    try:
        return spec, check_pretraining(spec), None
    except UsageError as error:
        if not (spec.provenance.preview and _makes_rows(error)):
            raise
        return spec, None, error


def resolve_finetuning(spec: Finetune) -> tuple[Finetune, Task, Model]:
    """The spec as it will be run, its task, which has seen all labels, and its model without
    weights.

    Raises:
        UsageError: All problems with the settings together.
        DataError: The files of the task cannot be read.
    """
    spec = complete(spec)
    task = build_task(spec)
    spec = fit_language_heads(spec, task)
    check_length(spec, task)
    with naming_source("task", spec.task.get("name"), spec.provenance.config_dirs):
        # everything that can be wrong with files and labels, before anything is written
        inference.check_splits(task)
    spec = with_tokenizer(fit_task(spec, task), spec.checkpoint)
    return spec, task, check_finetuning(spec, task)


def build_task(spec: Finetune) -> Task:
    """The task of a fine-tuning run, which is one that can be trained on."""
    task = build(spec.task, reading(spec, spec.plugins), spec.plugins, path="task")
    if not isinstance(task, Task):
        raise UsageError(
            f"task={spec.task.get('name') or spec.task['_target_']} is for plmctl eval,"
            " it has nothing to train"
        )
    if not task.metrics:
        allowed = "one at least, by which the best checkpoint is chosen"
        raise ConfigError("task.metrics", [], allowed)
    return task


def _makes_rows(misfit: UsageError) -> bool:
    """Whether every noise is given what it reads."""
    errors = misfit.errors if isinstance(misfit, ConfigErrors) else [misfit]
    return not any(str(error).startswith("noise.") for error in errors)
