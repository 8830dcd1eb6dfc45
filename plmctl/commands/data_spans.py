"""`plmctl data spans`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import counted
from plmctl.storage.atomic import is_stream, open_atomic, refuse_existing
from plmctl.storage.paths import find_near, refuse_ending
from plmctl.storage.resumable import new_folder, write_folder

if TYPE_CHECKING:
    from plmctl.tasks.readers.span_files import NamedText, SpanNotes

BRAT = "brat"
_SHOWN = 5  # texts of a preview


@dataclass(frozen=True)
class AnnotatedSpans(Command):
    """Write texts with marked entities in the layout of another tool of annotation.

    It reads spaCy's, Prodigy's, doccano's and Label Studio's JSON, predictions of a tagger, and
    folders of brat. With --dry-run some of them are shown, and nothing is written.
    """

    about = About(
        "data spans",
        place=43,
        examples=(
            "plmctl data spans entities.jsonl layout=label_studio out=marked.json",
            "plmctl data spans entities.jsonl layout=brat out=brat",
        ),
        bare="input",
        metavar="IN",
        options="json print_config dry_run config_dir plugin",
    )

    input: str = MISSING  # a file, .jsonl or .json, or a folder of brat's .txt and .ann
    # a new file, .jsonl or .json; of brat a new folder
    out: str = MISSING
    # layout to write; label_studio_guesses: entities that people are to check
    layout: Literal[
        "doccano", "prodigy", "spacy", "label_studio", "label_studio_guesses", "brat"
    ] = "doccano"
    text: str = "text"  # field of the text
    entities: str | None = None  # field of the entities; null: entities, spans, label or labels
    overwrite: bool = False  # replace an existing file

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.tasks.readers.span_files import SpanNotes, read_spans

        source, out = Path(self.input).expanduser(), Path(self.out).expanduser()
        self._refuse(source, out)
        notes = SpanNotes()
        texts = list(read_spans(source, notes, text=self.text, entities=self.entities))
        if not texts:
            raise DataError("there are no texts", file=source, fix="input=<marked texts>")
        if self.provenance.dry_run:
            return self._report(notes, [*self._preview(texts), "nothing is written"], None)
        self._write(out, texts, notes)
        return self._report(notes, [f"{out}: {counted(notes.texts, 'text')}"], self.out)

    def _refuse(self, source: Path, out: Path) -> None:
        """Errors for a missing input and an unfit output."""
        if not source.exists():
            near = find_near(source)
            fix = spell_setting("input", near) if near else "input=<an existing file>"
            raise DataError("no such file or folder", file=source, fix=fix)
        if self.layout == BRAT:
            new_folder(self.out)
        elif not is_stream(out):
            refuse_ending(self.out, [".jsonl", ".json"], "JSON lines, or one list")
            refuse_existing(out, self.overwrite)

    def _write(self, out: Path, texts: list[NamedText], notes: SpanNotes) -> None:
        from plmctl.tasks.readers.span_files import spell_brat, spell_file

        if self.layout == BRAT:
            files = dict(spell_brat(texts, sorted(notes.labels)))
            job = {"made by": "plmctl data spans", "input": self.input, "layout": self.layout}
            with write_folder(out, job, {"texts": notes.texts}) as made:
                for name, content in files.items():
                    made.write(name, content)
            return
        with open_atomic(out) as stream:
            stream.writelines(spell_file(self.out, texts, self.layout))

    def _preview(self, texts: list[NamedText]) -> Iterator[str]:
        """The entities of some texts."""
        for each in [each for each in texts if each.spans][:_SHOWN]:
            found = (f"{each.text[start:end]!r} {kind}" for start, end, kind in each.spans)
            yield f"  {each.place}: {', '.join(found)}"

    def _report(self, notes: SpanNotes, lines: list[str], out: str | None) -> Result:
        labels = dict(notes.labels.most_common())
        of_labels = ", ".join(f"{name} {count:,}" for name, count in labels.items())
        entities, texts = counted(sum(labels.values()), "entity"), counted(notes.texts, "text")
        found = f"{entities} in {texts}: {of_labels or 'none'}"
        remarks = [*notes.describe()]
        numbers = {"texts": notes.texts, "labels": labels, "overlapped": notes.overlapped}
        return self.report({"out": out, **numbers, "remarks": remarks}, [found, *remarks, *lines])
