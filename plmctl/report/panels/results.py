"""The result of each run next to models without pretraining, its certainty, the next commands."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.analysis.likeness import (
    GENERATOR,
    find_role,
    list_unlike,
    list_unlike_examples,
    name_role,
)
from plmctl.analysis.runs import Curve
from plmctl.core.errors import list_some
from plmctl.core.exponential import exponentiate
from plmctl.core.spelling import spell_line, spell_setting
from plmctl.core.terminal import counted
from plmctl.data.held_out import KINDS_OF_FLOORS, is_near_floor, read_held_out
from plmctl.report.charts import Level, draw_levels
from plmctl.report.page import Block, Chart, Code, Paragraph
from plmctl.report.panel import panel_of
from plmctl.report.panels.classes import describe_error
from plmctl.report.panels.curves import find_floors
from plmctl.report.subject import ReportedRun, Subject, choose_split
from plmctl.report.text import format_number, spell_within
from plmctl.tasks.scores.base import MEANINGS, join_meanings
from plmctl.tasks.scores.below import READ, TESTS, list_choices, list_unbeaten, list_unscored
from plmctl.tasks.scores.bundles import list_known
from plmctl.tasks.scores.metrics import is_larger_better

FLOORS = "orange: without pretraining"
SEED = "Another seed may change the score by more than that."
HELD = "measured on {held} that were held out. Another seed gives another loss."
LOW = "{ways} or a checkpoint that has read more text may help."
WAYS = "More updates (train.epochs), a larger optim.lr"
ENOUGH = "Another optim.lr"  # where more updates did not help
REACHED = (
    "The interval reaches {name} ({value:.4f}), so this run may be no better than that: more"
    " examples or more seeds would say so."
)
SURE = "The best model without pretraining, {name} ({value:.4f}), is outside of the interval."
RISING = "The last evaluation was the best one: longer training may help."
LEVEL = "The last evaluation was the best one, but {why}: longer training may not help."
EARLY = "Update {best:,.0f} of {last:,.0f} was the best: longer training did not help."
ON_ONE = "Score them on one file that no training has read, then compare:"
ONE_EACH = "these are single runs, and other seeds may change their order."
NEAR_FLOOR = ": hardly anything is learned yet"
NO_INTERVAL = "{metric} {value} has no interval, since all draws of examples have this score."
TASK = "task=<a task>"
MANY = 12  # runs in a picture


@panel_of(Subject, order=1, title="Result", brief=True)
def panel(subject: Subject) -> list[Block]:
    """A picture of the scores or losses; of one run also its certainty and the next commands."""
    losses = _rank_losses(subject.runs)
    rankings = [*_rank_scores(subject.runs), *losses]
    if not rankings:
        return []
    drawn = [each.draw() for each in rankings]
    below = [Paragraph(f"{run.name}: {line}.") for run in subject.runs for line in _unbeaten(run)]
    known = [
        Paragraph(f"{run.name}: {line}.")
        for run in subject.runs
        for line in (
            *(run.decided.describe_evaluated() if run.decided else ()),
            *_unscored(run),
            *list_known(run.result),
            *list_choices(run.result),
        )
    ]
    if len(subject.runs) > 1:
        order = _order(subject.runs, rankings)
        return [*drawn, *below, *known, *_explain_unlike(subject, rankings), *order]
    run = subject.runs[0]
    if meant := join_meanings((run.result or {}).get(MEANINGS) or {}):
        known.append(Paragraph(f"Metrics: {meant}."))
    sure = [Paragraph(f"How sure: {' '.join(lines)}")] if (lines := _judge(run)) else []
    sure += [Paragraph(line) for line in _describe_probabilities(run)]
    length, early = _judge_length(run, _metric(run) or "loss")
    low = [LOW.format(ways=ENOUGH if early else WAYS)] if below else []
    hints = " ".join([*low, length])
    return [
        *drawn,
        *below,
        *known,
        *_describe_losses(run, losses),
        *sure,
        Paragraph(f"Next: {hints}".strip()),
        Code(_next(run)),
    ]


@dataclass(frozen=True)
class _Ranking:
    """A score or a loss of runs (`Level.series` 0) and of models without pretraining (1)."""

    name: str  # the picture's
    title: str
    unit: str
    larger: bool  # is better
    levels: Sequence[Level]
    unlike: Sequence[str] = ()  # why the levels of its runs do not compare

    def choose(self, series: int) -> list[Level]:
        """Those of one kind, the best first."""
        own = [level for level in self.levels if level.series == series]
        return sorted(own, key=lambda level: level.value, reverse=self.larger)

    def draw(self) -> Chart:
        """A picture of the first runs, and of all others."""
        runs, others = ([level for level in self.levels if level.series == n] for n in (0, 1))
        unit = f"{self.unit} ({FLOORS})" if others else self.unit
        return Chart(self.name, draw_levels([*runs[:MANY], *others], title=self.title, x=unit))


def _rank_scores(runs: Sequence[ReportedRun]) -> list[_Ranking]:
    """The first metric of each task, on the same examples."""
    levels: dict[tuple[Any, ...], dict[str, Level]] = {}
    splits = _choose_splits(runs)
    for run in runs:
        split, metric = splits[run.name], _metric(run)
        if split and metric in _scores(run, split):
            larger, examples = _is_larger_better(run, metric), run.examples[split]
            own = levels.setdefault((run.task, run.spell(metric), split, larger, examples), {})
            value = _scores(run, split)[metric]
            own[run.name] = Level(run.name, value, _interval(run, split, metric))
            for name, scores in run.baselines.get(split, {}).items():
                if metric in scores:
                    own[f"without {name}"] = Level(name, scores[metric], series=1)
    counts = Counter(task for task, *_ in levels)
    rankings = []
    for number, ((task, unit, split, larger, _), own) in enumerate(levels.items()):
        names = list_some([level.name for level in own.values() if not level.series], 3)
        title = f"{task}, {split}" + (f" of {names}" if counts[task] > 1 else "")
        rankings.append(_Ranking(f"result-{number}", title, unit, larger, [*own.values()]))
    return rankings


def _rank_losses(runs: Sequence[ReportedRun]) -> list[_Ranking]:
    """Each validated loss of pretrained runs, and of models that only count; first those of the
    models, then those of generators.
    """
    trained = [run for run in runs if not run.task and run.log.series]
    names = dict.fromkeys(n for run in trained for n in run.log.series)
    losses: dict[tuple[bool, str, str], list[ReportedRun]] = {}
    for metric in (name for name in names if name.startswith("valid/loss/")):
        for run in (run for run in trained if metric in run.log.series):
            generated = find_role(run.log.config, metric) == GENERATOR
            title = name_role(run.log.config, metric, [])
            losses.setdefault((generated, metric, title), []).append(run)
    rankings = []
    for (_, metric, title), own in sorted(losses.items(), key=lambda item: item[0][0]):
        levels = [Level(run.name, run.log.last(metric) or 0.0) for run in own]
        floors = find_floors(own, metric.removeprefix("valid/loss/"))
        levels += [Level(name, value, series=1) for name, value in floors.items()]
        name = f"result-{re.sub(r'[^A-Za-z0-9_]+', '-', title).strip('-')}"
        configs = {run.name: run.log.config for run in own}
        unlike = list_unlike(configs, {metric: configs})
        rankings.append(_Ranking(name, title, "nats", larger=False, levels=levels, unlike=unlike))
    return rankings


def _explain_unlike(subject: Subject, rankings: Sequence[_Ranking]) -> Iterator[Block]:
    """The reasons why scores or losses have no order, and the commands that give them one."""
    losses = [
        f"{each.title}: {'; '.join(each.unlike)}: no order of these runs"
        for each in rankings
        if each.unlike
    ]
    yield from (Paragraph(f"{line}.") for line in losses)
    by_task: dict[str, dict[str, ReportedRun]] = {}
    splits = _choose_splits(subject.runs)
    for run in subject.runs:
        if split := splits[run.name]:
            by_task.setdefault(run.task, {})[f"{split} of {run.name}"] = run
    for task, own in by_task.items():
        examples = {name: run.examples[splits[run.name]] for name, run in own.items()}
        firsts = {examples[name]: own[name].folder for name in reversed(own)}
        for line in list_unlike_examples(examples):
            yield Paragraph(f"{task}: {line}. {ON_ONE}")
            yield Code("\n".join(_score_anew([*firsts.values()][:-3:-1])))


def _score_anew(folders: Sequence[Path]) -> Iterator[str]:
    """The commands that score two runs on one file, and compare them."""
    for folder in folders:
        yield f"{spell_line('eval', folder)} task.path=<a labelled file>"
    yield f"{spell_line('compare', *folders)} --split <its name in eval/>"


def _order(runs: Sequence[ReportedRun], rankings: Sequence[_Ranking]) -> list[Block]:
    """The best of several runs, how sure that is, and the next command; nothing where seeds repeat,
    whose means are in other panels.
    """
    folders = {run.name: run.folder for run in runs}
    ranked = [
        (each, best) for each in rankings if len(best := each.choose(0)) > 1 and not each.unlike
    ]
    if not ranked or len({run.group or run.name for run in runs}) < len(runs):
        return []
    said, commands = [], []
    for each, best in ranked:
        first, second, *_ = best
        said.append(_name_first(each.title, best))
        pair = [folders[first.name], folders[second.name]]
        if first.ends and second.ends:
            commands.append(spell_line("compare", *pair))
    top = folders[ranked[0][1][0].name]
    commands = commands or [f"{spell_line('finetune')} {spell_setting('checkpoint', top)} {TASK}"]
    return [
        Paragraph(" ".join(said)),
        Paragraph(f"How sure: {ONE_EACH}"),
        Code("\n".join(commands)),
    ]


def _name_first(title: str, best: Sequence[Level]) -> str:
    """The best run and the next one, or all runs that are equally good."""
    first, second, *_ = best
    equal = [level.name for level in best if level.value == first.value]
    if len(equal) > 1:
        return f"{title}: the best are equal ({first.value:.4g}): {list_some(equal)}."
    names = (f"{level.name} ({level.value:.4g})" for level in (first, second))
    return f"{title}: the best is {', then '.join(names)}."


def _describe_losses(run: ReportedRun, losses: Sequence[_Ranking]) -> Iterator[Block]:
    """How good each loss is next to those of models that only count, with a perplexity where its
    answers are tokens.
    """
    for each in losses:
        own, term = each.levels[0], each.title.removeprefix("valid/loss/").partition(" ")[0]
        perplexity = run.log.last(f"valid/perplexity/{term}")
        if perplexity is None and f"valid/unigram/{term}" in run.log.series:
            perplexity = exponentiate(own.value)
        said = f"{run.name}: {each.title} {own.value:.4f} nats"
        said += "" if perplexity is None else f", perplexity {perplexity:,.2f}"
        for floor in each.choose(1):
            how = "better" if own.value < floor.value else "no better"
            said += f"; {how} than {floor.name} ({floor.value:.4g})"
        ends = {
            f"{kind}/{term}": run.log.last(f"valid/{kind}/{term}")
            for kind in ("nll", *KINDS_OF_FLOORS)
        }
        known = {name: value for name, value in ends.items() if value is not None}
        hardly = is_near_floor({f"loss/{term}": own.value, **known}, term)
        yield Paragraph(f"{said}{NEAR_FLOOR if hardly else ''}.")


def _judge(run: ReportedRun) -> list[str]:
    """Sentences on how sure a score is, and whether training was long enough."""
    split, metric = _split(run), _metric(run)
    if not split or metric not in _scores(run, split):
        held = None if run.task else read_held_out(run.folder)
        return [HELD.format(held=held.describe())] if held else []
    value, ends = _scores(run, split)[metric], _interval(run, split, metric)
    lines = []
    if ends:
        low, high = map(format_number, ends)
        count = ((run.result or {}).get("examples") or {}).get(split)
        of = f", of {counted(count, 'example')}{spell_within(run.result, split)}" if count else ""
        lines.append(
            f"{run.spell(metric)} {format_number(value)} on {split}, 95% interval {low} to"
            f" {high}{of}. {SEED}"
        )
        if (best := _find_best(run, split, metric)) and not _unbeaten(run):
            name, reached = best
            text = REACHED if ends[0] <= reached <= ends[1] else SURE
            lines.append(text.format(name=name, value=reached))
    elif (run.result or {}).get("intervals"):
        lines.append(NO_INTERVAL.format(metric=run.spell(metric), value=format_number(value)))
    return lines


def _describe_probabilities(run: ReportedRun) -> Iterator[str]:
    """Sentences on how right the probabilities of the answers are."""
    if line := describe_error(run, split := _split(run), run.predictions.get(split, ())):
        yield line
    if run.decided and run.decided.note:
        yield f"{run.name}: {run.decided.note}."


def _judge_length(run: ReportedRun, metric: str) -> tuple[str, bool]:
    """(a sentence on the length of training, or "", whether more updates did not help)."""
    curve = run.log.series.get(f"valid/{metric}", ())
    if len(curve) < 3:
        return "", False
    best = _find_kept(run, metric, curve)
    last = curve[-1]
    if best != last:
        return EARLY.format(best=best[0], last=last[0]), True
    losses = run.log.series.get("valid/loss", ())
    lowest = min(losses, key=lambda point: point[1], default=last)[0]
    tied = next((step for step, value in curve[:-1] if value == last[1]), None)
    reasons = [f"update {tied:,.0f} had the same score"] if tied is not None else []
    reasons += [f"the loss was lowest at update {lowest:,.0f}"] if lowest < last[0] else []
    return LEVEL.format(why=" and ".join(reasons)) if reasons else RISING, False


def _find_kept(run: ReportedRun, metric: str, curve: Curve) -> tuple[float, float]:
    """The point of the checkpoint that the run has kept; where no file names it, the best point, of
    equal ones that with the lowest loss.
    """
    kept = Path(str((run.result or {}).get("checkpoint") or "")).name
    sign = -1 if _is_larger_better(run, metric) else 1
    losses = dict(run.log.series.get("valid/loss", ()))
    best = min(curve, key=lambda point: (sign * point[1], losses.get(point[0], math.inf)))
    return next((point for point in curve if kept == f"step-{point[0]:.0f}"), best)


def _next(run: ReportedRun) -> str:
    """The commands that go on from a run."""
    if not run.task:
        return f"{spell_line('finetune')} {spell_setting('checkpoint', run.folder)} {TASK}"
    lines = [
        f"{spell_line('predict', run.folder)} input=<new texts>",
        f"{spell_line('compare', run.folder)} <another run>",
    ]
    return "\n".join(lines)


def _find_best(run: ReportedRun, split: str, metric: str) -> tuple[str, float] | None:
    """The best of the models without pretraining."""
    known = {n: own[metric] for n, own in run.baselines.get(split, {}).items() if metric in own}
    choose = max if _is_larger_better(run, metric) else min
    return choose(known.items(), key=lambda item: item[1], default=None)


def _unbeaten(run: ReportedRun) -> list[str]:
    """A line for each split on which the run is no better than models without pretraining."""
    result, metric = run.result or {}, _metric(run)
    scores, lower = result.get("metrics") or {}, result.get("lower") or ()
    how: dict[str, Any] = {"tests": result.get(TESTS), "read": result.get(READ)}
    return list_unbeaten(scores, run.baselines, metric, lower=lower, **how) if metric else []


def _unscored(run: ReportedRun) -> list[str]:
    return list_unscored((run.result or {}).get("metrics") or {}, run.baselines)


def _is_larger_better(run: ReportedRun, metric: str) -> bool:
    return is_larger_better(metric, (run.result or {}).get("lower") or ())


def _split(run: ReportedRun) -> str:
    return choose_split((run.result or {}).get("metrics") or {})


def _choose_splits(runs: Sequence[ReportedRun]) -> dict[str, str]:
    """{run: a split with its score}. All runs of a task have it, with the same examples where they
    can; without such a split each has that of its own result.
    """
    found = {run.name: _split(run) for run in runs}
    for task in {run.task for run in runs}:
        own = [run for run in runs if run.task == task and found[run.name]]
        known = [run.examples for run in own]
        shared = [name for name in (known[0] if known else ()) if all(name in e for e in known)]
        same = [name for name in shared if len({e[name] for e in known}) == 1]
        if split := choose_split(dict.fromkeys(same or shared)):
            found |= {run.name: split for run in own}
    return found


def _metric(run: ReportedRun) -> str:
    return next(iter((run.log.config.get("task") or {}).get("metrics") or ()), "")


def _scores(run: ReportedRun, split: str) -> dict[str, float]:
    return (run.result or {})["metrics"][split]  # type: ignore[no-any-return]


def _interval(run: ReportedRun, split: str, metric: str) -> list[float]:
    return (((run.result or {}).get("intervals") or {}).get(split) or {}).get(metric) or []
