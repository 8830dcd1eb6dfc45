"""From the settings as written to the spec that runs. Only this module opens checkpoints, teachers,
tokenizers and task files to decide settings, and fills in their facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from plmctl.artifacts.label_rows import arrange, labels_of
from plmctl.artifacts.loading import open_source
from plmctl.artifacts.model_facts import reading
from plmctl.config.asked import is_asked
from plmctl.config.model_settings import model_settings
from plmctl.config.plugins import confirm
from plmctl.config.run_name import runs_of
from plmctl.config.schema import Finetune, Graph, Pretrain
from plmctl.config.spec import thaw
from plmctl.core.errors import PlmctlError, UsageError, collect, flatten, raise_all
from plmctl.runs.adapt import adapt, complete, fit_to
from plmctl.runs.check import (
    Outline,
    check_finetuning,
    check_machine,
    check_pretraining,
    check_settings,
)
from plmctl.runs.init_differences import naming_kind
from plmctl.runs.parents import (
    build_task,
    check_opened,
    check_splits,
    check_texts,
    checking_parents,
    shorten_rows,
)
from plmctl.runs.side_tasks import with_side_tasks
from plmctl.runs.task_fit import fit_language_heads
from plmctl.runs.teachers import with_tokenizer
from plmctl.storage.paths import fresh, refuse_file_name
from plmctl.tasks.capabilities import find_lesson
from plmctl.tasks.readers.label_text import SETTING
from plmctl.tasks.task import Task
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of
from plmctl.training.trackers.choose import open_trackers

Training = TypeVar("Training", Pretrain, Finetune, Graph)


def resolve_pretraining(spec: Pretrain) -> tuple[Pretrain, Outline | None, UsageError | None]:
    """The spec as it will be run, the run without weights, and what does not fit.

    Raises:
        UsageError: All problems together; with `--preview`, problems that do not hide the rows are
            returned.
    """
    with checking_parents(spec):
        check_settings(spec)
        if not spec.provenance.resume:
            spec = decide_place(adapt(spec))
            spec = with_tokenizer(spec, spec.init)
    try:
        with checking_parents(spec):
            with naming_kind(spec):
                outline = check_pretraining(spec)
            check_texts(spec)
            check_opened(spec)
        return spec, outline, None
    except UsageError as error:
        if not (spec.provenance.preview and _makes_rows(error)):
            raise
        return spec, None, error


def resolve_finetuning(spec: Finetune) -> tuple[Finetune, Task, Outline]:
    """The spec as it will be run, its task, which has seen all labels, and the run without
    weights.

    Raises:
        UsageError: All problems with the settings, and with their models and files, together.
        DataError: The files of the task cannot be read, and nothing else is wrong.
    """
    with checking_parents(spec):
        errors: list[PlmctlError] = []
        with collect(errors):
            check_machine(spec)
        with collect(errors):
            spec = complete(spec)
        raise_all(errors)
        spec = decide_place(spec)
        check_opened(spec)
        task = build_task(spec)
        spec = fit_language_heads(spec, task)
        spec, task = shorten_rows(spec, task)
        check_splits(spec, task)
        _keep_rows(spec, task)
        check_texts(spec)
        spec = with_side_tasks(spec, task)
        if not find_lesson(task):
            spec = with_tokenizer(spec, spec.checkpoint)
    with checking_parents(spec):
        return spec, task, check_finetuning(spec, task)


def outline_later(
    spec: Finetune, config: Mapping[str, Any], tasks: dict[str, Task]
) -> tuple[Finetune, Task, Outline]:
    """The fine-tuning of a model that is trained later, its task and itself without weights; raise
    what does not fit together.

    Args:
        spec: The spec of the fine-tuning; its checkpoint is null.
        config: The config of the run that will make the model.
        tasks: The tasks whose files were read, by all settings that decide how; a new one is added.
    """
    with checking_parents(spec):
        check_machine(spec)
        spec = fit_to(spec, config)
        task = build_task(spec)
        key = json.dumps(
            [thaw(spec.task), reading(model_settings(spec), spec.plugins)], sort_keys=True
        )
        if key not in tasks:
            check_splits(spec, task)
            tasks[key] = task
        task = tasks[key]
        spec = with_side_tasks(fit_language_heads(spec, task), task)
        return spec, task, check_finetuning(spec, task)


def _keep_rows(spec: Finetune, task: Task) -> None:
    """Keep the numbers that labels have in the checkpoint, where the data have the same labels.

    Labels that the user states keep the order of the user.
    """
    codes = {name: code for code, name in task.label_codes.items()}
    stated = is_asked(spec.provenance, SETTING) if codes else task.states_labels
    names = None if stated else codes or task.label_names
    if names and spec.checkpoint and not spec.checkpoint_into:
        source = open_source(spec.checkpoint, plugins=spec.plugins)
        known = labels_of(source.config, source.plugins)
        task.label_names = arrange(names, known.get(task.facts.head))
        task.label_codes = {codes[name]: name for name in task.label_names if codes}


def decide_place(spec: Training) -> Training:
    """The spec with its folder, the plug-ins that it is made with, and its precision, all decided
    once for the whole run. (The device, and what is compiled, each sitting decides by its machine.)
    """
    given = spec.provenance
    confirm(spec.run.plugins, given.plugins, of="this config (run.plugins)")
    # a missing library is reported before any work
    open_trackers(spec.run.trackers, given.plugins)
    folder = spec.run.dir or fresh(runs_of(spec.run.name or given.command))
    refuse_file_name(folder, "run.dir")
    precision = choose(spec.train.precision, device_of(spec.train.device))
    return spec.replace(
        {
            "run.dir": str(Path(folder)),
            "run.plugins": given.plugins,
            "train.precision": precision.name,
        }
    )


def _makes_rows(misfit: PlmctlError) -> bool:
    """Whether every noise is given what it reads."""
    return not any(str(error).startswith("noise.") for error in flatten(misfit))
