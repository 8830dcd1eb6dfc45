"""The steps of a compression, one after the other, each a job in a folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from plmctl.artifacts.loading import find, open_source
from plmctl.compress.bench import Bench, Costs
from plmctl.compress.form import PACKED, Form, list_forms
from plmctl.compress.ladder import find_rungs
from plmctl.compress.rung import LadderResult, Rung
from plmctl.compress.shape import Shape, count_heads, list_depths, list_widths
from plmctl.compress.target import SURE, Target
from plmctl.compress.training import Changes, plan_training
from plmctl.compress.works import EXPORT, MEASURED, MODEL, RUN, SHAPE, TRAIN, read_costs, work_with
from plmctl.config import command
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, UsageError, list_problems
from plmctl.core.progress import clock
from plmctl.core.terminal import remark
from plmctl.jobs.job import Config, Job
from plmctl.jobs.journal import JobJournal
from plmctl.jobs.key import compute_key
from plmctl.jobs.runners import run_here
from plmctl.storage.reading import read_json

TIMED = ("latency", "memory")  # quantities of which two measurements differ


@dataclass(frozen=True)
class Wish:
    """The wish of a user.

    Args:
        checkpoint: The run.
        keep: The least share of its score.
        out: The folder of all steps.
        libraries: The libraries that may compute the small model; none: all that are installed.
        best: Whether all shapes are trained, and the best score counts.
        changes: The settings of the trainings.
    """

    checkpoint: str
    target: Target
    keep: float
    out: Path
    libraries: Sequence[str]
    batch_size: int
    best: bool
    changes: Changes


class Ended(Exception):
    """A step that did not end well, and its exit code."""

    def __init__(self, job: Job, code: int) -> None:
        super().__init__(job.label)
        self.job, self.code = job, code


class StepTimes:
    """Lines on the steps of a phase: the number of each, its time, and that of the rest."""

    def __init__(self) -> None:
        self.total = self.done = 0
        self.spent = 0.0

    def begin(self, total: int) -> None:
        """Begin a phase of at most `total` steps."""
        self.total, self.done, self.spent = total, 0, 0.0

    def number(self) -> str:
        """`step 3 of at most 12`."""
        return f"step {self.done + 1} of at most {max(self.total, self.done + 1)}"

    def end(self, seconds: float) -> str:
        """Count a step; `0:21, at most about 2:30 left of these steps`."""
        self.done, self.spent = self.done + 1, self.spent + seconds
        left = (self.total - self.done) * self.spent / self.done
        return f"{clock(seconds)}" + (
            f", at most about {clock(left)} left of these steps" if left > 0 else ""
        )


class Climb:
    """The way down the ladder, from the run to the smallest model.

    Args:
        wish: The wish of the user.
        bench: The run and its rows.
        given: The options of the command line.
        folder: The folder of the jobs.

    Raises:
        UsageError: No library computes small models here, or no training would begin.
    """

    def __init__(self, wish: Wish, bench: Bench, given: Provenance, folder: Path) -> None:
        self.wish, self.bench, self.plugins = wish, bench, given.plugins
        self.forms = list_forms(wish.libraries)
        if wish.target.quantity == "size" and not wish.libraries:
            self.forms.append(PACKED)
        self.checkpoint = find(wish.checkpoint)
        self.layers = bench.loaded.model.backbone.num_layers
        self.whole = Shape(self.layers, self.layers)
        self.units = wish.changes.find_units(self.plugins)
        self.depths, self.widths = self._find_cuts()
        self._check_training()
        self.journal, self.work = JobJournal({}, folder), work_with(bench)
        self.run = Rung("the run", self.whole, "torch, 32 bits")
        self.steps = StepTimes()
        self.steps.begin(1 + len(self.forms))

    def predict(self) -> LadderResult:
        """Measure the shape of each rung, before any training."""
        self._measure_run()
        rungs = [self._predict(self.whole, form) for form in self.forms]
        if any(self._meets(rung.costs) for rung in rungs):
            return self._conclude(rungs)
        return self._conclude([*rungs, *self._find_rungs(self._choose_form(rungs))])

    def climb(self) -> LadderResult:
        """Write the run in 8 bits, then train smaller shapes until one is good enough."""
        self._measure_run()
        rungs = [self._write(self.whole, form) for form in self.forms]
        outcome = self._conclude(rungs)
        if not any(map(outcome.keeps, rungs)):
            self.forms += [Form(form.library, 32) for form in self.forms if form != PACKED]
            self.steps.begin(len(self.forms) - len(rungs))
            rungs += [self._write(self.whole, form) for form in self.forms[len(rungs) :]]
        if self._conclude(rungs).chosen:
            return self._conclude(rungs)
        form = self._choose_form(rungs)
        shapes = self._find_rungs(form)
        self.steps.begin(2 * len(shapes))  # one is trained, then written
        for predicted in shapes:
            if not self._meets(predicted.costs):  # the smallest one: it says how near it comes
                return self._conclude([*rungs, predicted])
            rungs.append(self._write(predicted.shape, form, predicted.costs))
            if self._conclude(rungs).chosen and not self.wish.best:
                break
        return self._conclude(rungs)

    def locate(self, rung: Rung) -> Path:
        """The folder of the model of a rung."""
        return Path(self.journal.runs[rung.job]) / MODEL

    def _find_cuts(self) -> tuple[list[int], list[Fraction]]:
        """The numbers of layers and the widths that this model can have."""
        source = open_source(self.checkpoint, plugins=self.plugins)
        depths, widths = list_depths(self.layers), list_widths(count_heads(source))
        narrow = Shape(self.layers, self.layers, widths[0], self.units)
        smallest = (Shape(1, self.layers), narrow)
        able = []
        for shape in smallest:
            try:
                shape.cut(source)
                able.append(True)
            except ConfigError as error:
                remark(f"{shape.describe()}: not tried: {list_problems(error)}")
                able.append(False)
        return depths if able[0] else [self.layers], widths if able[1] else [Fraction(1)]

    def _check_training(self) -> None:
        """Raise what would end a training."""
        smallest = Shape(self.depths[-1], self.layers, self.widths[0], self.units)
        config = plan_training(self.checkpoint, smallest, self.wish.changes)
        command.check(spec_of(TRAIN, config, Provenance(TRAIN, plugins=self.plugins)))

    def _conclude(self, rungs: Sequence[Rung]) -> LadderResult:
        bench, wish = self.bench, self.wish
        larger = bench.task.directions.larger(bench.metric)
        return LadderResult(self.run, rungs, wish.target, wish.keep, bench.metric, larger)

    def _measure_run(self) -> None:
        found = self._do(self._plan(RUN, "measure the run", {}))
        self.run = Rung(self.run.name, self.whole, self.run.form, **found)

    def _predict(self, shape: Shape, form: Form) -> Rung:
        """A rung that nothing has trained."""
        label = f"time {shape.describe()}, {form.describe()}"
        found = self._do(self._plan(SHAPE, label, {**shape.spell(), **form._asdict()}))
        return Rung(shape.describe(), shape, form.describe(), **found)

    def _find_rungs(self, form: Form) -> list[Rung]:
        """The shapes to train, with their costs; the smallest one alone where none will do."""
        known: dict[Shape, Rung] = {}

        def reaches(shape: Shape) -> bool:
            known[shape] = self._predict(shape, form)
            return self._meets(known[shape].costs)

        self.steps.begin(len(self.depths) * len(self.widths).bit_length())
        shapes = find_rungs(self.depths, self.widths, reaches, self.units)
        smallest = sorted(known, key=lambda shape: shape.share)[:1]
        return [known[shape] for shape in shapes or smallest]

    def _meets(self, costs: Costs | None) -> bool:
        """Whether predicted costs surely reach the target."""
        if costs is None or self.run.costs is None:
            return False
        quantity = self.wish.target.quantity
        times = costs.times_less(quantity, self.run.costs)
        sure = SURE if quantity in TIMED else 1.0
        return self.wish.target.reach(costs.of(quantity), times) >= sure

    def _choose_form(self, rungs: Sequence[Rung]) -> Form:
        """The form that is nearest to the target and keeps the score."""
        outcome = self._conclude(rungs)
        able = [rung for rung in rungs if rung.costs is not None]
        if not able:
            raise UsageError(f"no library computes this model: {rungs[0].refused}")
        kept = [rung for rung in able if rung.score is None or outcome.keeps(rung)] or able
        nearest = max(kept, key=lambda rung: (outcome.reach(rung), outcome.speed(rung)))
        return self.forms[rungs.index(nearest)]

    def _write(self, shape: Shape, form: Form, predicted: Costs | None = None) -> Rung:
        """Train a shape, unless it is that of the run, and write it in a form."""
        source = str(self.checkpoint)
        if not shape.whole:
            config = plan_training(self.checkpoint, shape, self.wish.changes)
            training = self._plan(TRAIN, f"train {shape.describe()}", config)
            self._run(training)
            source = training.reference
        settings = {"source": source, "compact": shape.width < 1, **form._asdict()}
        job = self._plan(EXPORT, f"write {shape.describe()}, {form.describe()}", settings)
        how: Any = {"predicted": predicted, "job": job.name}
        return Rung(shape.describe(), shape, form.describe(), **self._do(job), **how)

    def _plan(self, kind: str, label: str, settings: Config) -> Job:
        """A job, named by all that decides its result."""
        config = dict(settings)
        if kind != TRAIN:
            config |= {"checkpoint": str(self.checkpoint), "batch_size": self.wish.batch_size}
            config |= {"memory": self.bench.memory, **self.bench.surroundings}
        name = f"{kind}-{compute_key(kind, config)[:12]}"
        return Job(name, kind, label, config, plugins=self.plugins)

    def _run(self, job: Job) -> Path:
        """Do a job unless it is done; the folder of its run."""
        self.journal.add({job.name: job})
        if self.journal.states[job.name].kind != "done":
            remark(f"{self.steps.number()}: {job.label} ...")
            begun = time.monotonic()
            code = run_here(self.journal, self.work)
            remark(f"{job.label}: {self.steps.end(time.monotonic() - begun)}")
            if self.journal.states[job.name].kind != "done":
                raise Ended(job, code)
        return Path(self.journal.runs[job.name])

    def _do(self, job: Job) -> dict[str, Any]:
        """The results of a job, as fields of a rung."""
        found = read_json(self._run(job) / MEASURED)
        fields = {key: found[key] for key in ("score", "refused") if key in found}
        costs = read_costs(found)
        return fields | {"costs": costs and costs.beside(self.run.costs)}
