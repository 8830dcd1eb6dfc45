"""`plmctl report`: one page on runs side by side, finished or not, or on a study; and a model
card.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.core.errors import DataError, UsageError
from plmctl.core.terminal import remark, tell
from plmctl.report.build import write_report
from plmctl.report.card import make_card
from plmctl.report.options import parse_facts, parse_wishes
from plmctl.report.subject import ReportedRun, Subject, find_subject
from plmctl.run.plugins import confirm, named
from plmctl.storage.atomic import is_stream, write_text

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags

SUFFIXES = (".html", ".md")


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write the page, and the card where one is asked for, and print the files that were made."""
    out = Path(cfg.out)
    if out.suffix not in SUFFIXES and not is_stream(out):
        raise UsageError(f"--out {out}: a {' or a '.join(SUFFIXES)} file\n  fix: --out {out}.html")
    facts = parse_facts(cfg.facts)
    if facts and not cfg.card:
        raise UsageError("--fact: for a model card\n  fix: --card README.md before it")
    pages = (
        [out.with_suffix(suffix) for suffix in SUFFIXES]
        if cfg.markdown or out.suffix == ".md"
        else [out]
    )
    if cfg.card and Path(cfg.card).resolve() in [page.resolve() for page in pages]:
        other = Path(cfg.card).with_name(f"{out.stem}-card.md")
        raise UsageError(
            f"--card {cfg.card}: the page itself is written there\n  fix: --card {other}"
        )
    subject = find_subject(
        [Path(folder) for folder in cfg.runs],
        parse_wishes(cfg.heads, cfg.sentences, cfg.probes),
        flags.plugins,
    )
    if cfg.card and len(subject.runs) != 1:
        raise UsageError("--card: of one run, not of several or of a study")
    if subject.study and (subject.wishes.heads or subject.wishes.probes):
        asked = "--attention" if subject.wishes.heads else "--probe"
        raise UsageError(
            f"{asked}: of runs, not of a study\n  fix: plmctl report"
            f" {subject.study.folder}/jobs/<job>/run"
        )
    for each in subject.runs:
        _tell_plugins(each)
    try:
        written = write_report(subject, out, markdown=cfg.markdown)
        written += [_card(subject, Path(cfg.card), facts)] if cfg.card else []
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror or error}", file=error.filename or out
        ) from error
    tell("\n".join(str(file) for file in written))
    return 0


def _tell_plugins(run: ReportedRun) -> None:
    """Where a run's model is made with code that may not be imported, its page is made without
    it.
    """
    from plmctl.run.assemble import NODES  # brings torch, which a report on a study does not need

    try:
        confirm(named([run.log.config.get(name) for name in NODES]), run.plugins, of=run.folder)
    except UsageError as error:
        remark(f"plmctl: without what is measured on its model: {error}")


def _card(subject: Subject, file: Path, facts: Mapping[str, str]) -> Path:
    run = subject.runs[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, make_card(run.folder, run.log.config, facts))
    return file
