"""`plmctl distill`: train with a teacher (`plmctl pretrain` or `finetune` with `distill=`), then
say what came of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from plmctl.artifacts.assemble import build_objective
from plmctl.artifacts.cost import own_parameters
from plmctl.artifacts.loading import Loaded, load
from plmctl.config.schema import Finetune, Pretrain
from plmctl.config.texts import Feed
from plmctl.core.batch import Batch
from plmctl.core.exponential import exponentiate
from plmctl.core.rounding import round_floats
from plmctl.core.terminal import tell
from plmctl.inputs.corpus import Corpus
from plmctl.inputs.loaders import BatchFields, batches_beside, open_held_out
from plmctl.models.base import Hidden, Model
from plmctl.nn.tables import count
from plmctl.runs import finetuning, pretraining
from plmctl.runs.parents import build_task
from plmctl.runs.session import Session
from plmctl.runs.side_by_side import BATCHES, Forward, ModelColumn, SideBySide, measure_latencies
from plmctl.runs.teachers import load_teacher, teachers_of
from plmctl.storage.atomic import write_json, write_text
from plmctl.storage.reading import parse_json, read_json
from plmctl.tasks import batches, inference
from plmctl.tasks.capabilities import find_lesson
from plmctl.tasks.readers.label_codes import names_of
from plmctl.tasks.record import Example
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import READ, TESTS, describe_one_answer, list_unbeaten
from plmctl.tasks.task import Task
from plmctl.training.device.precision import Precision, choose
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World
from plmctl.training.trainer import Result
from plmctl.use.calibrating import decide_again
from plmctl.use.embedding_lines import find_longest, lay_out_text
from plmctl.use.predict import BATCH, ScoreTable, predict
from plmctl.use.sentence_vectors import choose_pooling, embed_texts
from plmctl.use.vectors import make_batch


def distill(spec: Finetune | Pretrain) -> int | Mapping[str, float]:
    """Train the student, or with --dry-run say what that would be; returns the exit code, or the
    costs that a dry run foresees.
    """
    if isinstance(spec, Finetune):
        done = finetuning.finetune(spec, after=compare)
    else:
        done = pretraining.pretrain(spec, after=compare)
    if spec.provenance.dry_run:
        sizes: dict[str, dict[str, float]] = {}
        for path in teachers_of(spec):
            model = load(path, plugins=spec.plugins).model
            sizes[path] = {"parameters": count(model), "layers": model.backbone.num_layers}
        ScoreTable("teachers", sizes, {}).show(as_json=spec.provenance.json)
    return done


def compare(session: Session, result: Result) -> Result:
    """Teachers and student measured on the same rows: the table is printed, added to
    result.json, and written to distill.md.
    """
    if result.exit_code or not session.world.main:
        return result
    plugins = session.spec.plugins
    teachers = [load_teacher(session.spec, path) for path in teachers_of(session.spec)]
    student = load(session.folder, plugins=plugins)
    session.say("measuring teacher and student")
    table = measure_models(session, teachers, student)
    file = session.folder / "result.json"
    record: dict[str, Any] = {"metrics": {"dev": dict(table.student.scores)}}
    if file.is_file():
        record = parse_json(file.read_text(encoding="utf-8"))
    table = replace(table, notes=[*table.notes, *_list_unbeaten(session.folder, table, record)])
    write_json(file, {**record, "distillation": table.to_json()})
    write_text(session.folder / "distill.md", table.markdown())
    if session.spec.provenance.json:
        tell(json.dumps({"run": str(session.folder), **table.to_json()}))
    else:
        table.show()
    return result


def _list_unbeaten(run: Path, table: SideBySide, record: Mapping[str, Any]) -> list[str]:
    """A line for each model whose score on dev is no better than those without pretraining."""
    file, last = run / BASELINES, table.columns[-1]
    simple = {"dev": own} if file.is_file() and (own := read_json(file).get("dev")) else {}
    lower = () if table.largest_is_best else (table.metric,)
    return [
        f"{column.title}: {line}"
        for column in table.columns
        for line in list_unbeaten(
            {"dev": round_floats(column.scores)},
            simple,
            table.metric,
            lower=lower,
            tests=record.get(TESTS) if column is last else None,
            read=record.get(READ) if column is last else None,
        )
    ]


class Trial(NamedTuple):
    """The batches and the measure for teachers and student."""

    scores: list[dict[str, float]]  # the scores of each model
    timed: Sequence[Mapping[int, Batch]]  # a batch for each model and number of rows
    forward: Forward
    metric: str
    largest_is_best: bool
    same: Sequence[str] = ()  # a remark on one answer to all rows, of each model


def measure_models(session: Session, teachers: list[Loaded], student: Loaded) -> SideBySide:
    """Every model on the dev split of the task, or on held-out text."""
    loaded, precision = [*teachers, student], session.precision
    for each in loaded:
        each.model.to(precision.device).eval()
    trial = (_on_task if isinstance(session.spec, Finetune) else _on_text)(session, loaded)
    models = [each.model for each in loaded]
    times = measure_latencies(models, trial.timed, trial.forward, precision=precision)
    numbers = [f" {place + 1}" if len(teachers) > 1 else "" for place in range(len(teachers))]
    titles = [*(f"teacher{number}" for number in numbers), "student"]
    columns = [
        replace(ModelColumn.of(title, each), latency=latency, scores=scores)
        for title, each, latency, scores in zip(titles, loaded, times, trial.scores, strict=True)
    ]
    device = precision.device.type
    threads = f", {torch.get_num_threads()} threads" if device == "cpu" else ""
    place = (
        f"{device}, {precision.name}{threads},"
        " lower quartiles of alternating runs on the rows that are scored"
    )
    place += "" if precision.name == "fp32" else "; scores in fp32"
    notes = [f"{title} {same}" for title, same in zip(titles, trial.same, strict=False) if same]
    how: Any = {"metric": trial.metric, "largest_is_best": trial.largest_is_best}
    return SideBySide(columns[:-1], columns[-1], place=place, notes=notes, **how)


def _on_task(session: Session, loaded: list[Loaded]) -> Trial:
    """On the dev split; a teacher without the head of the task has no score, and then only
    backbones are timed.
    """
    task, precision = build_task(session.spec), choose("fp32", session.world.device)
    task.fit_labels(train := task.read("train"))
    dev = task.read("dev") if task.splits.has("dev") else None
    name, examples = ("train", train) if dev is None else ("dev", dev)
    if find_lesson(task):
        return _on_vectors(task, examples, loaded, precision, scored=dev is not None)
    split = inference.encode_split(task, name, examples, loaded[-1].tokenizer)
    answer = [_answers(task, each) for each in loaded]
    scored = [
        _score(session, each, task, split, precision) if able and dev is not None else ({}, "")
        for each, able in zip(loaded, answer, strict=True)
    ]
    scores, same = [own for own, _ in scored], [line for _, line in scored]
    length = batches.BatchUnits.of(split.rows).length
    middle = np.argsort(np.abs(length - np.median(length)), kind="stable")
    timed = {rows: batches.collate(split.rows, middle[:rows]) for rows in BATCHES}
    forward: Forward = task.logits if all(answer) else _run_backbone
    every, metric = [timed] * len(loaded), task.metrics[0]
    return Trial(scores, every, forward, metric, task.directions.larger(metric), same)


def _on_vectors(
    task: Task, examples: list[Example], loaded: list[Loaded], precision: Precision, *, scored: bool
) -> Trial:
    """On the texts of examples, each model by its own tokenizer and pooling."""
    split = inference.encode_split(task, "dev", examples, loaded[-1].tokenizer)
    texts = [text for example in examples for text in task.texts(example)]
    scores, timed = list[dict[str, float]](), list[dict[int, Batch]]()
    for each in loaded:
        pooling = choose_pooling(each, None, path="teacher")
        how: Any = {"batch_size": BATCH, "precision": precision}
        vectors = embed_texts(each, texts, pooling, **how) if scored else np.zeros(0)
        answers = dict.fromkeys(task.facts.logit_names, vectors)
        scores.append(task.score(task.predict(answers, split.rows, examples)) if scored else {})
        longest = find_longest(each)
        lines = [lay_out_text(text, each, longest) for text in texts[: max(BATCHES)]]
        spelling = each.source.spelling
        timed.append({rows: make_batch(lines[:rows], spelling) for rows in BATCHES})
    return Trial(scores, timed, _run_backbone, task.metrics[0], True)


def _score(
    session: Session, loaded: Loaded, task: Task, split: inference.Split, precision: Precision
) -> tuple[dict[str, float], str]:
    """The scores that `plmctl eval` has of a model, by the decision that its checkpoint keeps; and
    a remark where it gives one answer to all rows.
    """
    digits = precision.digits
    rows, scores = predict(loaded.model, task, split, precision=precision, digits=digits)
    decided, how = decide_again(loaded, task, rows, digits)
    if how and scores:
        session.say(f"{loaded.source.folder} is scored by what its calibration kept: {how}")
        scores = {**scores, **task.score(decided)}
    return scores, describe_one_answer(decided)


def _answers(task: Task, loaded: Loaded) -> bool:
    """Whether a model has the heads of a task, and answers with the same labels."""
    known = (loaded.config.get("task") or {}).get("label_names")
    return task.facts.heads <= set(loaded.model.heads) and (
        not known or task.label_names in (None, names_of(known))
    )


def _on_text(session: Session, loaded: list[Loaded]) -> Trial:
    """On held-out rows, by the run's own objective; where it owns parameters, or a model lacks
    its heads, there is no score.
    """
    spec, world = session.spec, World(device=session.precision.device)
    corpus: Corpus = session.prepared
    models = [each.model for each in loaded]
    objectives = [
        build_objective(spec.objective, model, corpus.vocab, plugins=spec.plugins, seed=spec.seed)
        .to(world.device)
        .eval()
        for model in models
    ]
    fields = BatchFields.by(models[-1], objectives[-1])
    feed = Feed.of(spec)
    held_out = [list(rows) for rows in open_held_out(feed, corpus, world, fields).values()]
    targets = sorted({name for rows in held_out for batch in rows[:1] for name in batch.targets})
    scores: list[dict[str, float]] = []
    beside = batches_beside(feed, world.size)
    for model, objective in zip(models, objectives, strict=True):
        scores.append({})
        if own_parameters(objective, model) or not objective.facts.heads <= set(model.heads):
            continue
        with torch.no_grad():
            parts = [
                measure(model, objective, rows, world=world, seed=spec.seed, beside=beside)
                for rows in held_out
            ]
        means = Measured.together(parts).means()
        asked = [name for name in targets if f"loss/{name}" in means]
        scores[-1] = means | {f"perplexity/{n}": exponentiate(means[f"loss/{n}"]) for n in asked}
    timed = {}
    for number in BATCHES if held_out else ():
        few = feed.eval.replace({"batch_size": number, "rows": number})
        some = replace(feed, eval=few)
        batch = next(next(iter(open_held_out(some, corpus, world, fields).values())))
        timed[len(batch.key)] = batch
    return Trial(scores, [timed] * len(models), _run_backbone, "loss", False)


def _run_backbone(model: Model, batch: Batch) -> Hidden:
    return model(batch)
