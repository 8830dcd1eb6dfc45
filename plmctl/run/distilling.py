"""`plmctl distill`: train with a teacher (`plmctl pretrain` or `finetune` with `distill=`), then
say what came of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from plmctl.core.batch import Batch
from plmctl.core.terminal import tell
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.run import finetuning, pretraining
from plmctl.run.assemble import build_objective, known_to_objectives
from plmctl.run.corpus import Corpus
from plmctl.run.cost import own_parameters
from plmctl.run.loaders import find_used_fields, open_held_out
from plmctl.run.loading import Loaded, load
from plmctl.run.parents import build_task
from plmctl.run.predict import predict, show_scores
from plmctl.run.schema import Finetune, Pretrain
from plmctl.run.session import Session
from plmctl.run.side_by_side import BATCHES, Forward, ModelColumn, SideBySide, measure_latencies
from plmctl.run.teachers import teachers_of
from plmctl.storage.atomic import write_json, write_text
from plmctl.tasks import batches, inference
from plmctl.tasks.base import Task
from plmctl.training.device.precision import choose
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World
from plmctl.training.trainer import Result

Score = Callable[[Model], dict[str, float]]


def distill(spec: Finetune | Pretrain) -> int:
    """Train the student, or with --dry-run say what that would be; returns the exit code."""
    if isinstance(spec, Finetune):
        code = finetuning.finetune(spec, after=compare)
    else:
        code = pretraining.pretrain(spec, after=compare)
    if spec.provenance.dry_run:
        models = {path: load(path, plugins=spec.plugins).model for path in teachers_of(spec)}
        shown = {
            path: {"parameters": count(model), "layers": model.backbone.num_layers}
            for path, model in models.items()
        }
        show_scores("teachers", shown, as_json=spec.provenance.json, extra={})
    return code


def compare(session: Session, result: Result) -> Result:
    """Teachers and student measured on the same rows: the table is printed, added to
    result.json, and written to distill.md.
    """
    if result.exit_code or not session.world.main:
        return result
    plugins = session.spec.plugins
    teachers = [load(path, plugins=plugins) for path in teachers_of(session.spec)]
    student = load(session.folder, plugins=plugins)
    session.say("measuring teacher and student")
    table = measured(session, teachers, student)
    file = session.folder / "result.json"
    record = (
        json.loads(file.read_text(encoding="utf-8"))
        if file.is_file()
        else {"metrics": {"dev": dict(table.student.scores)}}
    )
    write_json(file, {**record, "distillation": table.to_json()})
    write_text(session.folder / "distill.md", table.markdown())
    if session.spec.provenance.json:
        tell(json.dumps({"run": str(session.folder), **table.to_json()}))
    else:
        table.show()
    return result


def measured(session: Session, teachers: list[Loaded], student: Loaded) -> SideBySide:
    """Every model on the dev split of the task, or on held-out text."""
    loaded = [*teachers, student]
    for each in loaded:
        each.model.to(session.precision.device).eval()
    of_task = isinstance(session.spec, Finetune)
    scores, timed, forward, metric, largest = (_on_task if of_task else _on_text)(session, loaded)
    times = measure_latencies(
        [each.model for each in loaded], timed, forward, precision=session.precision
    )
    titles = (
        [f"teacher {n}" for n in range(1, len(teachers) + 1)]
        if len(teachers) > 1
        else ["teacher"] * len(teachers)
    )
    columns = [
        replace(ModelColumn.of(title, each), latency=times[place], scores=scores[place])
        for place, (title, each) in enumerate(zip([*titles, "student"], loaded, strict=True))
    ]
    device = session.precision.device.type
    threads = f", {torch.get_num_threads()} threads" if device == "cpu" else ""
    place = (
        f"{device}, {session.precision.name}{threads},"
        " lower quartiles of alternating runs on the rows that are scored"
    )
    place += "" if session.precision.name == "fp32" else "; scores in fp32"
    return SideBySide(
        columns[:-1], columns[-1], metric=metric, largest_is_best=largest, place=place
    )


# scores, batches to be timed, how, metric, best
Measures = tuple[list[dict[str, float]], dict[int, Batch], Forward, str, bool]


def _on_task(session: Session, loaded: list[Loaded]) -> Measures:
    """On the dev split; a teacher without the head of the task has no score, and then only
    backbones are timed.
    """
    task = build_task(session.spec)
    task.fit_labels(train := task.read("train"))
    student = loaded[-1]
    name = "dev" if task.has("dev") else "train"
    split = inference.encode_split(
        task, name, task.read("dev") if task.has("dev") else train, student.tokenizer
    )
    scores = [_scored(session, task, each, split) if name == "dev" else {} for each in loaded]
    answer = all(_answers(task, each) for each in loaded)
    length = batches.BatchUnits.of(split.rows).length
    middle = np.argsort(np.abs(length - np.median(length)), kind="stable")
    timed = {rows: batches.collate(split.rows, middle[:rows]) for rows in BATCHES}
    forward: Forward = task.logits if answer else lambda model, batch: model(batch)
    return scores, timed, forward, task.metrics[0], task.best_is_largest


def _scored(
    session: Session, task: Task, loaded: Loaded, split: inference.Split
) -> dict[str, float]:
    precision = choose("fp32", session.world.device)
    return (
        predict(loaded.model, task, split, precision=precision)[1] if _answers(task, loaded) else {}
    )


def _answers(task: Task, loaded: Loaded) -> bool:
    """Whether a model has the heads of a task, and answers with the same labels."""
    known = (loaded.config.get("task") or {}).get("label_names")
    return task.facts.heads <= set(loaded.model.heads) and (
        not known or task.label_names in (None, [str(label) for label in known])
    )


def _on_text(session: Session, loaded: list[Loaded]) -> Measures:
    """On held-out rows, by the run's own objective; where it owns parameters, or a model lacks
    its heads, there is no score.
    """
    spec, world, corpus = session.spec, World(device=session.precision.device), session.prepared
    assert isinstance(corpus, Corpus)
    found: dict[str, list[Batch]] = {}
    scores: list[dict[str, float]] = []
    for each in [loaded[-1], *loaded[:-1]]:
        given = {
            "vocab": corpus.vocab,
            **known_to_objectives(each.model, vocab_size=corpus.vocab.size),
        }
        objective = build_objective(spec, given, spec.plugins).to(world.device).eval()
        if not found:
            asked: dict[str, Any] = {
                "needs": each.model.backbone.needs | objective.facts.needs,
                "uses": find_used_fields(each.model, objective),
            }
            rows = open_held_out(
                spec, corpus, world, labels=objective.labels, plugins=spec.plugins, **asked
            )
            found = {title: list(part) for title, part in rows.items()}
        if own_parameters(objective, each.model) or not objective.facts.heads <= set(
            each.model.heads
        ):
            scores.append({})
            continue
        with torch.no_grad():
            parts = [
                measure(each.model, objective, rows, world=world, seed=spec.seed)
                for rows in found.values()
            ]
        scores.append(_with_perplexity(Measured.together(parts).means(), found))
    timed = {}
    for number in BATCHES if found else ():
        some = spec.replace({"eval.batch_size": number, "eval.rows": number})
        batch = next(
            next(
                iter(
                    open_held_out(
                        some, corpus, world, labels=None, plugins=spec.plugins, **asked
                    ).values()
                )
            )
        )
        timed[len(batch.key)] = batch
    return [*scores[1:], scores[0]], timed, lambda model, batch: model(batch), "loss", False


def _with_perplexity(
    scores: dict[str, float], found: Mapping[str, list[Batch]]
) -> dict[str, float]:
    """And e^loss of every target made of tokens."""
    names = {name for rows in found.values() for batch in rows[:1] for name in batch.targets}
    return scores | {
        f"perplexity/{n}": math.exp(scores[f"loss/{n}"])
        for n in sorted(names)
        if f"loss/{n}" in scores
    }
