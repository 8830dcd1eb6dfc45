"""`plmctl ablate`: run a study's arms over its seeds and write the table of their differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from plmctl.core.terminal import remark, tell
from plmctl.jobs.job import remark_next
from plmctl.run.build import plain
from plmctl.run.recipes import studies
from plmctl.run.schema import Ablate
from plmctl.study.parse import parse
from plmctl.study.plan import plan
from plmctl.study.run import make_journal, run_study
from plmctl.study.show import describe_plan, show_plan, show_table


def ablate(spec: Ablate) -> int:
    """Run the study, or with --dry-run show its plan; 0, or 1 where a cell failed, or 130, 143
    or 129 after a signal.
    """
    settings, flags = plain(spec), spec.provenance
    name = Path(settings["recipe"]).stem
    folder = Path(settings["out"] or Path("studies") / name)
    planned = plan(parse(settings, name=name, config_dirs=flags.config_dirs), flags)
    if flags.dry_run:
        states = make_journal(planned, folder).states
        if flags.json:
            tell(json.dumps(describe_plan(planned, states)))
        else:
            show_plan(planned, states, folder)
        return 0
    code, record = run_study(planned, folder, settings, flags.launcher)
    tell(json.dumps(record)) if flags.json else show_table(record)
    remark(f"table: {folder / 'table.md'}")
    if code:
        what = "stopped" if code > 1 else "some jobs failed"
        study = _spell_study(Path(settings["recipe"]), flags.config_dirs)
        remark_next(what, "ablate", study, *flags.overrides, *flags.launcher, given=flags)
    return code


def _spell_study(file: Path, config_dirs: Sequence[str]) -> str:
    """The file of a study as one types it: by its name, or as ./mine.yaml."""
    named = studies(config_dirs).get(file.stem) == file
    return file.stem if named else str(file) if file.is_absolute() else f"./{file}"
