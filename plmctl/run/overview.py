"""What the first lines of a pretraining say of its model and data, and what these refuse."""

from __future__ import annotations

from plmctl.core.errors import ConfigError
from plmctl.data.check.tokens import KEEP, MUCH
from plmctl.data.described import too_much_held_out
from plmctl.data.formats.base import lost
from plmctl.data.loader import Loader, RowSource
from plmctl.data.sample import sample_corpus
from plmctl.data.words import warn_of_missing_words
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.objectives.base import Objective
from plmctl.run.corpus import Corpus
from plmctl.run.cost import own_parameters
from plmctl.run.model_facts import remark_on_pattern
from plmctl.run.schema import Pretrain
from plmctl.run.session import Session
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import describe_unknown, unknown_share
from plmctl.training.budget import Budget


def describe_run(
    session: Session,
    corpus: Corpus,
    model: Model,
    objective: Objective,
    budget: Budget,
    loader: Loader,
) -> list[str]:
    """What will be trained, for how long, where, and on what: the first lines of a run."""
    spec, world = session.spec, session.world
    millions, beside = count(model) / 1e6, own_parameters(objective, model) / 1e6
    place = f"{world.device.type} in {session.precision.name}" + (
        f", {world.size} processes" if world.size > 1 else ""
    )
    place += "" if session.precision.name == "fp32" else ", validation too"
    asked = " + ".join(spec.objective or ("its teacher's layers alone",))
    lines = [
        (
            f"{spec.run.name}: {asked}, {millions:.2f} M parameters"
            f"{f' and {beside:.2f} M of the objective' if beside else ''}, "
            f"{corpus.vocab.size:,} {corpus.tokenizer.kind} tokens"
        ),
        (
            f"{budget} of {spec.train.batch_size} rows of at most {spec.format.max_length} tokens,"
            f" on {place}; {session.folder}"
        ),
    ]
    lines += [
        line
        for name, each in loader.sources.items()
        for line in _describe_source(name, each, corpus.tokenizer)
    ]
    parts = [part for source in corpus.train.values() for part in source.values()]
    lines += [line.strip() for part in parts for line in too_much_held_out(part.manifest)]
    remarks = remark_on_pattern(spec, model.backbone, spec.plugins)
    return [*lines, *(f"{name} {remark}" for name, remark in remarks.items())]


def _describe_source(name: str, source: RowSource, tokenizer: Tokenizer) -> list[str]:
    """How many rows the corpora of a source have, how often a mixture reads them, and what of
    their text is not known.
    """
    reader = source.reader
    corpora = reader.corpora(name)
    lines = []
    for corpus, (each, share) in corpora.items():
        plan = each.plan(0)
        shown = {
            key: value
            for key, value in plan.report.items()
            if value and key not in ("laid_out", "specials")
        }
        told = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in shown.items())
        times = share * reader.rows_per_epoch / plan.rows
        mixed = (
            f"; {share:.1%} of the mixture's rows, {times:.2f} times in its epoch"
            if len(corpora) > 1
            else ""
        )
        unknown = describe_unknown(unknown_share(sample_corpus(each.shards.ids), tokenizer.vocab))
        lines.append(
            f"{corpus}: {plan.rows:,} rows an epoch; {told}{mixed}{unknown and '; '}{unknown}"
        )
        if source.noise and "tracks.word_start" in source.noise.reads:
            lines += [f"{corpus}: {line}" for line in warn_of_missing_words(each.shards, tokenizer)]
        if (gone := lost(plan.report) / max(1, len(each.shards.ids))) > MUCH:
            lines.append(f"{corpus}: {gone:.0%} of its tokens stand in no row. {KEEP}")
        lines += [f"{corpus}: {line}"] if (line := each.format.left_out(each.shards, plan)) else []
    if len(corpora) > 1:
        lines.append(
            f"{name}: an epoch of the mixture is {reader.rows_per_epoch:,} rows,"
            " as many as all its corpora have"
        )
    return lines


def check_languages(spec: Pretrain, loader: Loader) -> None:
    """Every language that a corpus tells apart has a vector, where languages have vectors at
    all.
    """
    # of two stacks, both ends have the same
    path = "encoder.embedding" if spec.model.get("encoder") else "embedding"
    table, told = spec.select(f"model.{path}.languages") or 0, False
    for name, source in loader.sources.items() if table else ():
        for corpus, (reader, _) in source.reader.corpora(name).items():
            told = (
                told
                or "tracks.language" in reader.format.provides
                or "language" in reader.shards.tracks
            )
            if table < (found := reader.format.languages(reader.shards)):
                allowed = (
                    f"at least {found}, or 0 (none):"
                    f" the rows of '{corpus}' have languages up to number {found - 1}"
                )
                raise ConfigError(
                    f"model.{path}.languages", table, allowed, fix=f"model.{path}.languages={found}"
                )
    if table and not told:
        fix = (
            f"model.{path}.languages=0, or data.tags=[language] of .jsonl,"
            " or format=text_pair of parallel text"
        )
        raise ConfigError(
            f"model.{path}.languages",
            table,
            "0 (none): no text says which language it is in",
            fix=fix,
        )


def check_memory(model: Model, loader: Loader) -> None:
    """A stream has as many tokens as its model is to remember."""
    memory, reuse = getattr(model.backbone, "memory", 0), getattr(model.backbone, "reuse", None)
    for source in loader.sources.values() if memory else ():
        for reader, _ in source.reader.corpora("").values():
            rows = reader.plan(0).rows // (reader.format.streams or 1)
            if memory > (found := rows * (reuse or reader.format.max_length)):
                allowed = (
                    f"at most {found}, the tokens that a stream of this corpus hands on in an epoch"
                )
                raise ConfigError(
                    "model.memory", memory, allowed, fix=f"model.memory={found}, or more text"
                )
