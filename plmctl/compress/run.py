"""`plmctl compress`: the run in 8 bits, then smaller shapes that it teaches, until one reaches the
target and keeps the score.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from plmctl.compress import page
from plmctl.compress.bench import Bench
from plmctl.compress.climb import Climb, Ended, Wish
from plmctl.compress.rung import LadderResult
from plmctl.compress.works import MODEL
from plmctl.config.spec import Provenance
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import remark
from plmctl.jobs.job import remark_next
from plmctl.jobs.journal import hold_folder
from plmctl.storage.atomic import open_folder, write_json
from plmctl.storage.gate import admit
from plmctl.storage.paths import refuse_file_name

COMMAND, JOBS, TABLE = "compress", "jobs", "table.json"  # the names in the folder


def compress(wish: Wish, given: Provenance) -> int:
    """Do what is not done yet, and write the table; with `dry_run` predict each rung.

    Returns:
        0 where a model reaches the target and keeps the score, else 1, or the exit code of the step
        that ended it.
    """
    refuse_file_name(wish.out)
    memory = wish.target.quantity == "memory"
    bench = Bench(wish.checkpoint, wish.batch_size, memory=memory, plugins=given.plugins)
    with contextlib.ExitStack() as stack:
        if given.dry_run:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            record = {"checkpoint": wish.checkpoint, "words": list(given.overrides)}
            name = f"plmctl {COMMAND}"
            stack.enter_context(hold_folder(wish.out, record, kind=COMMAND, command=name))
            folder = wish.out / JOBS
        try:
            with contextlib.redirect_stdout(sys.stderr):
                climb = Climb(wish, bench, given, folder)
                outcome = climb.predict() if given.dry_run else climb.climb()
        except Ended as error:
            what = f"{error} {'was stopped' if error.code > 128 else 'failed'}"
            remark_next(what, COMMAND, *given.overrides, given=given)
            return error.code
        if not given.dry_run:
            _write(outcome, climb, wish.out)
    return page.show(outcome, given)


def _write(outcome: LadderResult, climb: Climb, out: Path) -> None:
    """Write the table, the page and the folder of the chosen model."""
    chosen, place = outcome.chosen, out / MODEL
    if chosen is None:
        shutil.rmtree(admit(place), ignore_errors=True)
    else:
        with open_folder(place, overwrite=True) as folder:
            shutil.copytree(climb.locate(chosen), admit(folder), dirs_exist_ok=True)
    write_json(out / TABLE, outcome.to_json())
    remark(f"page: {page.write(outcome, out)}")
    if chosen is not None:
        lines = (spell_line("predict", place, "input=-"), spell_line("serve", place))
        remark("next:\n" + "\n".join(f"  {line}" for line in lines))
