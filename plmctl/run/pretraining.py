"""`plmctl pretrain`: assemble a model, an objective and data from a spec, and train."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.core.batch import Batch
from plmctl.core.fields import fields_of
from plmctl.core.locate import locate
from plmctl.core.terminal import screen
from plmctl.data.loader import Loader, RowSource
from plmctl.data.preview import preview
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.run import estimate
from plmctl.run.assemble import build_model, build_objective, known_to_objectives, without_weights
from plmctl.run.corpus import Corpus, open_corpus, sources
from plmctl.run.cost import cost
from plmctl.run.fit import budget_of, fit
from plmctl.run.glossary import token_targets
from plmctl.run.loaders import (
    build_format,
    describe_unread,
    find_used_fields,
    open_held_out,
    open_training_loader,
)
from plmctl.run.model_facts import heads_about, remark_on_pattern
from plmctl.run.overview import check_languages, check_memory, describe_run
from plmctl.run.resolve import resolve_pretraining
from plmctl.run.schema import Pretrain
from plmctl.run.session import After, Session, run_session
from plmctl.run.spec import thaw
from plmctl.run.stage_settings import STAGE_KEYS
from plmctl.run.teachers import add_teacher
from plmctl.run.weights import initialize
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World
from plmctl.training.stages import Stage
from plmctl.training.trainer import Result


def pretrain(spec: Pretrain, after: After = lambda session, result: result) -> int:
    """Train, or only show what would be trained (`--dry-run`, `--preview`); returns the exit
    code.

    Args:
        after: What another command does once the training is over.
    """
    given = spec.provenance
    spec, outline, misfit = resolve_pretraining(spec)
    if given.preview:
        _preview(spec, asked=misfit is None)
    if misfit:
        raise misfit
    if given.dry_run and outline:
        estimate.show(spec, outline)
        return 0
    if given.preview:
        return 0
    return run_session(
        spec,
        prepare=lambda spec: (spec, open_corpus(spec, spec.plugins)),
        train=lambda session: after(session, train(session)),
        then=commands_after,
    )


def commands_after(spec: Pretrain) -> list[str]:
    """What one does with a pretrained model: by its heads, whether it reads one text and writes
    another, and in which rows.
    """
    pairs = bool(spec.data.target_path or spec.data.fields)
    text = "data.path=<text> data.target_path=<translations>" if pairs else "data.path=<text>"
    lines = [] if pairs else ["plmctl finetune task=sst2 task.path=<folder> checkpoint={run}"]
    parts = [locate(node["_target_"], spec.plugins) for node in (spec.objective or {}).values()]
    asked = {part.facts.asks_next for part in parts if hasattr(part, "facts")} - {None}
    if asked:
        lines.append('plmctl generate checkpoint={run} prompt="<text>"')
    if spec.objective:
        task = "lm" if "text" in {*asked, *heads_about(spec, spec.plugins)} else "held_out"
        lines.append(f"plmctl eval task={task} {text} checkpoint={{run}}")
    return [*lines, "plmctl report {run}"]


def train(session: Session) -> Result:
    """Build everything the config names and fit it."""
    spec, plugins = session.spec, session.spec.plugins
    corpus: Corpus = session.prepared
    model = build_model(
        spec, vocab_size=corpus.vocab.size, vocab=corpus.vocab, seed=spec.seed, plugins=plugins
    )
    given = {"vocab": corpus.vocab, **known_to_objectives(model, vocab_size=corpus.vocab.size)}
    objective: Objective = build_objective(spec, given, plugins)
    # --resume of a run that saved nothing yet, too
    if spec.init and not any((session.folder / "checkpoints").glob("step-*")):
        into, layers = spec.init_into, thaw(spec.kept_layers)
        initialize(model, spec.init, into=into, layers=layers, plugins=plugins, say=session.say)
    objective = add_teacher(spec, model, objective, say=session.say)
    needs, uses = model.backbone.needs | objective.facts.needs, find_used_fields(model, objective)
    asked: dict[str, Any] = {"labels": objective.labels, "needs": needs, "uses": uses}
    loaders = _open_loaders(session, model, asked)
    rows = sum(source.reader.rows_per_epoch for source in loaders[0].sources.values())
    budget = budget_of(spec, updates_per_epoch=rows / spec.train.batch_size)
    lines = describe_run(session, corpus, model, objective, budget, loaders[0])
    remarks = remark_on_pattern(spec, model.backbone, plugins)
    lines += [f"{name} {line}" for name, line in remarks.items()]
    for loader in loaders:
        lines += [
            line for part in loader.sources.values() for line in describe_unread(part, needs | uses)
        ]
    for line in dict.fromkeys(lines):
        session.say(line)
    try:
        return fit(
            session,
            model=model,
            objective=objective,
            stages=[
                Stage(batches=loader.__iter__, **_stage_settings(spec, number))
                for number, loader in enumerate(loaders)
            ],
            budget=budget,
            evaluate=_validation(session, corpus, objective, asked),
            extras=lambda folder: corpus.tokenizer.save(folder / "tokenizer"),
            flops_per_token=_flops_per_token(
                model, objective, next(iter(loaders[0].sources.values()))
            ),
        )
    finally:
        for loader in loaders:
            loader.close()


def _open_loaders(session: Session, model: Model, asked: Mapping[str, Any]) -> list[Loader]:
    """The loader of each stage, whose rows the model can read."""
    spec = session.spec
    loaders = [
        open_training_loader(
            spec, session.prepared, session.world, stage=number, plugins=spec.plugins, **asked
        )
        for number in range(len(spec.train.stages) or 1)
    ]
    for loader in loaders:
        check_languages(spec, loader)
        check_memory(model, loader)
    return loaders


def _stage_settings(spec: Pretrain, number: int) -> dict:
    stage = spec.train.stages[number] if spec.train.stages else {}
    of_the_run = {"trainable": spec.train.trainable, "frozen": spec.train.frozen}
    return of_the_run | {key: stage[key] for key in STAGE_KEYS if key in stage}


def _validation(
    session: Session, corpus: Corpus, objective: Objective, asked: Mapping[str, Any]
) -> Callable[[Model], dict[str, float]] | None:
    """Losses on the held-out documents, and bits per byte for every target made of tokens; None
    without held-out text.

    Args:
        asked: The labels and fields that batches have (`open_training_loader`).
    """
    spec, world = session.spec, session.world
    if not any(corpus.valid.values()):
        session.say(
            "no validation: the corpus is too small to hold a document out (data.valid_path=..."
            " gives one)"
        )
        return None
    batches: dict[str, list[Batch]] = {}
    tokens = sorted(token_targets(thaw(spec), spec.plugins))
    formats = {
        name: build_format(node, corpus.vocab, spec.plugins) for name, node in sources(spec).items()
    }
    bytes_per_token = {}
    for title, (source, name) in corpus.held_out().items():
        # of parallel text, the bytes of one side alone are not known
        if not formats[source].target_length:
            whole = corpus.valid[source][name].manifest["splits"]["valid"]
            bytes_per_token[title] = whole["bytes"] / max(1, whole["tokens"])

    def evaluate(model: Model) -> dict[str, float]:
        if not batches:
            found = open_held_out(spec, corpus, world, plugins=spec.plugins, **asked)
            batches.update({name: list(each) for name, each in found.items()})
        parts = {
            name: measure(model, objective, each, world=world) for name, each in batches.items()
        }
        scores = _scores(parts, bytes_per_token, tokens)
        if len(parts) > 1:
            for name, part in parts.items():
                alone = _scores({name: part}, bytes_per_token, tokens)
                scores |= {f"{name}/{key}": value for key, value in alone.items()}
        return scores

    return evaluate


def _scores(
    parts: Mapping[str, Measured], bytes_per_token: Mapping[str, float], targets: Sequence[str]
) -> dict[str, float]:
    """Means over all parts, every target counting once, and bits per byte and perplexity of the
    targets made of tokens.

    A smoothed loss is no probability: where there is `nll/<target>`, it counts. A part of which the
    bytes are not known (one side of parallel text) has no bits per byte.
    """
    whole = Measured.together(parts.values())
    found = whole.means()
    for name in [
        name
        for name in targets
        if f"loss/{name}" in found and bytes_per_token.keys() >= parts.keys()
    ]:
        loss = f"nll/{name}" if f"nll/{name}" in found else f"loss/{name}"
        counts = {corpus: part.sums.get(loss, (0, 0))[1] for corpus, part in parts.items()}
        size = sum(count * bytes_per_token[corpus] for corpus, count in counts.items())
        found[f"bits_per_byte/{name}"] = whole.sums[loss][0] / math.log(2) / max(size, 1e-9)
        found[f"perplexity/{name}"] = math.exp(min(found[loss], 700.0))
    return found


def _flops_per_token(model: Model, objective: Objective, source: RowSource) -> float:
    """Training FLOPs of one token; a head at whose targets the noise sets no limit is given the
    target, else all positions.
    """
    capacity, (length, target) = source.capacity(), source.lengths()
    facts = objective.facts
    helped = {name for _, names in facts.helpers for name in names}
    predicted = {
        name: max(
            (capacity[each] for each in facts.targets_of(name) if each in capacity),
            default=target or length,
        )
        / (length + target)
        for name in (*model.heads, *helped)
    }
    return cost(
        model, length=length, target_length=target, predicted=predicted, objective=objective
    ).flops_per_token


def _preview(spec: Pretrain, *, asked: bool) -> None:
    """Print the first rows of training, of each source, as a person reads them; `asked`: with
    what the objective derives.
    """
    corpus, console = open_corpus(spec, spec.plugins), screen()
    with without_weights():
        model = (
            build_model(
                spec, vocab_size=corpus.vocab.size, vocab=corpus.vocab, plugins=spec.plugins
            )
            if asked
            else None
        )
        given = {
            "vocab": corpus.vocab,
            **(known_to_objectives(model, vocab_size=corpus.vocab.size) if model else {}),
        }
        objective = build_objective(spec, given, spec.plugins) if asked else None
    labels, needs = (
        (objective.labels, objective.facts.needs) if objective else (None, frozenset[str]())
    )
    uses = find_used_fields(model, objective) if model else frozenset[str]()
    loader = open_training_loader(
        spec, corpus, World(), stage=0, labels=labels, needs=needs, uses=uses, plugins=spec.plugins
    )
    for name, each in loader.sources.items():
        position: Any = each.reader.position
        left = spec.provenance.preview
        while left > 0:
            picks, position = each.reader.take(position)
            before, after = (
                each.before(picks.select(slice(left))),
                each.rows(name, picks.select(slice(left)), labels),
            )
            text = preview(
                before,
                after,
                corpus.tokenizer.pieces,
                mask=corpus.vocab.mask,
                width=console.width,
                meanings=each.reader.format.meanings,
                fields=each.glossary | fields_of(objective),
            )
            console.print(text, soft_wrap=True, end="\n\n")
            left -= len(before.key)
