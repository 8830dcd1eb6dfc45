"""From config to data: token shards, formats, noise, and the loaders of training and validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from omegaconf import DictConfig, OmegaConf

from plmctl.batch import Batch
from plmctl.commands.tokenize import job, progress
from plmctl.config import schema
from plmctl.config.build import build, plain
from plmctl.config.finish import check_parts
from plmctl.data.formats.base import Format
from plmctl.data.loader import Labels, Loader, Source, once
from plmctl.data.reader import Reader
from plmctl.data.shards import Shards
from plmctl.data.tokenizing import open_or_tokenize
from plmctl.errors import ConfigError, ConfigErrors, DataError, UsageError, nearest, raise_all
from plmctl.noise.base import Chain
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab
from plmctl.training.distributed import World
from plmctl.training.stages import check_shares

STAGE_KEYS = ("share", "trainable", "frozen")  # of a stage; every other key is an override of one of STAGE_OVERRIDES
STAGE_OVERRIDES = ("format", "noise", "train.batch_size", "train.micro_batch_size")
SEED_STEP = 1_000_003  # between the seeds of two sources, which must not draw the same numbers
ALWAYS_KEPT = frozenset(
    {"tracks.document", "tracks.position", "tracks.segment"}
)  # tracks that a backbone reads if they are there


@dataclass(frozen=True)
class Corpus:
    """The tokens of a run, by source, and the one tokenizer they share."""

    train: Mapping[str, Shards]
    valid: Mapping[str, Shards | None]
    tokenizer: Tokenizer

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab


def open_corpus(cfg: DictConfig, plugins: tuple[str, ...] = ()) -> Corpus:
    """Open the token directories of `data.path` (of each of `data.sources`); raw text is tokenized first, once."""
    paths = {name: node.get("path", cfg.data.path) for name, node in sources(cfg).items()}
    with progress() as say:
        folders = {
            path: open_or_tokenize(job(cfg, path, say=say, plugins=plugins), cache_dir=cfg.data.cache_dir)
            for path in dict.fromkeys(_hashable(path) for path in paths.values())
        }
    homes = {name: folders[_hashable(path)] for name, path in paths.items()}
    first = next(iter(homes.values()))
    train = {name: Shards.open(home, "train") for name, home in homes.items()}
    wanted = cfg.tokenizer.get("path") if cfg.tokenizer else None
    tokenizer = Tokenizer.load(wanted or first)
    for name, shards in train.items():
        if shards.manifest["tokenizer"]["fingerprint"] != tokenizer.fingerprint:
            whose = "the one the model starts from" if cfg.init else "tokenizer.path" if wanted else "that of the first source"
            raise DataError(
                f"these tokens were made with another tokenizer than {whose} ({wanted or first})", file=homes[name],
                fix=f"give data.path the text, or tokenize it again with tokenizer.path={wanted or first}",
            )  # fmt: skip
    return Corpus(train, {name: _valid(home) for name, home in homes.items()}, tokenizer)


def sources(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    """{name: {path, format, noise, weight}}; a run without `data.sources` has one, called "text"."""
    given = plain(cfg.data.sources) or {"text": {}}
    return {
        name: {"format": plain(cfg.format), "noise": plain(cfg.noise), "weight": 1.0, **node} for name, node in given.items()
    }


def stage_config(cfg: DictConfig, number: int) -> DictConfig:
    """The config that holds in a stage: `{share: 0.1, format.max_length: 512}` changes what it names."""
    staged = cfg.copy()
    for key, value in plain(cfg.train.stages[number]).items() if cfg.train.stages else ():
        if key in STAGE_KEYS:
            continue
        if not key.startswith(STAGE_OVERRIDES):
            allowed = (*STAGE_KEYS, *STAGE_OVERRIDES, *(f"format.{name}" for name in cfg.format))
            settable = ", ".join((*STAGE_KEYS, "format.*", "noise.*", *STAGE_OVERRIDES[2:]))
            raise ConfigError(f"train.stages.{number}.{key}", value, f"a stage may set {settable}{nearest(key, allowed)}")
        OmegaConf.update(staged, key, value, force_add=True)
    return staged


def check_updates(cfg: DictConfig, processes: int, plugins: Sequence[str] = ()) -> None:
    """Every stage as far as numbers alone can tell, before any data are read; all mistakes are raised together."""
    errors: list[UsageError] = []
    for number in range(len(cfg.train.stages) or 1):
        try:
            staged = stage_config(cfg, number)
            raise_all(_misfits(cfg, staged, number, plugins))
            micro_batch_rows(staged, processes)
        except ConfigErrors as error:
            errors += error.errors
        except UsageError as error:
            errors.append(error)
    raise_all(list({str(error): error for error in errors}.values()))
    check_shares([stage.get("share", 1.0) for stage in cfg.train.stages or [{}]])


def _misfits(cfg: DictConfig, staged: DictConfig, number: int, plugins: Sequence[str]) -> list[ConfigError]:
    """Settings of a stage that do not fit what they are set in, under the names they have in `train.stages`."""
    own = plain(cfg.train.stages[number]) if cfg.train.stages else {}
    content = {"train": plain(staged.train), "format": plain(staged.format), "noise": plain(staged.noise) or {}}
    found = [*schema.fitted("pretrain", {"train": content.pop("train")})[1], *check_parts(content, plugins)]
    return [
        ConfigError(f"train.stages.{number}.{error.path}", error.value, error.allowed, fix=error.fix)
        for error in found
        if isinstance(error, ConfigError) and error.path in own
    ]


def micro_batch_rows(cfg: DictConfig, processes: int) -> int:
    """The rows of one backward pass of each process, which must share out an update evenly."""
    rows = cfg.train.batch_size
    if rows % processes:
        fix = f"train.batch_size={max(1, round(rows / processes)) * processes}"
        raise ConfigError("train.batch_size", rows, f"must be a multiple of the {processes} processes", fix=fix)
    share = rows // processes
    micro = cfg.train.micro_batch_size or share
    if share % micro:
        fix = f"train.micro_batch_size={max(n for n in range(1, micro + 1) if share % n == 0)}"
        allowed = f"must divide the {share} rows that a process has in an update"
        raise ConfigError("train.micro_batch_size", micro, allowed, fix=fix)
    return micro


def training_loader(
    cfg: DictConfig,
    corpus: Corpus,
    world: World,
    *,
    stage: int,
    labels: Labels | None,
    needs: frozenset[str],
    plugins: Sequence[str],
) -> Loader:
    """The updates of one stage: this rank's share of each."""
    cfg = stage_config(cfg, stage)
    made = {
        name: source(
            node, corpus.train[name], corpus.vocab, needs=needs, plugins=plugins, seed=cfg.seed + place * SEED_STEP,
            batch_size=cfg.train.batch_size, world=world.size, rank=world.rank, stage=stage,
        )
        for place, (name, node) in enumerate(sources(cfg).items())
    }  # fmt: skip
    return Loader(
        made, micro_batch_size=micro_batch_rows(cfg, world.size), labels=labels, seed=cfg.seed,
        schedule=cfg.train.sources, keep=needs | ALWAYS_KEPT, pinned=world.device.type == "cuda",
    )  # fmt: skip


def held_out(
    cfg: DictConfig, corpus: Corpus, world: World, *, labels: Labels | None, needs: frozenset[str], plugins: Sequence[str]
) -> Iterator[Batch]:
    """The validation batches: the held-out documents under `eval.noise` and `eval.seed`, the same for every run."""
    size = cfg.eval.batch_size or cfg.train.micro_batch_size or max(1, cfg.train.batch_size // world.size)
    for name, node in sources(cfg).items():
        shards = corpus.valid[name]
        if shards is None:
            continue
        made = source(
            {**node, "noise": plain(cfg.eval.noise)}, shards, corpus.vocab, needs=needs, plugins=plugins, seed=cfg.eval.seed,
            batch_size=size, world=world.size, rank=world.rank, allow_short=True,
        )  # fmt: skip
        batches = once(made, batch_size=size, labels=labels, name=name, keep=needs | ALWAYS_KEPT)
        yield from batches if cfg.eval.rows is None else islice(batches, max(1, -(-cfg.eval.rows // (size * world.size))))


def source(
    node: Mapping[str, Any], shards: Shards, vocab: Vocab, *, needs: frozenset[str], plugins: Sequence[str], **reading: Any
) -> Source:
    """The reader, format and noise of one of `sources`; `reading` is what else a `Reader` takes."""
    layout, noise = build_format(node, vocab, plugins), build_noise(node["noise"], vocab, plugins)
    length = noise.input_length(layout.max_length) if noise else None
    wanted = ALWAYS_KEPT | (needs if noise is None else noise.reads | (needs - noise.writes))
    return Source(Reader(shards, layout, input_length=length, wanted=wanted, **reading), noise, float(node["weight"]))


def build_format(node: Mapping[str, Any], vocab: Vocab, plugins: Sequence[str]) -> Format:
    return build(node["format"], {"vocab": vocab}, plugins, path="format")


def build_noise(nodes: Mapping[str, Any] | None, vocab: Vocab, plugins: Sequence[str]) -> Chain | None:
    """The noises of a config in its order, or None where there are none."""
    made = [build(node, {"vocab": vocab}, plugins, path=f"noise.{name}") for name, node in (nodes or {}).items()]
    return Chain(made) if made else None


def _valid(folder: Any) -> Shards | None:
    """The held-out split, None where a corpus is too small to have one."""
    shards = Shards.open(folder, "valid")
    return shards if len(shards.ids) else None


def _hashable(path: Any) -> Any:
    return tuple(path) if isinstance(path, Sequence) and not isinstance(path, str) else path
