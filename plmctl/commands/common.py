"""What every training command does around the trainer: processes, the run directory, device,
precision, log, checkpoints.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from plmctl.core.errors import DataError
from plmctl.core.locate import locate
from plmctl.core.terminal import remark
from plmctl.models.base import Backbone, Model
from plmctl.nn.last_maps import last_maps
from plmctl.nn.stack import checkpoint_stacks
from plmctl.objectives.base import Objective
from plmctl.objectives.mix import Entry, Mix
from plmctl.run.build import build, entry, plain
from plmctl.run.compose import Flags
from plmctl.run.plugins import as_words, confirm, option
from plmctl.run.resume import unlike
from plmctl.run.run_name import runs_of
from plmctl.tasks.lm import HEADS
from plmctl.training import rundir
from plmctl.training.budget import Budget
from plmctl.training.checkpoint import Checkpoints
from plmctl.training.device.allocator import keep_freed_memory
from plmctl.training.device.compiling import compile_backbone
from plmctl.training.device.peak import peak_flops
from plmctl.training.device.precision import Precision, choose
from plmctl.training.log import METRICS, Log, cut_back
from plmctl.training.processes.launch import launch
from plmctl.training.processes.world import World, device_of, environment, join, leave
from plmctl.training.stages import Stage
from plmctl.training.strategy.choose import choose_strategy
from plmctl.training.trainer import Evaluate, Result, Settings, Trainer

# whoever sets it (torchrun, `launch`, the user) decides the number of threads
THREADS = "OMP_NUM_THREADS"
# what the main process does before there are others: tokenize, and open
Prepare = Callable[[DictConfig], Any]

REPORT = "plmctl report {run}"
AFTER_FINETUNE = (
    "plmctl eval checkpoint={run}",
    "plmctl eval checkpoint={run} input=<unlabelled lines>",
    REPORT,
)


@dataclass(frozen=True)
class Session:
    """One sitting of a run: its config (as saved), its directory, and this process' place in it."""

    cfg: DictConfig
    folder: Path
    world: World
    precision: Precision
    log: Log
    flags: Flags
    prepared: Any  # what `prepare` returned in this process

    def say(self, message: str) -> None:
        self.log.say(message)


After = Callable[[Session, Result], Result]  # what another command does once the training is over


def training(
    cfg: DictConfig, flags: Flags, prepare: Prepare, train: Callable[[Session], Result]
) -> int:
    """Run `train` in a fresh or resumed run directory, in `train.processes` processes; returns the
    exit code.

    The main process prepares the data and opens the directory before a process group exists; every
    process then reads the config that is saved there, so that one process, several, and a resumed
    run take the same way. Whatever ends it before the first update, a new directory goes again, so
    that the corrected command finds it free.
    """
    rank, _, size = environment()
    if rank != 0:
        return _sitting(cfg, flags, prepare, None, train)
    with contextlib.ExitStack() as stack:
        lock: dict[str, int] = {}
        cfg, prepared, made = _open(
            cfg,
            flags,
            prepare,
            lambda folder: lock.update(stack.enter_context(rundir.locked(folder))),
        )
        try:
            if size == 1 and cfg.train.processes > 1:
                return _in_processes(cfg, flags, lock)
            return _sitting(cfg, flags, prepare, prepared, train)
        finally:
            if made is not None:
                rundir.take_back(Path(cfg.run.dir), made)


def _sitting(
    cfg: DictConfig,
    flags: Flags,
    prepare: Prepare,
    prepared: Any,
    train: Callable[[Session], Result],
) -> int:
    """This process' part, once the directory is open; returns the exit code."""
    world = join(cfg.train.device)
    try:
        cfg = OmegaConf.create(world.broadcast(OmegaConf.to_yaml(cfg)))
        if not world.main:
            prepared = prepare(cfg)
        session = _session(cfg, flags, world, prepared)
        result = train(session)
        session.log.close()
    finally:
        leave()
    if world.main:
        _farewell(result, cfg, flags)
    return result.exit_code


def _open(
    cfg: DictConfig, flags: Flags, prepare: Prepare, lock: Callable[[Path], None]
) -> tuple[DictConfig, Any, list[Path] | None]:
    """A new run directory with its config in it, the data, and the folders that were made; None of
    those on resume, where the directory is there, and its config counts. It is locked before
    anything is written in it.

    Data come first: what they refuse leaves no directory behind. `auto` precision is decided here,
    once for the whole run.
    """
    cfg = OmegaConf.create(plain(cfg))
    if THREADS not in os.environ:
        torch.set_num_threads(
            cfg.train.threads or max(1, torch.get_num_threads() // cfg.train.processes)
        )
    if flags.resume:
        lock(Path(cfg.run.dir))
        return cfg, prepare(cfg), None
    confirm(cfg.run.get("plugins") or (), flags.plugins, of="this config (run.plugins)")
    folder = (
        Path(cfg.run.dir) if cfg.run.dir else rundir.fresh(runs_of(cfg.run.name or flags.command))
    )
    rundir.refuse_used(folder)
    prepared = prepare(cfg)
    cfg.run.dir, cfg.train.precision = (
        str(folder),
        choose(cfg.train.precision, device_of(cfg.train.device)).name,
    )
    cfg.run.plugins = list(flags.plugins)
    said = [*([flags.recipe] if flags.recipe else []), *flags.overrides]
    return (
        cfg,
        prepared,
        rundir.create(folder, config=OmegaConf.to_yaml(cfg), overrides=said, lock=lock),
    )


def _in_processes(cfg: DictConfig, flags: Flags, lock: Mapping[str, int]) -> int:
    """The children resume the directory that is open now, with the same changes; without a
    checkpoint in it they begin at 0.
    """
    changes = [word for word in flags.overrides if flags.resume and not word.startswith("run.dir=")]
    command = [
        flags.command,
        "--resume",
        f"run.dir={cfg.run.dir}",
        *changes,
        *as_words(flags.plugins),
    ]
    return launch(cfg.train.processes, command, given=lock)


def _session(cfg: DictConfig, flags: Flags, world: World, prepared: Any) -> Session:
    folder = Path(cfg.run.dir)
    log = Log(folder if world.main else None, quiet=not world.main)
    for change in flags.changes:
        log.say(f"resumed with another {change}")
    if flags.resume:
        as_before = not any(
            change.startswith(("train.processes", "train.threads")) for change in flags.changes
        )
        rundir.restore_environment(folder, log.say, threads=as_before and THREADS not in os.environ)
    if world.device.type == "cpu":
        keep_freed_memory()
    if cfg.train.deterministic:
        torch.use_deterministic_algorithms(True)
    return Session(
        cfg, folder, world, choose(cfg.train.precision, world.device), log, flags, prepared
    )


def fit(
    session: Session,
    *,
    model: Model,
    objective: Objective,
    stages: Sequence[Stage],
    budget: Budget,
    evaluate: Evaluate | None,
    extras: Callable[[Path], None],
    flops_per_token: float = 0.0,
    keep_best: str = "loss",
    best_is_largest: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Build the trainer from `optim`, `schedule` and `train`, take up the newest checkpoint of a
    resumed run, and train.
    """
    cfg, world, train = session.cfg, session.world, session.cfg.train
    # of runs measured otherwise, "ten times a run" is not known: every 200 updates
    steps = budget.steps or 2000
    tenth = max(1, steps // 10)

    def save_extras(folder: Path) -> None:
        OmegaConf.save(cfg, folder / "config.yaml")
        extras(folder)

    checkpoints = Checkpoints(
        session.folder / "checkpoints",
        extras=save_extras,
        keep_last=train.keep_last,
        say=session.say,
    )
    numbers = Settings(
        clip=train.clip,
        log_every=train.log_every,
        max_bad_steps=train.max_bad_steps,
        seed=cfg.seed,
        eval_every=tenth if train.eval_every is None else train.eval_every,
        save_every=tenth if train.save_every is None else train.save_every,
        keep_best=keep_best if train.keep_best and evaluate else "",
        best_is_largest=best_is_largest,
        flops_per_token=flops_per_token,
        peak_flops=(peak_flops(session.precision) or 0.0) * world.size,
    )
    if train.get("checkpoint_activations"):
        checkpoint_stacks(model, objective)
    trainer = Trainer(
        model=model,
        objective=objective,
        optimizer=build(cfg.optim, plugins=session.flags.plugins, path="optim"),
        schedule=build(cfg.schedule, plugins=session.flags.plugins, path="schedule"),
        budget=budget,
        stages=stages,
        precision=session.precision,
        strategy=choose_strategy(world),
        checkpoints=checkpoints,
        log=session.log,
        evaluate=evaluate,
        settings=replace(numbers, **(settings or {})),
        layers=last_maps(model) if train.get("grad_norms") else None,
    )
    if session.flags.resume:
        newest = checkpoints.newest()
        if newest is None and checkpoints.steps():
            raise DataError(
                "every checkpoint of this run is damaged",
                file=checkpoints.folder,
                fix=(
                    f"remove {_quoted(checkpoints.folder)} to begin the run again at update 0,"
                    " or start a new run.dir"
                ),
            )
        if newest:
            if others := unlike(newest, cfg):
                session.say(f"not bit-exact from here on: {', '.join(others)}")
            trainer.resume(newest)
        if world.main and (session.folder / METRICS).exists():
            cut_back(session.folder, trainer.progress.step)
        session.say(f"resumed from {newest}" if newest else "starting at update 0")
    for backbone in dict.fromkeys(
        [model.backbone, *(part for part in objective.modules() if isinstance(part, Backbone))]
    ):
        compile_backbone(backbone, train.compile, world.device, say=session.say)
    return trainer.fit()


def budget_of(cfg: DictConfig, *, rows_per_epoch: int) -> Budget:
    """`train.steps | tokens | epochs | minutes` as a budget."""
    train = cfg.train
    return Budget.of(
        steps=train.steps,
        tokens=train.tokens,
        epochs=train.epochs,
        minutes=train.minutes,
        updates_per_epoch=rows_per_epoch / train.batch_size,
    )


def build_objective(cfg: DictConfig, given: Mapping[str, Any], plugins: Sequence[str] = ()) -> Mix:
    """The mix of everything under `objective`, each with its weight and the data source it looks
    at; [] asks nothing.

    `seed` fixes the first weights of what objectives own; the state of torch's global generator is
    left as it was.
    """
    entries = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cfg.seed)
        for name, node in (plain(cfg.objective) or {}).items():
            part, weight, source = entry(node, f"objective.{name}")
            entries[name] = Entry(
                build(part, given, plugins, path=f"objective.{name}"), weight, source
            )
    return Mix(entries)


def _farewell(result: Result, cfg: DictConfig, flags: Flags) -> None:
    """The last lines: where everything is, or how to go on after a signal."""
    folder = Path(cfg.run.dir)
    if result.exit_code:
        again = f"plmctl {flags.command} --resume run.dir={_quoted(folder)}{option(flags.plugins)}"
        remark(f"stopped after {result.progress.step} updates, all saved. To go on:\n  {again}")
        return
    run = _quoted(folder)
    lines = AFTER_FINETUNE if flags.verb == "finetune" else after_pretrain(cfg, flags.plugins)
    remark(f"run: {folder}\ncheckpoint: {result.checkpoint}")
    remark(
        "\n".join(
            ["next:", *(f"  {line.format(run=run)}{option(flags.plugins)}" for line in lines)]
        )
    )


def after_pretrain(cfg: DictConfig, plugins: Sequence[str] = ()) -> list[str]:
    """What one does with a pretrained model: by its heads, whether it reads one text and writes
    another, and in which rows.
    """
    heads, pairs = set(cfg.heads or ()), bool(cfg.data.target_path or cfg.data.fields)
    text = "data.path=<text> data.target_path=<translations>" if pairs else "data.path=<text>"
    lines = [] if pairs else ["plmctl finetune task=sst2 task.path=<folder> checkpoint={run}"]
    parts = [locate(node["_target_"], plugins) for node in plain(cfg.objective or {}).values()]
    if any(part.facts.asks_next for part in parts if hasattr(part, "facts")):
        lines.append('plmctl generate checkpoint={run} prompt="<text>"')
    if cfg.objective:
        lines.append(
            f"plmctl eval task={'lm' if heads & HEADS else 'held_out'} {text} checkpoint={{run}}"
        )
    return [*lines, REPORT]


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
