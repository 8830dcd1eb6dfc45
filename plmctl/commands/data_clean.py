"""`plmctl data clean`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.asked import find_ids
from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser
from plmctl.config.spec import key_of
from plmctl.core.errors import ConfigError, list_some
from plmctl.core.spelling import spell_setting, spell_word
from plmctl.storage.resumable import RECORD

if TYPE_CHECKING:
    from plmctl.tasks.cleaned import CleanTable
    from plmctl.tasks.record import Example
    from plmctl.tasks.task import Task

MAKER = "plmctl data clean"
# settings of one call alone: its files, and how rows are divided
OWN = (
    *("task.path", "task.dev_share", "task.test_share", "task.fold"),
    *("out", "keep_parts", "overwrite"),
)


@dataclass(frozen=True)
class Clean(TaskUser, Command):
    """Write a labelled table without copies, contradictory labels, empty texts and empty labels.

    PATH is the table. Without out= it only shows what would go. With task.dev_share= or
    task.test_share= it writes files of train, dev and test. With keep_parts= it adds new rows to
    such files.
    """

    about = About(
        "data clean",
        place=21,
        examples=(
            "plmctl data clean glue/SST-2/train.tsv task=sst2",
            "plmctl data clean glue/SST-2/train.tsv task=sst2 task.dev_share=0.2 out=sst2-parts",
        ),
        bare="task.path",
        metavar="PATH",
        options="json print_config config_dir plugin",
        slots="task",
    )

    task: Any = MISSING
    out: str | None = None  # a new file, or a new folder for parts; null: nothing is written
    # equal texts with several labels: drop all of them, or keep one with each label
    contradictory: Literal["drop", "keep"] = "drop"
    # a folder of parts by an earlier call, whose rows stay there. New rows go to the part of their
    # bundle; others are divided by the shares, without any by those of the folder. Settings of
    # that call count where no new ones are given
    keep_parts: str | None = None
    overwrite: bool = False  # replace an existing file

    def perform(self) -> Result:
        """Show the rows that go, and write the others."""
        if self.keep_parts is None:
            return self._clean()
        from plmctl.config.compose import composed

        known = self._read_settings(Path(self.keep_parts).expanduser() / RECORD)
        given = self.provenance
        words = [word for word in known or () if key_of(word) not in given.keys]
        whole: Any = composed(replace(given, overrides=(*given.overrides, *words))).spec
        return whole._clean(self._describe_settings(known, words))

    def _read_settings(self, record: Path) -> list[str] | None:
        """The settings by which an earlier call read its table; None without a record of one."""
        from plmctl.storage.reading import read_json

        made = read_json(record) if record.is_file() else {}
        if made.get("made by") != MAKER:
            return None
        return [word for word in made["settings"] if not key_of(word).startswith(OWN)]

    def _describe_settings(self, known: Sequence[str] | None, words: Sequence[str]) -> list[str]:
        """A line on the settings of the call that made the parts."""
        record = Path(str(self.keep_parts)) / RECORD
        if known is None:
            bundle = "task.columns.bundle=<a column>"
            line = f"{record} has no settings of data clean: give the ones behind these parts"
            if "task.columns.bundle" not in self.provenance.keys:
                line += f"; without {bundle}, rows of one bundle may be in several parts"
            return [line]
        return [f"settings of {record}: {' '.join(map(spell_word, words))}"] if words else []

    def _clean(self, said: Sequence[str] = ()) -> Result:
        """Show the rows that go, and write the others; `said`: lines that come first."""
        from plmctl.datasets.opening import build_task
        from plmctl.tasks.cleaned import (
            arrange_columns,
            clean_table,
            count_rows,
            describe_new_labels,
            describe_shares,
            divide_table,
            extend_parts,
            find_missing,
            read_parts,
        )

        task = build_task(self.task, self.plugins, "the labelled table of which task?")
        task.splits.name_columns(find_ids(self.provenance))
        splits = task.splits
        old = read_parts(task, Path(self.keep_parts).expanduser()) if self.keep_parts else {}
        known = [each for part in old.values() for each in part.examples]
        table = clean_table(task, keep_disputed=self.contradictory == "keep", known=known)
        if old:
            table, parts = extend_parts(splits, table, old)
        else:
            parts = divide_table(splits, table.kept)
        arranged = {name: arrange_columns(table, part) for name, part in old.items()}
        if self.out is not None:
            extended = {
                name: part.extend(arranged[name], parts[name]) for name, part in old.items()
            }
            self._write(table, extended or {n: table.spell(own) for n, own in parts.items()})
        gone = {reason: [line for line, _ in rows] for reason, rows in table.dropped.items()}
        sizes = {name: len(own) for name, own in parts.items()}
        found: dict[str, Any] = {
            "out": self.out,
            "kept": len(table.kept),
            "dropped": gone,
            "parts": sizes,
        }
        found["trimmed"] = [line for line, _ in table.trimmed]
        whole = {name: [*part.examples, *parts[name]] for name, part in old.items()} or parts
        notes = (
            {name: f", {len(own):,} of them new" for name, own in parts.items()}
            if old
            else describe_shares(splits, parts)
        )
        said = [*said, *describe_new_labels(known, table.kept)] if old else said
        found["remarks"] = [*said]
        named: Mapping[str, Sequence[Example]] = whole or {"labels": table.kept}
        found["labels"] = {name: dict(count_rows(own).most_common()) for name, own in named.items()}
        missing = find_missing(splits, whole)
        found["missing labels"] = missing
        for name, own in missing.items():
            notes[name] = f"{notes.get(name, '')}; it lacks {list_some(own)}"
        shown = self._describe(task, arranged.get("train", table), whole, notes)
        return self.report(found, [*said, *shown])

    def _write(self, table: CleanTable, parts: Mapping[str, str]) -> None:
        """Write the texts of `parts` into a folder, or without any the table into a file."""
        from plmctl.storage.atomic import open_atomic, refuse_existing
        from plmctl.storage.resumable import hash_file, new_folder, write_folder
        from plmctl.text.tabular import kind_of

        kind, out = kind_of(table.file), str(self.out)
        if parts:
            words = [word for word in self.provenance.overrides if key_of(word) != "out"]
            job = {"made by": MAKER, "of": hash_file(table.file), "settings": words}
            with write_folder(new_folder(out), job) as made:
                for name, text in parts.items():
                    made.write(f"{name}{kind}", text)
            return
        file = Path(out).expanduser()
        if file.suffix != kind:
            fix = spell_setting("out", file.with_suffix(kind))
            raise ConfigError("out", out, f"a {kind} file, as the table is one", fix=fix)
        refuse_existing(file, self.overwrite)
        with open_atomic(file, "wb") as stream:
            stream.write(table.spell(table.kept).encode())

    def _describe(
        self,
        task: Task,
        table: CleanTable,
        parts: Mapping[str, Sequence[Example]],
        notes: Mapping[str, str],
    ) -> Iterator[str]:
        from plmctl.tasks.cleaned import describe_part
        from plmctl.tasks.inference import describe_reading

        yield from table.describe()
        yield from describe_reading(task.splits.reader)
        named: Mapping[str, Sequence[Example]] = parts or {"labels": table.kept}
        for name, rows in named.items():
            yield describe_part(name, rows) + notes.get(name, "")
        if self.out is None:
            yield "nothing is written: out=<a new file, or a folder for parts> writes the rest"
            return
        yield f"{self.out}: what stays"
        own = [word for word in self.provenance.overrides if key_of(word).startswith("task")]
        left = (
            "task.path",
            "task.reader.merged_by",
            *(("task.dev", "task.test", "task.fold") if parts else ()),
        )
        kept = [each for each in own if not key_of(each).startswith(left)]
        words = [spell_setting("task.path", self.out), *map(spell_word, kept)]
        yield f"next: plmctl finetune {' '.join(words)} checkpoint=<a run>"
