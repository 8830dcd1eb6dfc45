"""`plmctl data check`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plmctl.cli.former import warn_of_former
from plmctl.config.asked import find_ids, is_asked
from plmctl.config.build import build, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data
from plmctl.config.schema import TaskUser
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError
from plmctl.core.progress import Say
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark, tell
from plmctl.storage.atomic import is_stream

if TYPE_CHECKING:
    from plmctl.data.check.finding import Report
    from plmctl.data.formats.base import Format
    from plmctl.text.vocab import Vocab

Out = Annotated[str | None, typer.Option("--out", metavar="FILE", hidden=True)]


def choose_setting(words: Sequence[str]) -> str:
    """The setting that a path stands for: the files of a task where one is named."""
    return "task.path" if any(word.startswith("task=") for word in words) else "data.path"


@dataclass(frozen=True)
class Check(TaskUser, Command):
    """Check text, tokens or labelled files before a long run.

    PATH is text or a token directory, or with task=<name> the files of a task.
    """

    about = About(
        "data check",
        place=20,
        examples=(
            "plmctl data check tokens format=blocks format.max_length=64",
            "plmctl data check README.md tokenizer.path=tokens out=checked.md",
        ),
        bare=choose_setting,
        metavar="PATH",
        options="json print_config config_dir plugin",
        own_options=(("out", Out, None),),
        slots="task format",
    )

    data: Data = Data()
    tokenizer: Any = None
    format: Any = None
    task: Any = None
    out: str | None = None  # a .md or .html page, what --out sets

    @classmethod
    def read(cls, given: Provenance, out: str | None = None, **options: Any) -> Provenance:
        """Take --out, the former spelling of a setting."""
        if out is None:
            return given
        warn_of_former("--out", spell_setting("out", out))
        return replace(given, overrides=(*given.overrides, f"out={out}"))

    def perform(self) -> Result:
        """Check the files, show the findings, and write the page if `out` is given; findings do
        not change the exit code.
        """
        from plmctl.inputs.tokenize import show_progress
        from plmctl.report.data_check import make_lines, write
        from plmctl.report.page import list_pages, refuse_foreign

        out = Path(self.out) if self.out else None
        if out and out.suffix not in (".md", ".html") and not is_stream(out):
            raise UsageError(f"--out {self.out}: a .md or a .html file")
        if out:
            refuse_foreign(list_pages(out), "--out")
        with show_progress() as say:
            report = self._check_text(say) if self.task is None else self._check_task()
        if self.provenance.json:
            tell(json.dumps(report.as_json(), ensure_ascii=False))
        else:
            tell("\n".join(make_lines(report)))
        if out:
            remark("\n".join(map(str, write(report, out))))
        return 0

    def _check_task(self) -> Report:
        from plmctl.tasks.check import check_task
        from plmctl.tasks.task import as_task
        from plmctl.text.tokenizer import Tokenizer

        task = as_task(build(self.task, {"pooling": "first"}, self.plugins, path="task"))
        if task is None:
            name = self.task.get("name") or self.task["_target_"]
            raise UsageError(f"task={name} has no labelled files to check")
        task.splits.name_columns(find_ids(self.provenance))
        path = self.tokenizer.get("path")
        return check_task(task, Tokenizer.load(path) if path else None)

    def _check_text(self, say: Say) -> Report:
        from plmctl.data.check.finding import Finding
        from plmctl.data.shards import is_tokens
        from plmctl.datasets.data_check import check_sample, check_text, check_tokens
        from plmctl.inputs.labelled_files import describe_labels
        from plmctl.inputs.tokenize import find_sources
        from plmctl.text import segment

        path: Any = plain(self.data.path)
        if is_tokens(path):
            return check_tokens(path, self._make_format, say=say)
        source, held = find_sources(plain(self.data), path)
        labels = describe_labels(path, self.provenance.config_dirs)
        words = self.data.segment
        segmenter = segment.find(words, self.plugins) if words is not None else None
        report = check_text(source, held, segmenter=segmenter, labels=labels, say=say)
        # no tokenizer is trained unasked
        if any(key.startswith("tokenizer") for key in self.provenance.keys):
            recipe = build(self.tokenizer, plugins=self.plugins, path="tokenizer")
            at_most = not is_asked(self.provenance, "tokenizer.vocab_size")
            how: Any = {"segment": words, "at_most": at_most, "say": say}
            report.findings.extend(check_sample(source, recipe, self._make_format, **how))
        else:
            hint = "not looked at: tokenizer.path=<folder> shows how a tokenizer fits"
            report.findings.append(Finding("tokens", "ok", hint))
        return report

    def _make_format(self, vocab: Vocab) -> Format:
        """The rows of the setting `format`, for the tokens of a vocabulary."""
        rows: Format = build(self.format, {"vocab": vocab}, self.plugins, path="format")
        return rows
