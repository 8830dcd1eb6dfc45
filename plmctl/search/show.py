"""The output of `plmctl search` on the terminal: its cost before, its end after."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from plmctl.core.progress import clock
from plmctl.core.terminal import counted, screen, tell
from plmctl.report.study_tables import format_number
from plmctl.runs.device_speed import Speed
from plmctl.search.course import Course
from plmctl.search.outcome import SearchOutcome
from plmctl.search.page import describe_end, make_best_table, make_individual_table
from plmctl.search.strategy import StepResult

if TYPE_CHECKING:
    from plmctl.search.run import SearchPlan

MOST = 10_000  # steps of a rehearsal
SHOWN = 10  # individuals of the table on the terminal


def rehearse(plan: SearchPlan) -> Course | None:
    """The course with a fitness at random: how many individuals and updates there will be. None
    where time is the only end.
    """
    budget = plan.settings["budget"]
    if not plan.strategy.ends and not (budget["individuals"] or budget["updates"]):
        return None
    course = plan.open_course()
    random = np.random.default_rng(plan.settings["seed"])
    while not course.over and len(course.steps) < MOST:
        for step in course.advance():
            fitness = tuple(random.normal(size=len(plan.goals)))
            course.take(step.number, StepResult(fitness, course.plan_updates(step)))
            if len(course.steps) >= MOST:
                break
    return course


def foresee(plan: SearchPlan) -> dict[str, Any]:
    """The cost of a search, as far as it can be known."""
    settings, course, longest = plan.settings, None, plan.full
    budget = settings["budget"]
    if not plan.strategy.needs_dimensions:
        course = rehearse(plan)
    if course is not None:
        individuals, jobs = len(course.individuals), len(course.steps)
        updates = course.count_updates()
        longest = max((plan.measure(each.point) for each in course.individuals), default=plan.full)
    else:
        by_updates = (plan.most_updates or 0) // max(1, plan.full)
        known = [each for each in (budget["individuals"], by_updates) if each]
        individuals = jobs = min(known, default=0)
        updates = individuals * plan.full
    times = len(settings["seeds"])
    again = min(settings["again"]["best"], individuals or settings["again"]["best"])
    again *= settings["again"]["seeds"]
    flops = plan.first.costs["flops"] * (updates * times + again * longest)
    config = plan.maker.compose(plan.space.overrides(_first_point(plan)))
    train, width = config["train"], config["size"]["width"]
    speed = Speed.find(train["device"], train["precision"], width)
    seconds = speed.count_seconds(flops, updates * times + again * longest) if updates else None
    return {
        "individuals": individuals,
        "jobs": jobs * times + again,
        "updates": updates * times,
        "updates_again": again * longest,
        "parameters_of_the_first": plan.first.costs["parameters"],
        "flops": flops,
        "speed": speed.describe(),
        "seconds": seconds,
        "hours": budget["hours"],
    }


def _first_point(plan: SearchPlan) -> Any:
    named = list(plan.space.seeds().values())
    return named[0] if named else plan.space.draw(np.random.default_rng([plan.settings["seed"], 0]))


def show_prospects(plan: SearchPlan) -> None:
    """Print the jobs and what they cost, and when they are done."""
    found = foresee(plan)
    if plan.settings.provenance.json:
        tell(json.dumps(found))
        return
    console = screen()
    table = Table(show_header=False)
    known = found["individuals"]
    table.add_row("individuals", f"{known:,}" if known else "as many as fit into the time")
    table.add_row("jobs, with fresh seeds", f"{found['jobs']:,}" if known else "")
    table.add_row("updates in the search", f"{found['updates']:,}" if known else "")
    table.add_row("updates on fresh seeds, at most", f"{found['updates_again']:,}")
    table.add_row("parameters of the first", f"{found['parameters_of_the_first']:,.0f}")
    if found["seconds"] and known:
        table.add_row("training FLOPs, if all cost as the first", format_number(found["flops"]))
        table.add_row(f"time at {found['speed']}", clock(found["seconds"]))
        end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + found["seconds"]))
        table.add_row("done at about", end)
    if found["hours"]:
        table.add_row("time at most, without fresh seeds", f"{found['hours']:g} hours")
    console.print(f"a search for {', '.join(goal.name for goal in plan.goals)}, in {plan.folder}")
    console.print(table)
    console.print("not counted: the start of each job, tokenizing and validation")


def show_outcome(outcome: SearchOutcome) -> None:
    """Print the best individuals of the search, and of fresh seeds."""
    console = screen()
    for block in (make_individual_table(outcome, SHOWN), make_best_table(outcome)):
        if block is None:
            continue
        table = Table(*block.head)
        for row in block.rows:
            table.add_row(*row)
        console.print(table)
    count = counted(len(outcome.course.individuals), "individual")
    console.print(f"{count}. {describe_end(outcome)}")
