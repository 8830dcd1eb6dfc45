"""`plmctl eval checkpoint=[a,b] input=mixed.csv by=task`: rows of several tasks, each answered by
its own checkpoint. The checkpoints share one base model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.rounding import round_floats
from plmctl.tasks.predictions import NAMED, read_columns
from plmctl.tasks.record import Example
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.text.tabular import kind_of
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of
from plmctl.use.asked_task import Destination, check_out, is_printed, name_file, write_split
from plmctl.use.ensemble import name_members
from plmctl.use.predict import ScoreTable
from plmctl.use.shared_base import SharedBase, load_adapters


def evaluate_by_task(spec: Evaluate) -> int:
    """Answer the rows of a table in one pass of the model, and write them."""
    source = _check(spec)
    if spec.out is not None:
        check_out(Path(spec.out), spec.overwrite)
    precision = choose(spec.precision, device_of(spec.device, "device"))
    names = name_members(spec.checkpoint)
    paths = dict(zip(names, spec.checkpoint, strict=True))
    shared = load_adapters(paths, plugins=spec.plugins, device=precision.device)
    examples = _read(spec, source, shared)
    with precision.autocast():
        answers = shared.answer(examples, batch_size=spec.batch_size)
    rows = [
        (example, round_floats(answer, precision.digits or 6))
        for name, own in answers.items()
        for example, answer in zip(examples[name], own, strict=True)
    ]
    rows.sort(key=lambda row: int(row[0].place.rpartition(":")[2]))
    joined = "+".join(name.replace(os.sep, "-") for name in names)
    out, name = Path(spec.out or Path("eval") / joined), source.name.partition(".")[0]
    output = Destination(out, spec.overwrite, spec.guard_cells)
    own, said = [row for row, _ in rows], [answer for _, answer in rows]
    file = write_split(output, name, own, said, spec.input)
    counts = {name: len(own) for name, own in examples.items()}
    extra = {"rows": counts, "predictions": name_file(file)}
    ScoreTable(name, {}, extra).show(
        as_json=spec.provenance.json,
        aside=is_printed(spec.out, spec.input, submission=spec.provenance.submission),
    )
    return 0


def _check(spec: Evaluate) -> Path:
    """The table of the rows; ConfigError for settings that exclude `by`."""
    if isinstance(spec.checkpoint, str) or len(spec.checkpoint) < 2:
        allowed = "null: one checkpoint answers all rows"
        raise ConfigError("by", spec.by, allowed, fix="checkpoint=[<a run>,<another>]")
    if spec.task is not None:
        allowed = "null: each checkpoint has a task of its own"
        raise ConfigError("task", spec.task.get("name"), allowed, fix="leave it out")
    file = Path(spec.input or "-")
    if kind_of(file) not in NAMED:
        allowed = (
            f"a table with names of columns ({', '.join(NAMED)}), of which by={spec.by} is one"
        )
        raise ConfigError("input", spec.input, allowed, fix="input=mixed.csv")
    return file


def _read(spec: Evaluate, source: Path, shared: SharedBase) -> Mapping[str, list[Example]]:
    """The examples of each checkpoint, as its task reads them.

    Raises:
        DataError: The table has no such column, or a row is for none of the checkpoints.
    """
    known = {name: name for name in shared.tasks}
    known |= dict(zip(map(str, spec.checkpoint), shared.tasks, strict=True))
    asked: dict[str, str] = {}
    for place, row in read_columns(source).items():
        line = int(place.rpartition(":")[2])
        if spec.by not in row:
            what = f"there is no column '{spec.by}'{nearest(str(spec.by), row)}"
            fix = f"by={' or '.join(row)}"
            raise DataError(what, file=source, line=line, fix=fix)
        name = str(row[spec.by])
        if name not in known:
            what = f"{spec.by}={name!r} is none of the checkpoints{nearest(name, known)}"
            fix = f"write one of {', '.join(shared.tasks)}"
            raise DataError(what, file=source, line=line, fix=fix)
        asked[place] = known[name]
    found: dict[str, list[Example]] = {}
    for name, own in shared.learned.items():
        if name in asked.values():
            examples = read_unlabelled(own.task, str(source))[1]
            found[name] = [each for each in examples if asked.get(each.place) == name]
    return found
