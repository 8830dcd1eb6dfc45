"""`plmctl pretrain`: compose the parts of a config into a model, an objective and data, and train."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from omegaconf import DictConfig

from plmctl.assembly import build_model
from plmctl.batch import Batch
from plmctl.commands.common import Session, budget_of, build_objective, fit, training
from plmctl.commands.corpus import STAGE_KEYS, Corpus, check_updates, held_out, open_corpus, source, sources, training_loader
from plmctl.config.compose import Flags
from plmctl.config.contract import check_contract
from plmctl.cost import cost
from plmctl.data.loader import Loader
from plmctl.data.preview import preview
from plmctl.models.base import Model
from plmctl.objectives.mix import Mix
from plmctl.training.budget import Budget
from plmctl.training.distributed import environment
from plmctl.training.evaluation import mean_losses
from plmctl.training.stages import Stage
from plmctl.training.trainer import Result


def run(cfg: DictConfig, flags: Flags) -> int:
    """Train, or with the flags only show what would be trained; returns the exit code."""
    check_updates(cfg, processes=max(environment()[2], cfg.train.processes), plugins=flags.plugins)
    check_contract(cfg, flags.plugins, flags.config_dirs)
    if flags.dry_run:
        from plmctl.commands.dry_run import show

        return show(cfg, flags)
    if cfg.init and not flags.resume:
        from plmctl.loading import adopt

        cfg = adopt(cfg, flags.overrides)
    if flags.preview:
        print(_preview(cfg, flags))
        return 0
    return training(cfg, flags, prepare=partial(open_corpus, plugins=flags.plugins), train=train)


def train(session: Session) -> Result:
    """Build everything the config names and fit it."""
    cfg, plugins, world = session.cfg, session.flags.plugins, session.world
    corpus = open_corpus(cfg, plugins)
    model = build_model(cfg, vocab_size=corpus.vocab.size, seed=cfg.seed, plugins=plugins)
    objective = build_objective(cfg, {"vocab": corpus.vocab, "width": model.backbone.width, "model": model}, plugins)
    if cfg.init and not any((session.folder / "checkpoints").glob("step-*")):  # --resume of a run that saved nothing yet, too
        from plmctl.loading import initialize

        initialize(model, cfg.init, say=session.say)
    needs = model.backbone.needs | objective.needs
    numbers = range(len(cfg.train.stages) or 1)
    loaders = [
        training_loader(cfg, corpus, world, stage=n, labels=objective.labels, needs=needs, plugins=plugins) for n in numbers
    ]
    stages = [
        Stage(batches=partial(_same, loader), **_stage_settings(cfg, n)) for n, loader in zip(numbers, loaders, strict=True)
    ]
    budget = budget_of(cfg, rows_per_epoch=sum(source.reader.plan(0).rows for source in loaders[0].sources.values()))
    for line in _overview(session, corpus, model, budget, loaders[0]):
        session.say(line)
    try:
        return fit(
            session, model=model, objective=objective, stages=stages, evaluate=_validation(session, corpus, objective, needs),
            budget=budget,
            extras=lambda folder: corpus.tokenizer.save(folder / "tokenizer"),
            flops_per_token=_flops_per_token(cfg, model, next(iter(loaders[0].sources.values())).capacity()),
        )  # fmt: skip
    finally:
        for loader in loaders:
            loader.close()


def _overview(session: Session, corpus: Corpus, model: Model, budget: Budget, loader: Loader) -> list[str]:
    """What will be trained, for how long, where, and on what: the first lines of a run."""
    cfg, world = session.cfg, session.world
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    place = f"{world.device.type} in {session.precision.name}" + (f", {world.size} processes" if world.size > 1 else "")
    lines = [
        f"{cfg.run.name}: {' + '.join(cfg.objective)}, {millions:.2f} M parameters, "
        f"{corpus.vocab.size:,} {corpus.tokenizer.kind} tokens",
        f"{budget} of {cfg.train.batch_size} rows of at most {cfg.format.max_length} tokens, on {place}; {session.folder}",
    ]
    for name, read in loader.sources.items():
        plan = read.reader.plan(0)
        shown = {key: value for key, value in plan.report.items() if value and key not in ("laid_out", "specials")}
        told = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in shown.items())
        lines.append(f"{name}: {plan.rows:,} rows an epoch; {told}")
    return lines


def _same(loader: Loader) -> Loader:
    return loader


def _stage_settings(cfg: DictConfig, number: int) -> dict:
    stage = cfg.train.stages[number] if cfg.train.stages else {}
    return {key: stage[key] for key in STAGE_KEYS if key in stage}


def _validation(
    session: Session, corpus: Corpus, objective: Mix, needs: frozenset[str]
) -> Callable[[Model], dict[str, float]] | None:
    """Losses on the held-out documents, and bits per byte for every target made of tokens; None without held-out text."""
    cfg, world = session.cfg, session.world
    if not any(corpus.valid.values()):
        session.say("no validation: the corpus is too small to hold a document out (data.valid_path=... gives one)")
        return None
    batches: list[Batch] = []
    totals = next(shards for shards in corpus.valid.values() if shards).manifest["splits"]["valid"]
    tokens_per_byte = totals["tokens"] / max(1, totals["bytes"])

    def evaluate(model: Model) -> dict[str, float]:
        if not batches:
            batches.extend(held_out(cfg, corpus, world, labels=objective.labels, needs=needs, plugins=session.flags.plugins))
        found = mean_losses(model, objective, batches, world=world)
        names = [name for name in batches[0].targets if f"loss/{name}" in found]
        return found | {f"bits_per_byte/{name}": found[f"loss/{name}"] / math.log(2) * tokens_per_byte for name in names}

    return evaluate


def _flops_per_token(cfg: DictConfig, model: Model, capacity: Mapping[str, int]) -> float:
    """Training FLOPs of one token; a head that no noise limits is given every position."""
    length = cfg.format.max_length
    return cost(
        model, length=length, predicted={name: capacity.get(name, length) / length for name in model.heads}
    ).flops_per_token


def _preview(cfg: DictConfig, flags: Flags) -> str:
    """The first rows of training as a person reads them."""
    corpus = open_corpus(cfg, flags.plugins)
    node, shards = next(iter(sources(cfg).values())), next(iter(corpus.train.values()))
    objective = build_objective(cfg, {"vocab": corpus.vocab}, flags.plugins)
    made = source(
        node, shards, corpus.vocab, needs=objective.needs, plugins=flags.plugins, seed=cfg.seed, batch_size=flags.preview
    )
    before = made.reader.rows(0, np.asarray(made.reader.order(0)[: flags.preview]))
    after = made.noise(before, made.reader.draws(0)) if made.noise else before
    labels = objective.labels(after)
    return preview(before, after.with_targets(**labels), corpus.tokenizer.pieces, mask=corpus.vocab.mask)
