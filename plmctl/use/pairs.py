"""Pairs of sentences, of which a model should find the acceptable one likelier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from plmctl.analysis.statistics import ALPHA, quantile
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Whole
from plmctl.models.base import Model
from plmctl.tasks.intervals import Intervals, wilson
from plmctl.text.inputs import find_files
from plmctl.text.tabular import named_rows
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import KNOWING, find_spelled, refuse_unknown, unknown_share
from plmctl.use.likelihood import Likelihood, Scoring, Way, choose_way, find_ways, make_scoring

PATTERNS = ("*.jsonl", "*.jsonl.gz", "*.tsv", "*.tsv.gz", "*.csv", "*.csv.gz")
GOOD, BAD = ("sentence_good", "good"), ("sentence_bad", "bad")
NAMES, WANTED = {*GOOD, *BAD}, "wanted are sentence_good and sentence_bad, or good and bad"
# BLiMP's names and ZhoBLiMP's
ID = ("pairID", "pair_id", "id")
PARADIGM, PHENOMENON = ("UID", "paradigm"), ("linguistics_term", "phenomenon")
# Share of two scores, below which their difference is rounding: sums of fp32 numbers change with
# the other rows of a batch. At scores of -100 that is 0.0001.
ROUNDING = 1e-6
TIES: Mapping[str, float] = {"strict": 0.0, "half": 0.5, "official": 1.0}


class Pair(NamedTuple):
    """An acceptable sentence, and one that differs from it by what makes it unacceptable."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    id: str = ""


class ScoredPairs(NamedTuple):
    """The scores of some pairs.

    Args:
        way: The way to score.
        good: [n] of the acceptable sentences.
        bad: [n] of the others.
        unknown: The share of unknown tokens.
        spelled: The share of small tokens, by `find_spelled`.
        same: Pairs whose two sentences have the same tokens.
    """

    way: Way
    good: np.ndarray
    bad: np.ndarray
    unknown: float
    spelled: float = 0.0
    same: int = 0


@dataclass(frozen=True, kw_only=True)
class PairScorer:
    """Reads pairs, scores their sentences, and counts the pairs that a model has right; settings as
    of `task=minimal_pairs`.
    """

    path: str | None = None
    score: Way | None = None
    normalise: float = 0.0
    ties: Literal["strict", "half", "official"] = "strict"
    by: Literal["phenomenon", "paradigm"] = "phenomenon"
    pairs: int | None = None
    segment: Whole = 0
    setting: ClassVar[str] = "task.path"  # its name in messages

    def __post_init__(self) -> None:
        if not 0 <= self.normalise <= 1:
            allowed = "0 (sum) to 1 (mean of tokens)"
            raise ConfigError("task.normalise", self.normalise, allowed, fix="task.normalise=0")
        if self.pairs is not None and self.pairs < 1:
            raise ConfigError("task.pairs", self.pairs, "1 or more, or null: all")

    def read(self) -> tuple[list[Pair], int]:
        """(the pairs, how many were left out because they are equal or empty).

        Raises:
            DataError: naming the first line without two sentences.
        """
        kept, left = list[Pair](), 0
        for file in self._find_files():
            seen: dict[str, int] = {}
            for pair in _read_file(file):
                seen[pair.paradigm] = seen.get(pair.paradigm, 0) + 1
                if self.pairs is not None and seen[pair.paradigm] > self.pairs:
                    continue
                if not pair.good or not pair.bad or pair.good == pair.bad:
                    left += 1
                else:
                    kept.append(pair)
        if not kept:
            why = "no pair of two sentences that differ"
            raise DataError(why, file=self.path, fix="another file")
        return kept, left

    def _find_files(self) -> list[Path]:
        """The files of pairs.

        Raises:
            DataError: No file has pairs, or one of them has other columns.
        """
        if self.path is None:
            fix = f"{self.setting}=<folder of BLiMP>"
            allowed = "a file or a folder of minimal pairs"
            raise ConfigError(self.setting, None, allowed, fix=fix)
        place = Path(self.path).expanduser()
        found = _list_tables(place) if place.is_dir() else find_files(self.path, self.setting)
        columns = {file: _list_columns(file) for file in found}
        foreign = [file for file, own in columns.items() if own and not NAMES & {*own}]
        if foreign or not found:
            others = [file for file in found if file not in foreign]
            path = _find_path(place, foreign, others)
            fix = spell_setting(self.setting, path) if path else f"{self.setting}=<a file>"
            if not found:
                kinds = f"no file of pairs here ({', '.join(PATTERNS)})"
                raise DataError(kinds, file=place, fix=fix)
            has = f"no pairs: this file has the columns {', '.join(columns[foreign[0]])}"
            raise DataError(f"{has}; {WANTED}", file=foreign[0], fix=fix)
        return found

    def list_scores(self) -> frozenset[str]:
        """The names of all scores: of all pairs, and of each group of `by` in the files."""
        return frozenset(
            {"accuracy", "pairs", *(getattr(each, self.by) for each in self.read()[0])}
        )

    def judge(self, good: np.ndarray, bad: np.ndarray) -> np.ndarray:
        """[n] 1 where the acceptable sentence has the higher score, 0 where it has the lower one.

        Where the scores are equal but for rounding, it is the value of `ties`.
        """
        for scores in (good, bad):
            if not np.isfinite(scores).all():
                raise DataError(
                    "the model gives a sentence no finite score", fix="train.precision=fp32"
                )
        return np.where(find_ties(good, bad), TIES[self.ties], (good > bad).astype(np.float64))

    def summarize(
        self, pairs: Sequence[Pair], right: np.ndarray
    ) -> tuple[dict[str, float], Intervals]:
        """(scores, their 95% intervals): of all, and of each group of `by`.

        Args:
            pairs: n of them.
            right: [n] 1, 0, or the value of a tie.
        """
        paradigms = _group([pair.paradigm for pair in pairs], right)
        scores = {
            "accuracy": float(np.mean([own.mean() for own in paradigms.values()])),
            "pairs": float(right.mean()),
        }
        intervals: Intervals = {
            "accuracy": _join_intervals(list(paradigms.values())),
            "pairs": wilson(float(right.sum()), len(right)),
        }
        named = [getattr(pair, self.by) for pair in pairs]
        for name, own in sorted(_group(named, right).items()):
            scores[name] = float(own.mean())
            intervals[name] = wilson(float(own.sum()), len(own))
        return scores, intervals

    def score_pairs(
        self,
        model: Model,
        tokenizer: Tokenizer,
        pairs: Sequence[Pair],
        device: torch.device,
        done: Callable[[int], None] = lambda count: None,
    ) -> ScoredPairs:
        """The scores of both sentences of each pair; each different sentence is read once.

        Args:
            done: A function that gets the number of scored sentences.
        """
        way, scoring = self._make_scoring(model, tokenizer)
        texts = list_sentences(pairs)
        ids = tokenizer.encode_batch(texts)
        self._check_length(texts, ids, model.backbone.max_length)
        tokens, vocab = [token for row in ids for token in row], tokenizer.vocab
        share = unknown_share(tokens, vocab)
        refuse_unknown(share, file=self.path, fix=KNOWING)
        sums = Likelihood(model, scoring, device, done=done).score(ids)
        good, bad = self.divide(pairs, texts, sums, [len(row) for row in ids])
        of = dict(zip(texts, ids, strict=True))
        same = sum(of[pair.good] == of[pair.bad] for pair in pairs)
        return ScoredPairs(way, good, bad, share, find_spelled(tokens, vocab), same)

    def count_rows(
        self, model: Model, tokenizer: Tokenizer, pairs: Sequence[Pair]
    ) -> tuple[int, int]:
        """(rows that a model reads to score pairs, their tokens)."""
        _, scoring = self._make_scoring(model, tokenizer)
        ids = tokenizer.encode_batch(list_sentences(pairs))
        rows = [len(row.ids) for each in ids for row in scoring.rows(each)]
        return len(rows), sum(rows)

    def _make_scoring(self, model: Model, tokenizer: Tokenizer) -> tuple[Way, Scoring]:
        """(the way to score, what scores)."""
        way, head = choose_way(find_ways(model, tokenizer.vocab), self.score)
        self._check_segment(model)
        return way, make_scoring(way, model, head, tokenizer, self.segment)

    def divide(
        self, pairs: Sequence[Pair], texts: Sequence[str], sums: np.ndarray, lengths: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The normalised scores of the acceptable sentences, and of the others."""
        size = np.maximum(1, np.array(lengths, np.float64))
        value = dict(zip(texts, (sums / size**self.normalise).tolist(), strict=True))
        good, bad = (np.array([value[pair[side]] for pair in pairs]) for side in (0, 1))
        return good, bad

    def _check_segment(self, model: Model) -> None:
        """ConfigError for a segment that the model does not know."""
        table = getattr(getattr(model.backbone, "embedding", None), "segment", None)
        known = 1 if table is None else table.num_embeddings
        if self.segment >= known:
            allowed = f"0 to {known - 1}" if known > 1 else "0: this model knows no segments"
            raise ConfigError("task.segment", self.segment, allowed, fix="task.segment=0")

    def _check_length(
        self, texts: Sequence[str], ids: Sequence[Sequence[int]], longest: int | None
    ) -> None:
        """DataError for a sentence that the model cannot read as a whole."""
        room = None if longest is None else longest - 2
        for text, row in zip(texts, ids, strict=True):
            if room is not None and len(row) > room:
                message = f"'{text[:40]}...' has {len(row):,} tokens; the model reads {room:,}"
                raise DataError(message, file=self.path, fix="shorter sentences, or another model")


def _join_intervals(groups: Sequence[np.ndarray]) -> tuple[float, float]:
    """The interval by `wilson` of a mean p of k shares p_i of n_i, as of p (1 - p) / v pairs.

    v is the variance of p, `sum p_i (1 - p_i) / (n_i - 1) / k^2`. A share of one pair counts as
    p (1 - p). In simulations of 67 shares of 1, 2 and 10 pairs it covers 97, 96 and 95%. It
    covers 94 to 100% of 12 shares of 20 pairs that are near 0 or 1. It covers 89% of 12 shares of
    10 pairs where one is 0.5 and the others 0 or 1.
    """
    if len(groups) == 1:
        return wilson(float(groups[0].sum()), len(groups[0]))
    share, number = np.array([own.mean() for own in groups]), np.array(list(map(len, groups)))
    mean = float(share.mean())
    own = np.where(number > 1, share * (1 - share) / np.maximum(number - 1, 1), mean * (1 - mean))
    variance = float(own.sum()) / len(groups) ** 2
    size = mean * (1 - mean) / variance if variance else float(number.sum())
    return wilson(mean * size, size)


def describe_intervals(pairs: Sequence[Pair], right: np.ndarray) -> str:
    """A line on the intervals of accuracies, with the one of new paradigms: `m +- t s / sqrt(k)`.
    Mean m and deviation s are of the shares of k paradigms; the ends are within 0 and 1.
    """
    shares = [own.mean() for own in _group([pair.paradigm for pair in pairs], right).values()]
    if len(shares) == 1:
        return "for new pairs of this paradigm; other paradigms may differ more"
    mean, error = float(np.mean(shares)), float(np.std(shares, ddof=1)) / len(shares) ** 0.5
    half = quantile(ALPHA, len(shares) - 1) * error
    low, high = max(0.0, mean - half), min(1.0, mean + half)
    return (
        f"for new pairs of these {len(shares)} paradigms; with new paradigms, too, accuracy is"
        f" {low:.4f} to {high:.4f}"
    )


def list_sentences(pairs: Sequence[Pair]) -> list[str]:
    """The different sentences of pairs."""
    return list(dict.fromkeys(chain.from_iterable(pair[:2] for pair in pairs)))


def find_ties(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """[n] whether the scores of a pair are equal but for rounding:
    `|good - bad| <= 1e-6 max(|good|, |bad|)`.
    """
    return np.abs(good - bad) <= ROUNDING * np.maximum(np.abs(good), np.abs(bad))


def _group(names: Sequence[str], values: np.ndarray) -> dict[str, np.ndarray]:
    """{name: its values}, in order of appearance."""
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = np.array([known[name] for name in names])
    return {name: values[numbers == number] for name, number in known.items()}


def _list_tables(folder: Path) -> list[Path]:
    found = chain.from_iterable(folder.glob(pattern) for pattern in PATTERNS)
    return sorted(file for file in found if not file.name.startswith("."))


def _list_columns(file: Path) -> list[str]:
    """The names in the first row of a file; none without a row."""
    _, row = next(named_rows(file), (0, {}))
    return [*map(str, row)]


def _find_path(place: Path, foreign: Sequence[Path], others: Sequence[Path]) -> Path | None:
    """A folder in `place` with pairs, or a pattern of all `others` and no foreign file; None: there
    is no simple one.
    """
    if not others:
        return next((inner for inner in sorted(place.glob("*/")) if _list_tables(inner)), None)
    kinds = sorted({"".join(file.suffixes) for file in others})
    starts = "".join(sorted({file.name[0] for file in foreign}))
    for pattern in (*(f"*{kind}" for kind in kinds), f"[!{starts}]*"):
        if {*place.glob(pattern)} & {*foreign, *others} == {*others}:
            return place / pattern
    return None


def _read_file(file: Path) -> Iterator[Pair]:
    stem = file.name.partition(".")[0]
    for number, row in named_rows(file):
        good, bad = _take(row, GOOD), _take(row, BAD)
        if good is None or bad is None:
            named = [name for name in (*GOOD, *BAD) if name in row]
            has = ", ".join(map(str, row)) or "nothing"
            message = f"no two sentences: this row has {has}; {WANTED}"
            fix = "name the columns good and bad, in the first line of a table"
            if len(named) > 1:
                message = f"no two sentences: {' or '.join(named)} has no text"
                fix = "write both sentences, or leave this row out"
            raise DataError(message, file=file, line=number, fix=fix)
        paradigm = _take(row, PARADIGM) or stem
        phenomenon = _take(row, PHENOMENON) or paradigm
        name = next((str(row[key]) for key in ID if row.get(key) is not None), str(number))
        yield Pair(good.strip(), bad.strip(), paradigm, phenomenon, name)


def _take(row: Mapping[Any, Any], names: Sequence[str]) -> str | None:
    """The text of the first of `names` that a row has."""
    found = (row[name] for name in names if name in row)
    return next((text for text in found if isinstance(text, str)), None)
