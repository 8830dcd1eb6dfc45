"""Are the arms comparable, and does every metric exist? All composed arms are checked at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from plmctl.config.spec import key_of
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.core.spelling import spell, spell_word
from plmctl.jobs.job import Config
from plmctl.runs.pair_sample import ACCURACY
from plmctl.study.composing import ComposedArm
from plmctl.study.study import PRETRAIN, Metric, Study
from plmctl.study.unlike import explain_unlike
from plmctl.tasks.task import Task

HELD_OUT = ("data.valid_path", "data.valid_target_path", "data.field", "data.lines", "data.segment")
# where no file is held out, a share of the text is
SHARE = ("data.path", "data.mixture", "data.sources", "data.valid_share")
MEASURED = ("eval.noise", "eval.seed", "eval.rows")
TEXT = (*MEASURED, *HELD_OUT)  # the settings that decide losses
PAIRS = ("eval.minimal_pairs", "eval.pairs", "eval.seed")  # and an accuracy on minimal pairs


def check_study(
    study: Study,
    arms: Mapping[str, ComposedArm],
    tasks: Mapping[str, Task],
    scores: Mapping[str, Collection[str]],
    can_measure: Callable[[str, str], bool],
) -> list[UsageError]:
    """Everything that would make a figure meaningless.

    Args:
        scores: The names of the scores of evaluations, as far as they are known.
        can_measure: Whether a task, by its name, takes a word like task.metrics=[f1,accuracy].
    """
    errors: list[UsageError] = []
    pretrained = {name: arm for name, arm in arms.items() if arm.arm.pretrain}
    # the metrics of each source; those of other evaluations are not known
    judged = {study.baseline: arms[study.baseline]} if study.baseline in pretrained else pretrained
    known: dict[str, dict[str, Collection[str]]] = {
        PRETRAIN: {f"the pretraining of arm '{n}'": arm.measured for n, arm in judged.items()}
    }
    known |= {name: {f"task '{name}'": {*task.metrics, "loss"}} for name, task in tasks.items()}
    known |= {name: {f"eval '{name}'": names} for name, names in scores.items()}
    known |= {
        name: known[node.of]
        for name, node in study.evals.items()
        if node.of in tasks and name not in scores
    }
    metrics = study.metrics.items()
    for name, metric in metrics:
        errors += [
            _no_metric(
                f"metrics.{name}.key",
                metric.key,
                owner,
                names,
                fix="" if metric.of in scores else _add_metric(metric, study, tasks, can_measure),
            )
            for owner, names in known.get(metric.of, {}).items()
            if metric.key not in names and not _stands_alone(metric, pretrained)
        ]
    errors += _check_columns(study, arms)
    if study.stop:
        measured = {key for arm in pretrained.values() for key in arm.measured}
        if study.stop.metric.removeprefix("valid/") not in measured:
            errors.append(_no_metric("stop.metric", study.stop.metric, "pretraining", measured))
    return errors


def _check_columns(study: Study, arms: Mapping[str, ComposedArm]) -> list[UsageError]:
    """Arms in one column of pretraining that are measured in different ways, each once."""
    found: dict[str, UsageError] = {}
    for name, metric in study.metrics.items():
        configs = {
            arm: own.pretrain
            for arm, own in arms.items()
            if own.arm.pretrain and not explain_unlike(study, arms, metric, arm)
        }
        if metric.of != PRETRAIN or len(configs) < 2:
            continue
        pairs = metric.key == ACCURACY
        errors = _other_validation(configs, PAIRS if pairs else TEXT)
        errors += [] if pairs else _other_tokens({name: metric}, configs)
        found |= {str(error): error for error in errors}
    return list(found.values())


def _stands_alone(metric: Metric, pretrained: Mapping[str, ComposedArm]) -> bool:
    """Whether some arm has a loss that the baseline lacks, and nothing is expected of it: then its
    column has no comparison.
    """
    having = any(metric.key in arm.measured for arm in pretrained.values())
    return metric.of == PRETRAIN and having and not metric.expect


def _other_validation(arms: Mapping[str, Config], keys: Sequence[str]) -> list[UsageError]:
    """Arms that are validated on other documents or pairs, or under other masks, than the first.

    Args:
        keys: The settings that decide it.
    """
    first, reference = next(iter(arms.items()))
    errors: list[UsageError] = []
    for name, config in arms.items():
        share = SHARE if keys == TEXT and not config["data"]["valid_path"] else ()
        for key in (*keys, *share):
            own, other = (_documents(key, select(node, key)) for node in (config, reference))
            if own != other:
                allowed = f"validation is the same for all arms; '{first}' has {_short(other)}"
                errors.append(
                    ConfigError(
                        f"arm '{name}': {key}",
                        own if own is None or isinstance(own, (str, float)) else _short(own),
                        allowed,
                        fix=_make_same(key, other if own is None else own),
                    )
                )
    return errors


def _make_same(key: str, value: Any) -> str:
    """The setting that makes validation the same for all arms; `value`: that of one of them."""
    if key in (*MEASURED, *PAIRS):
        return f"leave {key} out of arms; set it in pretrain"
    if key in SHARE:
        return "give data.valid_path"
    shared = spell_word(f"pretrain.overrides=[{key}={spell(value)}]")
    return f"{shared} in addition to its settings, for all arms"


def _documents(key: str, value: Any) -> Any:
    """A setting as far as it says which documents are held out: of sources, not how rows are made
    of them.
    """
    if key != "data.sources":
        return value
    made = ("format", "noise")
    return {
        name: {each: node for each, node in source.items() if each not in made}
        for name, source in (value or {}).items()
    }


def _other_tokens(metrics: Mapping[str, Metric], arms: Mapping[str, Config]) -> list[UsageError]:
    """Losses per token of different vocabularies."""
    nodes = (config["tokenizer"] for config in arms.values())
    if len({json.dumps(node, sort_keys=True, default=str) for node in nodes}) == 1:
        return []
    allowed = "the arms have different tokenizers, whose losses per token do not compare"
    return [
        ConfigError(
            f"metrics.{name}.key",
            metric.key,
            allowed,
            fix=f"key: bits_per_byte/{metric.key.partition('/')[2] or '<objective>'}",
        )
        for name, metric in metrics.items()
        if not metric.key.startswith("bits_per_byte/")
    ]


def _no_metric(
    path: str, key: str, owner: str, has: Collection[str], *, fix: str = ""
) -> ConfigError:
    known = f"it has {', '.join(sorted(has))}"
    why = f"{owner} does not produce it{nearest(key, has)}; {known}"
    return ConfigError(path, key, why, fix=fix)


def _add_metric(
    metric: Metric, study: Study, tasks: Mapping[str, Task], can_measure: Callable[[str, str], bool]
) -> str:
    """The line of the study's file by which a task has a metric, too; "" where it never has it."""
    name = metric.of if metric.of in tasks or metric.of == PRETRAIN else study.evals[metric.of].of
    if name not in tasks:
        return ""
    word = f"task.metrics=[{','.join([*tasks[name].metrics, metric.key])}]"
    if not can_measure(name, word):
        return ""
    own = [each for each in study.tasks[name].overrides if key_of(each) != "task.metrics"]
    # as JSON, which YAML reads as it stands
    return f"overrides: {json.dumps([*own, word], ensure_ascii=False)} in finetune.tasks.{name}"


def _short(value: Any) -> str:
    text = spell(value)
    return text if len(text) < 120 else f"{text[:117]}..."
