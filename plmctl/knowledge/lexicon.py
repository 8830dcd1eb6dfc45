"""Facts about the words of a text: the objects of the triples whose subjects they are."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.core.parts import Opens, part_of
from plmctl.core.terminal import counted
from plmctl.core.values import Count
from plmctl.knowledge.dictionary import Dictionary
from plmctl.knowledge.directory import TRIPLES
from plmctl.text.inputs import read_lines

_LAYOUT = "lines of subject, relation and object with tabs between"


class KnownWord(NamedTuple):
    """A word of a text, its characters [start, end), and what is known of it."""

    start: int
    end: int
    texts: tuple[str, ...]


def confirm(path: str | None) -> Path:
    """The file of triples that is named: itself, or that of a knowledge directory."""
    if path is None:
        allowed = "a file of triples, or a knowledge directory"
        fix = "task.lexicon.path=<file>, or task.lexicon=null: nothing is known"
        raise ConfigError("task.lexicon.path", None, allowed, fix=fix)
    place = Path(path).expanduser()
    file = place / TRIPLES if place.is_dir() else place
    if not file.is_file():
        raise AbsentData("no such file of triples", file=file, fix=_LAYOUT)
    return file


@part_of("lexicon")
class TripleLexicon:
    """The first `most` objects, in the order of the alphabet, of each subject that a text names;
    the longest names from the left (Liu et al., 2020, arXiv:1909.07606, sec. 3.2: K-Query).

    Args:
        path: lines of subject, relation and object with tabs between (.spo, .tsv), or a knowledge
            directory, whose triples are read.
        most: objects of a subject.
        relations: whether the name of the relation stands before an object.
        least_length: The least length of a subject, in characters.
        control: "shuffled" gives every subject what is known of another; "random" gives it as many
            objects as it has, drawn from all.
        seed: The seed of the control.
    """

    opens: ClassVar[Opens] = {"path": confirm}

    def __init__(
        self,
        *,
        path: str | None = None,
        most: Count = 2,
        relations: bool = False,
        least_length: Count = 2,
        control: Literal["none", "shuffled", "random"] = "none",
        seed: int = 0,
    ) -> None:
        if seed < 0:
            raise ConfigError("seed", seed, "a seed from 0")
        self.path, self.most, self.relations = path, most, relations
        self.least_length, self.control, self.seed = least_length, control, seed

    @cached_property
    def _objects(self) -> list[tuple[str, tuple[str, ...]]]:
        """Each subject, and the texts that are known of it."""
        known: dict[str, set[str]] = defaultdict(set)
        file = confirm(self.path)
        for number, line in read_lines(file):
            if not line.strip():
                continue
            parts = [part.strip() for part in line.split("\t")]
            if len(parts) != 3:
                found = counted(len(parts), "column")
                what = f"{found}, not subject, relation, object with tabs between"
                raise DataError(what, file=file, line=number, fix=_LAYOUT)
            subject, relation, value = parts
            if subject and value:
                known[subject].add(f"{relation} {value}" if self.relations else value)
        if not known:
            raise DataError("no triples", file=file, fix=_LAYOUT)
        subjects = sorted(known)
        return list(zip(subjects, self._choose(known, subjects), strict=True))

    def _choose(self, known: dict[str, set[str]], subjects: list[str]) -> list[tuple[str, ...]]:
        texts = [tuple(sorted(known[subject])[: self.most]) for subject in subjects]
        generator = np.random.default_rng(self.seed)
        if self.control == "shuffled":
            return [texts[number] for number in generator.permutation(len(texts))]
        if self.control == "random":
            every = sorted({text for own in known.values() for text in own})
            return [
                tuple(every[n] for n in generator.integers(0, len(every), len(own)))
                for own in texts
            ]
        return texts

    @cached_property
    def _dictionary(self) -> Dictionary:
        names = [(subject, number, 1) for number, (subject, _) in enumerate(self._objects)]
        return Dictionary(names, least_length=self.least_length, lowercase=True)

    def find(self, text: str) -> list[KnownWord]:
        """The facts about the words of a text, in its order."""
        return [
            KnownWord(start, end, self._objects[number][1])
            for start, end, number in self._dictionary.link(text)
        ]
