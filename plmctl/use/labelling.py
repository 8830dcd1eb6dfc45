"""New texts and their labels: files of any length, and streams.

The texts of a file are read, answered and stored on the disk piece by piece. They are written once
the columns of all rows are known. A stopped job continues behind its last piece. Rows for standard
output are written as they are answered.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from plmctl import __version__
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.progress import ProgressLine
from plmctl.core.terminal import remark, tell
from plmctl.storage.atomic import end_of, is_stream, refuse_existing
from plmctl.storage.earlier import keep_earlier
from plmctl.storage.gate import admit
from plmctl.storage.journal import has_left, open_journal, read_left
from plmctl.storage.resumable import hash_file
from plmctl.storage.spool import KeptSpool, Spool
from plmctl.tasks import inference
from plmctl.tasks.calibration import UNSURE
from plmctl.tasks.predictions import (
    STDOUT,
    OwnColumns,
    PredictedColumns,
    Row,
    is_file,
    join,
    spell_json,
)
from plmctl.tasks.record import Example
from plmctl.tasks.unlabelled import STREAM, ExamplePieces, stream_unlabelled
from plmctl.text.tabular import spelling_of
from plmctl.use.answering import describe_read, keep_said
from plmctl.use.asked_task import (
    Destination,
    find_result,
    name_file,
    tell_renamed,
    write_results,
    write_split,
)
from plmctl.use.kept_results import name_texts
from plmctl.use.labeller import Labeller
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.rehearsal import rehearse


@dataclass
class _Known:
    """The facts about the texts so far."""

    read: inference.ReadPieces = field(default_factory=inference.ReadPieces)
    columns: PredictedColumns = field(default_factory=PredictedColumns)
    decision: str = ""
    unsure: int = 0  # rows whose answer is less probable than the decision wants

    def save(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        read, columns = self.read.save(), self.columns.save()
        said = {"decision": self.decision, "unsure": self.unsure}
        return {"read": read, "columns": columns, **said}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on behind texts of which this is saved."""
        self.read.load(saved["read"])
        self.columns.load(saved["columns"])
        self.decision, self.unsure = saved["decision"], saved.get("unsure", 0)


def label_files(
    labeller: Labeller,
    files: Sequence[str],
    output: Destination,
    *,
    seed: int,
    top: int | None = None,
) -> Iterator[ScoreTable]:
    """Write the answers to the texts of files, or of standard input.

    Args:
        labeller: The model with its task.
        files: The files, all of which are read to their end first; "-": standard input.
        output: The file or the folder of the answers; "-": standard output.
        top: The likeliest labels to write, with their probabilities; None: those of all labels.

    Returns:
        Remarks on each file, with scores where all texts have labels.
    """
    opened = [stream_unlabelled(labeller.task, file) for file in files]
    with contextlib.ExitStack() as journals:  # a stopped command needs those of its first files
        for texts, (name, pieces) in zip(files, opened, strict=True):
            kept = name if output.run is None else name_texts(labeller.task, texts, name)
            work = _Labelling(labeller, kept, texts, pieces, journals, top)
            yield work.label(output, seed)


def rehearse_files(labeller: Labeller, files: Sequence[str]) -> Iterator[ScoreTable]:
    """The rows, the time and the memory of each file, by the answers to a few of its texts; nothing
    is written.
    """
    start = time.process_time()
    for file in files:
        name, texts = stream_unlabelled(labeller.task, file)
        answer = partial(labeller.answer, name, read=inference.ReadPieces())
        what = f"{labeller.task.name}: {name}"
        yield rehearse(what, next(texts), answer, count=texts.total, start=start).tabulate()


def _describe(table: ScoreTable, labeller: Labeller, rows: int, file: Path) -> ScoreTable:
    facts = {**labeller.describe(), "rows": rows, "predictions": name_file(file)}
    return replace(table, extra={**facts, **table.extra})


class _Labelling:
    """The answers to one file.

    Args:
        labeller: The model with its task.
        name: The name of the texts.
        texts: The file.
        pieces: Its examples.
        journals: Closes the journal of the work, at the end of the command.
        top: The labels to write; None: all.
    """

    def __init__(
        self,
        labeller: Labeller,
        name: str,
        texts: str,
        pieces: ExamplePieces,
        journals: contextlib.ExitStack,
        top: int | None = None,
    ) -> None:
        self.top = top
        self.name, self.texts, self.pieces, self.journals = name, texts, pieces, journals
        self.source = STREAM if texts == str(STDOUT) else texts  # its name in messages
        self.labeller, self.known, self.done = labeller, _Known(), 0
        self.first = next(pieces)
        self.own = OwnColumns(texts, self.first, pieces.own)

    def label(self, output: Destination, seed: int) -> ScoreTable:
        """Write the answers, and return the remarks on them."""
        if inference.is_answered(self.first):
            examples = [*self.first, *chain.from_iterable(self.pieces)]
            predictions, table = self.labeller.score(self.name, examples, seed)
            predictions = rank_labels(predictions, self.top)
            file = write_split(output, self.name, examples, predictions, self.texts)
            return _describe(table, self.labeller, len(examples), file)
        if output.path == STDOUT:
            self.answer_aloud()
            file = STDOUT
        else:
            file = self.answer_into(output)
        return _describe(self.tabulate(), self.labeller, self.done, file)

    def answer_aloud(self) -> None:
        """Print each row when it is answered; the first piece decides the names of columns."""
        names: dict[str, str] = {}
        for piece, rows in self._answer(chain([self.first], self.pieces)):
            if not names:
                tell_renamed(self.known.columns.name(), self.first, self.texts)
            names = {**self.known.columns.name(), **names}  # one may come late
            taken = {*names.values()}
            for example, (own, _) in zip(piece, rows, strict=True):
                if late := taken & own.keys():
                    what = f"the column '{min(late)}' comes late, and is one of the predictions"
                    raise DataError(f"{example.place}: {what}", fix="out=labelled.jsonl")
            tell("\n".join(spell_json(join(own, told, names)) for own, told in rows))

    def answer_into(self, output: Destination) -> Path:
        """Write a file once all rows are answered, and return it."""
        file = find_result(output, self.name)
        if not self.pieces.several or is_stream(file):
            with Spool(_find_folder(output.path)) as kept:
                self._fill(kept)
                return self._write(output, kept)
        target = end_of(file)
        job = {"texts": hash_file(Path(self.texts)), "rows": self.pieces.total}
        job |= {"plmctl": __version__, **self.labeller.identify()}
        job |= {"top": self.top} if self.top is not None else {}
        journal = self.journals.enter_context(open_journal(target, job, tell=remark))
        with KeptSpool(journal) as kept:
            self._fill(kept)
            made = journal.folder / target.name
            self._write(replace(output, path=made, overwrite=True), kept, known_as=file)
        if is_file(output.path) and not (target.exists() and filecmp.cmp(made, target, False)):
            refuse_existing(target, output.overwrite)
        with keep_earlier(file, overwrite=output.overwrite or is_file(output.path)):
            os.replace(admit(made), admit(target))
        return file

    def tabulate(self) -> ScoreTable:
        """Remarks on the texts."""
        runtime, asked = self.labeller.runtime.describe(), UNSURE in self.known.decision
        unsure = f"{self.known.unsure:,} of {self.done:,} rows" if asked else ""
        said = {
            **describe_read(self.known.read, self.labeller.task, self.labeller.source.home),
            "decision": Told(self.known.decision),
            UNSURE: Told(unsure, self.known.unsure),
            "runtime": Told(runtime),
        }
        return ScoreTable(f"{self.labeller.task.name}: {self.name}", {}, keep_said(said))

    def _fill(self, kept: Spool) -> None:
        """Answer the rest of the texts."""
        pieces: Iterator[list[Example]] = chain([self.first], self.pieces)
        self.done = len(kept)
        if self.done:
            remark(
                f"{self.texts}: {self.done:,} of {self.pieces.total:,} rows have answers already"
            )
            self.known.load(kept.state)
            self.pieces.skip(self.done)
            pieces = self.pieces
        for _, rows in self._answer(pieces):
            for row in rows:
                kept.append(row)
            kept.commit(**self.known.save())

    def _answer(
        self, pieces: Iterator[list[Example]]
    ) -> Iterator[tuple[list[Example], list[tuple[Row, Row]]]]:
        """(a piece, the user's columns and the predictions of each of its examples)."""
        total, begun = self.pieces.total, self.done
        show = ProgressLine("rows", total, begun=begun) if total and self.pieces.several else None
        for piece in pieces:
            labeller = self.labeller
            if show is not None:
                labeller = labeller.watched(partial(_show_part, show, self.done, len(piece)))
            answers, self.known.decision = labeller.answer(self.name, piece, self.known.read)
            if not begun and not self.done:
                self.known.read.refuse_unknown(self.source)
            answers = rank_labels(answers, self.top)
            self.known.unsure += sum(UNSURE in row for row in answers)
            made = list(zip(self.own.take(piece), answers, strict=True))
            for example, (own, told) in zip(piece, made, strict=True):
                self.known.columns.add(own, example, told)
            yield piece, made
            self.done += len(piece)
            if show is not None:
                show(self.done)

    def _write(self, output: Destination, kept: Spool, known_as: Path | None = None) -> Path:
        self.known.read.refuse_unknown(self.source)
        names = self.known.columns.name()
        tell_renamed(names, self.first, self.texts)
        spelling = spelling_of(Path(self.texts))
        rows = _Joined(kept, names)
        return write_results(output, self.name, rows, spelling, known_as=known_as)


def rank_labels(answers: Sequence[Row], top: int | None) -> list[Row]:
    """The answers with their likeliest labels, {"top": {"1": {"label": "a", "probability": 0.9}}},
    instead of the probabilities of all labels.

    Args:
        answers: The answers.
        top: The labels of an answer; None: the answers stay as they are.

    Raises:
        ConfigError: The task has no probabilities of labels.
    """
    if top is None:
        return [*answers]
    if not all(isinstance(row.get("probabilities"), Mapping) for row in answers):
        allowed = "null: answers of this task have no probabilities of labels"
        raise ConfigError("top", top, allowed, fix="leave it out")
    return [_rank(row, top) for row in answers]


def _rank(row: Row, top: int) -> Row:
    shares = sorted(row["probabilities"].items(), key=lambda pair: -pair[1])[:top]
    pairs = enumerate(shares, 1)
    ranked = {str(n): {"label": label, "probability": share} for n, (label, share) in pairs}
    return {key: own for key, own in row.items() if key != "probabilities"} | {"top": ranked}


def _show_part(show: ProgressLine, done: int, size: int, seen: int) -> None:
    """Show the rows of a piece of which the model has read `seen`."""
    show(done + min(size - 1, seen))


class _Joined(Collection[Row]):
    """The rows of a spool, [the user's columns, a prediction] each, as they are written."""

    def __init__(self, kept: Spool, names: Mapping[str, str]) -> None:
        self.kept, self.names = kept, names

    def __len__(self) -> int:
        return len(self.kept)

    def __contains__(self, row: object) -> bool:
        return any(row == own for own in self)

    def __iter__(self) -> Iterator[Row]:
        return (join(own, told, self.names) for own, told in self.kept)


def refuse_result(file: Path, overwrite: bool) -> None:
    """UsageError for an existing file, unless a stopped job has only to write it again. Its file
    is compared in the end.
    """
    target = end_of(file)
    if (left := read_left(target)) is not None:
        ended = left["job"].get("rows") == left["state"].get("rows", (None, 0))[0]
    else:  # its journal went first
        ended = has_left(target)
    if not ended:
        refuse_existing(file, overwrite)


def _find_folder(out: Path) -> Path | None:
    """The existing folder on the disk of `out`; None where that is no file."""
    if out == STDOUT or is_stream(out):
        return None
    return next(folder for folder in out.absolute().parents if folder.is_dir())
