"""The trainer of a session: its optimizer, schedule, stages, checkpoints, and where it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from plmctl.config.build import build
from plmctl.config.groups import LENGTHS, Train
from plmctl.config.saved import write_spec
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.data.token_batches import count_rows
from plmctl.models.base import Model
from plmctl.nn.last_maps import find_last_maps
from plmctl.nn.narrow import narrow_streams
from plmctl.nn.stack import checkpoint_stacks, find_units
from plmctl.objectives.base import Objective
from plmctl.runs.after_range_test import read_curve
from plmctl.runs.dividing import describe_division, divide_cells, refuse_patterns
from plmctl.runs.out_of_memory import explain_lack_of_memory
from plmctl.runs.own_rate import settle_rate
from plmctl.runs.pruning import prune
from plmctl.runs.resume import LENGTH_KEYS, compare_with_checkpoint
from plmctl.runs.session import Session, quoted
from plmctl.runs.spacing import space_validations
from plmctl.training.budget import Budget
from plmctl.training.checkpoint import Base, Checkpoints
from plmctl.training.device.compiling import compile_parts, find_whether, foresee_waste
from plmctl.training.device.peak import find_peak, find_rate
from plmctl.training.device.profiler import FOLDER, Profiler
from plmctl.training.log import METRICS, cut_back
from plmctl.training.milestones import Milestones
from plmctl.training.optim.groups import OptimizerFactory
from plmctl.training.regularisers.base import Regulariser
from plmctl.training.spikes import Spikes
from plmctl.training.stabilisers.base import Stabilised
from plmctl.training.stages import Stage
from plmctl.training.strategy.base import Strategy
from plmctl.training.strategy.choose import choose_strategy
from plmctl.training.trainer import Evaluate, Remark, Result, Settings, Trainer

JUMP = 0.2  # the share by which a learning rate changes that is no step of its schedule
VALIDATING = 0.1  # the share of a run by time that validation takes at most, where nobody spaces it
ROW = 128  # tokens of a row, where nothing says it


def fit(
    session: Session,
    *,
    model: Model,
    objective: Objective,
    stages: Sequence[Stage],
    budget: Budget,
    evaluate: Evaluate | None,
    extras: Callable[[Path], None],
    remark: Remark = lambda progress, metrics: (),
    keep_best: str = "loss",
    best_is_largest: bool = False,
    every: int | None = None,
    unit: str = "tokens",
    base: Base | None = None,
    regulariser: Regulariser | None = None,
    used: bool = False,
) -> Result:
    """Build the trainer from `optim`, `schedule` and `train`, take up the newest checkpoint of a
    resumed run, and train.

    Args:
        every: Updates between validations, where `train` says none; None: a tenth of the run.
        unit: The unit that the batches count as tokens.
        base: The base model, whose tensors checkpoints leave out.
        regulariser: A further source of gradients for an update.
        used: Whether the main process runs the model after the training.
    """
    spec, train = session.spec, session.spec.train
    best = keep_best if train.keep_best and evaluate else ""
    settings = _read_settings(session, every, budget)
    settings = replace(settings, keep_best=best, best_is_largest=best_is_largest, unit=unit)
    _check_patience(train, settings.keep_best)
    _settle_memory(session, model, objective)
    _describe_team(session, model, objective, stages)
    checkpoints = _checkpoints(session, extras, base)
    newest = checkpoints.newest(session.world.all) if spec.provenance.resume else None
    objective = prune(spec, model, objective, resumed=newest is not None)
    trainer = Trainer(
        model=model,
        objective=objective,
        optimizer=_optimizer(session, model),
        schedule=build(spec.schedule, plugins=spec.plugins, path="schedule"),
        budget=budget,
        stages=stages,
        precision=session.precision,
        strategy=_choose_strategy(session),
        checkpoints=checkpoints,
        log=session.log,
        evaluate=evaluate,
        remark=remark,
        settings=settings,
        layers=find_last_maps(model) if train.get("grad_norms") else None,
        regulariser=regulariser,
        profiler=_profiler(session),
        spikes=_spikes(train),
    )
    _go_on(session, trainer, newest)
    _compile_where_it_pays(session, trainer, regularised=regulariser is not None)
    return _train(session, trainer, used=used)


def _train(session: Session, trainer: Trainer, *, used: bool) -> Result:
    """Train; with whole weights in the main process at the end, if they are `used`."""
    try:
        rows = _rows_of_pass(session, trainer)
        with explain_lack_of_memory(session, trainer, rows):
            result = trainer.fit()
    finally:
        if session.world.main and (line := trainer.schedule.conclude(read_curve(session))):
            session.say(line)
    if used:
        trainer.strategy.release()
    return result


def _choose_strategy(session: Session) -> Strategy:
    """The strategy that `train` names."""
    train = session.spec.train
    return choose_strategy(
        session.world,
        train.parallel,
        shard_size=train.shard_size,
        find_units=find_units,
        divide=divide_cells,
        dtype=session.precision.gathered,
        offload=train.offload == "cpu",
    )


def _settle_memory(session: Session, model: Model, objective: Objective) -> None:
    """Let the stacks keep less, as `train` says."""
    train = session.spec.train
    if train.checkpoint_activations:
        checkpoint_stacks(model, objective)
    if train.stream == "bf16":
        narrow_streams(model, objective)


def _describe_team(
    session: Session, model: Model, objective: Objective, stages: Sequence[Stage]
) -> None:
    """Report what a team of processes divides, if there is one."""
    if (team := session.spec.train.tensor_parallel) > 1:
        refuse_patterns((stage.pattern for stage in stages), team)
        session.say(describe_division(model, objective, team))


def _longest(trainer: Trainer) -> int:
    """The tokens of the longer sequence of a row, at most."""
    stated = max(max(stage.lengths) for stage in trainer.stages)
    return stated or trainer.model.backbone.max_length or ROW


def _rows_of_process(session: Session, trainer: Trainer) -> int:
    """The rows of an update that one process reads, if they are long."""
    train = session.spec.train
    rows = count_rows(train.batch_size, train.get("batch_tokens"), _longest(trainer))
    return rows // session.world.size


def _rows_of_pass(session: Session, trainer: Trainer) -> int:
    """The rows that one process reads in a backward pass, at most."""
    train, share = session.spec.train, max(1, _rows_of_process(session, trainer))
    return min(train.micro_batch_size or share, share)


def _profiler(session: Session) -> Profiler:
    """The traces that `train.profile` asks for."""
    folder, world = session.folder / FOLDER, session.world
    updates = session.spec.train.profile
    return Profiler(
        updates, folder=folder, device=world.device, rank=world.all.rank, say=session.say
    )


def _spikes(train: Train) -> Spikes | None:
    """The judge of spikes; None where they are trained like all updates."""
    if train.spikes == "off":
        return None
    back = train.spikes == "back"
    return Spikes(back=back, window=train.spike_window, deviations=train.spike_deviations)


def _check_patience(train: Any, keep_best: str) -> None:
    """ConfigError where `train.patience` waits, and nothing says which checkpoint is best, or no
    validation comes.
    """
    if train.patience and not keep_best:
        why = "it is not measured" if train.keep_best else "train.keep_best=false"
        allowed = f"null: nothing says which checkpoint is best, {why}"
        raise ConfigError("train.patience", train.patience, allowed, fix="train.patience=null")
    refuse_idle_patience(train)


def refuse_idle_patience(train: Any) -> None:
    """ConfigError where `train.patience` waits for validations that never come."""
    if train.patience and train.eval_every == 0:
        allowed = "1 or more, or null: train.patience counts validations before the end of the run"
        raise ConfigError("train.eval_every", 0, allowed, fix="train.eval_every=null")


def _compile_where_it_pays(session: Session, trainer: Trainer, *, regularised: bool) -> None:
    """Compile the model and its objective if `train.compile` says so, or, left to plmctl, if it
    pays.
    """
    world, model, objective = session.world, trainer.model, trainer.objective
    train = session.spec.train
    rewritten = isinstance(objective, Stabilised) and objective.rewrites
    # all of them change what a compiled model reads
    changed = regularised or rewritten or train.tensor_parallel > 1
    mode = False if changed else train.compile
    waste = foresee_waste(
        trainer.budget,
        model,
        rows=(_rows_of_process(session, trainer), _rows_of_pass(session, trainer)),
        length=max(sum(s.lengths) for s in trainer.stages) or model.backbone.max_length or ROW,
        processes=world.size,
        rate=find_rate(session.precision, model.backbone.width),
    )
    if find_whether(mode, world.device, waste=waste, say=session.say):
        compile_parts([model, objective], world.device)


def _read_settings(session: Session, every: int | None, budget: Budget) -> Settings:
    """The training settings from the spec and the machine; `every`: as for `fit`."""
    spec, train, steps = session.spec, session.spec.train, budget.steps
    save_at = train.get("save_at")
    # a tenth of the run: of one that is not measured by updates, the trainer finds it
    save_every = every or (max(1, steps // 10) if steps else None)
    eval_every = every or (space_validations(steps) if steps else None)
    return Settings(
        clip=train.clip,
        log_every=train.log_every,
        max_bad_steps=train.max_bad_steps,
        patience=train.patience or 0,
        pause_at=train.pause_at or 0,
        seed=spec.seed,
        eval_every=eval_every if train.eval_every is None else train.eval_every,
        # a run by updates has the same ones on every machine
        eval_share=VALIDATING if budget.minutes and train.eval_every is None else 1.0,
        save_every=save_every if train.save_every is None else train.save_every,
        save_async=train.save_async,
        peak_flops=find_peak(session.precision) * session.world.all.size,
        milestones=Milestones.read(save_at, budget) if save_at else None,
    )


def _checkpoints(
    session: Session, extras: Callable[[Path], None], base: Base | None
) -> Checkpoints:
    """The checkpoints of a run, each with its spec and what `extras` writes."""

    def save_extras(folder: Path) -> None:
        write_spec(session.spec, folder)
        extras(folder)

    folder, train = session.folder / "checkpoints", session.spec.train
    which: Any = {"keep_last": train.keep_last, "every": train.save_every}
    return Checkpoints(folder, extras=save_extras, base=base, say=session.say, **which)


def _go_on(session: Session, trainer: Trainer, newest: Path | None) -> None:
    """Take up the newest checkpoint of a resumed run; begin at update 0 where it saved none."""
    if not session.spec.provenance.resume:
        return
    if newest is None and trainer.checkpoints.steps():
        folder = trainer.checkpoints.folder
        again = f"remove {quoted(folder)} to begin the run again at update 0"
        problem = "every checkpoint of this run is damaged"
        raise DataError(problem, file=folder, fix=f"{again}, or start a new run.dir")
    if newest:
        if changed := compare_with_checkpoint(newest, session.spec):
            session.say(f"not bit-exact from here on: {', '.join(changed)}")
        trainer.resume(newest)
    if session.world.main and (session.folder / METRICS).exists():
        cut_back(session.folder, trainer.progress.step)
    session.say(f"resumed from {newest}" if newest else "starting at update 0")
    if newest and (jump := _describe_jump(session, trainer)):
        session.say(jump)


def _describe_jump(session: Session, trainer: Trainer) -> str:
    """The jump of the learning rate where a run whose schedule follows its length becomes longer or
    shorter, with the way to avoid it; else "".
    """
    given, last = session.spec.provenance, trainer.progress.rate
    if not any(change.startswith(tuple(LENGTH_KEYS)) for change in given.changes) or not last:
        return ""
    rate = trainer.next_rate()
    if abs(rate - last) <= JUMP * max(rate, last) or trainer.budget.done(trainer.progress) >= 1:
        return ""
    start = {"pretrain": "init", "finetune": "checkpoint"}.get(given.verb)
    new_run = ""
    if start:
        own = f"{spell_setting(start, session.folder)} schedule=constant optim.lr={last:.3g}"
        new_run = f", or a new run from this one: {own}"
    return (
        f"the learning rate jumps from {last:.3g} to {rate:.3g} after update"
        f" {trainer.progress.step}: the schedule follows the length of the run. Without a jump:"
        f" schedule=constant from the beginning{new_run}"
    )


def budget_of(train: Train, *, updates_per_epoch: float) -> Budget:
    """`train.steps | tokens | words | epochs | minutes` as a budget."""
    lengths = {name: train.get(name) for name in LENGTHS}
    return Budget.of(**lengths, updates_per_epoch=updates_per_epoch, least_steps=train.least_steps)


def _optimizer(session: Session, model: Model) -> OptimizerFactory:
    """The optimizer, at its own rate also in a run of a version that saved the stated one."""
    spec, line = settle_rate(session.spec, model.backbone.width)
    if line:
        session.say(line)
    return cast(OptimizerFactory, build(spec.optim, plugins=spec.plugins, path="optim"))
