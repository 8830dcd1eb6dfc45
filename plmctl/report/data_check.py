"""`plmctl data check`: checks of text, tokens or labelled files before a long run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.core.errors import UsageError
from plmctl.core.terminal import remark, tell
from plmctl.datasets.data_check import check_files
from plmctl.inputs.tokenize import show_progress
from plmctl.report import checked
from plmctl.report.checked import make_lines
from plmctl.report.page import list_pages, refuse_foreign
from plmctl.storage.atomic import is_stream

if TYPE_CHECKING:
    from plmctl.config.schema import Check


def check(spec: Check) -> int:
    """Check the files, show the findings, and write the page if `out` is given; findings do not
    change the exit code.
    """
    if spec.out and Path(spec.out).suffix not in (".md", ".html") and not is_stream(Path(spec.out)):
        raise UsageError(f"--out {spec.out}: a .md or a .html file")
    if spec.out:
        refuse_foreign(list_pages(Path(spec.out)), "--out")
    with show_progress() as say:
        report = check_files(spec, say)
    tell(
        json.dumps(report.as_json(), ensure_ascii=False)
        if spec.provenance.json
        else "\n".join(make_lines(report))
    )
    if spec.out:
        remark("\n".join(map(str, checked.write(report, Path(spec.out)))))
    return 0
