"""The training loop: budget, stages, schedule, logging, evaluation, checkpoints. It knows no part
by name.

Beyond 400 lines: one loop, with the save and resume of its own state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import PlmctlError
from plmctl.core.shares import is_shared
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.objectives.base import Objective
from plmctl.storage.reading import blame_file, fit_stored
from plmctl.training import checkpoint
from plmctl.training.budget import Budget
from plmctl.training.carried_states import CarriedStates
from plmctl.training.checkpoint import OLDER, Checkpoints, Snapshot, Trained
from plmctl.training.device.precision import Precision
from plmctl.training.device.profiler import Profiler
from plmctl.training.freezing import apply_freezing, find_refitted
from plmctl.training.gradients import measure_gradient_norms
from plmctl.training.lag import Lag
from plmctl.training.log import Log
from plmctl.training.meter import Entry, Meter, compute_means, round_digits, sum_parts
from plmctl.training.milestones import Milestones
from plmctl.training.optim.groups import OptimizerFactory, split_groups
from plmctl.training.optim.schedule import Schedule
from plmctl.training.own_states import OwnStates, join
from plmctl.training.pace import Pace
from plmctl.training.processes.launch import is_launched
from plmctl.training.processes.watch import mark, waiting
from plmctl.training.progress import READ, Progress
from plmctl.training.randomness import keep_random_state, seed_rank
from plmctl.training.rates import Rates
from plmctl.training.regularisers.base import Regulariser
from plmctl.training.saving.saves import Saves
from plmctl.training.spikes import Spikes
from plmctl.training.stages import BatchSource, Stage, check_shares, find_stage
from plmctl.training.stop import Stop, exit_code
from plmctl.training.strategy.base import Strategy
from plmctl.training.update import Update

Evaluate = Callable[[Model, Progress], dict[str, float]]
# the lines that say what an evaluation means
Remark = Callable[[Progress, Mapping[str, float]], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The numbers of the loop; an `..._every` of 0 means only at the end, None at each tenth of
    the budget.
    """

    clip: float = 1.0  # largest global gradient norm; 0 = no clipping
    log_every: int | None = 50  # None: `Budget.space_lines`
    eval_every: int | None = 0
    # the share of the time so far that validation may take, its last one apart
    eval_share: float = 1.0
    save_every: int | None = 0
    save_async: bool = False  # while training goes on
    # updates in a row that are left out (no finite gradient, a spike) and end the run
    max_bad_steps: int = 10
    keep_best: str = ""  # the metric of `evaluate` whose best checkpoint is kept, "" = none
    best_is_largest: bool = False
    pause_at: int = 0  # update after which the run ends for now, 0 = none
    # validations of the last stage in a row without a new best that end the run, 0 = none do
    patience: int = 0
    seed: int = 0
    peak_flops: float = 0.0  # total of all processes savers, for MFU
    unit: str = "tokens"  # the unit of the counts of batches under that name, for the log
    milestones: Milestones | None = None  # where the weights are kept, besides checkpoints


@dataclass(frozen=True)
class Result:
    """The end of a run: `exit_code` is 0, or one of `STOPPED` after a signal."""

    progress: Progress
    checkpoint: Path | None
    exit_code: int = 0


def name_parameters(model: Model, objective: Objective) -> list[tuple[str, nn.Parameter]]:
    """(name, parameter) of all parameters of a model, then of those of its objective alone."""
    shared = set(model.parameters())
    extra = [
        (f"objective.{name}", p) for name, p in objective.named_parameters() if p not in shared
    ]
    return [*model.named_parameters(), *extra]


def _count_rows(model: Model, objective: Objective) -> dict[str, int]:
    """{parameter of `name_parameters`: its rows of tokens}, of padded tables."""
    own = {f"objective.{name}": count for name, count in token_rows(objective).items()}
    return {**token_rows(model), **own}


def _name_layers(model: Model, layers: Mapping[str, Tensor]) -> dict[str, str]:
    """{layer: name of its weight}; processes that share weights exchange the tensors."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    return {layer: names[id(weight)] for layer, weight in layers.items()}


class Trainer:
    """Trains `model` on `objective` with the data of `stages` until `budget` is used up.

    `layers`: weights by name, whose gradients' norms are logged in the first update.
    """

    batches: BatchSource | None = None
    _saved_at = 0  # the update of the checkpoint that was saved or taken up last
    # updates that were read since; None: the stage has no checkpoint yet
    _read_since: int | None = None
    _went_back = 0  # how often the run went back to it
    _reached = 0  # the largest milestone so far
    _validated = 0.0  # seconds of all validations of this session
    _longest = 0.0  # those of the longest one
    _thinned = False  # whether one of them was left out

    def __init__(
        self,
        *,
        model: Model,
        objective: Objective,
        optimizer: OptimizerFactory,
        schedule: Schedule,
        budget: Budget,
        stages: Sequence[Stage],
        precision: Precision,
        strategy: Strategy,
        checkpoints: Checkpoints,
        log: Log,
        evaluate: Evaluate | None = None,
        remark: Remark = lambda progress, metrics: (),
        settings: Settings | None = None,
        layers: Mapping[str, Tensor] | None = None,
        regulariser: Regulariser | None = None,
        profiler: Profiler | None = None,
        spikes: Spikes | None = None,
    ) -> None:
        check_shares([stage.share for stage in stages])
        self.settings = settings = settings or Settings()
        self.log_every = budget.space_lines() if settings.log_every is None else settings.log_every
        self.strategy, world = strategy, strategy.world
        self.model, self.objective = strategy.place(model), strategy.place(objective)
        self.schedule, self.budget, self.stages = schedule, budget, stages
        self.evaluate, self.remark, self.profiler = evaluate, remark, profiler or Profiler()
        self.precision, self.world, self.checkpoints, self.log = precision, world, checkpoints, log
        names = _name_layers(model, layers or {})
        run = strategy.unite(model, objective)
        self.parameters = name_parameters(model, objective)
        self.rows = _count_rows(model, objective)
        self.optimizer = optimizer(parameters=self.parameters)
        self.group_names = split_groups(
            self.optimizer,
            self.parameters,
            lambda name: (id(schedule.of(name)), *(stage.kind_of(name) for stage in stages)),
            objective.own_rates(),
        )
        strategy.train([parameter for _, parameter in self.parameters])
        self.layers = {layer: model.get_parameter(name) for layer, name in names.items()}
        self.rates = Rates(schedule, stages, budget, self.group_names)
        self.memory = CarriedStates(model.backbone, world.device)
        self.own = OwnStates(self.memory, world)
        self.update = Update(
            model=model,
            objective=objective,
            optimizer=self.optimizer,
            precision=precision,
            strategy=strategy,
            run=run,
            memory=self.memory,
            clip=self.settings.clip,
            regulariser=regulariser,
        )
        self.meter, self.progress, self.lag = Meter(), Progress(), Lag(world.all)
        self.stop = Stop(loud=world.main and not is_launched())
        self.pace, self.untold, self.spikes = Pace(self.progress), True, spikes

    @cached_property
    def saves(self) -> Saves:
        """How checkpoints are saved."""
        return Saves(self.checkpoints, self.world.all, background=self.settings.save_async)

    @cached_property
    def kept(self) -> Saves:
        """How the weights of milestones are saved."""
        at = self.settings.milestones
        assert at is not None
        most, unit = len(at.numbers), at.unit
        kept = replace(self.checkpoints, keep_last=most, stem=unit, every=None)
        return Saves(kept, self.world.all)

    def fit(self) -> Result:
        """Train to the end of the budget or until a signal; a checkpoint is always saved."""
        if self.budget.done(self.progress) >= 1 or self._exhausted() or self._pauses():
            self.log.say(self._tell_end())
            return Result(self.progress, self.checkpoints.newest() if self.world.main else None)
        self.untold = True
        if self.batches is None:
            seed_rank(self.settings.seed, self.world.rank)
        self.pace, settings = Pace(self.progress), self.settings
        self.lag.clear()
        tenths = int(10 * self.budget.done(self.progress))
        with self.stop, self.log, self.saves:
            while True:
                self._enter_stage()
                self._tell_shortening()
                with self.profiler.watch(self.progress.step + 1):
                    made = self._step()
                if not made:
                    continue
                done = self.budget.done(self.progress)
                finished = done >= 1 or self._pauses()
                tenth, tenths = int(10 * done) > tenths, int(10 * done)
                self._report(finished)
                self._keep_milestone()
                due = self._due(settings.eval_every, tenth) and (finished or self._affords())
                better = self._validate(finished or due)
                if not finished and self._exhausted():
                    finished = True
                    if not self._due(self.log_every):
                        self._report(finished)
                    self.log.say(self._describe_exhaustion())
                stopped = self.stop.number is not None
                saved = (
                    self.save()
                    if better or finished or stopped or self._due(settings.save_every, tenth)
                    else None
                )
                if finished or stopped:
                    self.profiler.close(self.progress.step)
                    return Result(
                        self.progress, saved, 0 if finished else exit_code(self.stop.number)
                    )

    def next_rate(self) -> float:
        """The largest learning rate of the next update, if it is as large as those before."""
        p = self.progress
        _, multipliers = self.rates.factors(p, p.mean())
        groups = self.optimizer.param_groups
        rates = zip(groups, multipliers, strict=True)
        return max(g["initial_lr"] * m for g, m in rates if not g.get("apart"))

    def _due(self, every: int | None, tenth: bool = False) -> bool:
        """Whether an action is due that happens `every` so many updates, or at each `tenth`."""
        return tenth if every is None else every > 0 and self.progress.step % every == 0

    def _enter_stage(self) -> None:
        """Begin the stage of the next update if it is a new one; stages never go back."""
        number = max(self.progress.stage, find_stage(self.stages, self.budget.done(self.progress)))
        if number != self.progress.stage:
            name = f" ({own})" if (own := self.stages[number].name) else ""
            self.log.say(
                f"stage {number + 1} of {len(self.stages)}{name} begins after update"
                f" {self.progress.step}"
            )
            both = [self.stages[each].schedule for each in (self.progress.stage, number)]
            self.untold = self.untold or both != [None, None]
            self.progress.enter(number)
            if self.stages[number].pattern is not None:
                self.progress.forget_best()
        elif self.batches is not None:
            return
        self._begin(self.stages[number])
        for part in find_refitted(self.model, self.stages[number].refit):
            part.refit()

    def _tell_shortening(self) -> None:
        """Print once in the run, and once in each stage with a schedule of its own, that a warm-up
        is shortened. If the run has no number of updates, print it when the run is over.
        """
        message = self.rates.describe_shortening(self.progress) if self.untold else None
        if message is not None:
            self.untold = False
            if message:
                self.log.say(message)

    def _begin(self, stage: Stage) -> BatchSource:
        self.batches = stage.batches()
        self._read_since = None
        self.memory.clear()
        if self.spikes is not None:
            self.spikes.clear()
        if stage.pattern is not None:
            self.model.backbone.set_pattern(stage.pattern)
        apply_freezing(self.model, trainable=stage.trainable, frozen=stage.frozen)
        self.update.losses = stage.losses
        self.model.train()
        self.objective.train()
        return self.batches

    def _step(self) -> bool:
        """Make one update; False if it was left out: its gradient was not finite, or a spike."""
        assert self.batches is not None
        started, progress = time.perf_counter(), self.progress
        mark("reads rows", progress.step)
        micro_batches = next(self.batches)
        self.lag.wait(time.perf_counter() - started)
        self._read_since = None if self._read_since is None else self._read_since + 1
        mark("computes")
        # all processes use the time of the main process
        clock = round(1000 * self.pace.seconds()) if self.world.main else 0
        also = {"clock": clock, **self.stop.counts(), **self.lag.counts(), **self.saves.counts()}
        counts = self.update.count(micro_batches, also)
        progress.seconds = counts["clock"] / 1000
        self.lag.add(counts)
        self.stop.agree(counts)
        self.saves.agree(counts)
        total_norm, entries = self.update.gradient(micro_batches, counts, progress.step)
        with waiting():
            norm = total_norm.item()  # the only wait for the device in an update
        self.lag.compute(self.update.stopwatch.seconds())
        numbers = self._measure(entries, norm)
        reason = "" if math.isfinite(norm) else "gradient not finite"
        spike = self.spikes.find(numbers) if self.spikes and not reason else ""
        if not (reason or spike):
            if self.layers and progress.step == 0:
                self.log.record(
                    {
                        "step": 1,
                        **{
                            name: round_digits(value)
                            for name, value in measure_gradient_norms(self.layers).items()
                        },
                    }
                )
            share, multipliers = self.rates.factors(progress, counts)
            progress.rate = self.update.apply(multipliers, norm, share)
        self.update.end()
        if reason or spike:
            self._leave_out(micro_batches, reason, spike)
            return False
        if self.spikes:
            self.spikes.take(numbers)
        progress.count(**{unit: counts[unit] for unit in READ})
        self.objective.after_step(self.model, progress.step)
        self.meter.extend([*entries, ("grad_norm", norm, 1.0)] if self.world.main else entries)
        return True

    def _measure(self, entries: Sequence[Entry], norm: float) -> dict[str, float]:
        """The numbers of an update that are judged, the same on every process; none without
        `spikes`.
        """
        if self.spikes is None:
            return {}
        own = sum(float(total) for name, total, _ in entries if name == "loss")
        loss = sum(self.world.exchange(own))
        # a team must judge alike, to the last bit
        loss = loss if self.world.all is self.world else self.world.broadcast(loss)
        return {"loss": loss, "gradient norm": norm}

    def _leave_out(self, micro_batches: Sequence[Batch], reason: str, spike: str) -> None:
        """Go on without an update that is not finite or a spike, on record with its rows; after a
        spike the run may go back to its checkpoint.
        """
        p = self.progress
        p.skipped, p.bad_in_row = p.skipped + 1, p.bad_in_row + 1
        rows = self.world.gather([int(key) for b in micro_batches for key in b.key if not b.spare])
        keys = [key for part in rows for key in part]
        if p.bad_in_row >= self.settings.max_bad_steps or (
            self._went_back >= self.settings.max_bad_steps
        ):
            last = self.checkpoints.newest() or "none"
            raise PlmctlError(
                f"{spike or 'no finite gradient'} in {max(p.bad_in_row, self._went_back)}"
                f" updates in a row after update {p.step}; last good checkpoint: {last}\n  fix:"
                " a smaller optim.lr, or train.precision=fp32; metrics.jsonl names the rows"
            )
        event = {"event": f"{reason or spike}, update skipped", "skipped": p.skipped, "rows": keys}
        if spike and self.spikes and self.spikes.back and (back := self._go_back()):
            event["event"] = (
                f"{spike} in update {p.step + 1}, went back and left {back} updates out"
            )
        self.log.note({"step": self.progress.step, **event})

    def _go_back(self) -> int:
        """Take up the checkpoint before, and pass over all rows that were read since; the number of
        their updates, or 0 where this stage has no checkpoint yet.
        """
        p, count = self.progress, self._read_since
        self.saves.wait()
        newest = self.world.broadcast(self.checkpoints.newest() if self.world.main else None)
        if count is None or newest is None or newest != self.checkpoints.path(self._saved_at):
            return 0
        went_back = self._went_back + 1
        self.log.go_back(self._saved_at)
        self.resume(newest)
        assert self.batches is not None
        for _ in range(count):
            next(self.batches)
        self._read_since, self._went_back = count, went_back
        # the time and the updates left out stay counted
        self.progress.seconds, self.progress.skipped = p.seconds, p.skipped
        self.pace.restart(self.progress)
        return count

    def _report(self, finished: bool) -> None:
        """Log every `log_every` updates; the first and the last line do not reset the sums."""
        p, due = self.progress, self._due(self.log_every)
        if not (due or p.step == 1 or finished):
            return
        sums = sum_parts(self.world.gather(self.meter.sums()))
        flops = self.stages[p.stage].flops_per_token
        peak, unit = self.settings.peak_flops, self.settings.unit
        speed = self.pace.speed(
            p, flops_per_token=flops, peak_flops=peak, waited=self.lag.waited, unit=unit
        )
        counters = {
            unit: p.tokens,
            **({"words": p.words} if p.words else {}),
            "seconds": round(self.pace.seconds(), 2),
            "skipped": p.skipped,
            "stage": p.stage,
        }
        done = self.budget.done(p)
        record = {
            "step": p.step,
            **compute_means(sums),
            **{name: round_digits(value) for name, value in self.objective.figures().items()},
            "lr": round_digits(p.rate),
            **speed,
            **self.lag.figures(),
            **counters,
        }
        spaced = self.settings.log_every is None and p.step > 1 and not finished
        self.log.record(record, share=done, eta=self.pace.eta(self.progress, done), spaced=spaced)
        if due:
            self.meter.clear()
            self.pace.restart(p)
            self.lag.clear()

    def _affords(self) -> bool:
        """Whether one more validation leaves enough of the time to training; a line says the first
        time that it does not. All processes use the times of the main process.
        """
        share = self.settings.eval_share
        if share >= 1:
            return True
        seconds = self.pace.seconds()
        fits = self.world.all.broadcast(self._validated + self._longest <= share * seconds)
        if not fits and not self._thinned:
            self._thinned = True
            self.log.say(
                f"validation took {self._validated / seconds:.0%} of the time so far: the next ones"
                f" wait until it is below {share:.0%} (train.eval_every=<updates> has them all)"
            )
        return fits

    def _validate(self, due: bool) -> bool:
        """Evaluate if it is `due`; True if `keep_best` found a new best. The random numbers of
        training stay the same.
        """
        p, settings = self.progress, self.settings
        if self.evaluate is None or not due:
            return False
        mark("validates", p.step)
        started = time.perf_counter()
        with (
            self._exclude_time(),
            self._exchanged(),
            self.strategy.gathered(),
            keep_random_state(self.world.device),
            torch.no_grad(),
            self.precision.autocast(),
        ):
            self.model.eval()
            self.objective.eval()
            metrics = self.evaluate(self.model, p)
            self.model.train()
            self.objective.train()
        took = time.perf_counter() - started
        self._validated, self._longest = self._validated + took, max(self._longest, took)
        if metrics:
            self.log.record(
                {
                    "step": p.step,
                    **{f"valid/{name}": round_digits(value) for name, value in metrics.items()},
                }
            )
            for line in self.remark(p, metrics):
                self.log.say(line)
        if self.objective.unfinished:
            return False
        value, loss = (
            self.world.broadcast(metrics.get(name)) for name in (settings.keep_best, "loss")
        )
        better = p.improve(value, loss, largest=settings.best_is_largest)
        counts = not better and p.stage == len(self.stages) - 1
        p.since_best = p.since_best + 1 if counts else 0
        return better

    def _tell_end(self) -> str:
        """Why no update is left, and what makes more."""
        step, pause = self.progress.step, self.settings.pause_at
        if 0 < pause < step:
            return (
                f"train.pause_at={pause} lies behind this run, which has {step} updates and goes"
                f" back to none of them; to continue: train.pause_at=null, or above {step}"
            )
        whole = self.budget.done(self.progress) >= 1
        longer = "its length" if whole else "train.patience"
        longer = longer if whole or self._exhausted() else "train.pause_at"
        return f"this run is finished after {step} updates; raise {longer} to continue"

    def _pauses(self) -> bool:
        """Whether the run has come to the update after which it pauses."""
        return 0 < self.settings.pause_at <= self.progress.step

    def _exhausted(self) -> bool:
        """Whether so many validations have brought no new best that the run ends."""
        return 0 < self.settings.patience <= self.progress.since_best

    def _describe_exhaustion(self) -> str:
        p, name = self.progress, self.settings.keep_best
        best = "none was a number" if p.best is None else f"best after update {p.best_step}"
        return (
            f"ends early after update {p.step}: no better {name} in {p.since_best} validations"
            f" (train.patience), {best}"
        )

    @contextmanager
    def _exclude_time(self) -> Iterator[None]:
        """Exclude the time inside from the speed of training."""
        started = time.perf_counter()
        yield
        self.pace.pause(time.perf_counter() - started)

    @contextmanager
    def _exchanged(self) -> Iterator[None]:
        """Have the weights in the model that are evaluated and saved."""
        self.objective.exchange(self.model)
        try:
            yield
        finally:
            self.objective.exchange(self.model)

    def save(self) -> Path:
        """Write a checkpoint, with all processes."""
        mark("saves", self.progress.step)
        with self._exclude_time(), self._exchanged():
            snapshot = self.snapshot()
            if self.world.main:
                self.log.sync()
            step, best = self.progress.step, self.progress.best_step
            self.saves.save(snapshot, step=step, best_step=best)
        self._mark_saved()
        return self.checkpoints.path(self.progress.step)

    def _keep_milestone(self) -> None:
        """Save the weights where the update has reached a milestone, as a model of its own."""
        at, before = self.settings.milestones, self._reached
        if at is None:
            return
        self._reached = at.reached(self.progress)
        if self._reached <= before:
            return
        mark("saves", self.progress.step)
        with self._exclude_time(), self._exchanged():
            whole = self.snapshot()
            advanced = {"progress": whole.trainer["progress"]}
            weights = replace(whole, optimizer={}, random={}, trainer=advanced)
            self.kept.save(weights, step=self._reached, best_step=None)

    def _mark_saved(self) -> None:
        """The run is where its newest checkpoint is."""
        self._saved_at, self._read_since, self._went_back = self.progress.step, 0, 0

    def snapshot(self) -> Snapshot:
        """Everything that continues this run bit for bit. Whole, it is complete on the main process
        only; in parts, each process has its own.
        """
        assert self.batches is not None
        model = self.strategy.module_tensors(self.model)
        in_parts = self.settings.save_async or any(map(is_shared, model.values()))
        own = join({self.world.rank: self.own.tensors()} if self.world.leads else {})
        ranks = self.world.gather(({} if in_parts else own, self.meter.sums()))
        optimizer = self.strategy.optimizer_tensors(self.optimizer, self.parameters, rows=self.rows)
        trainer = {
            "progress": {**self.progress.to_json(), "seconds": self.pace.seconds()},
            "reader": self.batches.state_dict(),
            "scaler": self.precision.state_dict(),
            "meter": sum_parts(sums for _, sums in ranks),
            "processes": self.world.size,
            **({"spikes": self.spikes.state_dict()} if self.spikes else {}),
        }
        return Snapshot(
            model=model,
            objective=self.strategy.module_tensors(self.objective, without=self.model),
            optimizer=optimizer,
            random=own if in_parts else {k: v for each, _ in ranks for k, v in each.items()},
            trainer=trainer,
            rows=self._find_rows(optimizer) if in_parts else None,
        )

    def _find_rows(self, states: Iterable[str]) -> dict[str, int]:
        """The rows of tokens of padded tables and of their `states` in the optimizer, by their
        names in a checkpoint in parts.
        """
        of_states = {key: key.partition("/")[2] for key in states}
        return {
            **{f"model/{name}": rows for name, rows in token_rows(self.model).items()},
            **{f"objective/{name}": rows for name, rows in token_rows(self.objective).items()},
            **{f"optimizer/{k}": self.rows[n] for k, n in of_states.items() if n in self.rows},
        }

    def resume(self, folder: Path) -> Progress:
        """Continue from the checkpoint in `folder`, on the same or another number of processes."""
        saved, file = checkpoint.read(folder, self.world.all), folder / "trainer.json"
        trainer: Trained = fit_stored(saved.trainer, Trained, file=file, fix=OLDER)
        self._load(saved, folder)
        self.progress = Progress.from_json(trainer["progress"], file=file)
        with blame_file(file, fix=OLDER):
            self.precision.load_state_dict(trainer["scaler"])
            self.meter.load(trainer["meter"] if self.world.main else {})
            self._begin(self.stages[self.progress.stage]).load_state_dict(trainer["reader"])
        with blame_file(folder / "random.safetensors", fix=OLDER):
            processes = trainer["processes"]
            sources = len(trainer["reader"].get("sources", ()))
            if not self.own.load(saved.random, processes=processes, sources=sources):
                seed_rank(self.settings.seed, self.world.rank, self.progress.step)
                now = self.world.size
                self.log.say(f"not bit-exact from here on: {processes} -> {now} processes")
        if self.spikes:
            self.spikes.load_state_dict(trainer.get("spikes", {}))
        self._mark_saved()
        if (at := self.settings.milestones) is not None:
            self._reached = at.reached(self.progress)
        return self.progress

    def _load(self, saved: Snapshot, folder: Path) -> None:
        """The tensors of the model, of its objective and of the optimizer; of a checkpoint in
        parts, what this process needs is read.
        """
        strategy, named = self.strategy, dict(self.parameters)
        states = {key: key.partition("/")[2] for key in saved.optimizer}
        saved = saved.placed(
            {
                "model": strategy.module_tensors(self.model),
                "objective": strategy.module_tensors(self.objective, without=self.model),
                "optimizer": {key: named[name] for key, name in states.items() if name in named},
            },
            self._find_rows(states),
        )
        file = folder / "model.safetensors"
        strategy.load_module(self.model, saved.model, file=file, elsewhere=saved.elsewhere)
        file = folder / "objective.safetensors"
        strategy.load_module(self.objective, saved.objective, file=file, without=self.model)
        self.objective.exchange(self.model)
        with blame_file(folder / "optimizer.safetensors", fix=OLDER):
            strategy.load_optimizer(
                self.optimizer, self.parameters, saved.optimizer, rows=self.rows
            )
