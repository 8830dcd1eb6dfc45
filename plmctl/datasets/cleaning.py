"""The job of cleaning a text: its input, its restartable steps, and its record."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plmctl.cleaning.output import OutputFormat
from plmctl.cleaning.parts import CleaningInput, InputPart
from plmctl.cleaning.steps import Steps
from plmctl.core.machine import count_processors
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark
from plmctl.inputs.tokenize import show_progress
from plmctl.storage.atomic import write_text
from plmctl.storage.journal import open_journal
from plmctl.storage.resumable import RECORD, new_folder
from plmctl.text.tabular import CSV, TSV, kind_of

SETTINGS = ("input", "field", "lines", "out", "write", "compression", "part_mb", "processes")
TABLES = (CSV, TSV)  # most have labels
Numbers = dict[str, Any]


@dataclass(frozen=True)
class CleaningJob:
    """A text, and the form in which the kept documents are written.

    Args:
        form: The form of the documents that stay.
        out: The new folder.
        part_mb: The megabytes of a part.
    """

    source: CleaningInput
    parts: Sequence[InputPart]
    form: OutputFormat
    out: Path
    part_mb: float
    processes: int

    @classmethod
    def open(cls, given: Mapping[str, Any]) -> CleaningJob:
        """The job that `SETTINGS` describe, checked before any work."""
        out, paths = new_folder(given["out"]), given["input"]
        form = OutputFormat(given["write"], given["compression"])
        form.check()
        several = (paths,) if isinstance(paths, str) else tuple(paths)
        source = CleaningInput(several, given["field"], given["lines"])
        parts = source.divide(int(given["part_mb"] * 1e6))
        processes = given["processes"] or count_processors()
        return cls(source, parts, form, out, given["part_mb"], processes)

    @contextlib.contextmanager
    def run(
        self, command: str, settings: Mapping[str, Any], again: str
    ) -> Iterator[tuple[Steps, Numbers]]:
        """Its steps, and a dict of numbers for the record; the folder appears at the end.

        Args:
            command: The name of the command: "data dedup".
            settings: All that decides which documents stay.
            again: The command line that goes on after a stop.
        """
        files, found = self.source.describe(), Numbers()
        about = {"field": self.source.field, "lines": self.source.lines, "part_mb": self.part_mb}
        job = {"made by": f"plmctl {command}", **about, **asdict(self.form), **settings}
        with (
            show_progress(again, command.rpartition(" ")[2]) as say,
            open_journal(self.out, {**job, "files": files}, tell=_remark_ours) as journal,
        ):
            yield Steps(journal, self.processes, say), found
            record = {**job, "files": [each[:2] for each in files], **found}
            text = json.dumps(record, indent=1, ensure_ascii=False)
            write_text(journal.folder / RECORD, f"{text}\n")
            journal.finish(self.out)

    def describe_next(self, label: str | None = None) -> str:
        """A line on what follows: for a labelled table its parts, for other documents tokens.

        Args:
            label: The field of a row with its label, where it is known.
        """
        made = next(iter(sorted(self.out.glob("*.jsonl*"))), None)
        if made is not None and label is not None:
            column = spell_setting("task.columns.label", label)
            words = "task.dev_share=0.1 out=<a folder>"
            return f"next: plmctl data clean {made} task=classification {column} {words}"
        if made is not None and all(kind_of(Path(path)) in TABLES for path in self.source.paths):
            words = "label=<its column of labels> out=<a folder>"
            return f"next: plmctl data dedup {self.out} {words}"
        return f"next: plmctl tokenize {spell_setting('data.path', self.out)} out=<a folder>"


def _remark_ours(line: str) -> None:
    remark(f"plmctl: {line}")
