"""`plmctl compare`: two systems on the same examples, score by score."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.analysis.paired import McNemar, PairedDifference, compare_form, count_discordant
from plmctl.analysis.statistics import spell_p
from plmctl.core.errors import DataError, UsageError, list_some, nearest
from plmctl.core.rounding import round_floats
from plmctl.core.terminal import counted, print_columns, remark, tell
from plmctl.report.predicted import (
    KIND_NAMES,
    ColumnNames,
    Predicted,
    Row,
    Score,
    find_kind,
    prepare,
    read_predicted,
    score_by_kind,
)
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
from plmctl.tasks.scores.resampling import Form, Sums, Whole, find_forms

SAMPLES = 10_000
SECONDS = 30.0  # for a score that is computed anew of every draw
PERPLEXITY = "perplexity"
OTHER_TOKENS = (
    "perplexity is left out: the two systems cut the texts into other tokens, and it is per token"
    " (--metric perplexity shows it)"
)
LEAST = 200  # draws of such a score, however long they take


def compare(
    first: Path,
    second: Path,
    *,
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
    """Print how `second` differs from `first` in each score, with interval and p-value.

    Args:
        kind: The kind of the files' content; None: the score of the run's task, else guessed from
            the files.
        names: The metrics; none: those of the task, or all of the kind.
        samples: The samples of bootstrap and randomisation; None: `SAMPLES`, fewer for slow scores.
    """
    if kind is not None and kind not in KIND_NAMES:
        allowed = f"one of {', '.join(KIND_NAMES)}{nearest(kind, KIND_NAMES)}"
        raise UsageError(f"--as {kind}: {allowed}\n  fix: --as classes")
    if samples is not None and samples < 100:
        raise UsageError(f"--samples {samples}: 100 at least\n  fix: --samples {SAMPLES}")
    kind = "classes" if positive is not None else kind
    columns = columns or ColumnNames()
    a, b = (read_predicted(each, split, columns, kind, plugins) for each in (first, second))
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
    if bundles is not None:
        left, right, score = bundle_rows(left), bundle_rows(right), score_bundles(score)
    known = list(score(left))
    chosen = list(names) or [name for name in (task.metrics if task else known) if name in known]
    unlike = PERPLEXITY in known and _have_other_tokens(left, right)
    if unlike and PERPLEXITY not in names:
        chosen = [name for name in chosen if name != PERPLEXITY]
        remark(OTHER_TOKENS)
    for name in chosen:
        if name not in known:
            allowed = f"one of {', '.join(known)}{nearest(name, known)}"
            raise UsageError(f"--metric {name}: {allowed}\n  fix: --metric {known[0]}")
    forms = find_forms([*left, *right], score, chosen)
    found = {name: _compare_form(form, len(left), samples, seed) for name, form in forms.items()}
    shares = [name for name, form in forms.items() if _is_share(form)]
    size = _Size(many, bundles, shares, alone)
    by = f"task {task.name}" if task is not None else shape
    _show(a, b, found, _count_right(left, right, single), size=size, by=by, as_json=as_json)


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

    def describe_interval(self, found: Mapping[str, PairedDifference]) -> str:
        """The method of the interval of each score."""
        draws = sorted({each.samples for each in found.values()})
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

    def describe_p(self) -> str:
        """The method of the p-value of each score."""
        swaps = f"the share of random swaps of the answers to {self.drawn}"
        return f"p: {swaps}, with at least this difference (approximate randomisation)"


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


def _is_share(form: Form) -> bool:
    return isinstance(form, Sums) and form.unit > 0


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
    return list(left.values()), [right[id] for id in left]


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
        spent = time.perf_counter() - begun  # bootstrap and randomisation ask for two each
        most = int(max(LEAST, min(SAMPLES, SECONDS / 2 / max(spent, 1e-9))))
    return compare_form(form, n, samples=samples or most, seed=seed)


def _show(
    a: Predicted,
    b: Predicted,
    found: Mapping[str, PairedDifference],
    counts: _Counts | None,
    *,
    size: _Size,
    by: str,
    as_json: bool,
) -> None:
    task = a.task or b.task
    larger = is_larger_better if task is None else task.directions.larger
    lower = [name for name in found if not larger(name)]
    if as_json:
        scores = {name: {**asdict(each), "difference": each.mean} for name, each in found.items()}
        known = {"a": str(a.file), "b": str(b.file), "examples": size.examples, "scored_as": by}
        known |= {} if size.bundles is None else {"bundles": size.bundles}
        test = {**asdict(counts.tested), "unit": size.unit} if counts else None
        known |= {"metrics": scores, "mcnemar": test}
        if counts:
            known["alone"] = {"first": counts.examples.first, "second": counts.examples.second}
        known |= {"lower": lower} if lower else {}
        tell(json.dumps(round_floats(known | _remark_sides(a, b))))
        return
    rows = [
        [
            name if task is None else spell_metric(name, [*filter(task.is_percent, found)]),
            f"{each.first:.4f}",
            f"{each.second:.4f}",
            f"{each.mean:+.4f}",
            _spell_interval(each),
            spell_p(each.p, each.enumerated),
        ]
        for name, each in found.items()
    ]
    within = f"{counted(size.examples, 'example')}{spell_bundles(size.bundles)}"
    title = f"b against a: {within}, scored as {by}"
    print_columns(title, ["metric", "a", "b", "b - a", "95% interval", "p"], rows)
    tell(_describe_sides(a, b))
    if lower:
        tell(f"lower is better: {', '.join(lower)}")
    tell(size.describe_interval(found))
    tell(size.describe_p())
    if any(each.enumerated for each in found.values()):
        tell("p=: of all swaps of answers, not of random ones")
    if counts is not None:
        alone, tested = counts.examples, counts.tested
        first = f"{counted(alone.first, 'example')}; in b alone: {alone.second:,}"
        what = "McNemar"
        if size.bundles is not None:
            first += (
                f"; more right in a: {counted(tested.first, 'bundle')}; in b: {tested.second:,}"
            )
            what = "McNemar by bundles"
        tell(
            f"right in a alone: {first}; {what}:"
            f" p {spell_p(tested.exact)} (exact), {spell_p(tested.corrected)} (continuity)"
        )


def _remark_sides(a: Predicted, b: Predicted) -> dict[str, dict[str, str]]:
    """The remarks on both systems, for programs."""
    said = {
        "decided": {"a": a.decided, "b": b.decided},
        "one_answer": {"a": a.one_answer, "b": b.one_answer},
    }
    kept = {name: {k: text for k, text in own.items() if text} for name, own in said.items()}
    return {name: own for name, own in kept.items() if own}


def _spell_interval(each: PairedDifference) -> str:
    if each.low is None or each.high is None:
        return "–"
    return f"{each.low:+.4f} to {each.high:+.4f}"


def _describe_sides(a: Predicted, b: Predicted) -> str:
    """The file of each system, whether it has one answer to all, and whether these examples chose
    its checkpoint.
    """
    lines = [f"a: {a.describe()}", f"b: {b.describe()}"]
    lines += [f"{side} {line}" for side, own in (("a", a), ("b", b)) if (line := own.one_answer)]
    if chosen := {name: own.choices for name, own in (("a", a), ("b", b)) if own.choices}:
        best = ", ".join(f"{name} is the best of {n} validations" for name, n in chosen.items())
        lines.append(f"these examples chose checkpoints: {best}; a test split has no part in that")
    return "\n".join(lines)
