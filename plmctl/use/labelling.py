"""`plmctl eval input=` for a file of any length. Its texts are read, answered and stored on disk
piece by piece. They are written once the columns of all rows are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.runtime.base import Runtime
from plmctl.storage.atomic import is_stream
from plmctl.storage.spool import Spool
from plmctl.tasks import inference
from plmctl.tasks.predictions import STDOUT, OwnColumns, PredictedColumns, Row, join
from plmctl.tasks.task import Task
from plmctl.tasks.unlabelled import stream_unlabelled
from plmctl.training.device.precision import Precision
from plmctl.use.answering import answer_examples, describe_read, keep_said
from plmctl.use.asked_task import Destination, name_file, write_joined, write_split
from plmctl.use.calibrating import decide_again
from plmctl.use.predict import ScoreTable, Told, predict


def label_texts(
    loaded: Loaded,
    task: Task,
    texts: str,
    output: Destination,
    precision: Precision,
    *,
    batch_size: int,
    seed: int,
    runtime: Runtime | None = None,
) -> ScoreTable:
    """Write the answers to the texts of a file.

    Args:
        loaded: The model.
        task: The task.
        texts: The file.
        output: The file or the folder of the answers.
        precision: The device, and the number type of the computation.
        batch_size: The number of texts at the same time.
        seed: The seed of intervals.
        runtime: The library of the computation; None: PyTorch.

    Returns:
        Remarks, with scores where all texts have labels.
    """
    name, pieces = stream_unlabelled(task, texts)
    first = next(pieces)
    how: dict[str, Any] = {"precision": precision, "batch_size": batch_size, "runtime": runtime}
    facts = {"task": task.name, "checkpoint": str(loaded.source.folder)}
    if inference.is_answered(first):
        examples = [*first, *chain.from_iterable(pieces)]
        answered = answer_examples(loaded, task, name, examples, new_texts=True, **how)
        file = write_split(output, name, examples, answered.predictions, texts)
        rows = {"rows": len(examples), "predictions": name_file(file)}
        return answered.tabulate(task, facts | rows, seed=seed)
    read, columns = inference.ReadPieces(), PredictedColumns()
    own_columns, decision = OwnColumns(texts, first), ""
    with Spool(_find_folder(output.path)) as kept:
        for piece in chain([first], pieces):
            split = inference.encode_piece(task, name, piece, loaded.tokenizer)
            read.add(piece, split.rows, loaded.vocab)
            answers, _ = predict(loaded.model, task, split, digits=precision.digits, **how)
            answers, decision = decide_again(loaded, task, answers, precision.digits)
            for example, own, told in zip(piece, own_columns.take(piece), answers, strict=True):
                columns.add(own, example, told)
                kept.append([own, told])
        read.refuse_unknown(name)
        names = columns.name()
        file = write_joined(output, name, _Joined(kept, names), names, first, texts)
        rows = {"rows": len(kept), "predictions": name_file(file)}
    said = {**describe_read(read, task), "decision": Told(decision)}
    said = keep_said({**said, "runtime": Told(runtime.describe() if runtime else "")})
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
    """The existing folder on the disk of `out`; None where that is no file."""
    if out == STDOUT or is_stream(out):
        return None
    return next(folder for folder in out.absolute().parents if folder.is_dir())
