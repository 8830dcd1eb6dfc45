"""The loaders of training and validation: each source with its format, noise and corpora."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from plmctl.config.build import build, plain
from plmctl.config.injected import ToFormats, ToNoises
from plmctl.config.stage_settings import micro_batch_rows
from plmctl.config.texts import Feed
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import COMMON
from plmctl.data.counted_words import FIELD
from plmctl.data.formats.base import Format
from plmctl.data.formats.in_language import InLanguage
from plmctl.data.loader import Labels, Loader, RowSource, once
from plmctl.data.mixture import Mixture, compute_shares
from plmctl.data.reader import RowReader
from plmctl.data.sample import sample_corpora
from plmctl.data.shard_stream import ShardStream
from plmctl.data.shards import Shards
from plmctl.data.stream_reader import StreamReader
from plmctl.data.text_stream import TextStream
from plmctl.data.token_batches import TokenBatchReader
from plmctl.inputs.corpus import Corpus
from plmctl.models.base import Model, list_parts
from plmctl.noise.base import Chain
from plmctl.objectives.base import Facts, Objective
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab
from plmctl.training.processes.world import World

# between the seeds of two sources, and of two corpora of a mixture, which must not draw the same
# numbers
SEED_STEP, CORPUS_STEP = 1_000_003, 15_485_863


@dataclass(frozen=True)
class BatchFields:
    """The content of the batches of a run: fields that parts need, optional fields that parts use,
    and the labels that its objective derives.
    """

    needs: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()
    labels: Labels | None = None

    @classmethod
    def by(cls, model: Model, objective: Objective | None = None) -> BatchFields:
        """All that the model, the objective and its teachers read."""
        facts = objective.facts if objective else Facts()
        backbones = [model.backbone, *(helper.backbone for helper, _ in facts.helpers)]
        parts = [part for backbone in backbones for part in list_parts(backbone)]
        uses = facts.uses.union(*(getattr(part, "uses", ()) for part in parts))
        labels = objective.labels if objective else None
        return cls(model.backbone.needs | facts.needs, uses, labels)

    @property
    def kept(self) -> frozenset[str]:
        return self.needs | self.uses


def describe_unread(source: RowSource, read: frozenset[str]) -> list[str]:
    """A line for every track beyond the common ones that batches leave out: no part reads it, or
    not every corpus has it.
    """
    noise = source.noise
    written = noise.writes if noise else frozenset[str]()
    given = [
        written | reader.format.provides | {f"tracks.{name}" for name in reader.shards.tracks}
        for reader, _ in source.reader.corpora("").values()
    ]
    somewhere, everywhere = frozenset[str]().union(*given), given[0].intersection(*given)
    idle = somewhere - read - (noise.reads | noise.uses if noise else frozenset())
    why = dict.fromkeys(idle, "no part says in `needs` or `uses` that it reads it")
    why |= dict.fromkeys(read & (somewhere - everywhere), "not every corpus has it")
    tracks = sorted(field for field in why if field.startswith("tracks.") and field not in COMMON)
    return [f"{field} is left out: {why[field]}" for field in tracks]


def open_training_loader(feed: Feed, corpus: Corpus, world: World, fields: BatchFields) -> Loader:
    """The updates of one stage, this rank's share of each."""
    rows = feed.rows
    opened = {
        name: build_source(
            node,
            corpus.train[name],
            corpus.vocab,
            fields,
            feed.plugins,
            temperature=feed.temperature,
            seed=feed.seed + place * SEED_STEP,
            batch_size=rows,
            world=world.size,
            rank=world.rank,
            stage=feed.stage,
            stream=corpus.streams.get(name),
            words=feed.words,
            batch_tokens=feed.tokens,
        )
        for place, (name, node) in enumerate(feed.sources.items())
    }
    refuse_other_rows({name: source.reader.fingerprint for name, source in opened.items()}, world)
    for source in opened.values():
        streams = source.reader.format.streams
        if streams not in (None, rows):
            allowed = (
                f"must be the {rows} rows of an update, each of which goes on in the next update"
            )
            raise ConfigError("format.streams", streams, allowed, fix=f"format.streams={rows}")
    # a row has a token at least
    micro_rows = (
        micro_batch_rows(feed.rows, feed.micro_rows, world.size)
        if feed.tokens is None
        else feed.micro_rows or feed.tokens
    )
    return Loader(
        opened,
        micro_batch_size=micro_rows,
        labels=fields.labels,
        seed=feed.seed,
        schedule=feed.order,
        keep=fields.kept,
        pinned=world.device.type == "cuda",
    )


def refuse_other_rows(own: Mapping[str, str], world: World) -> None:
    """DataError, in every process, where two of them have opened other data.

    Args:
        own: The hash of the data of each source in this process.
    """
    ranks = world.all.exchange(dict(own))
    for rank, other in enumerate(ranks):
        if different := [name for name in ranks[0] if other.get(name) != ranks[0][name]]:
            named = ", ".join(different)
            what = f"process {rank} reads other data than process 0 (data source {named})"
            fix = "# the same files on all machines; start again if they were just replaced"
            raise DataError(what, fix=fix)


def open_held_out(
    feed: Feed, corpus: Corpus, world: World, fields: BatchFields
) -> dict[str, Iterator[Batch]]:
    """{title: validation batches} of each corpus: its held-out documents under `eval.noise` and
    `eval.seed`, the same for every run, and at most `eval.rows` of them.
    """
    most, share = feed.eval.rows, rows_of_evaluation(feed, world.size)
    batches: dict[str, Iterator[Batch]] = {}
    for title, (name, part) in corpus.held_out().items():
        shards, rows = corpus.valid[name][part], share
        node = {**feed.sources[name], "noise": plain(feed.eval.noise)}
        # a row goes on where the same row of the batch before ended
        if "streams" in node["format"]:
            length = node["format"]["max_length"]
            rows = max(1, _streams(len(shards.ids), length, rows * world.size) // world.size)
            node["format"] = {**node["format"], "streams": rows * world.size}
        source = build_source(
            node,
            {part: shards},
            corpus.vocab,
            fields,
            feed.plugins,
            seed=feed.eval.seed,
            batch_size=rows,
            world=world.size,
            rank=world.rank,
            allow_short=True,
        )
        every = once(source, batch_size=rows, labels=fields.labels, name=name, keep=fields.kept)
        batches[title] = islice(
            every, None if most is None else max(1, -(-most // (rows * world.size)))
        )
    return batches


def rows_of_evaluation(feed: Feed, processes: int) -> int:
    """Rows of a batch of validation in each process: those of a micro-batch of training, or a
    process' share of `eval.batch_size`.
    """
    most = feed.eval.batch_size
    if most is None and feed.micro_rows:
        return feed.micro_rows
    return max(1, (most or feed.rows) // processes)


def batches_beside(feed: Feed, processes: int) -> int:
    """The number of batches of validation in each process that hold all rows which are compared in
    training, or in `eval.batch_size`.
    """
    compared = feed.eval.batch_size or feed.rows
    return max(1, compared // (processes * rows_of_evaluation(feed, processes)))


def _streams(tokens: int, length: int, most: int) -> int:
    """How many streams of held-out text are read side by side: `most`, or an even number that
    leaves each a whole row.
    """
    fewer = tokens // length
    return most if fewer >= most else max(2, fewer - fewer % 2)


def build_source(
    node: Mapping[str, Any],
    tokens: Mapping[str, Shards],
    vocab: Vocab,
    fields: BatchFields,
    plugins: Sequence[str],
    *,
    seed: int,
    temperature: float | None = None,
    allow_short: bool = False,
    stream: TextStream | ShardStream | None = None,
    words: bool = False,
    batch_tokens: int | None = None,
    **reading: Any,
) -> RowSource:
    """Reader, format and noise of one of `sources`, its corpora mixed.

    Args:
        tokens: The tokens of each corpus.
        stream: The stream that is read instead of its one corpus, of which `tokens` are the first
            window.
        words: Whether the words of the rows are counted.
        batch_tokens: The tokens of an update, padding included; None: it has so many rows.
        reading: Further settings of readers and mixtures.
    """
    plain_layout = build_format(node, vocab, plugins)
    layouts = {
        name: state_language(plain_layout, (node["corpora"].get(name) or {}).get("language"))
        for name in tokens
    }
    layout = next(iter(layouts.values()))
    noise = build_noise(node["noise"], vocab, tokens, plugins)
    length = noise.input_length(layout.max_length) if noise else None
    read = _fields_to_read(fields, layout, noise, tokens.values())
    read |= {FIELD} if words else set()
    kind = _choose_reader(batch_tokens, several=len(tokens) > 1, streams=stream is not None)
    if stream is not None:
        how = {"input_length": length, "wanted": read, "seed": seed, **reading}
        return RowSource(StreamReader(stream, layout, **how), noise, float(node["weight"]))
    readers = {
        name: kind(
            shards,
            layouts[name],
            input_length=length,
            wanted=read,
            allow_short=allow_short,
            seed=seed + place * CORPUS_STEP,
            **reading,
        )
        for place, (name, shards) in enumerate(tokens.items())
    }
    reader: RowReader | Mixture = next(iter(readers.values()))
    if len(readers) > 1:
        weights = {name: part.get("weight") for name, part in node["corpora"].items()}
        counts = {name: len(shards.ids) for name, shards in tokens.items()}
        reader = Mixture(
            readers, compute_shares(weights, counts, temperature=temperature), seed=seed, **reading
        )
    return RowSource(reader, noise, float(node["weight"]), cut=batch_tokens is not None)


def _choose_reader(tokens: int | None, *, several: bool, streams: bool) -> Callable[..., RowReader]:
    """The reader of batches with so many tokens, if any; ConfigError where the rows of an epoch
    cannot be sorted by length.
    """
    if tokens is None:
        return RowReader
    if several or streams:
        why = "a mixture draws its rows one by one" if several else "a stream has no whole epoch"
        allowed = f"null: rows are sorted by length over a whole epoch, and {why}"
        raise ConfigError("train.batch_tokens", tokens, allowed, fix="train.batch_tokens=null")
    return partial(TokenBatchReader, tokens=tokens)


def _fields_to_read(
    fields: BatchFields, layout: Format, noise: Chain | None, corpora: Collection[Shards]
) -> frozenset[str]:
    """The fields that rows need for noise and batches, as far as format and corpora have them."""
    everywhere = frozenset.intersection(
        *(frozenset(f"tracks.{name}" for name in shards.tracks) for shards in corpora)
    )
    read = fields.needs
    if noise is not None:
        stored = {name for name, field in noise.fields.items() if field.stored}
        spans = (f"spans.{name}" for shards in corpora for name in shards.spans)
        absent = stored - everywhere - frozenset(spans)
        read = noise.reads | (noise.uses - absent) | (read - noise.writes)
    return read | (fields.uses & (layout.provides | everywhere))


def build_format(node: Mapping[str, Any], vocab: Vocab, plugins: Sequence[str]) -> Format:
    return build(node["format"], ToFormats(vocab=vocab).by_name(), plugins, path="format")


def state_language(layout: Format, language: Any) -> Format:
    """The format with the number of the language of its text, where one is stated."""
    return layout if language is None else InLanguage(format=layout, language=language)


def build_noise(
    nodes: Mapping[str, Any] | None,
    vocab: Vocab,
    tokens: Mapping[str, Shards],
    plugins: Sequence[str],
) -> Chain | None:
    """The noises of a config in its order, or None without noise; `tokens` count how frequent each
    token is.
    """
    if not nodes:
        return None
    stated = [shards.manifest.get("knowledge", {}) for shards in tokens.values()]
    given = ToNoises(
        vocab=vocab,
        corpus_sample=sample_corpora(tokens.values()),
        tokenizer=load_once(next(iter(tokens.values())).folder),
        home=next((each["path"] for each in stated if each), None),
    ).by_name()
    return Chain(
        [build(node, given, plugins, path=f"noise.{name}") for name, node in nodes.items()]
    )


@functools.cache
def load_once(folder: Path) -> Tokenizer:
    """The tokenizer of a token directory."""
    return Tokenizer.load(folder)
