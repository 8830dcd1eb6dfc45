"""The loaders of training and validation: each source with its format, noise and corpora."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.fields import COMMON
from plmctl.data.formats.base import Format
from plmctl.data.loader import Labels, Loader, RowSource, once
from plmctl.data.mixture import Mixture, compute_shares
from plmctl.data.reader import RowReader
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import Shards
from plmctl.models.base import Model
from plmctl.noise.base import Chain
from plmctl.objectives.base import Facts, Objective
from plmctl.run.build import build, plain
from plmctl.run.corpus import Corpus, sources
from plmctl.run.injected import ToFormats, ToNoises
from plmctl.run.stage_settings import micro_batch_rows, stage_config
from plmctl.text.vocab import Vocab
from plmctl.training.processes.world import World

SEED_STEP = 1_000_003  # between the seeds of two sources, which must not draw the same numbers


CORPUS_STEP = 15_485_863  # between those of two corpora of a mixture


def find_used_fields(model: Model, objective: Objective | None = None) -> frozenset[str]:
    """The fields that some part of the model, of the objective or of its teachers reads where
    they are there.
    """
    facts = objective.facts if objective else Facts()
    models = [model, *(helper for helper, _ in facts.helpers)]
    parts = [part for each in models for part in each.backbone.parts()]
    return facts.uses.union(*(getattr(part, "uses", ()) for part in parts))


def describe_unread(source: RowSource, read: frozenset[str]) -> list[str]:
    """A line for every track beyond the common ones that batches leave out: no part reads it, or
    not every corpus has it.
    """
    noise, readers = source.noise, [reader for reader, _ in source.reader.corpora("").values()]
    made = noise.writes if noise else frozenset[str]()
    there = [
        made | each.format.provides | {f"tracks.{name}" for name in each.shards.tracks}
        for each in readers
    ]
    somewhere, everywhere = frozenset[str]().union(*there), there[0].intersection(*there)
    missing = read & (somewhere - everywhere)
    idle = somewhere - read - (noise.reads | noise.uses if noise else frozenset())
    why = dict.fromkeys(idle, "no part says in `needs` or `uses` that it reads it")
    why |= dict.fromkeys(missing, "not every corpus has it")
    own = sorted(field for field in why if field.startswith("tracks.") and field not in COMMON)
    return [f"{field} is left out: {why[field]}" for field in own]


def open_training_loader(
    cfg: Any,
    corpus: Corpus,
    world: World,
    *,
    stage: int,
    labels: Labels | None,
    needs: frozenset[str],
    uses: frozenset[str] = frozenset(),
    plugins: Sequence[str],
) -> Loader:
    """The updates of one stage, this rank's share of each, with the fields that parts need, and
    those that they use.
    """
    cfg = stage_config(cfg, stage)
    made = {
        name: build_source(
            node,
            corpus.train[name],
            corpus.vocab,
            needs=needs,
            uses=uses,
            plugins=plugins,
            temperature=cfg.data.temperature,
            seed=cfg.seed + place * SEED_STEP,
            batch_size=cfg.train.batch_size,
            world=world.size,
            rank=world.rank,
            stage=stage,
        )
        for place, (name, node) in enumerate(sources(cfg).items())
    }
    for each in made.values():
        if each.reader.format.streams not in (None, cfg.train.batch_size):
            allowed = (
                f"must be the {cfg.train.batch_size} rows of an update,"
                " each of which goes on in the next update"
            )
            raise ConfigError(
                "format.streams",
                each.reader.format.streams,
                allowed,
                fix=f"format.streams={cfg.train.batch_size}",
            )
    return Loader(
        made,
        micro_batch_size=micro_batch_rows(cfg, world.size),
        labels=labels,
        seed=cfg.seed,
        schedule=cfg.train.sources,
        keep=needs | uses,
        pinned=world.device.type == "cuda",
    )


def open_held_out(
    cfg: Any,
    corpus: Corpus,
    world: World,
    *,
    labels: Labels | None,
    needs: frozenset[str],
    uses: frozenset[str] = frozenset(),
    plugins: Sequence[str],
) -> dict[str, Iterator[Batch]]:
    """{title: validation batches} of each corpus: its held-out documents under `eval.noise` and
    `eval.seed`, the same for every run, and at most `eval.rows` of them.
    """
    size = (
        cfg.eval.batch_size
        or cfg.train.micro_batch_size
        or max(1, cfg.train.batch_size // world.size)
    )
    found: dict[str, Iterator[Batch]] = {}
    for title, (name, part) in corpus.held_out().items():
        node, own, shards = (
            {**sources(cfg)[name], "noise": plain(cfg.eval.noise)},
            size,
            corpus.valid[name][part],
        )
        # a row goes on where the same row of the batch before ended
        if "streams" in node["format"]:
            own = max(
                1,
                _streams(len(shards.ids), node["format"]["max_length"], size * world.size)
                // world.size,
            )
            node["format"] = {**node["format"], "streams": own * world.size}
        made = build_source(
            node,
            {part: shards},
            corpus.vocab,
            needs=needs,
            uses=uses,
            plugins=plugins,
            seed=cfg.eval.seed,
            batch_size=own,
            world=world.size,
            rank=world.rank,
            allow_short=True,
        )
        most = None if cfg.eval.rows is None else max(1, -(-cfg.eval.rows // (own * world.size)))
        found[title] = islice(
            once(made, batch_size=own, labels=labels, name=name, keep=needs | uses), most
        )
    return found


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
    *,
    needs: frozenset[str],
    uses: frozenset[str],
    plugins: Sequence[str],
    seed: int,
    temperature: float | None = None,
    allow_short: bool = False,
    **reading: Any,
) -> RowSource:
    """Reader, format and noise of one of `sources`, its corpora mixed; `reading` is what else
    readers and mixtures take.
    """
    layout, noise = (
        build_format(node, vocab, plugins),
        build_noise(node["noise"], vocab, tokens, plugins),
    )
    length = noise.input_length(layout.max_length) if noise else None
    everywhere = frozenset.intersection(
        *(frozenset(f"tracks.{name}" for name in each.tracks) for each in tokens.values())
    )
    there = uses & (layout.provides | everywhere)
    wanted = there | (needs if noise is None else noise.reads | noise.uses | (needs - noise.writes))
    readers = {
        name: RowReader(
            shards,
            layout,
            input_length=length,
            wanted=wanted,
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
    return RowSource(reader, noise, float(node["weight"]))


def build_format(node: Mapping[str, Any], vocab: Vocab, plugins: Sequence[str]) -> Format:
    return build(node["format"], ToFormats(vocab=vocab).by_name(), plugins, path="format")


def build_noise(
    nodes: Mapping[str, Any] | None,
    vocab: Vocab,
    tokens: Mapping[str, Shards],
    plugins: Sequence[str],
) -> Chain | None:
    """The noises of a config in its order, or None where there are none; `tokens` say how
    frequent each token is.
    """
    if not nodes:
        return None
    sample = np.concatenate([sample_corpus(shards.ids) for shards in tokens.values()])
    given = ToNoises(vocab=vocab, corpus_sample=sample).by_name()
    return Chain(
        [build(node, given, plugins, path=f"noise.{name}") for name, node in nodes.items()]
    )
