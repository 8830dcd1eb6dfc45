"""The files of a task: its splits, and a dev split that is held out of train."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.terminal import counted
from plmctl.tasks.readers import files
from plmctl.tasks.readers.holding import hold_out, take_fold
from plmctl.tasks.readers.tables import OPTIONAL
from plmctl.tasks.record import Example, Examples, Reader
from plmctl.tasks.scores.bundles import group_bundles, remark_alone
from plmctl.text.tabular import Row

DEV_SHARE = 0.1  # the share of a single labelled file


@dataclass(frozen=True)
class Splits:
    """The splits of a task, as its reader finds them in `task.path`.

    Args:
        path: A directory, a file, or the files of the splits.
        unit: The texts of an example that stay together where dev is held out of train.
        labels: The labels of an example that training must have seen to predict it.
        columns: Columns to read.
        dev_share: The share of the training examples that is dev where no file is; None:
            `DEV_SHARE` of a single file, otherwise none.
        test_share: The share of the training examples that is test where no file is; None: none.
            `dev_share` is then a share of the rest.
        folds: The parts of the training examples, one of which is dev; None: `dev_share` decides.
        fold: The number of the part that is dev, from 0.
        stratified: Whether all parts have the same share of each label.
        change: A change of the examples of a split or file after they are read.
        streams: Whether `change` leaves single unlabelled examples as they are.

    Raises:
        ConfigError: The share or the folds are impossible.
    """

    reader: Reader
    path: Any
    unit: Callable[[Example], str]
    labels: Callable[[Example], Sequence[str]]
    columns: Mapping[str, Any] = field(default_factory=dict)
    dev_share: float | None = None
    test_share: float | None = None
    folds: int | None = None
    fold: int = 0
    stratified: bool = False
    change: Callable[[list[Example]], list[Example]] = list
    streams: bool = True

    def __post_init__(self) -> None:
        share, folds, fold = self.dev_share, self.folds, self.fold
        for name, own in {"task.dev_share": share, "task.test_share": self.test_share}.items():
            if own is not None and not 0 <= own < 1:
                fix = f"{name}={DEV_SHARE}"
                raise ConfigError(name, own, "at least 0 and below 1", fix=fix)
        if folds is None:
            if fold:
                raise ConfigError("task.fold", fold, "of task.folds", fix="task.folds=5")
            return
        if folds < 2:
            raise ConfigError("task.folds", folds, "2 or more, or null", fix="task.folds=5")
        if not 0 <= fold < folds:
            allowed = f"from 0 to {folds - 1}, as task.folds={folds}"
            raise ConfigError("task.fold", fold, allowed, fix="task.fold=0")
        if share:
            allowed = f"without task.folds={folds}, which say what is dev"
            raise ConfigError("task.dev_share", share, allowed, fix="task.dev_share=null")

    def whole(self) -> Splits:
        """The splits as the files have them: nothing is held out of train."""
        return replace(self, dev_share=0, test_share=0)

    def name_columns(self, keys: Collection[str]) -> None:
        """Have all files refused that lack a column which a user names.

        Args:
            keys: The settings that the user wrote: "task.columns.id".
        """
        reader: Any = self.reader
        reader.named = OPTIONAL & {key.removeprefix("task.columns.") for key in keys}

    def has(self, split: str) -> bool:
        """Whether `path` has a file of that split, or one to hold dev out of."""
        if split != "train" and split in self.divided:
            return bool(self._parts[split])
        return not (split.startswith("dev") and files.is_single(self.path)) and self.has_file(split)

    def has_file(self, split: str) -> bool:
        """Whether `path` has a file of that split."""
        return self.reader.has(self.path, split, self.columns)

    @property
    def names_bundles(self) -> bool:
        """Whether a column says what a bundle is. Readers that number bundles themselves begin
        anew in each file.
        """
        return self.columns.get("bundle") is not None

    @property
    def devs(self) -> list[str]:
        """The existing splits for validation."""
        return [name for name in self.reader.splits if name.startswith("dev") and self.has(name)]

    @property
    def held_share(self) -> float:
        """The share of the training examples that is dev; 0 where dev has a file of its own."""
        if self.folds:
            return 0.0 if self.dev_share == 0 else 1 / self.folds
        if files.is_single(self.path):
            return DEV_SHARE if self.dev_share is None else self.dev_share
        return self.dev_share if self.dev_share and not self.has_file("dev") else 0.0

    @property
    def tested_share(self) -> float:
        """The share of the training examples that is test; 0 where test has a file of its own."""
        own_file = not files.is_single(self.path) and self.has_file("test")
        return 0.0 if own_file else self.test_share or 0.0

    @property
    def divided(self) -> dict[str, float]:
        """The parts of the training examples that are splits, with their shares; none where all
        splits are files.
        """
        held = {"dev": self.held_share, "test": self.tested_share}
        held = {name: share for name, share in held.items() if share}
        return held and {"train": 1.0, **held}

    def describe_share(self, name: str, sizes: Mapping[str, int], *, how: str = "") -> str:
        """A part in percent of all, and its setting: `9.0% of 1,000 (task.dev_share=0.1 of the 900
        without test)`.

        Args:
            name: The part.
            sizes: The examples of each part.
            how: The setting of dev; empty: `task.dev_share`.
        """
        whole = sum(sizes.values())
        if name not in ("dev", "test"):
            return f"{sizes[name] / whole:.1%} of {whole:,}"
        setting = how or f"task.{name}_share={self.divided[name]:g}"
        rest = whole - sizes.get("test", 0)
        if name == "dev" and rest < whole:
            setting = f"{setting} of the {rest:,} without test"
        return f"{sizes[name] / whole:.1%} of {whole:,} ({setting})"

    @cached_property
    def _parts(self) -> dict[str, list[Example]]:
        return self.divide(self.reader.read(self.path, "train", self.columns))

    def divide(self, train: Examples, *, balanced: bool = False) -> dict[str, list[Example]]:
        """The parts of the training examples: train, dev and test.

        Args:
            balanced: Whether dev and test have the same share of each label, as with `stratified`.
                Runs hold their dev out without it, so that those of older versions find the same
                one.
        """
        one: Any = {"unit": self.unit, "labels": self.labels}
        how: Any = {**one, "balanced": balanced or self.stratified}
        if self.stratified and not any(self.labels(example) for example in train):
            allowed = "false: no example of this task has a label"
            raise ConfigError("task.stratified", True, allowed, fix="task.stratified=false")
        test: list[Example] = []
        dev: list[Example] = []
        if self.tested_share:
            train, test = hold_out(train, self.tested_share, **how)
        if self.folds and self.held_share:
            train, dev = take_fold(train, self.fold, self.folds, **one, stratified=self.stratified)
        elif self.held_share:
            train, dev = hold_out(train, self.held_share, **how)
        return {"train": [*train], "dev": dev, "test": test}

    def read(self, split: str) -> list[Example]:
        """The examples of a split; ConfigError for a name that is no split, DataError where none
        can be held out as dev.
        """
        known = [*self.reader.splits, *(self.path if isinstance(self.path, Mapping) else ())]
        if split not in known:
            raise ConfigError("split", split, f"one of {', '.join(known)}{nearest(split, known)}")
        if split in self.divided:
            held = self._parts[split]
            if not held:
                part, share = next((n, s) for n, s in self.divided.items() if n in (split, "dev"))
                what = f"no examples of {split} are left by a {part} share of {share:.3g}"
                fix = f"split=train, or a larger task.{part}_share"
                raise DataError(f"{what}: equal texts stay together", file=self.path, fix=fix)
            return self.change(held)
        return self.change(self.reader.read(self.path, split, self.columns))

    def read_file(
        self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True
    ) -> list[Example]:
        """The examples of a file that is no split."""
        return self.change(self.reader.read_file(file, columns, labelled=labelled))

    def stream_file(self, file: Path, columns: Mapping[str, Any]) -> Iterator[Example] | None:
        """The unlabelled examples of a file that is no split, each when it is read; None where its
        reader, or the task, needs the whole file.
        """
        reader: Any = self._streaming
        return None if reader is None else reader.stream_file(file, columns, labelled=False)

    def stream_objects(
        self, rows: Iterable[Row], source: Path, columns: Mapping[str, Any]
    ) -> Iterator[Example] | None:
        """The examples of rows of JSON, as `stream_file` has those of a file."""
        reader: Any = self._streaming
        known = {role: column for role, column in columns.items() if column is not None}
        return reader and reader.read_objects(rows, source, known, labelled=False)

    @property
    def _streaming(self) -> Reader | None:
        """The reader, where it and the task read one row after another."""
        reads = self.streams and vars(type(self.reader)).get("streams", False)
        return self.reader if reads else None


def describe_bundles(train: Examples, other: Examples, name: str = "dev") -> str:
    """A sentence on the bundles of train, of another split, and of both; "" without any."""
    several = [*train, *other]
    if not any(example.bundle for example in several):
        return ""
    both = count_common_bundles(train, other)
    line = (
        f"{counted(count_units(train), 'bundle')} in train, {count_units(other):,} in {name},"
        f" {f'{both:,}' if both else 'none'} in both"
    )
    alone = remark_alone([{"bundle": example.bundle} for example in several])
    return "; ".join(filter(None, (line, alone)))


def count_units(examples: Examples) -> int:
    """The number of bundles; an example without one counts as one."""
    return len(group_bundles([{"bundle": example.bundle} for example in examples]))


def count_common_bundles(train: Examples, other: Examples) -> int:
    """The number of named bundles that both have."""
    named = [{example.bundle for example in own} - {""} for own in (train, other)]
    return len(named[0] & named[1])
