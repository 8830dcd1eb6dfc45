"""`plmctl eval input=` of a file of any length: its texts are read, answered and kept on disk
piece by piece, and written once the columns of all rows are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path

from plmctl.artifacts.loading import Loaded
from plmctl.config.uses import Evaluate
from plmctl.storage.atomic import is_stream
from plmctl.storage.spool import Spool
from plmctl.tasks import inference
from plmctl.tasks.predictions import STDOUT, OwnColumns, PredictedColumns, Row, join
from plmctl.tasks.task import Task
from plmctl.tasks.unlabelled import stream_unlabelled
from plmctl.training.device.precision import Precision
from plmctl.use.answering import answer_examples, describe_read, keep_said, predict_split
from plmctl.use.asked_task import choose_out, name_file, write_joined, write_split
from plmctl.use.calibrating import decide_again
from plmctl.use.predict import ScoreTable, Told


def label_texts(spec: Evaluate, loaded: Loaded, task: Task, precision: Precision) -> ScoreTable:
    """Write what the model says of the texts of `input`, and return what is to be said of them,
    with scores where all have labels.
    """
    name, pieces = stream_unlabelled(task, str(spec.input))
    first, out = next(pieces), choose_out(spec, loaded)
    facts = {"task": task.name, "checkpoint": str(loaded.source.folder)}
    if inference.is_answered(first):
        examples = [*first, *chain.from_iterable(pieces)]
        answered = answer_examples(spec, loaded, task, name, examples, precision)
        file = write_split(spec, out, name, examples, answered.predictions)
        rows = {"rows": len(examples), "predictions": name_file(file)}
        return answered.tabulate(task, facts | rows, seed=spec.seed)
    read, columns = inference.ReadPieces(), PredictedColumns()
    own_columns, decision = OwnColumns(str(spec.input), first), ""
    with Spool(_find_folder(out)) as kept:
        for piece in chain([first], pieces):
            split = inference.encode_piece(task, name, piece, loaded.tokenizer)
            read.add(piece, split.rows, loaded.vocab)
            answers, _ = predict_split(spec, loaded, task, split, precision)
            answers, decision = decide_again(loaded, task, answers, precision.digits)
            for example, own, told in zip(piece, own_columns.take(piece), answers, strict=True):
                columns.add(own, example, told)
                kept.append([own, told])
        read.refuse_unknown(name)
        names = columns.name()
        file = write_joined(spec, out, name, _Joined(kept, names), names, first)
        rows = {"rows": len(kept), "predictions": name_file(file)}
    said = keep_said({**describe_read(read, task), "decision": Told(decision)})
    return ScoreTable(f"{task.name}: {name}", {}, {**facts, **rows, **said})


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


def _find_folder(out: Path) -> Path | None:
    """The folder that is there and is on the disk of `out`; None where that is no file."""
    if out == STDOUT or is_stream(out):
        return None
    return next(folder for folder in out.absolute().parents if folder.is_dir())
