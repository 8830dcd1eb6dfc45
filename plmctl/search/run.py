"""`plmctl search`: choose individuals by a strategy, train them, and train the best ones again."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from plmctl.config.build import build, plain
from plmctl.config.launcher import read_launcher
from plmctl.config.recipes import UnknownRecipe, find_recipe, recipe_names, searches
from plmctl.config.spec import RunSpec, key_of
from plmctl.core.errors import (
    ConfigError,
    PlmctlError,
    UsageError,
    list_problems,
    nearest,
    raise_all,
)
from plmctl.core.spelling import spell, spell_setting
from plmctl.core.terminal import remark, tell
from plmctl.jobs.cluster import Cluster
from plmctl.jobs.command import PAUSE
from plmctl.jobs.job import Job, remark_next
from plmctl.jobs.journal import hold_folder
from plmctl.jobs.runners import check_launcher, run_jobs
from plmctl.runs.prospects import Prospects
from plmctl.search.course import Course, HopelessSearch
from plmctl.search.goals import Goal, choose_goals, find_excess
from plmctl.search.journal import Rerun, SearchJobs, StepLog
from plmctl.search.maker import Maker, place_errors, refuse_no_length, refuse_taken
from plmctl.search.outcome import SearchOutcome, find_best
from plmctl.search.page import write_outcome
from plmctl.search.show import show_outcome, show_prospects
from plmctl.search.space import Point, Space
from plmctl.search.strategy import SearchStep, SearchStrategy, StepResult
from plmctl.storage.paths import SUBMITTED, refuse_file_name
from plmctl.storage.reading import parse_json

RECORD = "search.json"
FEW = 20  # values of a setting that show whether it changes the number of updates
# settings that decide the list of individuals; others may change between two starts
DECIDING = (
    *("individual", "space", "strategy", "fitness", "better", "constraints", "seed", "seeds"),
    "parallel",
)


@dataclass(frozen=True)
class SearchPlan:
    """A search, built and checked.

    Args:
        settings: The settings of the command.
        maker: Makes configs of points.
        full: The updates of a whole training.
        first: The facts about the first individual.
    """

    settings: RunSpec
    folder: Path
    space: Space
    strategy: SearchStrategy
    maker: Maker
    goals: tuple[Goal, ...]
    full: int
    first: Prospects

    @property
    def most_updates(self) -> int | None:
        """The budget of updates for each of the seeds of all individuals; None without one."""
        whole = self.settings["budget"]["updates"]
        return None if whole is None else whole // len(self.settings["seeds"])

    @property
    def limits(self) -> dict[str, float]:
        """{cost: its limit}."""
        given = plain(self.settings["constraints"])
        return {name: float(limit) for name, limit in given.items() if limit is not None}

    def measure(self, point: Point) -> int:
        """The updates of a whole training of a point."""
        return self.maker.count_updates(self.space.overrides(point)) or self.full

    def open_course(self, costs: dict[int, dict[str, float]] | None = None) -> Course:
        """The course from its start.

        Args:
            costs: Receives the costs of each individual that can be built; None: nobody is built.
        """
        given = {} if costs is None else {"settle": partial(self._settle, costs=costs)}
        return Course(
            self.space,
            self.strategy,
            seed=self.settings["seed"],
            full=self.full,
            measure=self.measure,
            parallel=self.settings["parallel"],
            goals=len(self.goals),
            most_updates=self.most_updates,
            most_individuals=self.settings["budget"]["individuals"],
            **given,
        )

    def make_job(self, name: str, step: SearchStep, seed: int) -> Job:
        """The job of an individual up to the end of a step, with a seed."""
        pause = step.updates if self.strategy.pauses and step.updates < self.full else None
        words = (*self.space.overrides(step.point), f"seed={seed}")
        words = (*words, *([f"{PAUSE}={pause}"] if pause else ()))
        config = dict(self.maker.compose(words))
        again = name.startswith("again")
        label = f"{'again ' if again else ''}individual {step.individual}"
        label += f" to {step.updates} updates" if self.strategy.pauses else ""
        label += f", seed {seed}" if again or len(self.settings["seeds"]) > 1 else ""
        given = self.maker.given
        return Job(
            name,
            self.maker.command,
            label,
            config,
            recipe=self.maker.recipe,
            words=(*self.maker.words, *words),
            plugins=given.plugins,
            config_dirs=given.config_dirs,
            keep=self.strategy.pauses or self.settings["keep"],
        )

    def _settle(self, step: SearchStep, costs: dict[int, dict[str, float]]) -> StepResult | None:
        """The result of an individual that cannot be built or is above a limit."""
        if step.individual in costs:
            return None
        worst = (-math.inf,) * len(self.goals)
        try:
            config = self.maker.compose(self.space.overrides(step.point))
            known = dict(self.maker.foresee(config).costs)
        except PlmctlError as error:
            return StepResult(worst, 0, "refused", list_problems(error))
        costs[step.individual] = known
        why = find_excess(self.limits, known)
        return StepResult(worst, 0, "refused", why, 0.0, known) if why else None


def search(settings: RunSpec) -> int:
    """Run what is not done yet of a search, and write its page; with --dry-run show its cost.

    Returns:
        0, or 130, 143 or 129 after a signal.
    """
    given = settings.provenance
    try:
        return _search(plan(settings))
    except KeyboardInterrupt:
        if not given.dry_run:
            _remark_next(settings)
        return 130


def plan(settings: RunSpec) -> SearchPlan:
    """Build the parts of a search, and check all that can be checked before a training."""
    given = settings.provenance
    folder = find_folder(settings)
    refuse_file_name(folder)
    _refuse_twice("seeds", settings["seeds"], least=1)
    _refuse_twice("fitness", settings["fitness"])
    individual = settings["individual"]
    words = tuple(individual["overrides"])
    refuse_taken(words, "individual.overrides")
    if individual["recipe"]:
        _refuse_unknown(individual["recipe"], given.config_dirs)
    maker = Maker(individual["command"], individual["recipe"], words, given)
    limited = settings["constraints"]["latency"] is not None
    maker.timed = limited or "latency" in settings["fitness"]
    space: Space = build(settings["space"], plugins=given.plugins, path="space")
    strategy: SearchStrategy = build(settings["strategy"], plugins=given.plugins, path="strategy")
    refuse_taken(tuple(space.dimensions), "space.words")
    lists = {"individual.overrides": words, "space.words": settings["space"].get("words") or ()}
    config, first = _foresee_first(maker, space, settings["seed"], lists)
    if individual["command"] == "pretrain":
        refuse_no_length(config)
    full = first.updates
    goals = choose_goals(settings["fitness"], settings["better"], first.metrics, first.first)
    made = SearchPlan(settings, folder, space, strategy, maker, goals, full, first)
    _check(made)
    return made


def _refuse_unknown(recipe: str, config_dirs: Sequence[str]) -> None:
    """ConfigError for a recipe that does not exist."""
    try:
        find_recipe(recipe, config_dirs)
    except UnknownRecipe as error:
        names = recipe_names(config_dirs)
        allowed = f"there is no such recipe{nearest(recipe, names)}; there are {', '.join(names)}"
        fix = f"individual.recipe={error.meant or 'bert'}"
        raise ConfigError("individual.recipe", recipe, allowed, fix=fix) from None


def _refuse_twice(name: str, values: Sequence[Any], least: int = 0) -> None:
    """ConfigError for a list with a value twice, or with too few."""
    own = list(dict.fromkeys(values))
    if len(own) < max(least, len(values)):
        allowed = "none twice" if own else "one at least"
        raise ConfigError(name, list(values), allowed, fix=spell_setting(name, own or [0]))


def find_folder(settings: RunSpec) -> Path:
    """The folder of a search: its `out`, or by its name."""
    name = Path(str(settings["recipe"])).stem if settings["recipe"] else "search"
    return Path(settings["out"] or Path("searches") / name).expanduser()


def _foresee_first(
    maker: Maker, space: Space, seed: int, lists: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], Prospects]:
    """The config of a first point, and the facts about its run."""
    random = np.random.default_rng([seed, 0])
    error: PlmctlError | None = None
    points = list(space.seeds().values())[:1]
    for _ in range(10):
        point = points.pop() if points else space.draw(random)
        if space.problems(point):
            continue
        try:
            config = maker.compose(space.overrides(point))
            return config, maker.foresee(config)
        except PlmctlError as problem:
            error = error or problem
    if error is not None:
        raise_all(place_errors(error, lists))
    raise UsageError("space: of 10 points that were drawn, none can be built")


def _check(plan: SearchPlan) -> None:
    settings, strategy = plan.settings, plan.strategy
    name = _name_strategy(settings)
    if strategy.one_goal and len(plan.goals) > 1:
        fix = f"fitness=[{plan.goals[0].name}], or strategy=evolution"
        allowed = f"one goal with strategy={name}"
        raise ConfigError("fitness", [goal.name for goal in plan.goals], allowed, fix=fix)
    if strategy.needs_dimensions and not plan.space.dimensions:
        allowed = "needs a space of independent settings; this one has another structure"
        raise ConfigError("strategy", name, allowed, fix="strategy=evolution")
    if why := strategy.problems(plan.space, plan.full):
        raise UsageError(f"strategy={name}: this search {why}")
    budget = plain(settings["budget"])
    if not strategy.ends and not any(budget.values()):
        allowed = "must have an end: individuals, updates or hours"
        raise ConfigError("budget", ..., allowed, fix="budget.individuals=20")
    least = plan.full if not strategy.pauses else 1
    if plan.most_updates is not None and plan.most_updates < least:
        whole = plan.full * len(settings["seeds"])
        allowed = f"at least the {whole} updates of one individual"
        fix = f"budget.updates={whole}"
        raise ConfigError("budget.updates", budget["updates"], allowed, fix=fix)
    if strategy.pauses and plan.maker.command == "finetune" and not plan.full:
        raise ConfigError("individual: train.steps", ..., "must be set with this strategy")
    moved = _find_moved(plan) if strategy.pauses else []
    if moved:
        allowed = f"cannot be searched with strategy={name}: all trainings must be equally long"
        raise ConfigError("space", moved[0], allowed, fix="leave it out of space.words")


def _find_moved(plan: SearchPlan) -> list[str]:
    """The settings of the space that change the number of updates."""
    random = np.random.default_rng(0)
    moved = []
    for key, dimension in plan.space.dimensions.items():
        values = [*itertools.islice(dimension.values() or (), FEW), dimension.draw(random)]
        if len({plan.maker.count_updates((f"{key}={spell(value)}",)) for value in values}) > 1:
            moved.append(key)
    return moved


def _name_strategy(settings: RunSpec) -> str:
    """The strategy as a user chooses it."""
    target = str(settings["strategy"]["_target_"]).rpartition(".")[2]
    return target.lower().removesuffix("search")


def _search(plan: SearchPlan) -> int:
    settings, given = plan.settings, plan.settings.provenance
    check_launcher(given.launcher, settings["parallel"], name="parallel", kind="search")
    lost = StepLog(plan.folder).lost
    if not lost:
        _refuse_edited(plan)
    if given.dry_run:
        show_prospects(plan)
        if ours := read_launcher(given.launcher):
            tell(Cluster(ours, plan.folder / SUBMITTED).describe())
        return 0
    _refuse_hopeless(plan)
    costs: dict[int, dict[str, float]] = {}
    course = plan.open_course(costs)
    with hold_folder(plan.folder, plain(settings), kind="search", command="plmctl search"):
        log = StepLog(plan.folder)
        if lost:
            remark(f"{plan.folder} has no individual whose training succeeded; it begins anew")
            log.forget()
        jobs = SearchJobs(
            plan.folder,
            course,
            log,
            make=plan.make_job,
            goals=plan.goals,
            seeds=settings["seeds"],
            choose=lambda: _choose_reruns(plan, course),
            costs=costs,
            hours=settings["budget"]["hours"],
        )
        code = run_jobs(jobs, settings["parallel"], given.launcher)
        if code <= 1 and not any(each.kind == "trained" for each in course.results.values()):
            raise UsageError(
                f"no individual was trained; {course.explain()}\n  fix: mend the cause (logs are"
                f" in {jobs.folder}), and start again: the search begins anew"
            )
        outcome = SearchOutcome.of(plan, course, jobs)
        written = write_outcome(outcome, plan.folder)
    if code > 1:
        _remark_next(settings)
        return code
    tell(json.dumps(outcome.record())) if given.json else show_outcome(outcome)
    remark(f"page: {next(file for file in written if file.suffix == '.html')}")
    return 0


def _refuse_hopeless(plan: SearchPlan) -> None:
    """UsageError, before anything is written, where the first individuals are all refused."""
    costs: dict[int, dict[str, float]] = {}
    course = plan.open_course(costs)
    try:
        begun = [step for step in course.advance() if step.number not in course.results]
        if not begun:
            raise HopelessSearch(
                f"all {len(course.steps)} individuals are refused; {course.explain()}"
            )
    except HopelessSearch as error:
        least = {
            name: min((known[name] for known in costs.values()), default=limit)
            for name, limit in plan.limits.items()
        }
        words = [
            f"constraints.{name}={math.ceil(value)}"
            for name, value in least.items()
            if value > plan.limits[name]
        ]
        raise UsageError(f"{error}\n  fix: {' '.join(words)}" if words else str(error)) from None


def _choose_reruns(plan: SearchPlan, course: Course) -> list[Rerun]:
    """The best individuals, each with fresh seeds."""
    again = plan.settings["again"]
    first = max(plan.settings["seeds"]) + 1
    best = find_best(course, again["best"])
    seeds = range(first, first + again["seeds"])
    return [Rerun(each.number, seed) for each in best for seed in seeds]


def _refuse_edited(plan: SearchPlan) -> None:
    """UsageError where the folder holds a search with other deciding settings."""
    file = plan.folder / RECORD
    if not file.is_file():
        return
    was = cast(Mapping[str, Any], parse_json(file.read_text(encoding="utf-8")))
    now = json.loads(json.dumps(plain(plan.settings)))
    changed = [name for name in DECIDING if was.get(name) != now.get(name)]
    if changed:
        first = changed[0]
        raise UsageError(
            f"{plan.folder} holds a search with other settings ({', '.join(changed)}):"
            f" {first} was {_spell(was.get(first))}, and is {_spell(now.get(first))}"
            "\n  fix: out=<another folder>, or the settings as they were"
        )


def _spell(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 200 else f"{text[:200]}..."


def _remark_next(settings: RunSpec) -> None:
    """Say that a search has ended before its time, and the command that goes on with it."""
    given = settings.provenance
    recipe = Path(str(settings["recipe"])) if settings["recipe"] else None
    named = recipe is not None and searches(given.config_dirs).get(recipe.stem) == recipe
    words = [] if recipe is None else [recipe.stem if named else str(recipe)]
    words += [word for word in given.overrides if key_of(word)]
    remark_next("stopped", "search", *words, *given.launcher, given=given)
