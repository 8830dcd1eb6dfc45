"""`plmctl predict [a,b] input=mixed.csv by=task`: rows of several tasks, each answered by
its own checkpoint. The checkpoints share one base model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from plmctl.core.errors import DataError, nearest
from plmctl.core.rounding import round_floats
from plmctl.tasks.predictions import read_columns
from plmctl.tasks.record import Example
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.training.device.precision import Precision
from plmctl.use.asked_task import Destination, name_file, write_split
from plmctl.use.ensemble import name_members
from plmctl.use.predict import ScoreTable
from plmctl.use.shared_base import SharedBase, load_adapters


def label_by_task(
    checkpoints: Sequence[str],
    file: Path,
    by: str,
    *,
    output: Destination,
    precision: Precision,
    batch_size: int,
    plugins: Sequence[str],
) -> ScoreTable:
    """Answer the rows of a table in one pass of the model, and write them.

    Args:
        by: The column that names the model of a row.
        output: The file or the folder of the answers.
    """
    paths = dict(zip(name_members(checkpoints), checkpoints, strict=True))
    shared = load_adapters(paths, plugins=plugins, device=precision.device)
    examples = _read(file, by, paths, shared)
    with precision.autocast():
        answers = shared.answer(examples, batch_size=batch_size)
    rows = [
        (example, round_floats(answer, precision.digits or 6))
        for name, own in answers.items()
        for example, answer in zip(examples[name], own, strict=True)
    ]
    rows.sort(key=lambda row: int(row[0].place.rpartition(":")[2]))
    name = file.name.partition(".")[0]
    own, said = [row for row, _ in rows], [answer for _, answer in rows]
    written = write_split(output, name, own, said, str(file))
    counts = {name: len(own) for name, own in examples.items()}
    return ScoreTable(name, {}, {"rows": counts, "predictions": name_file(written)})


def _read(
    source: Path, by: str, paths: Mapping[str, str], shared: SharedBase
) -> Mapping[str, list[Example]]:
    """The examples of each checkpoint, as its task reads them.

    Raises:
        DataError: The table has no such column, or a row is for none of the checkpoints.
    """
    known = {name: name for name in shared.tasks}
    known |= {path: name for name, path in paths.items()}
    asked: dict[str, str] = {}
    for place, row in read_columns(source).items():
        line = int(place.rpartition(":")[2])
        if by not in row:
            what = f"there is no column '{by}'{nearest(by, row)}"
            fix = f"by={' or '.join(row)}"
            raise DataError(what, file=source, line=line, fix=fix)
        name = str(row[by])
        if name not in known:
            what = f"{by}={name!r} is none of the checkpoints{nearest(name, known)}"
            fix = f"write one of {', '.join(shared.tasks)}"
            raise DataError(what, file=source, line=line, fix=fix)
        asked[place] = known[name]
    found: dict[str, list[Example]] = {}
    for name, own in shared.learned.items():
        if name in asked.values():
            examples = read_unlabelled(own.task, str(source))[1]
            found[name] = [each for each in examples if asked.get(each.place) == name]
    return found
