"""`plmctl pretrain`: assemble a model, an objective and data from a spec, and train."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from plmctl.artifacts.assemble import build_model, build_objective, without_weights
from plmctl.artifacts.cost import cost
from plmctl.artifacts.from_corpus import learn_lexicons, start_from_corpus
from plmctl.artifacts.model_facts import heads_about, pattern_of
from plmctl.artifacts.taking import initialize
from plmctl.config.build import build
from plmctl.config.glossary import token_targets
from plmctl.config.reached import Reached, losses_reached, read_reached
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
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch
from plmctl.core.exponential import exponentiate
from plmctl.core.fields import fields_of
from plmctl.core.locate import locate
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark, screen
from plmctl.data.held_out import find_fix
from plmctl.data.loader import Loader, RowSource
from plmctl.data.preview import preview
from plmctl.inputs.corpus import Corpus, open_corpus
from plmctl.inputs.known_text import describe_known, describe_links, has_marks
from plmctl.inputs.loaders import (
    BatchFields,
    batches_beside,
    describe_unread,
    open_held_out,
    open_training_loader,
)
from plmctl.models.base import Model
from plmctl.nn.first_vectors import FirstVectors
from plmctl.objectives.base import Objective
from plmctl.runs import estimate
from plmctl.runs.fit import budget_of, fit
from plmctl.runs.floors import Floors, asks_for_text, count_corpus
from plmctl.runs.init_differences import describe_differences
from plmctl.runs.overview import check_languages, check_memory, describe_hidden_words, describe_run
from plmctl.runs.own_rate import settle_rate
from plmctl.runs.regularising import build_regulariser
from plmctl.runs.resolve import resolve_pretraining
from plmctl.runs.session import After, Session, run_session
from plmctl.runs.teachers import add_teacher
from plmctl.text.strings import Strings
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World, environment
from plmctl.training.progress import Progress
from plmctl.training.stages import Stage, check_losses, describe_empty_stages
from plmctl.training.trainer import Evaluate, Result


def pretrain(spec: Pretrain, after: After = lambda session, result: result) -> int:
    """Train, or only show what would be trained (`--dry-run`, `--preview`); returns the exit
    code.

    Args:
        after: What another command does once the training is over.
    """
    given = spec.provenance
    spec, outline, misfit = resolve_pretraining(spec)
    if given.preview:
        _preview(spec, fits=misfit is None)
    if misfit:
        raise misfit
    if given.decision and not environment()[0]:  # once for all processes
        remark(given.decision)
    if outline and not given.resume:
        spec, line = settle_rate(spec, outline.model.backbone.width)
        if line and not given.json:
            remark(line)
    if given.dry_run and outline:
        estimate.show(spec, outline)
        return 0
    if given.preview:
        return 0
    return run_session(
        spec,
        prepare=lambda spec: (spec, open_corpus(Texts.of(spec))),
        train=lambda session: after(session, train(session)),
        then=lambda session: commands_after(
            session.spec, held_out=bool(session.prepared.held_out())
        ),
    )


def commands_after(spec: Pretrain, *, held_out: bool = True) -> dict[str, str]:
    """What one does with a pretrained model: by its heads, whether it reads one text and writes
    another, and in which rows; {a command: a remark on it}.

    Args:
        held_out: Whether any text is held out, on which its objective can be measured.
    """
    pairs = bool(spec.data.target_path or spec.data.fields)
    commands: dict[str, str] = {}
    if not pairs:
        length = (spec.format or {}).get("max_length")
        rows = f" task.max_length={length}" if length else ""
        commands[
            f"plmctl finetune task=classification tuning=stable task.path=builtin{rows}"
            " checkpoint={run}"
        ] = "on labels of your own: plmctl help task"
    parts = [locate(node["_target_"], spec.plugins) for node in (spec.objective or {}).values()]
    predicted = {part.facts.asks_next for part in parts if hasattr(part, "facts")} - {None}
    if predicted:
        prompt = spell_setting("prompt", _choose_prompt(spec)).replace("{", "{{").replace("}", "}}")
        commands[f"plmctl generate checkpoint={{run}} {prompt}"] = ""
    if spec.objective and held_out:
        lm = "text" in {*predicted, *heads_about(spec, spec.plugins)}
        text = "data.path and data.target_path" if pairs else "data.path"
        about = f"on another text: task={'lm' if lm else 'held_out'} and its {text}"
        commands["plmctl eval task=held_out checkpoint={run}"] = about
    return {**commands, "plmctl report {run}": ""}


def _choose_prompt(spec: Pretrain) -> str:
    """A text that the model can go on with: of strings that an algorithm writes, one of them."""
    path = spec.data.path
    if not (isinstance(path, str) and path.startswith(Strings.PREFIX)):
        return "Once upon a time"
    _, fields = next(Strings(path).rows())
    return str(fields["source"])


def train(session: Session) -> Result:
    """Build everything the config names and fit it."""
    spec, plugins = session.spec, session.spec.plugins
    corpus: Corpus = session.prepared
    vocab = corpus.vocab
    model = build_model(spec, vocab_size=vocab.size, vocab=vocab, seed=spec.seed, plugins=plugins)
    own: Objective = build_objective(spec, model, vocab, plugins=plugins)
    # --resume of a run that saved nothing yet, too
    fresh = not any((session.folder / "checkpoints").glob("step-*"))
    if fresh and spec.init:
        into, layers = spec.init_into, thaw(spec.kept_layers)
        initialize(model, spec.init, into=into, layers=layers, plugins=plugins, say=session.say)
    elif fresh:
        start_from_corpus([model, own], corpus, _first_vectors(spec), say=session.say)
    if fresh:
        learn_lexicons(model, corpus, say=session.say)
    objective = add_teacher(spec, model, own, say=session.say)
    fields = BatchFields.by(model, objective)
    loaders = [
        open_training_loader(Feed.of(spec, number), corpus, session.world, fields)
        for number in range(count_stages(spec))
    ]
    for loader in loaders:
        check_languages(spec, loader)
        check_memory(model, loader)
    sources = loaders[0].sources
    budget = budget_of(spec, updates_per_epoch=_updates_per_epoch(spec, loaders))
    lines = describe_run(session, corpus, model, objective, budget, loaders[0])
    if fresh and spec.init:
        target = max(source.lengths()[1] for source in sources.values())
        lines += describe_differences(spec, model.backbone, target=target)
    for loader in loaders:
        for source in loader.sources.values():
            lines += describe_unread(source, fields.kept)
            lines += describe_known(source, model, objective, vocab)
            lines += describe_links(model, partial(has_marks, source))
    held = corpus.count_held_out()
    fix = find_fix(spec.data, corpus.count_documents())
    for line in (*dict.fromkeys(lines), held.explain(fix)):
        session.say(line)
    if session.world.main:
        held.write(session.folder)
    session.log.valid = "valid" if held.validates else "sample"
    targets = sorted(token_targets(thaw(spec), plugins))
    stated = read_reached(spec.recipe, spec.provenance.config_dirs)
    # a target may be that of a smaller model, as in ELECTRA: the run's own has a head of its name
    comparable = [line for line in stated if line.is_of(spec.size) and line.target in model.heads]
    stages = [
        Stage(
            batches=loader.__iter__,
            flops_per_token=_flops_of_stage(spec, model, objective, loader, number),
            row_tokens=max(sum(source.lengths()) for source in loader.sources.values()),
            **_stage_settings(spec, number),
        )
        for number, loader in enumerate(loaders)
    ]
    for stage in stages:
        check_losses(stage.losses, objective.facts.terms)
    if empty := describe_empty_stages(stages, budget.steps):
        session.say(empty)
    floors = Floors(targets, thaw(spec), stated, held_out=held.tokens)
    try:
        result = fit(
            session,
            model=model,
            objective=objective,
            stages=stages,
            budget=budget,
            evaluate=_validation(session, objective, fields, sources, targets, comparable),
            remark=floors.remark,
            extras=lambda folder: corpus.tokenizer.save(folder / "tokenizer"),
            regulariser=build_regulariser(spec, model, own),
        )
    finally:
        for loader in loaders:
            loader.close()
    for line in [] if result.exit_code else floors.conclude(vocab.size):
        session.say(line)
    return result


def _first_vectors(spec: Pretrain) -> FirstVectors | None:
    node = thaw(spec.first_vectors)
    return build(node, plugins=spec.plugins, path="first_vectors") if node else None


def _stage_settings(spec: Pretrain, number: int) -> dict[str, Any]:
    """What else than data a stage has of its own."""
    stage = spec.train.stages[number] if spec.train.stages else {}
    settings: dict[str, Any] = {"trainable": spec.train.trainable, "frozen": spec.train.frozen}
    settings |= {key: stage[key] for key in STAGE_KEYS if key in stage}
    staged, plugins = stage_config(spec, number), spec.plugins
    if any(sets(spec, each, "pattern") for each in range(len(spec.train.stages))):
        settings["pattern"] = pattern_of(staged, plugins)
    if sets(spec, number, "schedule"):
        settings["schedule"] = build(staged.schedule, plugins=plugins, path="schedule")
    return settings


def _validation(
    session: Session,
    objective: Objective,
    fields: BatchFields,
    sources: Mapping[str, RowSource],
    targets: Sequence[str],
    comparable: Sequence[Reached],
) -> Evaluate | None:
    """Losses on the held-out documents, and for each of `targets`, those made of tokens, bits per
    byte, what models reach that only count, and what `comparable` recipes reached by then; None
    without held-out text.
    """
    spec, world = session.spec, session.world
    corpus: Corpus = session.prepared
    if not any(corpus.valid.values()):
        return None
    bytes_per_token = {}
    for title, (source, name) in corpus.held_out().items():
        # of parallel text, the bytes of one side alone are not known
        if not sources[source].reader.format.target_length:
            shards = corpus.valid[source][name]
            split = shards.manifest["splits"][shards.split]  # "train", where a stream has its own
            bytes_per_token[title] = split["bytes"] / max(1, split["tokens"])
    # opened now: held-out text that fills no row is told before the first update
    feed = Feed.of(spec)
    held_out = open_held_out(feed, corpus, world, fields)
    batches: dict[str, list[Batch]] = {}
    beside = batches_beside(feed, world.size)
    floors: dict[str, float] = {}

    def evaluate(model: Model, progress: Progress) -> dict[str, float]:
        first = not batches
        if first:
            batches.update({title: list(rows) for title, rows in held_out.items()})
        parts = {
            title: measure(model, objective, rows, world=world, beside=beside)
            for title, rows in batches.items()
        }
        scores = score_parts(parts, bytes_per_token, targets)
        if len(parts) > 1:
            for title, part in parts.items():
                alone = score_parts({title: part}, bytes_per_token, targets)
                scores |= {f"{title}/{key}": value for key, value in alone.items()}
        if first:
            # a term may have another name than its target; only the main process has scores
            shown = [name for name in targets if f"loss/{name}" in scores]
            floors.update(_count(corpus, bytes_per_token, batches, shown))
        return {**scores, **floors, **losses_reached(comparable, floors, progress.tokens)}

    return evaluate


def _count(
    corpus: Corpus,
    titles: Collection[str],
    batches: Mapping[str, Sequence[Batch]],
    targets: Sequence[str],
) -> dict[str, float]:
    """{"unigram/mlm", "bigram/mlm"}: the losses of models that only count, for targets that ask
    for tokens of the text of `titles`.
    """
    rows = [batch for title in titles for batch in batches[title]]
    asked = [name for name in targets if asks_for_text(rows, name, corpus.vocab)]
    losses = count_corpus(corpus, titles) if asked else None
    if losses is None:
        return {}
    return {f"{kind}/{name}": value for name in asked for kind, value in losses.items()}


def score_parts(
    parts: Mapping[str, Measured], bytes_per_token: Mapping[str, float], targets: Sequence[str]
) -> dict[str, float]:
    """Means over all parts, every target counting once, and bits per byte and perplexity of the
    targets made of tokens.

    A smoothed loss is no probability: where there is `nll/<target>`, it counts. A part of which the
    bytes are not known (one side of parallel text), or that has none, has no bits per byte.
    """
    whole = Measured.together(parts.values())
    scores = whole.means()
    for name in targets if bytes_per_token.keys() >= parts.keys() else ():
        if f"loss/{name}" not in scores:
            continue
        loss = f"nll/{name}" if f"nll/{name}" in scores else f"loss/{name}"
        counts = {title: part.sums.get(loss, (0, 0))[1] for title, part in parts.items()}
        size = sum(count * bytes_per_token[title] for title, count in counts.items())
        if size > 0:
            scores[f"bits_per_byte/{name}"] = whole.sums[loss][0] / math.log(2) / size
        scores[f"perplexity/{name}"] = exponentiate(scores[loss])
    return scores


def _updates_per_epoch(spec: Pretrain, loaders: Sequence[Loader]) -> float:
    """Updates in which the text is read once; each stage has a share of them, and rows of its
    own.
    """
    epochs = 0.0  # that an update reads, in the mean
    for number, loader in enumerate(loaders):
        rows = sum(source.reader.rows_per_epoch for source in loader.sources.values())
        batch = stage_config(spec, number).train.batch_size
        epochs += share_of(spec, number) * batch / rows
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


def _preview(spec: Pretrain, *, fits: bool) -> None:
    """Print the first rows of training, of each source, as a person reads them.

    Args:
        fits: The objective reads these rows, and what it derives of them is shown, too.
    """
    corpus, fields = open_corpus(Texts.of(spec)), BatchFields()
    console, objective = screen(), None
    if fits:
        vocab, plugins = corpus.vocab, spec.plugins
        with without_weights():
            model = build_model(spec, vocab_size=vocab.size, vocab=vocab, plugins=plugins)
            objective = build_objective(spec, model, vocab, plugins=plugins)
        fields = replace(BatchFields.by(model, objective), needs=objective.facts.needs)
    loader = open_training_loader(Feed.of(spec, 0), corpus, World(), fields)
    for name, source in loader.sources.items():
        position: Any = source.reader.position
        left = spec.provenance.preview
        while left > 0:
            picks, position = source.reader.take(position)
            picks = picks.select(slice(left))
            text = preview(
                source.before(picks),
                source.rows(name, picks, fields.labels),
                corpus.tokenizer.pieces,
                mask=corpus.vocab.mask,
                width=console.width,
                meanings=source.reader.format.meanings,
                fields=source.glossary | fields_of(objective),
            )
            console.print(text, soft_wrap=True, end="\n\n")
            left -= len(picks)
        for line in describe_hidden_words(name, source, corpus.tokenizer):
            remark(line)
