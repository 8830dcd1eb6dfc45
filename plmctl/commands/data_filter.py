"""`plmctl data filter`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plmctl.config.build import build, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser, TextCleaner
from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Whole

if TYPE_CHECKING:
    from plmctl.cleaning.filtering import FilterCounts
    from plmctl.cleaning.rule import TextRule
    from plmctl.datasets.cleaning import CleaningJob


@dataclass(frozen=True)
class Filter(TextCleaner, TaskUser, Command):
    """Write the documents of a text that rules let pass: language, length, repetition, quality.

    With block= or task=, what overlaps with an evaluation set is cut out. With --dry-run a sample
    is counted, and nothing is written.
    """

    about = About(
        "data filter",
        place=23,
        examples=(
            "plmctl data filter README.md rule=[length,gopher] rule.length.least=5 out=filtered",
            "plmctl data filter README.md rule=[fineweb] out=not-written --dry-run",
        ),
        bare="input",
        several=True,
        metavar="IN",
        options="json print_config dry_run config_dir plugin",
        slots="rule task",
    )

    # rules in their order: [length,repetition,gopher]
    rule: Any = None
    # files whose texts do not stand in what is written: lines, or all values of rows
    block: tuple[str, ...] = ()
    task: Any = None  # a task whose examples are blocked, too
    block_split: str = "test"  # split of these examples
    samples: Whole = 20  # documents that a rule dropped, or changed, to show in samples.json
    sample: Count = 10_000  # documents that --dry-run looks at

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.cleaning.filtering import Filtering, count_drops, filter_text
        from plmctl.datasets.cleaning import SETTINGS, CleaningJob
        from plmctl.inputs.tokenize import spell_command
        from plmctl.storage.atomic import write_json
        from plmctl.storage.resumable import hash_text

        job = CleaningJob.open({name: plain(self[name]) for name in SETTINGS})
        blocked = self._read_blocked()
        rules = self._build_rules(blocked)
        if self.provenance.dry_run:
            sizes = {"documents": self.sample, "samples": self.samples}
            return self._report(count_drops(job.source, rules, job.parts, **sizes), rules, job)
        settings = {"rule": plain(self.rule), "evaluation": hash_text("\n".join(blocked))}
        again = spell_command(self.provenance, "data", "filter")
        with job.run("data filter", settings, again) as (steps, record):
            out = steps.journal.folder
            work = Filtering(job.source, rules, out, job.form, self.samples)
            tally = filter_text(work, job.parts, steps)
            write_json(out / "samples.json", tally.samples_by_rule)
            record |= _number(tally)
        return self._report(tally, rules, job)

    def _build_rules(self, blocked: list[str]) -> dict[str, TextRule]:
        rules: dict[str, TextRule] = build(
            self.rule or {}, {"evaluation": blocked}, self.plugins, path="rule"
        )
        if not rules:
            raise ConfigError("rule", None, "one rule at least", fix="rule=[length,gopher]")
        if blocked and "blocked" not in rules:
            allowed, names = "with the rule blocked, which reads block= and task=", list(rules)
            raise ConfigError("rule", names, allowed, fix=f"rule=[{','.join([*names, 'blocked'])}]")
        return rules

    def _read_blocked(self) -> list[str]:
        """The texts of all evaluation sets."""
        from plmctl.cleaning.evaluation_texts import read_evaluation_texts, walk_texts
        from plmctl.datasets.opening import build_task

        texts = read_evaluation_texts(self.block) if self.block else []
        if self.task is not None:
            task = build_task(plain(self.task), self.plugins, "")
            examples = task.read(self.block_split)
            texts += (text for each in examples for text in walk_texts(each.fields))
        return texts

    def _report(self, tally: FilterCounts, rules: dict[str, TextRule], job: CleaningJob) -> Result:
        dry = self.provenance.dry_run
        found = {"out": None if dry else self.out, **_number(tally)}
        return self.report(found, self._describe(tally, rules, job))

    def _describe(
        self, tally: FilterCounts, rules: dict[str, TextRule], job: CleaningJob
    ) -> Iterator[str]:
        yield from tally.describe(rules)
        if self.provenance.dry_run:
            yield from tally.preview()
            yield f"a sample of {tally.read[0]:,} documents; nothing is written"
            return
        if not tally.kept[0]:
            yield f"{job.out}: no document stays; samples.json and dropped/ say why"
            return
        out = job.out
        yield f"{out}: what stays; samples.json and dropped/ say why each other document does not"
        yield job.describe_next()


def _number(tally: FilterCounts) -> dict[str, Any]:
    """The counts for the record."""
    return {name: getattr(tally, name) for name in ("read", "kept", "drops", "changed")}
