"""`plmctl compare`: systems on the same examples, score by score."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np

from plmctl.analysis.paired import McNemar, PairedDifference, compare_form, count_discordant
from plmctl.core.errors import DataError, UsageError, list_some, nearest
from plmctl.core.rounding import round_floats, spell_p
from plmctl.core.spelling import spell_line, spell_word
from plmctl.core.terminal import counted, print_columns, remark_once, tell
from plmctl.report.predicted import (
    KIND_NAMES,
    ColumnNames,
    Predicted,
    Row,
    Score,
    find_common,
    find_group,
    find_kind,
    prepare,
    read_predicted,
    refuse_pretrainings,
    score_by_kind,
)
from plmctl.report.study_tables import name_family
from plmctl.tasks.intervals import LEVEL, Intervals, bootstrap
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.scores.below import UNBEATEN
from plmctl.tasks.scores.bundles import (
    bundle_rows,
    count_bundles,
    remark_alone,
    remark_few,
    score_bundles,
    share_bundles,
    spell_bundles,
)
from plmctl.tasks.scores.metrics import is_larger_better, spell_metric
from plmctl.tasks.scores.resampling import Form, Whole, find_forms
from plmctl.tasks.scores.swaps import ALONE, EXACT, SEED, correct
from plmctl.tasks.task import Task

SAMPLES = 10_000
SECONDS = 15.0  # for the draws of a score that is computed anew of each
PERPLEXITY = "perplexity"
OTHER_TOKENS = (
    "perplexity is left out: the two systems cut the texts into other tokens, and it is per token"
    " (--metric perplexity shows it)"
)
TOGETHER = (
    "examples of one {name} may not be independent, so p and interval may be too sure: with"
    " --bundle {option} they are drawn and swapped together"
)
LEAST = 200  # draws of such a score, however long they take


def compare(
    first: Path,
    *others: Path,
    split: str = "dev",
    columns: ColumnNames | None = None,
    kind: str | None = None,
    positive: str | None = None,
    names: Sequence[str] = (),
    samples: int | None = None,
    seed: int = 0,
    as_json: bool = False,
    plugins: Sequence[str] = (),
) -> None:
    """Print how each of `others` differs from `first` in each score, with interval and p-value.

    Args:
        kind: The kind of the files' content; None: the score of the run's task, else guessed from
            the files.
        names: The metrics; none: those of the task, or all of the kind.
        samples: The samples of the bootstrap; None: `SAMPLES`, fewer for slow scores.
        seed: Their seed.
    """
    if kind is not None and kind not in KIND_NAMES:
        allowed = f"one of {', '.join(KIND_NAMES)}{nearest(kind, KIND_NAMES)}"
        raise UsageError(f"--as {kind}: {allowed}\n  fix: --as classes")
    if samples is not None and samples < 100:
        raise UsageError(f"--samples {samples}: 100 at least\n  fix: --samples {SAMPLES}")
    kind = "classes" if positive is not None else kind
    columns = columns or ColumnNames()
    refuse_pretrainings((first, *others), split)
    places = find_common((first, *others), split)
    a, *rest = (read_predicted(each, split, columns, kind, plugins) for each in places)
    asked: Any = {"kind": kind, "positive": positive, "names": names}
    pairs = [_compare_pair(a, b, samples=samples, seed=seed, **asked) for b in rest]
    if len(pairs) == 1:
        _show(pairs[0], as_json=as_json)
    else:
        show_several(pairs, as_json=as_json)


@dataclass(frozen=True)
class ComparedPair:
    """A system `b` against `a`.

    Args:
        found: {metric: the difference}.
        scores: The metrics with their intervals, of a and of b.
        counts: The right answers of one system alone, where there is right and wrong.
        size: The number of examples.
        by: The task, or the kind of the content.
    """

    a: Predicted
    b: Predicted
    found: Mapping[str, PairedDifference]
    scores: Sequence[Intervals]
    counts: _Counts | None
    size: _Size
    by: str

    @property
    def task(self) -> Task | None:
        """The task of either system."""
        return self.a.task or self.b.task

    def spell(self, metric: str) -> str:
        """The metric with its unit: `f1, %`."""
        task = self.task
        return (
            metric if task is None else spell_metric(metric, [*filter(task.is_percent, self.found)])
        )

    @property
    def lower(self) -> list[str]:
        """The metrics whose lower values are better."""
        larger = is_larger_better if self.task is None else self.task.directions.larger
        return [name for name in self.found if not larger(name)]


def _compare_pair(
    a: Predicted,
    b: Predicted,
    *,
    kind: str | None,
    positive: str | None,
    names: Sequence[str],
    samples: int | None,
    seed: int,
) -> ComparedPair:
    left, right = align(a, b)
    task = a.task or b.task
    shape = kind or find_kind([*left, *right])
    if task is None:
        left, right = prepare(shape, left, right)
    score: Score = task.score if task is not None else score_by_kind(shape, positive)
    many, single = len(left), score
    if odd := share_bundles(left, right):
        why = f"the bundle of {odd} is another one than in {a.file}"
        raise DataError(why, file=b.file, fix="take predictions of the same bundles")
    bundles, alone = count_bundles(left), remark_alone(left)
    if bundles is None and task is None and (group := find_group(left, right)):
        remark_once(TOGETHER.format(name=group, option=spell_word(group)))
    if bundles is not None:
        left, right, score = bundle_rows(left), bundle_rows(right), score_bundles(score)
    chosen = _choose_metrics(list(score(left)), task, names, _have_other_tokens(left, right))
    forms = find_forms([*left, *right], score, chosen)
    found = {name: _compare_form(form, len(left), samples, seed) for name, form in forms.items()}
    scores = [bootstrap(rows, score, chosen, seed=seed) for rows in (left, right)]
    shares = [name for name, each in found.items() if not each.samples]
    size = _Size(many, bundles, shares, alone)
    by = f"task {task.name}" if task is not None else shape
    return ComparedPair(a, b, found, scores, _count_right(left, right, single), size, by)


def _choose_metrics(
    known: Sequence[str], task: Task | None, names: Sequence[str], unlike: bool
) -> list[str]:
    """The metrics that are compared; UsageError for one that is not known.

    Args:
        known: The metrics of these predictions.
        names: The metrics that the user names.
        unlike: Whether the systems cut texts into other tokens.
    """
    chosen = list(names) or [name for name in (task.metrics if task else known) if name in known]
    if unlike and PERPLEXITY in known and PERPLEXITY not in names:
        chosen = [name for name in chosen if name != PERPLEXITY]
        remark_once(OTHER_TOKENS)
    for name in chosen:
        if name not in known:
            allowed = f"one of {', '.join(known)}{nearest(name, known)}"
            raise UsageError(f"--metric {name}: {allowed}\n  fix: --metric {known[0]}")
    return chosen


@dataclass(frozen=True)
class _Counts:
    """Examples that one system alone answers rightly, and the units that are tested: these, or
    bundles in which it has more right answers.
    """

    examples: McNemar
    tested: McNemar


@dataclass(frozen=True)
class _Size:
    """The number of examples, and of their bundles, if there are any; the scores that are shares
    of examples or bundles; a remark on examples without a bundle.
    """

    examples: int
    bundles: int | None
    shares: Sequence[str]
    alone: str

    @property
    def unit(self) -> str:
        """The unit that is drawn and swapped."""
        return "example" if self.bundles is None else "bundle"

    @property
    def drawn(self) -> str:
        """These units in words."""
        return "examples" if self.bundles is None else "whole bundles"

    @property
    def sign_test(self) -> str:
        """The test of right answers that one system has alone."""
        return "McNemar's test" if self.bundles is None else "sign test of bundles"

    def describe_interval(self, found: Mapping[str, PairedDifference]) -> str:
        """The method of the interval of each score."""
        draws = sorted({each.samples for each in found.values() if each.samples})
        many = " or ".join(f"{each:,}" for each in draws)
        drawn = (
            f"the middle 95% of the differences in {many} random draws of {self.drawn}, the same"
            " for both (paired bootstrap)"
        )
        shares = f"Agresti and Min's formula for a share of {self.unit}s: {', '.join(self.shares)}"
        ways = [drawn] if len(self.shares) < len(found) else []
        ways += [shares] if self.shares else []
        few = "" if self.bundles is None else remark_few(self.bundles)
        return f"interval: {'; '.join(filter(None, (*ways, self.alone, few)))}"

    def describe_p(self, found: Mapping[str, PairedDifference], corrected: str) -> str:
        """The method of the p-value of each score.

        Args:
            found: The differences.
            corrected: The correction for several comparisons.
        """
        ways: dict[str, list[str]] = {}
        for name, each in found.items():
            ways.setdefault(each.test.way, []).append(name)
        named = [
            f"{'of ' * (way != EXACT)}{way}" + f" ({', '.join(names)})" * (len(ways) > 1)
            for way, names in ways.items()
        ]
        return (
            f"p: the share of swaps of the answers to {self.drawn} with at least this difference,"
            f" {'; '.join(named)}; {corrected}"
        )


def _count_right(left: Sequence[Row], right: Sequence[Row], score: Score) -> _Counts | None:
    """The right answers that one system has alone; None where there is no right and wrong."""
    sides = [
        [[_is_right(row, score) for row in unit.get("rows", [unit])] for unit in rows]
        for rows in (left, right)
    ]
    if any(right is None for side in sides for unit in side for right in unit):
        return None
    flat = [[bool(each) for unit in side for each in unit] for side in sides]
    sums = [[sum(map(bool, unit)) for unit in side] for side in sides]
    return _Counts(count_discordant(*flat), count_discordant(*sums))


def _have_other_tokens(left: Sequence[Row], right: Sequence[Row]) -> bool:
    """Whether the two systems count other tokens in the same texts."""
    return any(a.get("tokens") != b.get("tokens") for a, b in zip(left, right, strict=True))


def align(a: Predicted, b: Predicted) -> tuple[list[Row], list[Row]]:
    """The rows of both in the order of the first; DataError where they are not of the same
    examples.
    """
    sides = []
    for side in (a, b):
        known: dict[str, Row] = {}
        for row in side.rows:
            if row["id"] in known:
                fix = "--id <a column that tells the examples apart>"
                raise DataError(f"the id {row['id']} stands in it twice", file=side.file, fix=fix)
            known[row["id"]] = row
        sides.append(known)
    left, right = sides
    missing = {
        side.file: [id for id in own if id not in other]
        for side, own, other in ((a, left, right), (b, right, left))
    }
    if lines := [
        f"{len(ids):,} only in {file}: {list_some(ids)}" for file, ids in missing.items() if ids
    ]:
        raise DataError(
            f"other examples than those of {a.file}: {'; '.join(lines)}",
            file=b.file,
            fix="take predictions of the same split of the same files",
        )
    differ = [id for id in left if _gold(left[id]) != _gold(right[id])]
    if differ:
        one = differ[0]
        raise DataError(
            f"{len(differ):,} of {len(left):,} examples have another gold label than in {a.file}:"
            f" {list_some(differ)} (of {one}: {_gold(right[one])!r}, not {_gold(left[one])!r})",
            file=b.file,
            fix="take predictions of the same examples; --id says which column tells them apart",
        )
    _refuse_other_texts(a, b, left, right)
    return list(left.values()), [right[id] for id in left]


def _refuse_other_texts(
    a: Predicted, b: Predicted, left: Mapping[str, Row], right: Mapping[str, Row]
) -> None:
    """DataError where rows of one id have different texts: as columns, or by the records of `plmctl
    eval`.
    """
    sides = [next(iter(own.values())) for own in (left, right)]
    texts = [role for role in TEXTS if all(role in side for side in sides)]
    differ = [id for id in left if any(left[id][role] != right[id][role] for role in texts)]
    fix = "take predictions of the same rows in one order, or --id <a column that names them>"
    if differ:
        what = f"{len(differ):,} of {len(left):,} rows have another text than in {a.file}"
        raise DataError(f"{what}: {list_some(differ)}", file=b.file, fix=fix)
    if a.texts and b.texts and a.texts != b.texts:
        what = f"its rows have other texts than those of {a.file}, under the same ids"
        path = "task.path=<the file of both>"
        raise DataError(what, file=b.file, fix=f"{path}, in plmctl eval of each; {fix}")


def _gold(row: Row) -> Any:
    gold = row["golds"] if "golds" in row else row["gold"]
    return str(gold) if isinstance(gold, int) else gold  # a table has texts alone


def _is_right(row: Row, score: Score) -> bool | None:
    """Whether an answer is right as a whole; None where there is no right and wrong."""
    if "golds" in row:
        exact = score([row])
        return next((exact[name] > 0 for name in ("exact", "em") if name in exact), None)
    if isinstance(row["gold"], float):
        return None
    gold, guess = row["gold"], row["guess"]
    return bool(gold == guess if isinstance(gold, list) else str(gold) == str(guess))


def _compare_form(form: Form, n: int, samples: int | None, seed: int) -> PairedDifference:
    sides = np.arange(2 * n).reshape(2, n)
    most = SAMPLES
    if isinstance(form, Whole):
        begun = time.perf_counter()
        form(sides)
        spent = time.perf_counter() - begun
        most = int(max(LEAST, min(SAMPLES, SECONDS / max(spent, 1e-9))))
    return compare_form(form, n, samples=samples or most, seed=seed)


def _show(pair: ComparedPair, *, as_json: bool) -> None:
    a, b, found, counts, size = pair.a, pair.b, pair.found, pair.counts, pair.size
    if as_json:
        known = {"a": str(a.file), "b": str(b.file), **_describe_size(pair)}
        known |= _list_differences(pair)
        known |= {"lower": pair.lower} if pair.lower else {}
        tell(json.dumps(round_floats(known | _remark_sides({"a": a, "b": b}))))
        return
    rows = [
        [
            pair.spell(name),
            f"{each.first:.4f}",
            f"{each.second:.4f}",
            f"{each.mean:+.4f}",
            _spell_interval(each),
            each.test.spell(),
        ]
        for name, each in found.items()
    ]
    title = f"b against a: {_spell_size(pair)}"
    print_columns(title, ["metric", "a", "b", "b - a", "95% interval", "p"], rows)
    tell(_describe_sides({"a": a, "b": b}))
    if pair.lower:
        tell(f"lower is better: {', '.join(pair.lower)}")
    tell(size.describe_interval(found))
    tell(size.describe_p(found, ALONE))
    if line := _describe_discord({name: (each, each.test.p) for name, each in found.items()}):
        tell(line)
    if counts is not None:
        alone, tested = counts.examples, counts.tested
        first = f"{counted(alone.first, 'example')}; in b alone: {alone.second:,}"
        if size.bundles is not None:
            first += (
                f"; more right in a: {counted(tested.first, 'bundle')}; in b: {tested.second:,}"
            )
        tell(
            f"right in a alone: {first}; {size.sign_test}: p {spell_p(tested.exact)}"
            f" ({EXACT}, {ALONE})"
        )


def _describe_size(pair: ComparedPair) -> dict[str, Any]:
    """The examples, for programs."""
    known: dict[str, Any] = {"examples": pair.size.examples, "scored_as": pair.by}
    return known | ({} if pair.size.bundles is None else {"bundles": pair.size.bundles})


def _spell_size(pair: ComparedPair) -> str:
    size = pair.size
    within = f"{counted(size.examples, 'example')}{spell_bundles(size.bundles)}"
    return f"{within}, scored as {pair.by}"


def _list_differences(pair: ComparedPair) -> dict[str, Any]:
    """The differences and right answers, for programs."""
    counts = pair.counts
    found = {name: each.record() | {"correction": ALONE} for name, each in pair.found.items()}
    named = f"{pair.size.sign_test}, {EXACT}"
    how = {"unit": pair.size.unit, "test": named, "correction": ALONE}
    test = {**asdict(counts.tested), **how} if counts else None
    known: dict[str, Any] = {"metrics": found, "swaps_seed": SEED, "mcnemar": test}
    if counts:
        known["alone"] = {"first": counts.examples.first, "second": counts.examples.second}
    return known


def show_several(pairs: Sequence[ComparedPair], *, as_json: bool) -> None:
    """Print several systems, each against the first one, with p-values corrected by Holm.

    Args:
        pairs: The comparisons, of which `a` is the same.
    """
    cells = [(name, n) for name in pairs[0].found for n, pair in enumerate(pairs)]
    cells = [(name, n) for name, n in cells if name in pairs[n].found]
    holm = correct([pairs[n].found[name].test.p for name, n in cells])
    corrected = f"corrected by Holm for {name_family(len(cells))} of this table"
    ps = dict(zip(cells, (p or 0.0 for p in holm), strict=True))
    first, systems = pairs[0], {"a": pairs[0].a}
    systems |= {_letter(n + 1): pair.b for n, pair in enumerate(pairs)}
    if as_json:
        known: dict[str, Any] = {"baseline": _list_scores(first, 0), **_describe_size(first)}
        known["systems"] = [_list_scores(pair, 1) | _list_differences(pair) for pair in pairs]
        for name, n in cells:
            holm_of = {"p_holm": ps[name, n], "holm_over": len(cells)}
            known["systems"][n]["metrics"][name] |= holm_of
        known |= {"lower": first.lower} if first.lower else {}
        tell(json.dumps(round_floats(known | _remark_sides(systems))))
        return
    rows = []
    for name, own in groupby(cells, lambda cell: cell[0]):
        of, score = first.scores[0].get(name), first.found[name].first
        rows.append([first.spell(name), "a", f"{score:.4f}", _spell_ends(of), "", "", ""])
        rows += [_spell_cell(pairs[n], name, _letter(n + 1), ps[name, n]) for _, n in own]
    head = ["metric", "system", "score", "95% of it", "- a", "95% of that", "p (Holm)"]
    print_columns(f"each against a: {_spell_size(first)}", head, rows)
    tell(_describe_sides(systems))
    if first.lower:
        tell(f"lower is better: {', '.join(first.lower)}")
    every = {f"{name} of {_letter(n + 1)}": pairs[n].found[name] for name, n in cells}
    tell(first.size.describe_interval({k: v for pair in pairs for k, v in pair.found.items()}))
    tell(first.size.describe_p(every, corrected))
    both = {name: (each, p) for (name, each), p in zip(every.items(), ps.values(), strict=True)}
    if line := _describe_discord(both):
        tell(line)
    tell(f"right answers of one system alone: {spell_line('compare', first.a.file)} <one other>")


def _letter(number: int) -> str:
    """The name of a system in a table: a to z, then a1."""
    turn, place = divmod(number, len(ascii_lowercase))
    return f"{ascii_lowercase[place]}{turn or ''}"


def _spell_cell(pair: ComparedPair, name: str, system: str, p: float) -> list[str]:
    each = pair.found[name]
    own = [f"{each.second:.4f}", _spell_ends(pair.scores[1].get(name))]
    return ["", system, *own, f"{each.mean:+.4f}", _spell_interval(each), each.test.spell(p)]


def _list_scores(pair: ComparedPair, side: int) -> dict[str, Any]:
    """The scores of a system with their intervals, for programs."""
    values = {n: (each.first, each.second)[side] for n, each in pair.found.items()}
    system = (pair.a, pair.b)[side]
    return {"file": str(system.file), "scores": values, "intervals": pair.scores[side]}


def _remark_sides(systems: Mapping[str, Predicted]) -> dict[str, dict[str, str]]:
    """The remarks on systems, for programs."""
    kinds = ("decided", "scored", "one_answer", "unbeaten")
    said = {
        kind: {name: text for name, own in systems.items() if (text := getattr(own, kind))}
        for kind in kinds
    }
    return {kind: own for kind, own in said.items() if own}


def _spell_interval(each: PairedDifference) -> str:
    if each.low is None or each.high is None:
        return "–"
    return f"{each.low:+.4f} to {each.high:+.4f}"


def _describe_discord(known: Mapping[str, tuple[PairedDifference, float]]) -> str:
    """A line on differences whose interval and p-value say different things of 0, or "".

    Args:
        known: {name: (a difference, its p-value in the table)}.
    """
    discordant = [
        name
        for name, (each, p) in known.items()
        if each.low is not None
        and each.high is not None
        and (each.low <= 0 <= each.high) != (p >= 1 - LEVEL)
    ]
    if not discordant:
        return ""
    of = "interval and p disagree on a difference of 0"
    return f"{of} ({list_some(discordant)}): p is the test; an interval is approximate, of one pair"


def _spell_ends(ends: tuple[float, float] | None) -> str:
    return f"{ends[0]:.4f} to {ends[1]:.4f}" if ends else "–"


def _describe_sides(systems: Mapping[str, Predicted]) -> str:
    """The file of each system, whether it has one answer to all or is below simple models, and
    whether these examples chose its checkpoint.
    """
    lines = [f"{name}: {own.describe()}" for name, own in systems.items()]
    lines += [f"{name} {line}" for name, own in systems.items() if (line := own.one_answer)]
    lines += [
        f"{UNBEATEN}: {name}: {line}" for name, own in systems.items() if (line := own.unbeaten)
    ]
    if chosen := {name: own.choices for name, own in systems.items() if own.choices}:
        best = ", ".join(f"{name} is the best of {n} validations" for name, n in chosen.items())
        lines.append(f"these examples chose checkpoints: {best}; a test split has no part in that")
    return "\n".join(lines)
