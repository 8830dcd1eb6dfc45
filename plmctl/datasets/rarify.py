"""A labelled set becomes one whose labels depend on rare words, in two calls.

    out/substitutes.tsv   frequent words and the rare ones that may stand for them
    out/baseline/train    the training part, with some of these words hidden; a baseline learns it
    out/tested/train      the same, with some of them replaced; what is compared learns it
    out/candidates        the other examples

and, with the baseline as `checkpoint`,

    out/tested/dev        the rarified examples; by-kind/<kind>: those of one kind of substitutes
    out/rarified.jsonl    what was replaced in each
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.distill.rarification import Rarified, replace_share
from plmctl.knowledge.substitutes import (
    MISSPELLING,
    Substitute,
    Substitutes,
    find_synonyms,
    misspell,
)
from plmctl.knowledge.wordnet import WordNet
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit
from plmctl.tasks.sheet import Sheet
from plmctl.tasks.task import as_task

SUBSTITUTES, CANDIDATES, RECORD = "substitutes.tsv", "candidates", "rarified.jsonl"


@dataclass(frozen=True)
class Replacing:
    """A transform of rows with their numbers into lines, with a share of the words replaced.

    Args:
        share: The share of the words with substitutes.
        hidden: The text that replaces them; None: their substitutes.
    """

    sheet: Sheet
    known: Substitutes
    share: float
    hidden: str | None
    seed: int

    def __call__(self, rows: Sequence[tuple[int, Any]], first: int) -> Iterator[str]:
        """A line for each row."""
        for number, row in rows:
            texts, draws = self.sheet.texts(row), np.random.default_rng([self.seed, number])
            changed = replace_share(texts, self.known, self.share, draws, self.hidden)
            yield self.sheet.line(row, changed)


def split_rows(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """(a share of the numbers below `count`, the others), drawn by chance."""
    order = np.random.default_rng(seed).permutation(count)
    cut = round(share * count)
    return sorted(order[:cut].tolist()), sorted(order[cut:].tolist())


def find_rare_synonyms(
    counts: Mapping[str, int], wordnet: str | None, *, least: int, below: int
) -> dict[str, tuple[Substitute, ...]]:
    """Synonyms in WordNet that stand `least` times or more in a text, but less than `below`."""
    pairs = WordNet.open(wordnet).pairs("synonym")
    synonyms = find_synonyms(pairs, counts, least=least, below=below)
    return {word: tuple(own) for word, own in synonyms.items()}


def add_misspellings(
    known: dict[str, tuple[Substitute, ...]], count: int, counts: Mapping[str, int], seed: int
) -> None:
    """Give each word `count` misspellings more."""
    draws = np.random.default_rng(seed)
    for word in known if count else ():
        slips = misspell(word, count, counts.keys(), draws)
        known[word] += tuple(Substitute(slip, MISSPELLING, 0) for slip in slips)


def need_sheet(task: Any) -> Sheet:
    """The training table of a task; ConfigError for a task without one."""
    known = as_task(task)
    sheet = Sheet.of(known, "train") if known and known.facts.answer == "class" else None
    if sheet is None:
        allowed = "classes of texts in columns of a table: classification, sst2, mnli"
        raise ConfigError("task", getattr(task, "name", None), allowed)
    return sheet


def write_rarified(out: Path, sheet: Sheet, rows: Sequence[Any], made: Sequence[Rarified]) -> None:
    """Write the rarified examples into the folder of the parts."""
    lines = [sheet.line(rows[one.number], one.texts) for one in made]
    write_text(out / "tested" / f"dev{sheet.kind}", sheet.head + "".join(lines))
    kinds: dict[str, list[str]] = defaultdict(list)
    records = []
    for one, line in zip(made, lines, strict=True):
        own = {substitute.kind for substitute in one.substitutes.values()}
        kinds["-".join(sorted(own))].append(line)
        words = {word: substitute.word for word, substitute in one.substitutes.items()}
        records.append(json.dumps({"number": one.number, "words": words, "kinds": sorted(own)}))
    for kind, some in kinds.items():
        admit(out / "by-kind").mkdir(exist_ok=True)
        write_text(out / "by-kind" / f"{kind}{sheet.kind}", sheet.head + "".join(some))
    write_text(out / RECORD, "".join(f"{record}\n" for record in records))
