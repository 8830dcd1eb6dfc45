"""The whole main job on the text that ships with Python: `make demo`, or `python -m
plmctl.cli.demo FOLDER`.

Tokenize, pretrain a tiny BERT, fine-tune it on a labelled task from the same source, evaluate,
write a report: each step is the public command, printed before it runs, so that a reader can repeat
any of them. Exit code 1 if a claim is not met.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plmctl.core.children import child_environment
from plmctl.core.errors import PlmctlError, UsageError
from plmctl.core.terminal import remark, tell
from plmctl.data.baseline import measure_unigram_baseline
from plmctl.data.shards import Shards
from plmctl.report.chart import Curve, draw_lines
from plmctl.report.page import Block, Chart, Code, Heading, Paragraph, TableBlock, write_page
from plmctl.report.runs import RunLog
from plmctl.text.corpus import write_task
from plmctl.text.tokenizer import Tokenizer

MARK = ".plmctl-demo"  # in folders that the demo made and may therefore empty
UPDATES = 2400  # of pretraining
TUNING = (
    "finetune task=classification task.path={folder}/task train.batch_size=32 train.epochs=10"
    " optim.lr=5e-4 train.eval_every=0 train.save_every=0"
)
COMMANDS = (
    "tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out={folder}/tokens",
    "pretrain bert size=tiny data.path={folder}/tokens train.steps={updates} train.batch_size=16"
    " optim.lr=5e-4 schedule.warmup_steps=150 run.dir={folder}/pretrain",
    f"{TUNING} checkpoint={{folder}}/pretrain run.dir={{folder}}/finetune",
    f"{TUNING} checkpoint=null tokenizer.path={{folder}}/tokens size=tiny"
    " run.dir={folder}/scratch",
    "eval checkpoint={folder}/finetune",
)
WITHOUT = "the same model without pretraining, accuracy"
LITTLE_TEXT = (
    "The last line is information, not a claim: 2 MB of text are too little to promise that"
    " pretraining helps. What would help is a hundred times as much text (a Wikipedia extract,"
    " say), a larger model (size=mini) and an hour or more of training."
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
    updates of pretraining.
    """
    folder = Path(arguments[0] if arguments else "demo")
    updates = int(arguments[1]) if len(arguments) > 1 else UPDATES
    start = time.perf_counter()
    try:
        prepare(folder)
        write_task(folder / "task")
        done = [run(line, folder, updates) for line in COMMANDS]
        pretrained, tuned, scratch = (
            RunLog.read(folder / name) for name in ("pretrain", "finetune", "scratch")
        )
        claims = [*masked_claims(folder / "tokens", pretrained), task_claim(folder / "task", tuned)]
        without = accuracy(scratch)
        write_page(blocks(folder, done, pretrained, claims, without), folder / "report.md")
    except PlmctlError as error:
        remark(error)
        return error.exit_code
    tell(f"\nWhat this proves ({time.perf_counter() - start:.0f} s in all):")
    for claim in claims:
        tell("  {:48} {:>7}   must beat {:40} {}".format(*claim.cells))
    tell(f"  {WITHOUT:48} {without:>7.3f}\n\n{LITTLE_TEXT}\n\nReport: {folder / 'report.md'}")
    tell("Try next:\n" + "\n".join(f"  {line}" for line in next_commands(folder)))
    return 0 if all(claim.holds for claim in claims) else 1


def run(line: str, folder: Path, updates: int) -> list[str]:
    """Run one of the commands and let it talk; an unsuccessful one ends the demo with its exit
    code. Returns its seconds and its line, for a table.
    """
    words = [word.format(folder=folder, updates=updates) for word in line.split()]
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
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def masked_claims(tokens: Path, log: RunLog) -> list[Claim]:
    """Loss and accuracy on hidden validation tokens against knowing only how frequent each token
    is.
    """
    vocab = Tokenizer.load(tokens / "tokenizer").vocab
    train, valid = (Shards.open(tokens, split=split) for split in ("train", "valid"))
    known = measure_unigram_baseline(train.ids, valid.ids, ignored=vocab.special)
    entropy, frequent = known.unigram_loss, known.frequent_accuracy
    loss, right = last(log, "valid/loss/mlm"), last(log, "valid/acc/mlm")
    return [
        Claim("masked-LM loss, nats per hidden token", loss, entropy, "unigram entropy", -0.05),
        Claim("masked-LM accuracy", right, frequent, "most frequent token", 0.01),
    ]


def task_claim(task: Path, log: RunLog) -> Claim:
    """Accuracy on modules never seen in training against always answering the package that is
    most frequent among them.
    """
    rows = (task / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    labels = [row.split("\t")[1] for row in rows]
    majority = Counter(labels).most_common(1)[0][1] / len(labels)
    what = f"which of {len(set(labels))} packages, accuracy"
    return Claim(what, accuracy(log), majority, "majority class", 0.05)


def accuracy(log: RunLog) -> float:
    """The last accuracy on dev."""
    return last(log, "valid/accuracy")


def last(log: RunLog, name: str) -> float:
    """The last value of a metric; PlmctlError where it was never logged."""
    value = log.last(name)
    if value is None:
        known = ", ".join(sorted(log.series))
        raise PlmctlError(f"{log.folder / 'metrics.jsonl'} has no '{name}'; it has {known}")
    return value


def next_commands(folder: Path) -> list[str]:
    """Three things to try with what the demo left behind."""
    program = shlex.quote(_program())
    resume = f"pretrain --resume run.dir={folder / 'pretrain'} train.steps=5000"
    return [
        f"{program} {resume}    # go on where the demo stopped",
        f"{program} convert {folder / 'finetune'} {folder / 'hf'} --to hf    # for transformers",
        f"{program} pretrain roberta size=mini train.minutes=60    # on your text: and data.path=",
    ]


def blocks(
    folder: Path, done: Sequence[list[str]], log: RunLog, claims: Sequence[Claim], without: float
) -> list[Block]:
    """The report page.

    Args:
        folder: of the demo.
        done: [seconds, line] of each command.
        log: of pretraining.
        claims: what the demo proves; the first is of the masked-LM loss.
        without: the accuracy of the model that was not pretrained.
    """
    curves: dict[str, Curve] = {
        name: log.series[name] for name in ("loss/mlm", "valid/loss/mlm") if name in log.series
    }
    marks = {claims[0].floor_name: claims[0].floor}
    svg = draw_lines(curves, title="Masked-LM loss, nats", x="update", y="loss", marks=marks)
    rows = [*(claim.cells for claim in claims), [WITHOUT, f"{without:.3f}", "", ""]]
    return [
        Heading("plmctl demo", 1),
        Paragraph(
            "A tiny BERT, pretrained on the documentation that ships with Python, then fine-tuned"
            " to tell from which package of the standard library a docstring comes. It is tested on"
            " modules that were not among its labelled examples (their text, without labels, was"
            " part of the pretraining text)."
        ),
        Heading("What it proves"),
        TableBlock(["measure", "value", "must beat", "holds"], rows),
        Paragraph(LITTLE_TEXT),
        Heading("Pretraining"),
        Chart("loss", svg),
        Heading("The commands"),
        TableBlock(["seconds", "command"], done),
        Heading("Try next"),
        Code("\n".join(next_commands(folder))),
        Heading("Settings of the pretraining run"),
        Code(json.dumps(log.config, indent=1, ensure_ascii=False)),
    ]


def _program() -> str:
    """How a reader calls plmctl from here: by name if it is on the path, else by the script
    beside this interpreter.
    """
    script, named = Path(sys.executable).with_name("plmctl"), shutil.which("plmctl")
    if not script.exists() or (named and os.path.samefile(named, script)):
        return "plmctl"
    return os.path.relpath(script)
