"""WNLaMPro: does a masked language model know rare words (eval only; Schick and Schütze, 2020)?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.generation.fill import fill
from plmctl.generation.prompts import batch_by_length
from plmctl.probes.base import Opened, Probe, tell_unknown
from plmctl.text.inputs import read_lines
from plmctl.use.predict import ScoreTable
from plmctl.use.prompting import make_prompt_reader

Relation = Literal["antonym", "hypernym", "cohyponym", "corruption"]
GROUPS = ("rare", "medium", "frequent")
MASK = "[MASK]"
# W is the key word, A the article before it
PATTERNS: dict[str, tuple[str, ...]] = {
    "antonym": (
        "W is the opposite of [MASK]",
        "W is not [MASK]",
        "someone who is W is not [MASK]",
        "something that is W is not [MASK]",
        '" W " is the opposite of " [MASK] "',
    ),
    "hypernym": (
        "W is a [MASK]",
        "W is an [MASK]",
        "A W is a [MASK]",
        "A W is an [MASK]",
        '" W " refers to a [MASK]',
        '" W " refers to an [MASK]',
        "W is a kind of [MASK]",
        "A W is a kind of [MASK]",
    ),
    "cohyponym": ("W and [MASK]", '" W " and " [MASK] "'),
    "corruption": ('" W " is a misspelling of " [MASK] " .', '" W " . did you mean " [MASK] " ?'),
}
CORRUPTED = 10  # corruptions of words that stand as often are left out
_ANNOTATED = re.compile(r"(.+) \(([^,()]*),([^,()]*),(\d+)\)")


@dataclass(frozen=True)
class ProbeEntry:
    """A key word, and words in a relation to it."""

    word: str
    count: int  # in the corpus of the data set
    relation: str
    targets: frozenset[str]


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class WNLaMPro(Probe):
    """Mean reciprocal rank and precision of a model's predictions at masks in patterns.

    An entry's reciprocal rank is the largest over its patterns of 1 / rank of the first target
    among the `top` predictions; without a target it is 0. Its precision at k is that of the pattern
    that finds most targets among k. Both are means over entries, of each group of frequency and
    each relation. (Schick and Schütze, 2020, arXiv:1904.06707, sec. 4; timoschick/am-for-bert.)
    Differs: the script's groups leave out counts 9 and 99; here every count is in one group.

    Args:
        path: The path of the file: id, dev or test, key word, relation and targets, with tabs
            between; a word is written `word (part of speech,frequency,count)`.
        bounds: counts from which a word is medium, and frequent.
        top: predictions of a pattern that are looked at.
        at: k of precisions.
    """

    path: str | None = None
    bounds: Sequence[int] = (10, 100)
    top: Count = 100
    at: Sequence[Count] = (3, 10, 100)

    def __post_init__(self) -> None:
        if len(self.bounds) != 2 or self.bounds[0] >= self.bounds[1]:
            raise ConfigError("task.bounds", list(self.bounds), "two rising counts")
        if max(self.at) > self.top:
            raise ConfigError("task.at", list(self.at), f"at most task.top={self.top}")

    def read(self, split: str) -> list[ProbeEntry]:
        """The entries of a split, `dev` or `test`.

        Raises:
            DataError: naming the first line that is wrong.
        """
        if self.path is None:
            raise ConfigError("task.path", None, "the file of WNLaMPro", fix="task.path=<file>")
        file = Path(self.path).expanduser()
        if not file.is_file():
            fix = "task.path=<the .tsv file of WNLaMPro>"
            raise DataError("there is no such file", file=file, fix=fix)
        entries = [entry for entry in _read(file, split) if entry is not None]
        if not entries:
            raise DataError(f"no entry of the split {split}", file=file, fix="split=dev")
        return entries

    def patterns(self, entry: ProbeEntry) -> list[str]:
        """The texts of an entry, with one mask each."""
        article = "an" if entry.word[:1].lower() in "aeiou" else "a"
        found = []
        for pattern in PATTERNS[entry.relation]:
            text = f"{article} {pattern[2:]}" if pattern.startswith("A W") else pattern
            found.append(re.sub(r"\bW\b", lambda _: entry.word, text, count=1))
        return found

    def group(self, count: int) -> str:
        """The group of a word that stands so often."""
        return GROUPS[sum(count >= bound for bound in self.bounds)]

    def score(
        self, entries: Sequence[ProbeEntry], predicted: Sequence[Sequence[Sequence[str]]]
    ) -> dict[str, float]:
        """{metric: value}: over all entries, of each group, and of each relation in it.

        Args:
            entries: The entries of a split.
            predicted: The predicted words for each entry and each pattern, from the likeliest on.
        """
        values: dict[str, list[float]] = defaultdict(list)
        for entry, patterns in zip(entries, predicted, strict=True):
            group = self.group(entry.count)
            own = {"mrr": _rank(entry, patterns)}
            own |= {f"p@{k}": _precision(entry, patterns, k) for k in self.at}
            for name, value in own.items():
                for key in (name, f"{name}/{group}", f"{name}/{group}/{entry.relation}"):
                    values[key].append(value)
        means = {key: sum(found) / len(found) for key, found in values.items()}
        names = [f"entries/{group}" for group in GROUPS]
        counts = [len(values[f"mrr/{group}"]) for group in GROUPS]
        return means | {name: float(n) for name, n in zip(names, counts, strict=True) if n}

    def measure(self, opened: Opened) -> ScoreTable:
        """The scores of a checkpoint on a split."""
        loaded, precision = opened.loaded, opened.precision
        split = "dev" if opened.split == "valid" else opened.split
        entries = self.read(split)
        reader = make_prompt_reader(loaded, str(self.path))
        if reader.kind != "fill":
            fix = "a checkpoint of BERT, RoBERTa or the like, with its head"
            raise UsageError(f"task=wnlampro asks a model that fills masks\n  fix: {fix}")
        texts = [(n, text) for n, entry in enumerate(entries) for text in self.patterns(entry)]
        prompts = [reader(text, number) for number, (_, text) in enumerate(texts)]
        words: list[list[str]] = [[] for _ in prompts]
        vocab = loaded.vocab
        spelled = [
            text if start else "" for text, start in zip(vocab.texts, vocab.word_start, strict=True)
        ]
        top = min(self.top, vocab.size)
        for index in batch_by_length(prompts, opened.batch_size):
            batch = reader.batch([prompts[i] for i in index]).to(precision.device)
            with torch.no_grad(), precision.autocast():
                filled = fill(loaded.model, batch, mask=vocab.id("mask"), top=top, size=vocab.size)
            for i, masks in zip(index, filled, strict=True):
                words[i] = [spelled[token].lower() for token, _ in masks[0]]
        predicted: list[list[list[str]]] = [[] for _ in entries]
        for (n, _), found in zip(texts, words, strict=True):
            predicted[n].append(found)
        extra: dict[str, Any] = {"checkpoint": opened.folder, "entries": len(entries)}
        read = (number for prompt in prompts for number in prompt.ids)
        extra |= tell_unknown(read, vocab, self.path)
        scores = {split: self.score(entries, predicted)}
        return ScoreTable("wnlampro", scores, extra)


def _rank(entry: ProbeEntry, patterns: Sequence[Sequence[str]]) -> float:
    ranks = [
        place for words in patterns for place, word in enumerate(words, 1) if word in entry.targets
    ]
    return 1 / min(ranks) if ranks else 0.0


def _precision(entry: ProbeEntry, patterns: Sequence[Sequence[str]], k: int) -> float:
    found = (len(entry.targets.intersection(words[:k])) for words in patterns)
    return min(1.0, max(found) / k)


def _read(file: Path, split: str) -> Iterator[ProbeEntry | None]:
    for number, line in read_lines(file, cut=False):
        cells = line.rstrip("\n").split("\t")
        if len(cells) < 5 or cells[3] not in PATTERNS or cells[1] not in ("dev", "test"):
            relations = ", ".join(PATTERNS)
            message = f"not an id, dev or test, a word, a relation ({relations}) and targets"
            raise DataError(message, file=file, line=number, fix="tabs between the columns")
        key, *others = (
            _parse(cell, file, number) for cell in (cells[2], *cells[4:]) if cell.strip()
        )
        count, relation = int(key[4]), cells[3]
        if cells[1] == split and not (relation == "corruption" and count >= CORRUPTED):
            targets = frozenset(match[1].lower() for match in others)
            yield ProbeEntry(key[1], count, relation, targets)


def _parse(cell: str, file: Path, line: int) -> re.Match[str]:
    match = _ANNOTATED.fullmatch(cell.strip())
    if match is None:
        message = f"'{cell[:60]}' is not written as 'word (n,3.2,17)'"
        raise DataError(message, file=file, line=line, fix="word (part of speech,frequency,count)")
    return match
