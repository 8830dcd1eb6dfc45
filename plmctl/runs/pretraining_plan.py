"""A pretraining, planned: everything that its settings name, built before the first update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.artifacts.cost import cost
from plmctl.artifacts.from_corpus import learn_lexicons, start_from_corpus
from plmctl.artifacts.model_facts import pattern_of
from plmctl.artifacts.taking import initialize, list_new_parts
from plmctl.config.build import build
from plmctl.config.glossary import token_targets
from plmctl.config.model_settings import model_settings
from plmctl.config.reached import Reached, read_reached
from plmctl.config.schema import Pretrain
from plmctl.config.spec import thaw
from plmctl.config.stage_settings import (
    STAGE_KEYS,
    count_stages,
    sets,
    share_of,
    stage_config,
    stage_pattern,
)
from plmctl.config.texts import Feed
from plmctl.core.terminal import WARN
from plmctl.data.counted_words import check_words, describe_repeats
from plmctl.data.held_out import HeldText, find_fix
from plmctl.data.loader import Loader, RowSource
from plmctl.inputs.corpus import Corpus
from plmctl.inputs.known_text import describe_known, describe_links, has_marks
from plmctl.inputs.loaders import BatchFields, describe_unread, open_training_loader
from plmctl.models.base import Model
from plmctl.nn.first_vectors import FirstVectors
from plmctl.objectives.base import Objective
from plmctl.runs.fit import budget_of
from plmctl.runs.init_differences import describe_differences
from plmctl.runs.overview import check_languages, check_memory, describe_run, warn_of_texts
from plmctl.runs.pair_sample import PairSample
from plmctl.runs.phases import divide
from plmctl.runs.regularising import build_regulariser
from plmctl.runs.session import Session
from plmctl.runs.teachers import add_teacher
from plmctl.text.vocab import Vocab
from plmctl.training.budget import Budget
from plmctl.training.milestones import SETTING
from plmctl.training.regularisers.base import Regulariser
from plmctl.training.stages import Stage, check_losses


@dataclass(frozen=True)
class PretrainingPlan:
    """A pretraining before its first update.

    Args:
        own: The objective without its teachers.
        targets: Targets of tokens.
        stated: Losses that earlier runs of the recipe reached.
        comparable: The statements in `stated` on a model of this size.
        held: The size of the held-out text.
        pairs: The minimal pairs that validations score.
    """

    corpus: Corpus
    model: Model
    own: Objective
    objective: Objective
    fields: BatchFields
    feed: Feed
    loaders: Sequence[Loader]
    stages: Sequence[Stage]
    budget: Budget
    targets: Sequence[str]
    stated: Sequence[Reached]
    comparable: Sequence[Reached]
    held: HeldText
    regulariser: Regulariser | None
    pairs: PairSample | None

    @property
    def sources(self) -> Mapping[str, RowSource]:
        """The sources of the first stage."""
        return self.loaders[0].sources

    def close(self) -> None:
        """Stop reading."""
        for loader in self.loaders:
            loader.close()


def plan(session: Session) -> PretrainingPlan:
    """Build everything that a spec names, and log the first lines of the run."""
    spec, corpus = session.spec, session.prepared
    # --resume of a run that saved nothing yet, too
    fresh = not any((session.folder / "checkpoints").glob("step-*"))
    model, own = _build(session, corpus, fresh=fresh)
    objective = add_teacher(spec, model, own, say=session.say, keep=session.keep_origin)
    fields = BatchFields.by(model, objective)
    loaders = [
        open_training_loader(Feed.of(spec, number), corpus, session.world, fields)
        for number in range(count_stages(spec))
    ]
    for loader in loaders:
        check_languages(spec, loader)
        check_memory(model, loader)
    budget = budget_of(spec.train, updates_per_epoch=_updates_per_epoch(spec, loaders))
    lines = describe_run(session, corpus, model, objective, budget, loaders[0])
    if fresh and spec.init:
        target = max(source.lengths()[1] for source in loaders[0].sources.values())
        lines += describe_differences(spec, model.backbone, target=target)
    held, pairs = corpus.count_held_out(), PairSample.of(spec.eval, corpus.tokenizer)
    lines += [] if pairs is None else [pairs.describe(model)]
    lines += _describe_texts(loaders, fields, model, objective, corpus.vocab)
    lines += _check_budget(spec, corpus, budget)
    for line in (
        *dict.fromkeys(lines),
        held.explain(find_fix(spec.data, corpus.count_documents())),
    ):
        session.say(line)
    for line in warn_of_texts(corpus):
        session.say(line, WARN)
    stated = read_reached(spec.recipe, spec.provenance.config_dirs)
    stages = _plan_stages(spec, model, objective, loaders)
    schedule = partial(build, spec.schedule, plugins=spec.plugins, path="schedule")
    stages, lines = divide(stages, objective, budget.steps, schedule)
    for line in lines:
        session.say(line)
    return PretrainingPlan(
        corpus,
        model,
        own,
        objective,
        fields,
        Feed.of(spec),
        loaders,
        stages,
        budget,
        targets=sorted(token_targets(thaw(spec), spec.plugins)),
        stated=stated,
        # a target of a smaller model, as in ELECTRA, has no head in this one
        comparable=[
            each for each in stated if each.is_of(spec.size) and each.target in model.heads
        ],
        held=held,
        regulariser=build_regulariser(spec, model, own),
        pairs=pairs,
    )


def _build(session: Session, corpus: Corpus, *, fresh: bool) -> tuple[Model, Objective]:
    """The model and its own objective; with `fresh`, their first weights."""
    spec, vocab, plugins = session.spec, corpus.vocab, session.spec.plugins
    model = build_model(
        model_settings(spec), vocab_size=vocab.size, vocab=vocab, seed=spec.seed, plugins=plugins
    )
    own: Objective = build_objective(spec.objective, model, vocab, plugins=plugins, seed=spec.seed)
    if fresh and spec.init:
        into, layers = spec.init_into, thaw(spec.kept_layers)
        how: Any = {"into": into, "layers": layers, "plugins": plugins, "say": session.say}
        initialize(model, spec.init, keep=partial(session.keep_origin, "init"), **how)
        if new := list_new_parts(own, model):
            session.say(f"the objective is new and random: {', '.join(new)}")
    elif fresh:
        start_from_corpus([model, own], corpus, _first_vectors(spec), say=session.say)
    if fresh:
        learn_lexicons(model, corpus, say=session.say)
    return model, own


def _first_vectors(spec: Pretrain) -> FirstVectors | None:
    node = thaw(spec.first_vectors)
    return build(node, plugins=spec.plugins, path="first_vectors") if node else None


def _describe_texts(
    loaders: Sequence[Loader], fields: BatchFields, model: Model, objective: Objective, vocab: Vocab
) -> list[str]:
    """Lines on what the parts of a run know of its texts, and what they leave out."""
    lines: list[str] = []
    for loader in loaders:
        for source in loader.sources.values():
            lines += describe_unread(source, fields.kept)
            lines += describe_known(source, model, objective, vocab)
            lines += describe_links(model, partial(has_marks, source))
    return lines


def _check_budget(spec: Pretrain, corpus: Corpus, budget: Budget) -> list[str]:
    """A line on a budget of words that is larger than the text.

    Raises:
        ConfigError: Words are to be counted in a text without spaces.
    """
    train, streamed = spec.train, corpus.streams
    whole = [part for parts in corpus.train.values() for part in parts.values()]
    if train.counts_words:
        setting = "train.words" if train.words else SETTING
        check_words(whole, corpus.tokenizer.decode, setting, train.words or train.save_at)
    line = describe_repeats(whole, budget.words) if budget.words and not streamed else ""
    return [line] if line else []


def _plan_stages(
    spec: Pretrain, model: Model, objective: Objective, loaders: Sequence[Loader]
) -> list[Stage]:
    """The stages of a run, each with its batches."""
    stages = [
        Stage(
            batches=loader.__iter__,
            flops_per_token=_flops_of_stage(spec, model, objective, loader, number),
            lengths=max((source.lengths() for source in loader.sources.values()), key=sum),
            **_stage_settings(spec, number),
        )
        for number, loader in enumerate(loaders)
    ]
    for stage in stages:
        check_losses(stage.losses, objective.facts.terms)
    return stages


def _stage_settings(spec: Pretrain, number: int) -> dict[str, Any]:
    """The settings of a stage besides its data."""
    stage = spec.train.stages[number] if spec.train.stages else {}
    settings: dict[str, Any] = {"trainable": spec.train.trainable, "frozen": spec.train.frozen}
    settings |= {key: stage[key] for key in STAGE_KEYS if key in stage}
    staged, plugins = stage_config(spec, number), spec.plugins
    if any(sets(spec, each, "pattern") for each in range(len(spec.train.stages))):
        settings["pattern"] = pattern_of(model_settings(staged), plugins)
    if sets(spec, number, "schedule"):
        settings["schedule"] = build(staged.schedule, plugins=plugins, path="schedule")
    return settings


def _updates_per_epoch(spec: Pretrain, loaders: Sequence[Loader]) -> float:
    """Updates in which the text is read once; each stage has a share of them, and rows of its
    own.
    """
    epochs = 0.0  # epochs that an update reads, in the mean
    for number, loader in enumerate(loaders):
        updates = sum(source.reader.updates_per_epoch for source in loader.sources.values())
        epochs += share_of(spec, number) / updates
    return 1 / epochs


def _flops_of_stage(
    spec: Pretrain, model: Model, objective: Objective, loader: Loader, number: int
) -> float:
    with stage_pattern(spec, model, number):
        return _flops_per_token(model, objective, next(iter(loader.sources.values())))


def _flops_per_token(model: Model, objective: Objective, source: RowSource) -> float:
    """Training FLOPs of one token; a head at whose targets the noise sets no limit is given the
    target, else all positions.
    """
    capacity, (length, target) = source.capacity(), source.lengths()
    facts = objective.facts
    helped = {name for _, names in facts.helpers for name in names}
    predicted = {
        head: max(
            (capacity[name] for name in facts.targets_of(head) if name in capacity),
            default=target or length,
        )
        / (length + target)
        for head in (*model.heads, *helped)
    }
    return cost(
        model, length=length, target_length=target, predicted=predicted, objective=objective
    ).flops_per_token
