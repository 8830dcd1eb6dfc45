"""The whole main job on the text that comes with Python and torch: `make demo`, or `python -m
plmctl.cli.demo FOLDER`.

Write the text, tokenize it and pretrain a small modern encoder for two minutes. Compare it on a few
labels with the same model from first weights, over several seeds. Each step is the public command,
printed before it runs, so that a reader can repeat any of them. Exit code 1 if a claim is not met.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import Run, RunLog, read_curve
from plmctl.core.children import child_environment
from plmctl.core.errors import PlmctlError, UsageError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark, tell
from plmctl.report.charts import draw_lines, draw_means
from plmctl.report.page import Block, Chart, Code, Heading, Paragraph, TableBlock, write_page
from plmctl.report.studies import StudyFolder
from plmctl.storage.gate import admit, own
from plmctl.text.installed import write_installed, write_package_task

MARK = ".plmctl-demo"  # in folders that the demo made and may therefore empty
MINUTES = 2.0  # minutes of pretraining
COMMANDS = (
    "tokenize data.path={folder}/text.txt tokenizer=wordpiece tokenizer.vocab_size=4096"
    " out={folder}/tokens",
    "pretrain modern_encoder size=tiny data.path={folder}/tokens train.minutes={minutes:g}"
    " run.dir={folder}/pretrain",
    "ablate few_labels data.path={folder}/tokens"
    " arms.pretrained.checkpoint={folder}/pretrain finetune.tasks.labels.path={folder}/task"
    " out={folder}/few_labels processes=2",
)
ABOUT = (
    "A small modern encoder, pretrained for two minutes on the docstrings that come with Python and"
    " torch. It is then tuned on forty labelled paragraphs, to name the package of a paragraph, one"
    " of four. It is tested on modules that were not among its labelled examples (their text,"
    " without labels, was part of the pretraining text)."
)


@dataclass(frozen=True)
class Claim:
    """One thing that the demo proves: `value` is better than `floor` by `margin`, by more than
    rounding and luck.
    """

    what: str
    value: float
    floor: float
    floor_name: str
    margin: float  # above the floor, or, if negative, below it

    @property
    def holds(self) -> bool:
        """Whether the value is as much better as it has to be."""
        goal = self.floor + self.margin
        return self.value >= goal if self.margin > 0 else self.value <= goal

    @property
    def cells(self) -> list[str]:
        """The claim as a row of a table."""
        floor, holds = f"{self.floor:.3f} ({self.floor_name})", "yes" if self.holds else "NO"
        return [self.what, f"{self.value:.3f}", floor, holds]


def main(arguments: Sequence[str]) -> int:
    """Fill the folder named on the command line (default: demo); a second argument sets the
    minutes of pretraining.
    """
    folder = Path(arguments[0] if arguments else "demo")
    minutes = float(arguments[1]) if len(arguments) > 1 else MINUTES
    start = time.perf_counter()
    try:
        prepare(folder)
        tell("Reading the docstrings of the installed packages ...")
        size = write_installed(folder / "text.txt")
        tell(f"{folder / 'text.txt'}: {size / 1e6:.1f} M characters")
        write_package_task(folder / "task")
        done = [run(line, folder, minutes) for line in COMMANDS]
        pretrained = RunLog.read(folder / "pretrain")
        study = StudyFolder.read(folder / "few_labels")
        claims = [masked_claim(pretrained), task_claim(study.table or {})]
        write_page(blocks(folder, done, pretrained, study, claims), folder / "report.md")
    except PlmctlError as error:
        remark(error)
        return error.exit_code
    tell(f"\nThis proves ({time.perf_counter() - start:.0f} s in all):")
    for claim in claims:
        tell("  {:52} {:>7}   must beat {:36} {}".format(*claim.cells))
    tell(f"\nReport: {folder / 'report.md'}")
    tell("Try next:\n" + "\n".join(f"  {line}" for line in next_commands(folder)))
    return 0 if all(claim.holds for claim in claims) else 1


def run(line: str, folder: Path, minutes: float) -> list[str]:
    """Run one of the commands and let it talk; an unsuccessful one ends the demo with its exit
    code. Returns its seconds and its line, for a table.
    """
    words = [word.format(folder=folder, minutes=minutes) for word in line.split()]
    typed = shlex.join([_program(), *words])
    tell(f"\n$ {typed}")
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "plmctl", *words], env={**os.environ, **child_environment()}
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return [f"{time.perf_counter() - start:.0f}", f"`{typed}`"]


def prepare(folder: Path) -> None:
    """An empty folder: new, or one that an earlier demo filled; anything else is left alone."""
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        fix = "python -m plmctl.cli.demo <another folder>"
        raise UsageError(f"{folder} is not empty and not from an earlier demo\n  fix: {fix}")
    if folder.exists():
        shutil.rmtree(admit(folder))
    admit(own(folder)).mkdir(parents=True)
    admit(folder / MARK).touch()


def masked_claim(log: RunLog) -> Claim:
    """The loss on hidden validation tokens against counting how often each token stands behind
    which.
    """
    loss, pairs = last(log, "valid/loss/mlm"), last(log, "valid/bigram/mlm")
    return Claim(
        "masked-LM loss, nats per hidden token", loss, pairs, "frequencies of pairs", -0.05
    )


def task_claim(table: Mapping[str, Any]) -> Claim:
    """The gain in accuracy by pretraining: the lower end of its 95% interval over seeds."""
    rows = [row for row in table.get("rows", ()) if row["low"] is not None]
    if not rows:
        raise PlmctlError("no seed of the comparison came to its end; the lines above say why")
    row = rows[0]
    what = f"accuracy that pretraining adds: {row['difference']:+.3f}, at least"
    return Claim(what, row["low"], 0.0, "nothing, with 95% confidence", 1e-9)


def last(log: RunLog, name: str) -> float:
    """The last value of a metric; PlmctlError where it was never logged."""
    value = log.last(name)
    if value is None:
        known = ", ".join(sorted(log.series))
        raise PlmctlError(f"{log.folder / 'metrics.jsonl'} has no '{name}'; it has {known}")
    return value


def next_commands(folder: Path) -> list[str]:
    """Three commands to try with the results of the demo."""
    program = shlex.quote(_program())
    run = spell_setting("run.dir", folder / "pretrain")
    resume = f"pretrain --resume {run} train.minutes=10"
    return [
        f"{program} {resume}    # go on where the demo stopped",
        f"{program} report {folder / 'few_labels'}    # all of the comparison, as a page",
        f"{program} pretrain modern_encoder train.minutes=10    # on your text: and data.path=",
    ]


def blocks(
    folder: Path,
    done: Sequence[list[str]],
    log: RunLog,
    study: StudyFolder,
    claims: Sequence[Claim],
) -> list[Block]:
    """The report page.

    Args:
        done: [seconds, line] of each command.
        log: The log of pretraining.
        study: pretrained and from first weights.
        claims: The claims that the demo checks.
    """
    names = ("loss/mlm", "valid/loss/mlm")
    curves = {name: log.series[name] for name in names if name in log.series}
    marks = {
        f"frequencies of {what}": last(log, f"valid/{kind}/mlm")
        for what, kind in (("tokens", "unigram"), ("pairs", "bigram"))
    }
    losses = draw_lines(curves, title="Masked-LM loss, nats", x="update", y="loss", marks=marks)
    tuning = tuning_curves(study)
    title = describe_tuning(tuning, seeds=len(study.settings["seeds"]))
    scores = draw_means(tuning, title=title, x="update", y="accuracy")
    rows = [claim.cells for claim in claims]
    return [
        Heading("plmctl demo", 1),
        Paragraph(ABOUT),
        Heading("Claims"),
        TableBlock(["measure", "value", "must beat", "holds"], rows),
        Heading("Pretraining"),
        Chart("loss", losses),
        Heading("Few labels"),
        Chart("accuracy", scores),
        Heading("The commands"),
        TableBlock(["seconds", "command"], done),
        Heading("Try next"),
        Code("\n".join(next_commands(folder))),
        Heading("Settings of the pretraining run"),
        Code(json.dumps(log.config, indent=1, ensure_ascii=False)),
    ]


def tuning_curves(study: StudyFolder) -> dict[str, list[Run]]:
    """{arm: the accuracy on dev over the updates, of each seed and learning rate}."""
    curves: dict[str, list[Run]] = {}
    for job in study.jobs:
        if job.verb == "finetune" and job.arm:
            curve = read_curve(job.log, "valid/accuracy", "steps", 1.0)
            curves.setdefault(job.arm, []).append(curve)
    return curves


def describe_tuning(curves: Mapping[str, Sequence[Run]], *, seeds: int) -> str:
    """The title over the curves of the arms, each of which has been tuned with every seed at every
    learning rate of the study.
    """
    rates = max(map(len, curves.values()), default=0) // seeds
    return f"Accuracy on dev: {seeds} seeds at {rates} learning rates, mean and range"


def _program() -> str:
    """The program's name if it is on the path, else the path of the script next to this
    interpreter.
    """
    script, named = Path(sys.executable).with_name("plmctl"), shutil.which("plmctl")
    if not script.exists() or (named and os.path.samefile(named, script)):
        return "plmctl"
    return os.path.relpath(script)
