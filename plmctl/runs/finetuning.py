"""`plmctl finetune`: a checkpoint, or a fresh model, trained on a labelled task; the best on the
dev split is kept.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.analysis.paired import find_tests
from plmctl.analysis.runs import RunLog
from plmctl.artifacts.loading import find, open_source, read_config
from plmctl.config.asked import is_asked
from plmctl.config.build import build, plain
from plmctl.config.compose import attempt
from plmctl.config.first_session import first_words
from plmctl.config.plugins import option
from plmctl.config.recipes import load, part_files
from plmctl.config.schema import Finetune
from plmctl.config.spec import key_of
from plmctl.core.errors import PlmctlError
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_line, spell_setting, spell_word
from plmctl.core.terminal import remark
from plmctl.models.base import Model
from plmctl.runs import estimate
from plmctl.runs.after_range_test import commands_with_found
from plmctl.runs.finetuning_plan import TOKENIZER, FinetuningPlan, plan
from plmctl.runs.fit import fit
from plmctl.runs.footprint import measure_footprint
from plmctl.runs.own_rate import settle_rate
from plmctl.runs.parents import build_task
from plmctl.runs.resolve import resolve_finetuning
from plmctl.runs.rewritten import replace_targets
from plmctl.runs.session import After, Session, run_session
from plmctl.runs.shortness import describe_few, describe_outside, describe_scoring
from plmctl.runs.side_tasks import open_side_tasks
from plmctl.runs.side_training import conclude_sides, is_percent, list_percent, score_sides
from plmctl.runs.spacing import space_scorings
from plmctl.runs.task_fit import fit_task
from plmctl.storage.atomic import write_json
from plmctl.tasks import inference
from plmctl.tasks.baselines import Baselines, score_baselines
from plmctl.tasks.inference import Split
from plmctl.tasks.intervals import describe_scores, find_intervals
from plmctl.tasks.predictions import write_predictions
from plmctl.tasks.scores.base import MEANINGS, join_meanings
from plmctl.tasks.scores.below import (
    CHOICE,
    LEAKED,
    READ,
    TESTS,
    UNBEATEN,
    folder_of,
    list_choices,
    list_unbeaten,
)
from plmctl.tasks.scores.bundles import KNOWN, count_bundles, list_known
from plmctl.tasks.task import Task
from plmctl.tasks.trained_texts import keep_trained
from plmctl.text.reader import read_documents
from plmctl.text.tokenizer import META, Tokenizer
from plmctl.training.checkpoint import load_exactly, read
from plmctl.training.device.precision import choose
from plmctl.training.origins import read_origins
from plmctl.training.progress import Progress
from plmctl.training.trainer import Evaluate, Result
from plmctl.use.predict import ScoreTable, Told, predict
from plmctl.use.simple_models import write_baselines

TEST = "plmctl eval checkpoint={run} split=test"


def finetune(
    spec: Finetune, after: After = lambda session, result: result
) -> int | Mapping[str, float]:
    """Fine-tune, or with --dry-run only say what that would be; returns the exit code, or the
    costs that a dry run foresees.

    Args:
        after: The work of another command once the training is over.
    """
    if spec.provenance.resume:
        spec = fit_task(spec, build_task(spec))  # older versions saved that with checkpoints alone
    else:
        spec, costs = _resolve(spec)
        if spec.provenance.dry_run:
            return costs

    def prepare(spec: Finetune) -> tuple[Finetune, Tokenizer]:
        spec = replace_targets(spec)
        return spec, _tokenizer(spec)

    return run_session(
        spec,
        prepare=prepare,
        train=lambda session: after(session, train(session)),
        then=lambda session: commands_with_found(session) or commands_after(session.spec),
    )


def _resolve(spec: Finetune) -> tuple[Finetune, dict[str, float]]:
    """(the spec as it will be run, its costs with --dry-run, which says what that would be). The
    data and models that it opens are freed before the training.
    """
    spec, task, outline = resolve_finetuning(spec)
    spec, line = settle_rate(spec, outline.model.backbone.width)
    if spec.provenance.dry_run:
        return spec, estimate.show_task(spec, outline, task)
    if line:
        remark(line)
    return spec, {}


def commands_after(spec: Finetune) -> dict[str, str]:
    """The commands for a fine-tuned model; {a command: a remark on it}."""
    pairs = (spec.task.get("columns") or {}).get("text2") is not None
    pair = "pairs that you type, one a line, a tab between its two texts"
    task = build_task(spec)
    typed = pair if pairs else task.facts.typed
    there = [*task.splits.devs, *filter(task.splits.has, ("test",)), "train"]
    split = "" if "dev" in there else f" split={there[0]}"
    return {
        f"plmctl eval checkpoint={{run}}{split}": "",
        **({TEST: "no checkpoint was chosen on it"} if task.splits.tested_share else {}),
        **({"plmctl predict {run} input=-": f"reads the {typed}, to Ctrl-D"} if typed else {}),
        "plmctl report {run}": "",
    }


def _tokenizer(spec: Finetune) -> Tokenizer:
    """The run's, where an earlier sitting saved it; else the checkpoint's, or a new one, the
    same in every process.
    """
    saved = Path(str(spec.run.dir)) / TOKENIZER
    if spec.provenance.resume and (saved / META).is_file():
        return Tokenizer.load(saved)
    if spec.checkpoint is not None:
        return open_source(spec.checkpoint, plugins=spec.plugins).tokenizer
    if spec.tokenizer.get("path"):
        return Tokenizer.load(spec.tokenizer.path)
    if spec.data.path:
        documents = read_documents(spec.data.path, field=spec.data.field, lines=spec.data.lines)
        texts = [sentence for document in documents for sentence in document.sentences]
    else:
        tasks = [build_task(spec), *(side.task for side in open_side_tasks(spec))]
        texts = [str(t) for task in tasks for e in task.read("train") for t in task.texts(e)]
    recipe = build(spec.tokenizer, plugins=spec.plugins, path="tokenizer")
    tell = None if is_asked(spec.provenance, "tokenizer.vocab_size") else remark
    return Tokenizer.learn_most(lambda: texts, recipe, tell)


def train(session: Session) -> Result:
    """Plan a fine-tuning, execute it, then score the best checkpoint and write predictions/ and
    result.json.
    """
    return execute(plan(session), session)


def execute(plan: FinetuningPlan, session: Session) -> Result:
    """Train what is planned, and conclude it."""
    train, tokenizer, kept = session.spec.train, plan.tokenizer, plan.kept
    best, largest = plan.metric
    session.log.is_percent = lambda metric: is_percent(metric, plan.task, plan.sides)
    if session.world.main:
        bundled = plan.task.splits.names_bundles
        keep_trained(session.folder, plan.data["train"].examples, bundled=bundled)
    stable = bool(train.least_steps)
    if line := describe_outside(session.spec, [*plan.scored]):
        session.say(line)
    result = fit(
        session,
        model=plan.model,
        objective=plan.objective,
        budget=plan.budget,
        stages=plan.stages,
        evaluate=_validation(plan, session),
        extras=lambda folder: tokenizer.save(folder / TOKENIZER),
        keep_best=best if plan.objective.facts.heads_learn else "",
        best_is_largest=largest,
        every=space_scorings(plan.epoch, plan.budget.steps, stable=stable),
        base=plan.base,
        regulariser=plan.regulariser,
        used=True,
    )
    if kept and not result.exit_code:
        kept.remove()
    line = describe_few(session.spec, result.progress.step)
    if line and not result.exit_code:
        session.say(line)
    if session.world.main and not result.exit_code:
        return replace(result, checkpoint=_conclude(session, plan))
    return result


def _validation(plan: FinetuningPlan, session: Session) -> Evaluate | None:
    """The scores of dev, and those of the other tasks; None without dev."""
    dev, kept = plan.data.get("dev"), plan.kept
    if not dev:
        return None

    untold = session.spec.train.minutes is not None

    def evaluate(model: Model, progress: Progress) -> dict[str, float]:
        nonlocal untold
        if session.world.rank:  # a team computes together
            return {}
        started = time.perf_counter()
        with kept.of("dev") if kept else contextlib.nullcontext():
            scores = predict(model, plan.task, dev, precision=session.precision)[1]
        if untold:
            session.say(describe_scoring(time.perf_counter() - started))
        untold = False
        return scores | score_sides(model, plan.sides, session.precision)

    return evaluate


def _describe(task: Task, predicted: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Told]:
    """Remarks on the scores of each split."""
    return {
        key if len(predicted) == 1 else f"{key} of {name}": Told(line)
        for name, rows in predicted.items()
        for key, line in describe_scores(task, rows).items()
    }


def _conclude(session: Session, plan: FinetuningPlan) -> Path:
    """Scores of the best checkpoint, from the very predictions that are saved, next to those of
    models without pretraining; returns that checkpoint.

    In fp32, as `plmctl eval` scores; validation was in the precision of training.
    """
    task, model, devs = plan.task, plan.model, plan.scored
    best, precision = find(session.folder), choose("fp32", session.world.device)
    saved = read(best)
    load_exactly(model, saved.model, file=best, elsewhere=saved.elsewhere)
    folder, metrics = session.folder / "predictions", {}
    predicted, intervals = dict[str, list[dict[str, Any]]](), {}
    for name, split in devs.items():
        predictions, scores = predict(
            model, task, split, precision=precision, digits=precision.digits
        )
        metrics[name] = round_floats(scores)
        intervals[name] = find_intervals(task, predictions) if scores else {}
        write_predictions(folder, name, predictions)
        predicted[name] = predictions
    record: dict[str, Any] = {
        "task": task.name,
        "checkpoint": str(best),
        "labels": task.label_names,
        "skipped": task.splits.reader.skipped,
    }
    optional: dict[str, Any] = {"signatures": dict(task.signatures), "lower": task.directions.lower}
    baselines = score_baselines(
        task, plan.data["train"].examples, {name: split.examples for name, split in devs.items()}
    )
    optional[TESTS] = {
        split: round_floats(find_tests(predicted[split], others, task.score, task.metrics[0]))
        for split, others in baselines.predictions.items()
    }
    footprint = measure_footprint(model, best, session.world.device)
    examples = {name: len(split.examples) for name, split in devs.items()}
    record |= {"metrics": metrics, "intervals": round_floats(intervals), "examples": examples}
    bundles = {name: n for name, rows in predicted.items() if (n := count_bundles(rows))}
    optional |= {"bundles": bundles, **_find_limits(session, plan, baselines)}
    record |= {"footprint": footprint.record()}
    beside, places = conclude_sides(session, model, plan.sides)
    record |= {name: value for name, value in {**optional, "beside": beside}.items() if value}
    record["percent"] = list_percent(task, metrics, beside, plan.sides)
    write_json(session.folder / "result.json", record)
    config = read_config(best, plugins=session.spec.plugins)
    write_baselines(session.folder, baselines, config)
    given = session.spec.provenance
    if not given.front:  # else that command shows them in its own table
        title, as_json = f"{task.name}: {best.name}", given.json
        taken = footprint.record() if as_json else footprint.describe()
        told = _describe(task, predicted) | _describe_result(
            task, record, baselines, devs, session.folder
        )
        told |= {"from random weights": Told(line)} if (line := _spell_random(session)) else {}
        extra: dict[str, Any] = {"footprint": taken, **told}
        extra |= {"predictions": str(folder)} if metrics else {}
        extra |= {"beside": beside} if beside and as_json else places
        table = ScoreTable(title, metrics, extra, intervals, examples, task.is_percent)
        table.show(as_json=as_json)
    return best


def _spell_random(session: Session) -> str:
    """The same fine-tuning of the same model from random weights, whose score says what a
    pretraining of one's own adds; "" where the run began from other weights, or where no words
    build its model.
    """
    if not any("step" in each for each in read_origins(session.folder).get("checkpoint", ())):
        return ""
    replaced = ("checkpoint", "kept_layers", "run.")
    words = [w for w in first_words(session.folder) if not key_of(w).startswith(replaced)]
    given, folder = session.spec.provenance, session.folder
    size, wanted = plain(session.spec["size"] or {}), plain(session.spec["model"])
    named = (name for name, file in part_files("size").items() if load(file) == size)
    name = next(named, "")
    words += [f"size={name}"] if name else [f"size.{key}={n}" for key, n in size.items()]
    words.append("checkpoint=null")
    try:
        built = attempt(replace(given, overrides=tuple(words), resume=False)).spec
    except PlmctlError:
        return ""
    if plain(built["model"]) != wanted:
        return ""
    own = [*map(spell_word, words), spell_setting("tokenizer.path", folder / "tokenizer")]
    own += [spell_setting("run.dir", f"{folder}-random")]
    shown = f"plmctl finetune {' '.join(own)}{option(session.spec.plugins)}"
    return f"{shown} shows what the pretraining adds"


def _find_limits(session: Session, plan: FinetuningPlan, baselines: Baselines) -> dict[str, Any]:
    """The facts on scores: kinds of metrics, examples that were read, ways to be too high, and the
    checkpoints that the run began from.
    """
    return {
        MEANINGS: plan.task.meanings,
        READ: _count_read(session, plan, baselines),
        CHOICE: _count_choices(session, plan),
        KNOWN: inference.count_known_bundles(plan.task, plan.data),
        LEAKED: inference.count_known_texts(plan.data),
        "origins": read_origins(session.folder),
    }


def _count_read(session: Session, plan: FinetuningPlan, baselines: Baselines) -> dict[str, int]:
    """The training examples that the fine-tuning and the simple models have read; {} without."""
    steps, everything = plan.budget.steps, len(plan.data["train"].examples)
    if not baselines.read or steps is None:
        return {}
    tuned = min(everything, round(everything * steps / plan.epoch))
    return {"fine-tuning": tuned, "simple models": baselines.read, "all": everything}


def _count_choices(session: Session, plan: FinetuningPlan) -> dict[str, int]:
    """{split: the validations of which it chose the best}, where there was a choice."""
    name = f"valid/{plan.metric[0]}"
    count = len(RunLog.read_started(session.folder).series.get(name, ()))
    chose = session.spec.train.keep_best and plan.objective.facts.heads_learn
    return {"dev": count} if chose and count > 1 else {}


def _describe_result(
    task: Task,
    record: Mapping[str, Any],
    baselines: Baselines,
    devs: Mapping[str, Split],
    folder: Path,
) -> dict[str, Told]:
    """Remarks on what scores are worth, next to those of models without pretraining."""
    first, simple = task.metrics[0], baselines.scores
    how = {"tests": record.get(TESTS), "read": record.get(READ)}
    cut = sum((inference.count_truncation(split.rows) for split in devs.values()), Counter())
    share = cut["lost"] / max(1, cut["lost"] + cut["read"])
    lines = list_unbeaten(record["metrics"], simple, first, lower=task.directions.lower, **how)
    found = {
        "metrics": Told(join_meanings(task.meanings) if devs else ""),
        "chosen": Told("; ".join(list_choices(record))),
        "bundles in train": Told("; ".join(list_known(record))),
        "baselines": Told(baselines.describe(first, share)),
        UNBEATEN: Told("; ".join(lines), len(lines)),
        "simple model": Told(_suggest_linear(folder, baselines, task) if lines else ""),
    }
    return {name: told for name, told in found.items() if told.text}


def _suggest_linear(run: Path, baselines: Baselines, task: Task) -> str:
    """The command that labels texts with the best linear model of words; "" without one."""
    sign = 1 if task.directions.larger(first := task.metrics[0]) else -1
    scores = next(iter(baselines.scores.values()), {})
    known = {name: sign * scores[name][first] for name in baselines.linear if name in scores}
    best = max(known, key=known.__getitem__, default="")
    return spell_line("predict", folder_of(run, best), "input=<texts>") if best else ""
