"""From config to data: token shards, formats, noise, and the loaders of training and validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.batch import Batch
from plmctl.core.errors import (
    ConfigError,
    DataError,
    PlmctlError,
    UsageError,
    collect,
    nearest,
    raise_all,
)
from plmctl.core.fields import COMMON
from plmctl.core.progress import show_bytes
from plmctl.data.formats.base import Format
from plmctl.data.loader import Labels, Loader, RowSource, once
from plmctl.data.mixture import Mixture, check_mixture, compute_shares
from plmctl.data.reader import RowReader
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import SPLITS, Shards, is_tokens, read_manifest
from plmctl.data.sharing import share_tokenizer
from plmctl.data.tokenizing import TokenizingJob, find_cache_folder, open_or_tokenize
from plmctl.data.verified import verify_once
from plmctl.models.base import Model
from plmctl.noise.base import Chain
from plmctl.objectives.base import Facts, Objective
from plmctl.run import schema
from plmctl.run.build import build, plain
from plmctl.run.finish import check_parts
from plmctl.run.injected import ToFormats, ToNoises
from plmctl.run.tokenize import job, progress
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import refuse_unknown, unknown_share
from plmctl.text.vocab import Vocab
from plmctl.training.processes.world import World
from plmctl.training.stages import check_shares

# of a stage; every other key is an override of one of STAGE_OVERRIDES
STAGE_KEYS = ("share", "trainable", "frozen")
STAGE_OVERRIDES = ("format", "noise", "train.batch_size", "train.micro_batch_size")
SOURCE_KEYS = ("path", "mixture", "format", "noise", "weight")  # of one of `data.sources`
SEED_STEP = 1_000_003  # between the seeds of two sources, which must not draw the same numbers
CORPUS_STEP = 15_485_863  # between those of two corpora of a mixture


@dataclass(frozen=True)
class Corpus:
    """The tokens of a run, {source: {corpus: tokens}}, and the one tokenizer they share; a
    source that is no mixture has one corpus, called as itself.
    """

    train: Mapping[str, Mapping[str, Shards]]
    # without the corpora that are too small to hold a document out
    valid: Mapping[str, Mapping[str, Shards]]
    tokenizer: Tokenizer

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab

    def held_out(self) -> dict[str, tuple[str, str]]:
        """{title: (source, corpus)} of what is held out; a title is the corpus, of several
        sources "source.corpus".
        """
        pairs = [(source, name) for source, parts in self.valid.items() for name in parts]
        several = len(self.valid) > 1
        return {
            f"{pair[0]}.{pair[1]}" if several and pair[0] != pair[1] else pair[1]: pair
            for pair in pairs
        }


def open_corpus(cfg: Any, plugins: tuple[str, ...] = ()) -> Corpus:
    """Open the token directories of all sources and corpora; raw text is tokenized first, once."""
    paths = {
        source: {name: _hashable(part.get("path")) for name, part in node["corpora"].items()}
        for source, node in sources(cfg).items()
    }
    with progress() as say:
        jobs = {
            path: job(cfg, path, say=say, plugins=plugins)
            for parts in paths.values()
            for path in parts.values()
        }
        lent = _lent_tokenizer(cfg, jobs)
        if lent is not None:
            jobs = {
                path: replace(each, recipe=replace(each.recipe, path=str(lent)))
                for path, each in jobs.items()
            }
        folders = {
            path: open_or_tokenize(each, cache_dir=cfg.data.cache_dir)
            for path, each in jobs.items()
        }
    wanted = cfg.tokenizer.get("path") if cfg.tokenizer else None
    given = wanted or lent or next(iter(folders.values()))
    tokenizer = Tokenizer.load(given)
    whose = (
        "the one the model starts from"
        if cfg.init
        else "tokenizer.path"
        if wanted
        else "that of the first corpus"
    )
    for home in folders.values():
        found = read_manifest(home)["tokenizer"]["fingerprint"]
        if found != tokenizer.fingerprint:
            raise DataError(
                f"these tokens were made with another tokenizer than {whose} ({given}): {found},"
                f" not {tokenizer.fingerprint}",
                file=home,
                fix=(
                    "give the text instead of its tokens,"
                    f" or tokenize it again with tokenizer.path={given}"
                ),
            )
    train, valid = (
        {
            source: {
                name: Shards.open(folders[path], split, given=path) for name, path in parts.items()
            }
            for source, parts in paths.items()
        }
        for split in SPLITS
    )
    with show_bytes() as say:
        for shards in [
            shards for parts in (*train.values(), *valid.values()) for shards in parts.values()
        ]:
            verify_once(shards, find_cache_folder(cfg.data.cache_dir), say=say)
    for path, home in folders.items():
        sample = sample_corpus(Shards.open(home, "train", given=path).ids)
        fix = (
            "a tokenizer of this text (no tokenizer.path,"
            " more tokenizer.vocab_size), or of any: tokenizer=byte_bpe"
        )
        refuse_unknown(unknown_share(sample, tokenizer.vocab), file=path or home, fix=fix)
    held = {
        source: {name: shards for name, shards in parts.items() if len(shards.ids)}
        for source, parts in valid.items()
    }
    share = (cfg.get("train") or {}).get("share", 1.0)  # runs of before have none
    train = {
        source: {name: part.first(share) for name, part in parts.items()}
        for source, parts in train.items()
    }
    return Corpus(train, held, tokenizer)


def _lent_tokenizer(cfg: Any, jobs: Mapping[Any, TokenizingJob]) -> Path | None:
    """What several texts share where no tokenizer is given: that of the first token directory,
    or one trained on all.
    """
    if len(jobs) == 1 or (cfg.tokenizer and cfg.tokenizer.get("path")):
        return None
    known = next((Path(path).expanduser() for path in jobs if is_tokens(path)), None)
    return known or share_tokenizer(list(jobs.values()), cache_dir=cfg.data.cache_dir)


def sources(cfg: Any) -> dict[str, dict[str, Any]]:
    """{name: {corpora, format, noise, weight}}; a run without `data.sources` has one source,
    called "text".
    """
    common = {"format": plain(cfg.format), "noise": plain(cfg.noise), "weight": 1.0}
    given = plain(cfg.data.sources) or {"text": {}}
    return {
        name: {**common, **node, "corpora": _corpora(cfg, name, node)}
        for name, node in given.items()
    }


def _corpora(cfg: Any, source: str, node: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{corpus: {path, weight}} of a source: its mixture, or its path as one corpus; by default
    those of `data`.
    """
    own = node if "mixture" in node or "path" in node else plain(cfg.data)
    return own.get("mixture") or {source: {"path": own.get("path")}}


def check_data(cfg: Any) -> None:
    """The settings of sources and mixtures, before any data are read; all mistakes are raised
    together.
    """
    data = plain(cfg.data)
    errors: list[UsageError] = []
    mixtures = {"data.mixture": data["mixture"]}
    for name, node in data["sources"].items():
        known = f"there is no such setting; there are {', '.join(SOURCE_KEYS)}"
        for key in [key for key in node if key not in SOURCE_KEYS]:
            errors.append(
                ConfigError(
                    f"data.sources.{name}.{key}", node[key], known + nearest(key, SOURCE_KEYS)
                )
            )
        mixtures[f"data.sources.{name}.mixture"] = node.get("mixture")
    mixtures = {path: mixture for path, mixture in mixtures.items() if mixture}
    for path, mixture in mixtures.items():
        errors += check_mixture(mixture, data["temperature"], path)
        if data["valid_path"] is not None:
            fix = "plmctl tokenize data.valid_path=..., and name the token directories"
            allowed = f"each corpus of {path} holds documents of its own out"
            errors.append(ConfigError("data.valid_path", data["valid_path"], allowed, fix=fix))
    if data["temperature"] is not None and not mixtures:
        errors.append(
            ConfigError(
                "data.temperature", data["temperature"], "has no effect without data.mixture"
            )
        )
    if data["path"] is not None and data["mixture"]:
        fix = "make it one of the mixture's corpora"
        errors.append(
            ConfigError("data.path", data["path"], "has no effect beside data.mixture", fix=fix)
        )
    raise_all(errors)


def stage_config(cfg: Any, number: int) -> Any:
    """The config that holds in a stage: `{share: 0.1, format.max_length: 512}` changes what it
    names.
    """
    staged = cfg
    for key, value in plain(cfg.train.stages[number]).items() if cfg.train.stages else ():
        if key in STAGE_KEYS:
            continue
        if not key.startswith(STAGE_OVERRIDES):
            allowed = (*STAGE_KEYS, *STAGE_OVERRIDES, *(f"format.{name}" for name in cfg.format))
            settable = ", ".join((*STAGE_KEYS, "format.*", "noise.*", *STAGE_OVERRIDES[2:]))
            raise ConfigError(
                f"train.stages.{number}.{key}",
                value,
                f"a stage may set {settable}{nearest(key, allowed)}",
            )
        staged = staged.with_value(key, value)
    return staged


def check_updates(cfg: Any, processes: int, plugins: Sequence[str] = ()) -> None:
    """Every stage as far as numbers alone can tell, before any data are read; all mistakes are
    raised together.
    """
    errors: list[PlmctlError] = []
    for number in range(len(cfg.train.stages) or 1):
        with collect(errors):
            staged = stage_config(cfg, number)
            raise_all(_misfits(cfg, staged, number, plugins))
            micro_batch_rows(staged, processes)
    raise_all(errors)
    check_shares([stage.get("share", 1.0) for stage in cfg.train.stages or [{}]])


def _misfits(cfg: Any, staged: Any, number: int, plugins: Sequence[str]) -> list[ConfigError]:
    """Settings of a stage that do not fit what they are set in, under the names they have in
    `train.stages`.
    """
    own = plain(cfg.train.stages[number]) if cfg.train.stages else {}
    content = {
        "train": plain(staged.train),
        "format": plain(staged.format),
        "noise": plain(staged.noise) or {},
    }
    found = [
        *schema.make("pretrain", {"train": content.pop("train")})[1],
        *check_parts(content, plugins),
    ]
    return [
        ConfigError(
            f"train.stages.{number}.{error.path}", error.value, error.allowed, fix=error.fix
        )
        for error in found
        if isinstance(error, ConfigError) and error.path in own
    ]


def micro_batch_rows(cfg: Any, processes: int) -> int:
    """The rows of one backward pass of each process, which must share out an update evenly."""
    rows = cfg.train.batch_size
    if rows % processes:
        fix = f"train.batch_size={max(1, round(rows / processes)) * processes}"
        raise ConfigError(
            "train.batch_size", rows, f"must be a multiple of the {processes} processes", fix=fix
        )
    share = rows // processes
    micro = cfg.train.micro_batch_size or share
    if share % micro:
        fix = f"train.micro_batch_size={max(n for n in range(1, micro + 1) if share % n == 0)}"
        allowed = f"must divide the {share} rows that a process has in an update"
        raise ConfigError("train.micro_batch_size", micro, allowed, fix=fix)
    return micro


def used(model: Model, objective: Objective | None = None) -> frozenset[str]:
    """The fields that some part of the model, of the objective or of its teachers reads where
    they are there.
    """
    facts = objective.facts if objective else Facts()
    models = [model, *(helper for helper, _ in facts.helpers)]
    parts = [part for each in models for part in each.backbone.parts()]
    return facts.uses.union(*(getattr(part, "uses", ()) for part in parts))


def unread(source: RowSource, read: frozenset[str]) -> list[str]:
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


def training_loader(
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
        name: source(
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


def held_out(
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
        made = source(
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


def source(
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


def _hashable(path: Any) -> Any:
    return tuple(path) if isinstance(path, Sequence) and not isinstance(path, str) else path
