"""Filtering of documents by rules, in restartable parts, with a count and samples for each rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from plmctl.cleaning.output import OutputFormat, open_table, shorten
from plmctl.cleaning.parts import CleaningInput, InputPart
from plmctl.cleaning.raw_text import RawText
from plmctl.cleaning.rule import Drop, TextRule
from plmctl.cleaning.steps import Steps
from plmctl.cleaning.text_view import TextView
from plmctl.core.errors import DataError
from plmctl.core.rounding import round_floats

COLUMNS = ("id", "rule", "reason", "value", "bound", "position", "text")
EMPTY = "empty"
KEPT = Drop("")
_SHOWN = 600  # characters of a text in a sample
_CHANGE = 100  # characters of a change
_PREVIEWED = 5  # changes of a rule on the screen


@dataclass(frozen=True)
class Judged:
    """A document after all rules.

    Args:
        text: The document as it stays; None: it is dropped.
        rule: The rule that dropped it.
        drop: Why.
        changed: {rule that changed it: (its text before, its text behind)}.
    """

    text: RawText | None
    rule: str = ""
    drop: Drop = KEPT
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def judge(text: RawText, rules: Mapping[str, TextRule]) -> Judged:
    """Apply rules to a document, one behind the other, until one drops it."""
    view, changed = TextView(text.text), dict[str, tuple[str, str]]()
    if not text.text.strip():
        return Judged(None, EMPTY, Drop("no text"))
    for name, rule in rules.items():
        found = rule.apply(view)
        if isinstance(found, Drop):
            return Judged(None, name, found)
        if found is not view:
            changed[name] = (view.text, found.text)
        view = found
    return Judged(text.with_text(view.text), changed=changed)


def show_change(before: str, behind: str) -> dict[str, str]:
    """The characters of two texts where they begin to differ."""
    pairs = enumerate(zip_longest(before, behind))
    start = max(0, next(n for n, (old, new) in pairs if old != new) - _CHANGE // 4)
    return {
        name: f"{'…' if start else ''}{shorten(text[start:], _CHANGE)}"
        for name, text in (("before", before), ("behind", behind))
    }


@dataclass
class FilterCounts:
    """Counts and samples of judged documents.

    Args:
        samples: The most samples of a rule.
        read: [documents, characters] of all.
        kept: [documents, characters] after the rules.
        drops: {rule: {reason: documents}}.
        changed: {rule: documents}.
        shown: {rule: the first dropped documents}.
        edited: {rule: the first changed documents, each with its first change}.
    """

    samples: int
    read: list[int] = field(default_factory=lambda: [0, 0])
    kept: list[int] = field(default_factory=lambda: [0, 0])
    drops: dict[str, dict[str, int]] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    shown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    edited: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, text: RawText, judged: Judged) -> None:
        """Count a document."""
        self.read = [self.read[0] + 1, self.read[1] + len(text.text)]
        about = {"id": text.id, "position": text.position}
        for name, (before, behind) in judged.changed.items():
            self.changed[name] = self.changed.get(name, 0) + 1
            edited = self.edited.setdefault(name, [])
            if len(edited) < self.samples:
                edited.append({**about, **show_change(before, behind)})
        if judged.text is not None:
            self.kept = [self.kept[0] + 1, self.kept[1] + len(judged.text.text)]
            return
        reasons = self.drops.setdefault(judged.rule, {})
        reasons[judged.drop.reason] = reasons.get(judged.drop.reason, 0) + 1
        shown = self.shown.setdefault(judged.rule, [])
        if len(shown) < self.samples:
            why = round_floats(judged.drop._asdict())
            shown.append({**about, **why, "text": shorten(text.text, _SHOWN)})

    def join(self, other: Mapping[str, Any]) -> None:
        """Add the counts of the part behind this one, as `vars` has them."""
        self.read = [a + b for a, b in zip(self.read, other["read"], strict=True)]
        self.kept = [a + b for a, b in zip(self.kept, other["kept"], strict=True)]
        self.changed = dict(Counter(self.changed) + Counter(other["changed"]))
        for rule, reasons in other["drops"].items():
            self.drops[rule] = dict(Counter(self.drops.get(rule, {})) + Counter(reasons))
        for mine, its in ((self.shown, other["shown"]), (self.edited, other["edited"])):
            for rule, shown in its.items():
                mine[rule] = [*mine.get(rule, []), *shown][: self.samples]

    @property
    def samples_by_rule(self) -> dict[str, list[dict[str, Any]]]:
        """{rule: the first documents that it dropped, and that it changed}."""
        names = dict.fromkeys([*self.shown, *self.edited])
        return {name: [*self.shown.get(name, []), *self.edited.get(name, [])] for name in names}

    def preview(self) -> Iterator[str]:
        """Some changes of each rule."""
        for rule, edited in self.edited.items():
            yield f"changes of {rule}, {min(len(edited), _PREVIEWED)} of {self.changed[rule]:,}:"
            for change in edited[:_PREVIEWED]:
                yield f"  {change['position']}"
                yield f"    - {change['before']}"
                yield f"    + {change['behind']}"

    def describe(self, rules: Iterable[str]) -> Iterator[str]:
        """A table of the documents that rules drop and change."""
        documents, characters = self.read
        yield f"{'':42}{'documents':>12}{'':8}{'M characters':>14}"
        yield f"{'read':42}{documents:12,}{'':8}{characters / 1e6:14,.3f}"
        for rule in (EMPTY, *rules):
            reasons = self.drops.get(rule, {})
            count, changed = sum(reasons.values()), self.changed.get(rule, 0)
            if rule == EMPTY and not count:
                continue
            more = f"  and changes {changed:,}" if changed else ""
            yield f"{rule:42}{count:12,}{count / documents:8.1%}{more}"
            for reason in sorted(reasons, key=lambda each: (-reasons[each], each)):
                yield f"  {reason:40}{reasons[reason]:12,}{reasons[reason] / documents:8.1%}"
        count, characters = self.kept
        yield f"{'kept':42}{count:12,}{count / documents:8.1%}{characters / 1e6:14,.3f}"


@dataclass(frozen=True)
class Filtering:
    """The work on a part: documents that rules let pass, and a record of the others.

    Args:
        source: The text.
        rules: The rules in their order.
        out: The folder that is written.
        form: The form of the documents.
        samples: The most samples of a rule.
    """

    source: CleaningInput
    rules: Mapping[str, TextRule]
    out: Path
    form: OutputFormat
    samples: int

    def __call__(self, part: InputPart, folder: Path) -> dict[str, Any]:
        tally = FilterCounts(self.samples)
        dropped = self.out / "dropped" / f"{part.name}.tsv"
        with self.form.file(self.out, part.name) as write, open_table(dropped, COLUMNS) as record:
            for _, text in self.source.read(part):
                judged = judge(text, self.rules)
                tally.add(text, judged)
                if judged.text is not None:
                    write(judged.text)
                    continue
                reason, value, bound = judged.drop
                numbers = (f"{value:.4g}", f"{bound:.4g}")
                beginning = shorten(text.text)
                record([text.id, judged.rule, reason, *numbers, text.position, beginning])
        return vars(tally)


def filter_text(work: Filtering, parts: Sequence[InputPart], steps: Steps) -> FilterCounts:
    """Write the documents that stay into the folder of the job, and a record of the others.

    Raises:
        DataError: There are no documents.
    """
    steps.prepare("dropped")
    tally = FilterCounts(work.samples)
    for result in steps.run("filtering", parts, work, sizes=[part.size for part in parts]):
        tally.join(result)
    return _need_documents(tally, work.source)


def count_drops(
    source: CleaningInput,
    rules: Mapping[str, TextRule],
    parts: Sequence[InputPart],
    *,
    documents: int,
    samples: int,
) -> FilterCounts:
    """The counts of the first documents of each part, about `documents` in all; nothing is
    written.
    """
    tally = FilterCounts(samples)
    for part in parts:
        for number, (_, text) in enumerate(source.read(part)):
            if number >= -(-documents // len(parts)):
                break
            tally.add(text, judge(text, rules))
    return _need_documents(tally, source)


def _need_documents(tally: FilterCounts, source: CleaningInput) -> FilterCounts:
    if not tally.read[0]:
        fix = "input=<files with text>"
        raise DataError("there are no documents", file=", ".join(source.paths), fix=fix)
    return tally
