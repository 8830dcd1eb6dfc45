"""`plmctl pretrain`: assemble a model, an objective and data from a spec, and train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plmctl.artifacts.assemble import build_model, build_objective, without_weights
from plmctl.artifacts.model_facts import heads_about
from plmctl.config.build import build, class_of
from plmctl.config.model_settings import model_settings
from plmctl.config.schema import Pretrain
from plmctl.config.spec import thaw
from plmctl.config.texts import Feed, Texts
from plmctl.core.fields import fields_of
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import WARN, remark, screen
from plmctl.data.preview import preview
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_training_loader
from plmctl.models.encoder_decoder import LAST
from plmctl.runs import estimate
from plmctl.runs.after_range_test import commands_with_found
from plmctl.runs.device_speed import Speed
from plmctl.runs.fit import fit
from plmctl.runs.floors import Floors
from plmctl.runs.overview import describe_hidden_words
from plmctl.runs.own_rate import settle_rate
from plmctl.runs.pretraining_plan import PretrainingPlan, plan
from plmctl.runs.resolve import resolve_pretraining
from plmctl.runs.session import After, Session, run_session
from plmctl.runs.validation import validate
from plmctl.text.strings import Strings
from plmctl.training.processes.world import World, environment
from plmctl.training.trainer import Result
from plmctl.use.prompting import LANGUAGES


def pretrain(
    spec: Pretrain, after: After = lambda session, result: result
) -> int | Mapping[str, float]:
    """Train, or only show what would be trained (`--dry-run`, `--preview`); returns the exit
    code, or the costs that a dry run foresees.

    Args:
        after: The work of another command once the training is over.
    """
    given = spec.provenance
    spec, outline, misfit = resolve_pretraining(spec)
    if given.preview:
        _preview(spec, fits=misfit is None)
    if misfit:
        raise misfit
    if given.decision and not environment()[0]:  # once for all processes
        remark(given.decision)
        if others := Speed.find(spec.train.device, spec.train.precision).describe_others():
            remark(f"{others} now: the settings are those of a machine alone, with fewer updates")
    if outline and not given.resume:
        spec, line = settle_rate(spec, outline.model.backbone.width)
        if line and not given.json:
            remark(line)
    if given.dry_run and outline:
        return estimate.show(spec, outline)
    if given.preview:
        return 0
    return run_session(
        spec,
        prepare=lambda spec: (spec, open_corpus(Texts.of(spec))),
        train=lambda session: after(session, train(session)),
        then=lambda session: (
            commands_with_found(session)
            or commands_after(session.spec, held_out=bool(session.prepared.held_out()))
        ),
    )


def commands_after(spec: Pretrain, *, held_out: bool = True) -> dict[str, str]:
    """The commands for a pretrained model: by its heads, whether it reads one text and writes
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
    parts = [class_of(node, spec.plugins) for node in (spec.objective or {}).values()]
    predicted = {part.facts.asks_next for part in parts if hasattr(part, "facts")} - {None}
    if predicted:
        settings = {"prompt": _choose_prompt(spec), **_choose_languages(spec)}
        words = " ".join(spell_setting(name, text) for name, text in settings.items())
        words = words.replace("{", "{{").replace("}", "}}")
        commands[f"plmctl generate checkpoint={{run}} {words}"] = ""
    if spec.objective and held_out:
        lm = "text" in {*predicted, *heads_about(model_settings(spec), spec.plugins)}
        text = "data.path and data.target_path" if pairs else "data.path"
        about = f"on another text: task={'lm' if lm else 'held_out'} and its {text}"
        commands["plmctl eval task=held_out checkpoint={run}"] = about
    return {**commands, "plmctl report {run}": ""}


def _choose_languages(spec: Pretrain) -> dict[str, str]:
    """The first language of a model whose decoder begins with one: the first unused slot, as
    `noise.language_token` takes them.
    """
    if (spec.model or {}).get("start") != LAST:
        return {}
    return dict.fromkeys(LANGUAGES, "[unused0]")


def _choose_prompt(spec: Pretrain) -> str:
    """A text that the model can go on with: of strings that an algorithm writes, one of them."""
    path = spec.data.path
    if not (isinstance(path, str) and path.startswith(Strings.PREFIX)):
        return "Once upon a time"
    _, fields = next(Strings(path).rows())
    return str(fields["source"])


def train(session: Session) -> Result:
    """Plan a pretraining, and execute it."""
    return execute(plan(session), session)


def execute(plan: PretrainingPlan, session: Session) -> Result:
    """Train what is planned."""
    if session.world.main:
        plan.held.write(session.folder)
    session.log.valid = "valid" if plan.held.validates else "sample"
    tokens, tokenizer = plan.held.tokens, plan.corpus.tokenizer
    floors = Floors(
        plan.targets,
        thaw(session.spec),
        plan.stated,
        held_out=tokens,
        generated=plan.objective.facts.generator_terms,
    )
    try:
        result = fit(
            session,
            model=plan.model,
            objective=plan.objective,
            stages=plan.stages,
            budget=plan.budget,
            evaluate=validate(plan, session.world),
            remark=floors.remark,
            extras=lambda folder: tokenizer.save(folder / "tokenizer"),
            regulariser=plan.regulariser,
        )
    finally:
        plan.close()
    schedule = build(session.spec.schedule, plugins=session.spec.plugins, path="schedule")
    for line in (
        [] if result.exit_code or schedule.destroys else floors.conclude(plan.corpus.vocab.size)
    ):
        session.say(line, WARN)
    return result


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
            model = build_model(
                model_settings(spec), vocab_size=vocab.size, vocab=vocab, plugins=plugins
            )
            objective = build_objective(
                spec.objective, model, vocab, plugins=plugins, seed=spec.seed
            )
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
                corpus.tokenizer.show,
                mask=corpus.vocab.mask,
                width=console.width,
                meanings=source.reader.format.meanings,
                fields=source.glossary | fields_of(objective),
            )
            console.print(text, soft_wrap=True, end="\n\n")
            left -= len(picks)
        for line in describe_hidden_words(name, source, corpus.tokenizer):
            remark(line)
