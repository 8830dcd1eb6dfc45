"""Text that many processes tokenize, each a part of it. A last step joins the parts to the bytes
that one process writes.

<out>.parts/<hash of the job>/
    survey-3/      the documents of part 3, as counted
    tokenizer/     that of all parts
    part-3/        the arrays of part 3, and part.json

Each folder appears when it is complete, and all in it follows from the text and the settings. So
it does not matter which process, on which machine, writes it, or whether two do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import DataError, list_some
from plmctl.core.machine import name_machine
from plmctl.data.dividing import divide
from plmctl.data.joining import DamagedPart, is_sound, join_arrays
from plmctl.data.shards import KEY, SPLITS, VERSION, read_manifest
from plmctl.data.survey import Survey, check_share, count_documents, survey_tallies
from plmctl.data.tallies import has_tallies, load_tally, save_tallies
from plmctl.data.tokenizing import (
    TokenizingJob,
    choose_training_texts,
    encode_arrays,
    finish_tokens,
    learn_tokenizer,
    refuse_folder,
)
from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit, own
from plmctl.storage.journal import Journal, open_journal
from plmctl.storage.reading import parse_json
from plmctl.text.letters import LOOKED
from plmctl.text.tokenizer import META, Tokenizer

RECORD = "part.json"
_OURS = re.compile(r"(survey-\d+|part-\d+|tokenizer)|\.(survey-\d+|part-\d+|tokenizer)\..*partial")
Spell = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Parts:
    """The parts of a job, and the folder in which they meet.

    Args:
        job: The whole job.
        out: The token directory to be.
        spell: Spells the command that tokenizes some parts.
    """

    job: TokenizingJob
    out: Path
    count: int
    spell: Spell

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the tokens, on whatever machine the text lies."""
        sources = [source for source in (self.job.source, self.job.valid) if source]
        path = self.job.recipe.path
        return {
            "version": VERSION,
            "text": [source.outline() for source in sources],
            "settings": self.job.settings(),
            "tokenizer": Tokenizer.load(path).fingerprint if path else None,
            "parts": self.count,
        }

    @cached_property
    def home(self) -> Path:
        """The folder of all parts of this job."""
        key = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]
        return own(self.out.with_name(f"{self.out.name}.parts"), ours=True) / key

    def write(self, part: int) -> None:
        """Write a part that does not exist yet, after the surveys and the tokenizer that no process
        has written.
        """
        check_share(self.job.valid_share)
        place = self.home / f"part-{part}"
        if (record := self._read(part)) is not None:
            if is_sound(place, record["splits"]):
                self.job.tell(f"part {part} of {self.count} is there")
                return
            self.job.tell(f"part {part} of {self.count} is damaged; it is made again")
            shutil.rmtree(admit(place))
        self._count_all(part)
        tokenizer = self._make_tokenizer()
        named = {"part": part, **self.identity}
        with open_journal(place, named, tell=self.job.tell, machine=name_machine()) as journal:
            counted, own_job = self._survey(sample=False), self._divide(part)
            size = sum(int(load_tally(*each).sizes.sum()) for each in self._list_tallies(part))
            entries, left, dropped = encode_arrays(
                own_job, journal, counted, tokenizer, self.home / "tokenizer", size
            )
            record = {"splits": entries, "left_out": dict(left), "dropped_from_train": dropped}
            record |= {"tokenizer": tokenizer.fingerprint}
            write_json(journal.folder / RECORD, record)
            _publish(journal, place)

    def join(self) -> dict[str, Any]:
        """Write the token directory of all parts, and remove them.

        Returns:
            Its manifest.

        Raises:
            DataError: A part is missing or damaged.
        """
        # the caller has compared the text and the settings of finished tokens with these
        refuse_folder(self.out)
        records = [self._read(part) for part in range(self.count)]
        lacking = [part for part, record in enumerate(records) if record is None]
        if len(lacking) == self.count and (joined := self._read_joined()):
            self.job.tell(f"{self.out} is joined already")
            return joined
        if lacking:
            named = list_some(lacking, 20)
            what = f"{len(lacking)} of {self.count} parts of this text are missing: {named}"
            raise DataError(what, file=self.home.parent, fix=self.spell(lacking))
        identity = {**self.identity, "shard_tokens": self.job.shard_tokens}
        with open_journal(self.out, identity, tell=self.job.tell) as journal:
            manifest = self._join(journal, [record for record in records if record])
            journal.finish(self.out)
        self._remove()
        return manifest

    def _read_joined(self) -> dict[str, Any] | None:
        """The manifest of a finished token directory in one piece; shards have no stated size."""
        with contextlib.suppress(DataError):
            manifest = read_manifest(self.out)
            return manifest if not self.job.shard_tokens and KEY not in manifest else None
        return None

    def _remove(self) -> None:
        """Remove what was written for this job; others may have put something into the folder."""
        for place in self.home.iterdir():
            if _OURS.fullmatch(place.name):
                shutil.rmtree(admit(place), ignore_errors=True)
        for folder in (self.home, self.home.parent):
            if left := [path.name for path in folder.iterdir()]:
                self.job.tell(f"{folder} stays: it has {list_some(sorted(left), 3)}")
                return
            admit(folder).rmdir()

    def _join(self, journal: Journal, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        tokenizer = self._make_tokenizer()
        homes = [self.home / f"part-{part}" for part in range(self.count)]
        shutil.copytree(self.home / "tokenizer", admit(journal.folder / "tokenizer"))
        entries = {}
        try:
            for part, record in enumerate(records):
                if record["tokenizer"] != tokenizer.fingerprint:
                    raise DamagedPart(part, "it was made with another tokenizer than the others")
            for number, split in enumerate(SPLITS):
                self.job.say("joining", number, len(SPLITS))
                own_entries = [record["splits"][split] for record in records]
                pairs = list(zip(homes, own_entries, strict=True))
                entries[split] = join_arrays(journal.folder, split, pairs)
        except DamagedPart as error:
            shutil.rmtree(admit(homes[error.part]), ignore_errors=True)
            what, fix = f"part {error.part} is damaged: {error.why}", self.spell([error.part])
            raise DataError(what, file=homes[error.part], fix=fix) from error
        left = sum((Counter(record["left_out"]) for record in records), Counter[str]())
        dropped = sum(record["dropped_from_train"] for record in records)
        counted = self._survey(sample=True)
        sample = choose_training_texts(counted[0].sample, self.job.recipe)
        return finish_tokens(
            self.job, journal.folder, tokenizer, entries, counted, sample, (left, dropped)
        )

    def _count_all(self, first: int) -> None:
        """Write the surveys that are missing, that of part `first` before all; others in any
        order, so that processes that start together rarely count the same one.
        """
        others = [part for part in range(self.count) if part != first]
        random.Random(os.urandom(8)).shuffle(others)
        for part in (first, *others):
            if not has_tallies(self._place(part)):
                self._count(part, eager=part == first)

    def _count(self, part: int, *, eager: bool) -> None:
        """Write the survey of a part; unless `eager`, leave it to a process that is done first."""
        place = self._place(part)

        def say(doing: str, done: int, total: int) -> None:
            if not eager and place.is_dir():
                raise _CountedElsewhereError
            self.job.say(doing, done, total)

        job, sizes = self._divide(part), (self._sample_bytes, 0)
        sources = [source for source in (job.source, job.valid) if source]
        with (
            contextlib.suppress(_CountedElsewhereError),
            open_journal(place, {}, wait=True, machine=name_machine()) as journal,
        ):
            if not has_tallies(place):
                tallies = [
                    count_documents(source, sample_bytes=size, say=say)
                    for source, size in zip(sources, sizes, strict=False)
                ]
                save_tallies(journal.folder, tallies)
                _publish(journal, place)

    def _make_tokenizer(self) -> Tokenizer:
        """The tokenizer of all parts; the first process that needs it makes it."""
        place = self.home / "tokenizer"
        if not (place / META).is_file():
            with open_journal(place, {}, wait=True, machine=name_machine()) as journal:
                if not (place / META).is_file():
                    survey, _ = self._survey(sample=True)
                    texts = list(choose_training_texts(survey.sample, self.job.recipe))
                    learn_tokenizer(self.job, lambda: iter(texts)).save(journal.folder)
                    _publish(journal, place)
        return Tokenizer.load(place)

    def _survey(self, *, sample: bool) -> tuple[Survey, Survey | None]:
        """The surveys of all parts together; with `sample`, the texts of a tokenizer, too."""
        sources = [source for source in (self.job.source, self.job.valid) if source]
        shares = (0 if self.job.valid else self.job.valid_share, 0)
        sizes = (self._sample_bytes if sample else 0, 0)
        found = [
            survey_tallies(
                source,
                [load_tally(self._place(part), number) for part in range(self.count)],
                valid_share=shares[number],
                sample_bytes=sizes[number],
            )
            for number, source in enumerate(sources)
        ]
        if sample:
            found = [
                replace(survey, layouts=source.find_layouts())
                for survey, source in zip(found, sources, strict=True)
            ]
        # later steps need the hashes of the held-out text alone
        first = replace(found[0], identities=np.zeros(0, np.uint64))
        return first, found[1] if len(found) > 1 else None

    def _divide(self, part: int) -> TokenizingJob:
        """The job of a part."""
        sources = [source for source in (self.job.source, self.job.valid) if source]
        source, *valid = divide(sources, part, self.count)
        return replace(self.job, source=source, valid=valid[0] if valid else None)

    def _place(self, part: int) -> Path:
        return self.home / f"survey-{part}"

    def _list_tallies(self, part: int) -> list[tuple[Path, int]]:
        return [(self._place(part), number) for number in range(1 + bool(self.job.valid))]

    @property
    def _sample_bytes(self) -> int:
        return LOOKED if self.job.recipe.path else self.job.recipe.sample_bytes

    def _read(self, part: int) -> dict[str, Any] | None:
        """The record of a part; None without one."""
        try:
            text = (self.home / f"part-{part}" / RECORD).read_text(encoding="utf-8")
            record: dict[str, Any] = parse_json(text)
        except (OSError, ValueError):
            return None
        return record


class _CountedElsewhereError(Exception):
    """Another process has counted the part meanwhile."""


def _publish(journal: Journal, place: Path) -> None:
    """Give the folder its name; that of another machine, which was faster, stays."""
    try:
        journal.finish(place, replace=False)
    except OSError:
        if not place.is_dir():
            raise
