"""`plmctl report`: one page on runs side by side, finished or not, or on a study; and a model
card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.config.plugins import confirm, named
from plmctl.core.errors import DataError, UsageError
from plmctl.core.members import find_members
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import remark
from plmctl.report import panels, study_panels
from plmctl.report.card import make_card
from plmctl.report.figures import check_figures, write_figures
from plmctl.report.page import Block, Heading, list_pages, refuse_foreign, write_html, write_page
from plmctl.report.panel import Panel
from plmctl.report.subject import ReportedRun, Subject, Wishes, find_subject
from plmctl.storage.atomic import is_stream, write_text
from plmctl.storage.earlier import keep_earlier
from plmctl.storage.gate import admit

SUFFIXES = (".html", ".md")


def load_panels(subject: Subject) -> list[Panel[Any]]:
    """The panels of runs or of a study, with those of its plug-ins, in the order of the page."""
    home = study_panels if subject.study else panels
    found = find_members(home, subject.plugins, lambda value: isinstance(value, Panel))
    shown = (panel for panel in found if panel.brief or not subject.brief)
    return sorted(shown, key=lambda panel: panel.order)


def make_blocks(subject: Subject) -> list[Block]:
    """The title of the page and the blocks of all panels."""
    return [
        Heading(subject.title, 1),
        *(block for panel in load_panels(subject) for block in panel(subject)),
    ]


def write_report(
    subject: Subject, out: Path, *, markdown: bool = False, figures: Path | None = None
) -> list[Path]:
    """Write one self-contained `.html` file; with `markdown`, or if `out` is a `.md` file, also the
    page in Markdown; with `figures`, also its pictures and tables into this folder.
    """
    page = make_blocks(subject)
    drawn = write_figures(page, figures) if figures else []
    if markdown or out.suffix == ".md":
        return [*write_page(page, out.with_suffix(".md"), about=subject.key), *drawn]
    return [write_html(page, out, about=subject.key), *drawn]


def write(
    folders: Sequence[Path],
    out: Path,
    *,
    markdown: bool = False,
    brief: bool = False,
    figures: Path | None = None,
    wishes: Wishes | None = None,
    card: Path | None = None,
    facts: Mapping[str, str] | None = None,
    plugins: Sequence[str] = (),
) -> list[Path]:
    """Write the page, and the model card if `card` is given; return the files.

    Args:
        folders: Runs, or one study.
        out: An .html file, or a .md file, which comes with an .html file.
        markdown: Also the .md file.
        brief: Only the panels of a page of one sheet.
        figures: A folder for the pictures and tables as files of their own.
        card: The file of the model card of the one run.
        facts: Facts of the card that the run does not know.
    """
    _check_files(out, markdown, card, facts or {})
    if figures:
        check_figures(figures)
    subject = replace(find_subject(folders, wishes, plugins), brief=brief)
    _check_subject(subject, card)
    for each in subject.runs:
        _remark_on_plugins(each)
    try:
        written = write_report(subject, out, markdown=markdown, figures=figures)
        if card is not None:
            run = subject.runs[0]
            admit(card.parent).mkdir(parents=True, exist_ok=True)
            text = make_card(run.folder, run.log.config, facts, plugins=plugins)
            with keep_earlier(card, held="another card: it is", but=""):  # with edits by hand
                write_text(card, text)
            written.append(card)
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror or error}", file=error.filename or out
        ) from error
    return written


def _check_files(out: Path, markdown: bool, card: Path | None, facts: Mapping[str, str]) -> None:
    """Raise UsageError for a page with an unknown suffix, a card that would replace the page, or
    existing folders or foreign files at their paths.
    """
    for option, file, name in (("--out", out, "report.html"), ("--card", card, "README.md")):
        if file is not None and file.is_dir():
            problem = f"{option} {file}: is a folder, and a file is needed"
            raise UsageError(f"{problem}\n  fix: {option} {spell_word(str(file / name))}")
    if out.suffix not in SUFFIXES and not is_stream(out):
        allowed = f"a {' or a '.join(SUFFIXES)} file (--figures FOLDER: each picture as PDF)"
        name = out.stem if out.suffix[1:].isalpha() else out.name
        fix = f"--out {spell_word(str(out.with_name(f'{name}.html')))}"
        raise UsageError(f"--out {out}: {allowed}\n  fix: {fix}")
    if facts and card is None:
        raise UsageError("--fact: for a model card\n  fix: --card README.md")
    pages = list_pages(out, markdown=markdown)
    if card is not None and card.resolve() in [page.resolve() for page in pages]:
        other = card.with_name(f"{out.stem}-card.md")
        problem = f"--card {card}: the page itself is written there"
        raise UsageError(f"{problem}\n  fix: --card {spell_word(str(other))}")
    refuse_foreign(pages, "--out")
    if card is not None:
        refuse_foreign([card], "--card")


def _check_subject(subject: Subject, card: Path | None) -> None:
    """Raise UsageError for options that only runs have, or only one run."""
    if card is not None and len(subject.runs) != 1:
        raise UsageError("--card: of one run, not of several or of a study")
    wishes = subject.wishes
    options = {"--attention": wishes.heads, "--probe": wishes.probes, "--sensitivity": wishes.bits}
    options |= {"--word": wishes.words, "--keys": wishes.units}
    option = next((name for name, wished in options.items() if wished), "")
    if option and not subject.runs:
        raise UsageError(
            f"{option}: of runs, not of a study or of scores\n"
            f"  fix: plmctl report {spell_word(str(subject.folders[0]))}/jobs/<job>/run"
        )
    if option and subject.brief:
        raise UsageError(f"{option}: not of a page of one sheet\n  fix: leave out --brief")
    files = {f"--probe {name}": labels.file for name, labels in wishes.probes.items()}
    files |= {f"--word {word}": file for word, file in wishes.words.items()}
    for option, file in files.items():
        if not file.is_file():
            raise DataError("no such file", file=f"{option}={file}")


def _remark_on_plugins(run: ReportedRun) -> None:
    """Note the runs whose model needs code that may not be imported; their pages have no panels of
    the model.
    """
    from plmctl.artifacts.assemble import (
        NODES,  # brings torch, which a report on a study does not need
    )

    try:
        confirm(named([run.log.config.get(name) for name in NODES]), run.plugins, of=run.folder)
    except UsageError as error:
        remark(f"plmctl: without what is measured on its model: {error}")
