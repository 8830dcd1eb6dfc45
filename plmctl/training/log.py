"""The log of a run: metrics.jsonl (the reference), TensorBoard, trackers, and a progress bar or
plain lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plmctl.core.errors import PlmctlError, UsageError
from plmctl.core.progress import clock
from plmctl.core.terminal import REMARK, WARN, hears, remark, screen, visible
from plmctl.storage.durable import settle
from plmctl.storage.gate import admit, open_file
from plmctl.storage.reading import parse_json
from plmctl.training.meter import numbers_of
from plmctl.training.trackers.base import Tracker

METRICS = "metrics.jsonl"
LINES = 30  # on a terminal for a training, evaluations apart; the file has all
SHORT = {  # on the line
    "grad_norm": "grad",
    "data_wait": "wait",
    "bits_per_byte": "bits/byte",
    "unigram": "unigram",
    "bigram": "bigram",
    "constant": "one answer",
    "reached": "others reached",
}
HIDDEN = (
    "step",
    "tokens",
    "words",
    "triples",
    "seconds",
    "skipped",
    "share",
    "stage",
    "slowest_over",
)  # in the file, not on the line
ENDS = ("low", "high")  # the 95% interval of an accuracy
ACCURACIES = {"loss": "acc", "constant": "constant_acc"}  # behind their losses


class Log:
    """Writes records `{"step": ..., "loss/mlm": ...}`. A `Log()` without a folder only prints; a
    `quiet` one does not even print.

    Every process has one; all but the main process's are quiet and without a folder.

    Args:
        folder: The folder of the run.
        tensorboard: whether files for TensorBoard are written.
        quiet: whether nothing is shown.
        trackers: services that the numbers are sent to.
        settings: The settings of the run, for the trackers.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        tensorboard: bool = True,
        quiet: bool = False,
        trackers: Sequence[Tracker] = (),
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.folder, self.tensorboard, self.quiet = folder, tensorboard, quiet
        self.settings, self._waiting = settings, list(trackers)
        self._trackers: list[Tracker] = []  # trackers that have begun
        self._file: Any = None  # opened by the first record: `cut_back` may come before it
        self._board: Any = None
        self._display: Any = None
        self._shown_at = 0.0  # the share of the training at the last line
        self.valid = "valid"  # the name of an evaluation on held-out text
        self.is_percent: Callable[[str], bool] = lambda metric: False  # from 0 to 100

    def __enter__(self) -> Log:
        self._start_trackers()  # before the bar: a library may ask who is there
        if not self.quiet and sys.stderr.isatty() and hears():
            self._display = _Bar()
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None
        if self._board is not None:
            self._board.flush()

    def record(
        self,
        record: Mapping[str, Any],
        *,
        share: float | None = None,
        eta: float | None = None,
        spaced: bool = False,
    ) -> None:
        """Write one record of metrics, and show it.

        Args:
            record: The metrics.
            share: The share of the training that is done, for the display.
            eta: The seconds that are left, for the display.
            spaced: Whether no line is shown where the last one is less than `1 / LINES` of the
                training ago.
        """
        if self.folder is not None and self._file is None:
            self._file = open_file(self.folder / METRICS, "a")
            self._board = _board(self.folder) if self.tensorboard else None
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        if self._board is not None:
            _draw(self._board, record)
        self._track(record)
        if not self.quiet:
            line = format_line(
                record, share=share, eta=eta, valid=self.valid, is_percent=self.is_percent
            )
            if self._display is not None and share is not None:
                self._display.show(share, line)
            elif not spaced or share is None or share - self._shown_at >= 1 / LINES:
                self._shown_at = self._shown_at if share is None else share
                self.say(line)

    def note(self, record: Mapping[str, Any]) -> None:
        """Record an event, once: a run that goes on from before it meets it again."""
        path = self.folder and self.folder / METRICS
        if not (path and path.exists() and dict(record) in read_metrics(path)):
            self.record(record)

    def go_back(self, step: int) -> None:
        """Remove all records after `step`."""
        self._shown_at = 0.0
        if self.folder is None:
            return
        for file in filter(None, (self._file, self._board)):
            file.close()
        self._file = self._board = None
        cut_back(self.folder, step)

    def say(self, message: str, level: int = REMARK) -> None:
        """Show one line to the user."""
        if not self.quiet:  # a bar shows what is written to standard error above itself
            remark(message, level)

    def sync(self) -> None:
        """Write everything to the disk, before a checkpoint that relies on it."""
        if self._file is not None:
            settle(self._file)
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Close the files."""
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()
        for tracker in self._trackers:
            self._try(tracker, tracker.finish)
        self._trackers = []

    def _start_trackers(self) -> None:
        """Begin what is sent to services; UsageError where one refuses, before any work."""
        while self.folder is not None and self._waiting:
            tracker = self._waiting.pop(0)
            try:
                tracker.start(self.folder, self.settings)
            except PlmctlError:
                raise
            except Exception as error:  # whatever its library raises
                fix = f"install or set it, or leave {tracker.name} out"
                what = f"run.trackers: {tracker.name} does not begin: {error}"
                raise UsageError(f"{what}\n  fix: {fix}") from error
            self._trackers.append(tracker)

    def _track(self, record: Mapping[str, Any]) -> None:
        """Send a record to the trackers; what fails ends the tracker, and not the run."""
        if not self._trackers:
            return
        numbers = {name: value for name, value in numbers_of(record).items() if name != "step"}
        for tracker in list(self._trackers):
            self._try(tracker, partial(tracker.record, record["step"], numbers))

    def _try(self, tracker: Tracker, send: Callable[[], None]) -> None:
        try:
            send()
        except Exception as error:  # whatever its library raises
            self._trackers = [other for other in self._trackers if other is not tracker]
            lost = f"nothing more is sent to it, {METRICS} has all numbers"
            remark(f"{tracker.name} failed ({error}): {lost}", WARN)


class _Bar:
    """A rich progress bar: share done, and the newest metrics below it."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._progress = Progress(*columns, console=screen(stderr=True))
        self._task = self._progress.add_task("", total=1.0)
        self._progress.start()

    def show(self, share: float, line: str) -> None:
        """Show the share done, and a line of metrics."""
        self._progress.update(
            self._task, completed=share, description=visible(line).replace("  grad ", "\ngrad ", 1)
        )

    def stop(self) -> None:
        """Remove the bar."""
        self._progress.stop()


def format_line(
    record: Mapping[str, Any],
    *,
    share: float | None = None,
    eta: float | None = None,
    valid: str = "valid",
    is_percent: Callable[[str], bool] = lambda metric: False,
) -> str:
    """`step 200 12%  mlm 5.31 (18.2% of train)  grad 1.2  lr 0.001  12.3k tok/s  mfu 41%  wait 0%
    3:20 left`.

    A term's loss and its accuracy are together, of the rows that were trained on since the line
    before, or of those held out (`valid`); the sum of the losses is only in the file. Several
    processes have `slowest rank 3 +12%` behind the wait.
    """
    words = [f"step {record['step']}" + ("" if share is None else f" {share:.0%}")]
    held_out = any(name.startswith("valid/") for name in record)
    words += [valid] if held_out else []
    of = "" if held_out else " of train"  # the rows since the line before
    numbers = {
        name.removeprefix("valid/"): value for name, value in record.items() if name not in HIDDEN
    }
    for name, value in numbers.items():
        kind, _, term = name.rpartition("/")
        if (
            any(kind == of and f"{loss}/{term}" in numbers for loss, of in ACCURACIES.items())
            or (name == "loss" and any(n.startswith("loss/") for n in numbers))
            or kind in ENDS
        ):
            continue
        if name == "slowest_rank":
            words.append(f"slowest rank {value} {record['slowest_over']:+.0%}")
            continue
        accuracy = numbers.get(f"{ACCURACIES[kind]}/{term}") if kind in ACCURACIES else None
        alone = sum(other.startswith(f"{kind}/") for other in numbers) < 2
        words.append(
            _word(name, value, alone=alone)
            + ("%" if is_percent(name) else "")
            + ("" if accuracy is None else f" ({accuracy:.1%}{of})")
            + (_spell_ends(numbers, term) if kind == "acc" else "")
            + (_spell_bits(numbers, term, value) if kind == "unigram" else "")
        )
    return "  ".join(words + ([] if eta is None else [f"{clock(eta)} left"]))


def _spell_ends(numbers: Mapping[str, Any], term: str) -> str:
    """The ends of the interval of an accuracy that has one."""
    ends = [f"{numbers[name]:.1%}" for end in ENDS if (name := f"{end}/{term}") in numbers]
    return f" (95%: {' to '.join(ends)})" if ends else ""


def _spell_bits(numbers: Mapping[str, Any], term: str, unigram: float) -> str:
    """The loss of frequencies as bits per byte; tokenizers differ in it."""
    bits = numbers.get(f"bits_per_byte/{term}")
    loss = numbers.get(f"nll/{term}", numbers.get(f"loss/{term}"))
    return f" ({bits * unigram / loss:.3g} bits/byte)" if bits and loss else ""


def _word(name: str, value: Any, *, alone: bool = True) -> str:
    """One number in words; if several numbers of a kind have a short name, each also has its
    term.
    """
    kind, _, term = name.rpartition("/")
    if not isinstance(value, (int, float)):
        return f"{name} {value}"
    if kind == "loss":
        return f"{term} {value:.3f}"
    if name.endswith("_per_second"):
        unit = name.removesuffix("_per_second").replace("tokens", "tok")
        return f"{value / 1e3:.1f}k {unit}/s" if value >= 1e4 else f"{value:.0f} {unit}/s"
    if kind == "acc" or name in ("mfu", "data_wait"):
        return (
            f"{SHORT.get(name, name)} {value:.1%}"
            if kind
            else f"{SHORT.get(name, name)} {value:.0%}"
        )
    which = f" {term}" if kind in SHORT and not alone else ""
    return f"{SHORT.get(kind or name, name)}{which} {value:.3g}"


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line that was cut short, and whatever is not a record,
    is skipped.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                record = parse_json(line)
                if (
                    isinstance(record, dict)
                    and isinstance(record.get("step"), int)
                    and not isinstance(record["step"], bool)
                ):
                    yield record


def cut_back(folder: Path, step: int) -> None:
    """Remove what was logged after `step`: metrics.jsonl is rewritten in one move and TensorBoard
    drawn again from it.
    """
    path = folder / METRICS
    kept = [r for r in read_metrics(path) if r["step"] <= step] if path.exists() else []
    partial = path.with_suffix(".partial")
    with open_file(partial, "w") as file:
        file.writelines(json.dumps(record) + "\n" for record in kept)
        settle(file)
    os.replace(admit(partial), admit(path))
    events = list(folder.glob("events.out.tfevents.*"))
    for old in events:
        admit(old).unlink()
    if events and (board := _board(folder)) is not None:
        for record in kept:
            _draw(board, record)
        board.close()


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # tensorboard is not installed: metrics.jsonl has it all
        return None
    return SummaryWriter(str(admit(folder)))


def _draw(board: Any, record: Mapping[str, Any]) -> None:
    for name, value in numbers_of(record).items():
        if name != "step":
            board.add_scalar(name, value, record["step"])
