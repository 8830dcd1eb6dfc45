"""The page of a search, from its outcome alone."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from plmctl.core.errors import first_problem
from plmctl.core.progress import clock
from plmctl.core.terminal import counted
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Code, Heading, Paragraph, TableBlock, write_page
from plmctl.report.study_tables import format_number
from plmctl.search.outcome import Again, SearchOutcome, Spread, find_front
from plmctl.search.strategy import Individual
from plmctl.storage.atomic import write_json, write_text
from plmctl.storage.formulas import guard

COUNTS = ("parameters", "macs")  # goals that are whole numbers


def write_outcome(outcome: SearchOutcome, folder: Path) -> list[Path]:
    """Write outcome.json, individuals.csv and the page, in Markdown and HTML; return the files."""
    record = outcome.record()
    write_json(folder / "outcome.json", record)
    text = io.StringIO()
    head = ("individual", "parent", "state", "updates", "seconds", "words", "why")
    goals = [goal.name for goal in outcome.goals]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *goals])
    for each in record["individuals"]:
        cells = [" ".join(each[name]) if name == "words" else each[name] for name in head]
        writer.writerow(
            [guard(c) if isinstance(c, str) else c for c in cells]
            + (each["values"] or [""] * len(goals))
        )
    write_text(folder / "individuals.csv", text.getvalue())
    return write_page(make_blocks(outcome), folder / "search.md")


def make_blocks(outcome: SearchOutcome) -> list[Block]:
    """The blocks of the page."""
    names = ", ".join(
        f"{goal.name} ({'lower' if goal.lower else 'higher'} is better)" for goal in outcome.goals
    )
    blocks: list[Block] = [
        Heading(outcome.title, 1),
        Paragraph(f"Goal: {names}. {describe_end(outcome)}"),
        Heading("The best on fresh seeds"),
    ]
    best = make_best_table(outcome)
    if best:
        blocks += [best, Paragraph(_explain_regret(outcome))]
        winner = max(outcome.again, key=lambda each: each.mean())
        blocks += [Paragraph("The best one again:"), Code(outcome.lines[winner.individual.number])]
    elif not outcome.lost:
        blocks.append(Paragraph("None was trained again."))
    blocks += _list_lost_seeds(outcome)
    blocks += [Heading("Fitness over time and against cost"), *_list_front(outcome)]
    blocks += [*_draw_time(outcome), *_draw_costs(outcome), *_draw_numbers(outcome)]
    blocks += [Heading("Importance of settings"), *_list_importance(outcome)]
    blocks += [Heading("Individuals, the best first"), *_describe_all(outcome)]
    blocks += [make_individual_table(outcome, len(outcome.course.individuals))]
    blocks += _list_lost(outcome)
    return blocks


def describe_end(outcome: SearchOutcome) -> str:
    """Why the search ended, and what was spent."""
    results = list(outcome.course.results.values())
    counts = {kind: sum(each.kind == kind for each in results) for kind in ("failed", "refused")}
    lost = "".join(f" {count} {kind}." for kind, count in counts.items() if count)
    return (
        f"{outcome.course.end or 'The search goes on.'}{lost}"
        f" Spent: {outcome.spent:,} updates, and {outcome.spent_again:,} on fresh seeds, in"
        f" {clock(outcome.seconds)}. List of individuals: sha256 {outcome.list_hash[:16]}."
    )


def make_best_table(outcome: SearchOutcome) -> TableBlock | None:
    """The best individuals with their fresh seeds; None without any."""
    if not outcome.again:
        return None
    goal = outcome.goals[0]
    head = (
        "individual",
        f"{goal.name} in the search",
        "on fresh seeds",
        "sd",
        "median",
        "best",
        "regret",
        "settings",
    )
    ordered = sorted(outcome.again, key=lambda each: -each.mean())
    return TableBlock.of_filled(head, [_spell_again(outcome, each) for each in ordered])


def _spell_again(outcome: SearchOutcome, each: Again) -> list[str]:
    goal = outcome.goals[0]
    spread = Spread.of(goal, [value[0] for value in each.values])
    return [
        str(each.individual.number),
        format_number(goal.to_value(each.found[0])),
        *_spell_spread(spread),
        "" if math.isnan(each.regret()) else format_number(each.regret()),
        outcome.brief(each.individual),
    ]


def _spell_spread(spread: Spread | None) -> list[str]:
    """Mean, deviation, median and best; empty of none."""
    return [format_number(each) for each in astuple(spread)] if spread else [""] * 4


def _describe_all(outcome: SearchOutcome) -> list[Block]:
    """The spread over all individuals, and where their settings are."""
    if (all_ := outcome.spread_of_all) is None:
        return []
    mean, deviation, median, best = _spell_spread(all_)
    return [
        Paragraph(
            f"{outcome.goals[0].name} of {counted(len(outcome.equal), 'individual')} with equally"
            f" long trainings: mean {mean}, sd {deviation or 'of one is not known'}, median"
            f" {median}, best {best}. individuals.csv has the settings in full."
        )
    ]


def _explain_regret(outcome: SearchOutcome) -> str:
    winner = max(outcome.again, key=lambda each: each.found)
    count = len(winner.values)
    if not winner.whole:
        return (
            f"The search trained the winner for {winner.individual.updates:,} updates only, and"
            " fresh seeds had a whole training. The two differ by their length, so that there is no"
            " regret. The figures on fresh seeds are the ones to report."
        )
    lower = outcome.goals[0].lower
    how = "fresh minus search, as lower" if lower else "search minus fresh, as higher"
    return (
        "The search chose by these figures, which flatters the winner. Its regret is how much"
        f" better it was in the search than the mean of {count} fresh seeds:"
        f" {format_number(winner.regret())} ({how} is better)."
        " The figures on fresh seeds are the ones to report."
    )


def _list_lost_seeds(outcome: SearchOutcome) -> list[Block]:
    """The fresh seeds that have no share in a mean."""
    if not outcome.lost:
        return []
    kept = {each.individual.number: len(each.values) for each in outcome.again}
    counts = (
        f"{lost} of {lost + kept.get(number, 0)} of individual {number}"
        for number, lost in outcome.lost.items()
    )
    words = "; ".join(counts)
    return [Paragraph(f"Fresh seeds that failed, and have no share in the means: {words}.")]


def _draw_time(outcome: SearchOutcome) -> list[Block]:
    """The fitness of each step in the order of updates, the best so far as stairs, and hurdles."""
    goal, spent, best = outcome.goals[0], 0, -math.inf
    points: list[tuple[float, float]] = []
    record: list[tuple[float, float]] = []
    for step in outcome.course.steps:
        result = outcome.course.results.get(step.number)
        if result is None or result.kind != "trained" or not math.isfinite(result.fitness[0]):
            continue
        spent += result.updates
        best = max(best, result.fitness[0])
        points.append((spent, goal.to_value(result.fitness[0])))
        value = goal.to_value(best)
        record += [*((spent, was) for _, was in record[-1:] if was != value), (spent, value)]
    marks = {
        f"hurdle after {updates} updates": goal.to_value(level) for updates, level in outcome.levels
    }
    curves = {"each training": points, "best so far": record}
    title = f"{goal.name} against updates spent"
    x, dots = "updates of all trainings", ["each training"]
    svg = draw_lines(curves, title=title, x=x, y=goal.name, marks=marks, dots=dots)
    return [Chart("fitness", svg)]


def _list_front(outcome: SearchOutcome) -> list[Block]:
    """The individuals that no other one beats in all of several goals."""
    if len(outcome.goals) == 1:
        return []
    members = find_front(outcome.course.individuals)
    rows = [_spell_individual(outcome, each) for each in members]
    what = "The front: no other individual is better in one goal and as good in the others."
    return [Paragraph(what), TableBlock.of_filled(_head(outcome), rows)]


def _draw_costs(outcome: SearchOutcome) -> list[Block]:
    """The fitness of whole trainings against their parameters, and the front of both."""
    goal = outcome.goals[0]
    known = [
        (each.results[-1].costs["parameters"], each.fitness[0])
        for each in outcome.course.individuals
        if each.fit and each.fitness and each.results[-1].costs.get("parameters")
    ]
    if len({cost for cost, _ in known}) < 2:
        return []  # the table of individuals has it
    points = sorted((cost, goal.to_value(fitness)) for cost, fitness in known)
    front, most = [], -math.inf
    for cost, fitness in sorted(known, key=lambda pair: (pair[0], -pair[1])):
        if fitness > most:
            most = fitness
            front.append((cost, goal.to_value(fitness)))
    title, curves = f"{goal.name} against parameters", {"individuals": points, "front": front}
    svg = draw_lines(curves, title=title, x="parameters", y=goal.name, dots=["individuals"])
    return [Chart("costs", svg)]


def _draw_numbers(outcome: SearchOutcome) -> list[Block]:
    """The fitness against each number by which the space describes its points."""
    goal, blocks = outcome.goals[0], list[Block]()
    curves: dict[str, list[tuple[float, float]]] = {}
    for each in outcome.course.individuals:
        if each.fit and each.fitness:
            for name, number in outcome.space.describe(each.point).items():
                curves.setdefault(name, []).append((number, goal.to_value(each.fitness[0])))
    for name, points in curves.items():
        title = f"{goal.name} against {name}"
        svg = draw_lines({title: sorted(points)}, title=title, x=name, y=goal.name, dots=[title])
        blocks.append(Chart(name.split()[0], svg))
    return blocks


def _list_importance(outcome: SearchOutcome) -> list[Block]:
    found = outcome.importance
    if found is None:
        return [Paragraph("The space has no independent settings.")]
    if not found.shares:
        return [Paragraph(f"No ranking: {found.why}.")]
    rows = [[name, f"{share:.3f}"] for name, share in found.shares.items()]
    return [
        Paragraph(
            f"A forest predicts the order of individuals, R2 {found.score:.2f} (cross-validated)."
            " Importance: how far R2 falls when the values of a setting are exchanged at random."
            " Strategies that learn look more often at good values, which blurs it."
        ),
        TableBlock(("setting", "importance"), rows),
    ]


def _head(outcome: SearchOutcome) -> Sequence[str]:
    names = [goal.name for goal in outcome.goals]
    costs = [] if "parameters" in names else ["parameters"]
    seeds = ["sd", "median", "best"] if _has_seeds(outcome) else []
    return ("individual", *names, *seeds, "updates", *costs, "parent", "settings")


def _has_seeds(outcome: SearchOutcome) -> bool:
    """Whether individuals have several seeds, whose mean is the fitness."""
    return any(outcome.spread(each) for each in outcome.course.individuals)


def make_individual_table(outcome: SearchOutcome, most: int) -> TableBlock:
    """The best individuals."""
    rows = [_spell_individual(outcome, each) for each in outcome.ranked[:most]]
    return TableBlock.of_filled(_head(outcome), rows)


def _spell_individual(outcome: SearchOutcome, each: Individual) -> list[str]:
    names = [goal.name for goal in outcome.goals]
    known = zip(names, outcome.values(each.fitness or ()), strict=True)
    parameters = each.results[-1].costs.get("parameters")
    costs = [] if "parameters" in names else ["" if parameters is None else f"{parameters:,.0f}"]
    return [
        str(each.number),
        *(f"{value:,.0f}" if name in COUNTS else format_number(value) for name, value in known),
        *(_spell_spread(outcome.spread(each))[1:] if _has_seeds(outcome) else ()),
        f"{each.updates:,}",
        *costs,
        "" if each.parent is None else str(each.parent),
        outcome.brief(each),
    ]


def _list_lost(outcome: SearchOutcome) -> list[Block]:
    """The individuals without a fitness, and why."""
    rows = [
        [str(each.number), each.results[-1].kind, first_problem(each.results[-1].why)]
        for each in outcome.course.individuals
        if each.results and not each.fit and each.results[-1].why
    ]
    if not rows:
        return []
    return [Heading("Failed or refused"), TableBlock(("individual", "state", "why"), rows)]
