"""The names of results in a run, and a record of their files and conditions."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plmctl.analysis.scored import ScoredFiles, keep_scored
from plmctl.artifacts.loading import Source
from plmctl.config.spec import key_of
from plmctl.storage.resumable import hash_file
from plmctl.tasks.predictions import STDOUT
from plmctl.tasks.readers import files
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.trained_texts import hash_texts, read_trained
from plmctl.use.answering import AnsweredSplit
from plmctl.use.asked_task import Destination, is_own


def is_own_split(task: Task, source: Source, split: str) -> bool:
    """Whether a split is the model's own, not that of other files."""
    trained_on = source.own_task().get("path")
    if trained_on is None or _is_same(_find(task.splits.path, split), _find(trained_on, split)):
        return True
    trained = read_trained(source.home) if split in task.splits.divided else None
    return trained is not None and is_own(trained, task.splits)


def name_result(task: Task, source: Source, split: str, texts: str | None = None) -> str:
    """The name of the results of a split, or of the file `texts`: its own name, where it is not
    that of a split. `other-test` is of `other/test.csv`, or of the split test of `other/`.
    """
    if texts is None and is_own_split(task, source, split):
        return split
    return name_texts(task, _find(task.splits.path, split) if texts is None else texts, split)


def name_texts(task: Task, file: Any, split: str) -> str:
    """The name of the results of a file or a folder that is not the run's own."""
    if file == str(STDOUT) or not isinstance(file, str | Path):
        return split
    place = Path(file).expanduser().resolve()
    if place.is_dir():
        return f"{place.name}-{split}"
    name = place.name.partition(".")[0]
    return f"{place.parent.name}-{name}" if name in task.splits.reader.splits else name


def keep_result(
    output: Destination,
    name: str,
    task: Task,
    source: Source,
    answered: AnsweredSplit,
    how: Mapping[str, Any],
    overrides: Collection[str],
    *,
    only: str,
) -> None:
    """Record the files and conditions of results in a run; nothing for a folder of the user's.

    Args:
        how: The precision and the runtime.
        overrides: The words of the command line.
        only: The rows that count; "" for all.
    """
    if output.run is None:
        return
    split, where = answered.name, _find(task.splits.path, answered.name)
    read = list_files(answered.examples)
    given = [word for word in overrides if key_of(word).startswith("task.")]
    own = is_own_split(task, source, split)
    stem = Path(where).name.partition(".")[0] if files.is_single(where) else ""
    told = answered.remarks.get("answered")
    scored = ScoredFiles(
        stem if not own and stem in task.splits.reader.splits else split,
        own=own,
        files={file: hash_file(Path(file)) for file in read if Path(file).is_file()},
        rows=len(answered.examples),
        only=only,
        settings=[word for word in given if key_of(word).split(".")[1] != "path"],
        checkpoint=source.folder.name,
        decision=str(answered.remarks.get("decision", "")),
        answered=told.value if told else {},
        texts=_identify(answered.examples),
        precision=how["precision"].name,
        runtime=how["runtime"].describe(),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    keep_scored(output.run, name, scored)


def _identify(examples: Sequence[Example]) -> str:
    """A hash of the ids and texts of examples, in any order."""
    pairs = zip(examples, hash_texts(examples).tolist(), strict=True)
    lines = sorted(f"{example.id}\t{own:016x}" for example, own in pairs)
    return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()


def list_files(examples: Sequence[Example]) -> list[str]:
    """The files of examples."""
    return sorted({example.place.rpartition(":")[0] for example in examples} - {""})


def _find(path: Any, split: str) -> Any:
    return path.get(split) if isinstance(path, Mapping) else path


def _is_same(path: Any, other: Any) -> bool:
    if isinstance(path, str | Path) and isinstance(other, str | Path):
        return Path(path).expanduser().absolute() == Path(other).expanduser().absolute()
    return bool(path == other)
