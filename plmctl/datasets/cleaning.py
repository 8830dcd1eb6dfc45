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
from plmctl.config.build import plain
from plmctl.config.schema import TextCleaner
from plmctl.core.machine import count_processors
from plmctl.core.terminal import remark
from plmctl.inputs.tokenize import show_progress, spell_command
from plmctl.storage.atomic import write_text
from plmctl.storage.journal import open_journal
from plmctl.storage.resumable import RECORD, new_folder


@dataclass(frozen=True)
class CleaningJob:
    """A text and the form of what stays of it.

    Args:
        source: The text.
        parts: Its parts.
        form: The form of the documents that stay.
        out: The new folder.
        spec: The settings.
    """

    source: CleaningInput
    parts: Sequence[InputPart]
    form: OutputFormat
    out: Path
    spec: TextCleaner

    @classmethod
    def open(cls, spec: TextCleaner) -> CleaningJob:
        """The job that the settings describe, checked before any work."""
        out = new_folder(spec.out)
        form = OutputFormat(spec.write, spec.packing)
        form.check()
        paths = plain(spec.input)
        several = (paths,) if isinstance(paths, str) else tuple(paths)
        source = CleaningInput(several, spec.field, spec.lines)
        return cls(source, source.divide(int(spec.part_mb * 1e6)), form, out, spec)

    @contextlib.contextmanager
    def run(self, made_by: str, settings: Mapping[str, Any]) -> Iterator[tuple[Steps, Record]]:
        """Its steps, and a dict of numbers for the record; the folder appears at the end.

        Args:
            made_by: The command.
            settings: All that decides which documents stay.
        """
        spec, files = self.spec, self.source.describe()
        about = {"field": spec.field, "lines": spec.lines, "part_mb": spec.part_mb}
        job = {"made by": made_by, **about, **asdict(self.form), **settings}
        found: Record = {}
        command = spell_command(spec.provenance, *made_by.split()[1:])
        with (
            show_progress(command, made_by.rpartition(" ")[2]) as say,
            open_journal(self.out, {**job, "files": files}, tell=_tell) as journal,
        ):
            yield Steps(journal, spec.processes or count_processors(), say), found
            record = {**job, "files": [each[:2] for each in files], **found}
            text = json.dumps(record, indent=1, ensure_ascii=False)
            write_text(journal.folder / RECORD, f"{text}\n")
            journal.finish(self.out)


Record = dict[str, Any]


def _tell(line: str) -> None:
    remark(f"plmctl: {line}")
