"""The first lines of a pretraining on its model and data, and the errors of these."""

from __future__ import annotations

from plmctl.artifacts.assemble import row_lengths
from plmctl.artifacts.cost import own_parameters
from plmctl.artifacts.model_facts import pattern_of
from plmctl.config.groups import Train
from plmctl.config.model_settings import model_settings
from plmctl.config.schema import Pretrain
from plmctl.config.stage_settings import count_stages, share_of, stage_config
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import counted
from plmctl.data.check.tokens import KEEP, MUCH
from plmctl.data.described import (
    warn_of_large_share,
    warn_of_lone_characters,
    warn_of_poor_fit,
    warn_of_text,
)
from plmctl.data.formats.base import count_lost
from plmctl.data.loader import Loader, RowSource
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import Shards
from plmctl.data.words import warn_of_missing_words
from plmctl.inputs.corpus import Corpus
from plmctl.models.base import Model
from plmctl.models.remarks import remark_on_model
from plmctl.nn.tables import count
from plmctl.objectives.base import Objective
from plmctl.runs.session import Session
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import describe_unknown, unknown_share
from plmctl.training.budget import Budget
from plmctl.training.processes.parallel import count_shares, count_teams


def describe_run(
    session: Session,
    corpus: Corpus,
    model: Model,
    objective: Objective,
    budget: Budget,
    loader: Loader,
) -> list[str]:
    """The first lines of a run: its model, length, device and data."""
    spec, world, precision = session.spec, session.world, session.precision.name
    questions = " + ".join(spec.objective or ("its teacher's layers alone",))
    size, beside = f"{count(model) / 1e6:.2f} M parameters", own_parameters(objective, model) / 1e6
    size += f" and {beside:.2f} M of the objective" if beside else ""
    place = f"{world.device.type} in {precision}"
    place += describe_parallel(spec.train, world.all.size) if not world.all.alone else ""
    place += "" if precision == "fp32" else ", validation too"
    tokenizer = corpus.tokenizer
    lines = [
        f"{spec.run.name}: {questions}, {size}, {corpus.vocab.size:,} {tokenizer.kind} tokens",
        f"{budget} {_describe_rows(spec)}, on {place}; {session.folder}",
    ]
    for name, source in loader.sources.items():
        lines += _describe_source(name, source, tokenizer)
    remarks = remark_on_rows(spec, model)
    return [*lines, *(f"{name} {remark}" for name, remark in remarks.items())]


def warn_of_texts(corpus: Corpus) -> list[str]:
    """The warnings about the texts of a run and their tokenizer."""
    vocab, lines = corpus.tokenizer.vocab, list[str]()
    for shards in [shards for corpora in corpus.train.values() for shards in corpora.values()]:
        lines += [
            *warn_of_large_share(shards.manifest),
            *warn_of_text(shards.manifest),
            *warn_of_poor_fit(shards, vocab),
            *warn_of_lone_characters(shards, vocab),
        ]
    return [*dict.fromkeys(line.strip() for line in lines)]


def describe_parallel(train: Train, processes: int) -> str:
    """How so many processes share one training."""
    team, named = train.tensor_parallel, f", {processes} processes"
    named += f" in teams of {team}" if team > 1 else ""
    shares = count_shares(train.parallel, count_teams(processes, team), train.shard_size)
    if shares == 1:
        return named
    kept = f"weights, gradients and optimizer in {shares} shares"
    return f"{named} ({train.parallel}: {kept})"


def remark_on_rows(spec: Pretrain, model: Model) -> dict[str, str]:
    """The remarks about a model in the rows of its pretraining."""
    settings = model_settings(spec)
    longest = max(row_lengths(settings).values())
    return remark_on_model(model.backbone, pattern_of(settings, spec.plugins), longest)


def _describe_rows(spec: Pretrain) -> str:
    """The rows of an update; of stages whose rows differ, those of each, with its share."""
    stages = [stage_config(spec, number) for number in range(count_stages(spec))]
    rows = [
        f"{_describe_batch(train.batch_size, train.batch_tokens)} of at most {longest} tokens"
        for train, longest in ((each.train, each.format.max_length) for each in stages)
    ]
    if len(set(rows)) == 1:
        return f"of {rows[0]}"
    parts = (f"{of_one} ({share_of(spec, number):.3g})" for number, of_one in enumerate(rows))
    return f"in stages of {', '.join(parts)}"


def _describe_batch(rows: int, tokens: int | None) -> str:
    """The rows of an update, counted or limited by their tokens."""
    return f"{rows} rows" if tokens is None else f"at most {tokens:,} tokens with padding, in rows"


def _describe_source(name: str, source: RowSource, tokenizer: Tokenizer) -> list[str]:
    """How many rows the corpora of a source have, how often a mixture reads them, and what of
    their text is not known.
    """
    mixture, lines = source.reader, []
    corpora = mixture.corpora(name)
    for corpus, (reader, share) in corpora.items():
        plan, shards = reader.plan(0), reader.shards
        # batches that are cut have less padding than the rows of the plan
        unsaid = ("laid_out", "specials", *(("padding",) if source.cut else ()))
        report = ", ".join(
            f"{number:,} {key.replace('_', ' ')}"
            for key, number in plan.report.items()
            if number and key not in unsaid
        )
        times = share * mixture.rows_per_epoch / plan.rows
        mixed = f"{share:.1%} of the mixture's rows, {times:.2f} times in its epoch"
        unknown = describe_unknown(unknown_share(sample_corpus(shards.ids), tokenizer.vocab))
        facts = [report, mixed if len(corpora) > 1 else "", unknown]
        remarks = [f"{counted(plan.rows, 'row')} {reader.unit}; {'; '.join(filter(None, facts))}"]
        remarks += _remark_on_words(source, shards, tokenizer)
        gone = count_lost(plan) / max(1, len(shards.ids))
        remarks += [f"{gone:.0%} of its tokens stand in no row. {KEEP}"] if gone > MUCH else []
        remarks += filter(None, [reader.format.describe_left_out(shards, plan)])
        lines += [f"{corpus}: {remark}" for remark in remarks]
    if len(corpora) > 1:
        lines.append(
            f"{name}: an epoch of the mixture is {mixture.rows_per_epoch:,} rows,"
            " as many as all its corpora have"
        )
    return lines


def _remark_on_words(source: RowSource, shards: Shards, tokenizer: Tokenizer) -> list[str]:
    """A line where noise hides words that nobody has marked."""
    hides_words = source.noise and "tracks.word_start" in source.noise.reads
    return warn_of_missing_words(shards, tokenizer) if hides_words else []


def describe_hidden_words(name: str, source: RowSource, tokenizer: Tokenizer) -> list[str]:
    """A line for each corpus of a source whose words are hidden, and not marked."""
    return [
        f"{corpus}: {remark}"
        for corpus, (reader, _) in source.reader.corpora(name).items()
        for remark in _remark_on_words(source, reader.shards, tokenizer)
    ]


def check_languages(spec: Pretrain, loader: Loader) -> None:
    """Every language that a corpus tells apart has a vector, where languages have vectors at
    all.
    """
    # both ends of two stacks have the same
    stack = "encoder." if spec.model.get("encoder") else ""
    path = f"model.{stack}embedding.languages"
    vectors, told_apart = spec.select(path) or 0, False
    for name, source in loader.sources.items() if vectors else ():
        for corpus, (reader, _) in source.reader.corpora(name).items():
            told_apart |= "tracks.language" in reader.format.provides
            told_apart |= "language" in reader.shards.tracks
            languages = reader.format.languages(reader.shards)
            if vectors < languages:
                allowed = (
                    f"at least {languages}, or 0 (none):"
                    f" the rows of '{corpus}' have languages up to number {languages - 1}"
                )
                raise ConfigError(path, vectors, allowed, fix=f"{path}={languages}")
    if vectors and not told_apart:
        allowed = "0 (none): no text says which language it is in"
        other = "data.tags=[language] of .jsonl, or format=text_pair of parallel text"
        raise ConfigError(path, vectors, allowed, fix=f"{path}=0, or {other}")


def check_memory(model: Model, loader: Loader) -> None:
    """A stream has as many tokens as its model is to remember."""
    memory, reuse = getattr(model.backbone, "memory", 0), getattr(model.backbone, "reuse", None)
    for source in loader.sources.values() if memory else ():
        for reader, _ in source.reader.corpora("").values():
            rows = reader.plan(0).rows // (reader.format.streams or 1)
            tokens = rows * (reuse or reader.format.max_length)
            if memory > tokens:
                allowed = f"at most {tokens}, the tokens that a stream of this corpus hands on"
                fix = f"model.memory={tokens}, or more text"
                raise ConfigError("model.memory", memory, f"{allowed} in an epoch", fix=fix)
