"""Minimal pairs: does a model find the acceptable one of two sentences likelier (eval only)?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from plmctl.core.errors import ConfigError, DataError, UsageError, nearest
from plmctl.core.parts import part_of
from plmctl.core.progress import ProgressLine
from plmctl.core.terminal import counted
from plmctl.probes.base import Opened, Probe
from plmctl.probes.likelihood import WAYS, Likelihood, Way, find_ways, make_scoring
from plmctl.tasks.intervals import Intervals, wilson
from plmctl.tasks.readers import files
from plmctl.text.tabular import named_rows
from plmctl.text.unknown import KNOWING, describe_unknown, refuse_unknown, unknown_share
from plmctl.use.predict import ScoreTable, Told

PATTERNS = ("*.jsonl", "*.jsonl.gz", "*.tsv", "*.tsv.gz", "*.csv", "*.csv.gz")
GOOD, BAD = ("sentence_good", "good"), ("sentence_bad", "bad")
# BLiMP's names and ZhoBLiMP's
PARADIGM, PHENOMENON = ("UID", "paradigm"), ("linguistics_term", "phenomenon")
# nearer than that share of them, two sums of fp32 numbers are the same
ROUNDING = 1e-6
TIES: Mapping[str, float] = {"strict": 0.0, "half": 0.5, "official": 1.0}


class Pair(NamedTuple):
    """An acceptable sentence, and one that differs from it by what makes it unacceptable."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class MinimalPairs(Probe):
    """The share of pairs whose acceptable sentence has the higher `log P / n^normalise`; n counts
    tokens. (Warstadt et al., 2020, arXiv:1912.00582, sec. 4; BLiMP and ZhoBLiMP as published, and
    any file with two columns.)

    `accuracy` is the mean over paradigms, as it is published; `pairs` is the share of all pairs.
    Pairs of equal sentences, or with an empty one, are left out and counted.

    Args:
        path: A file, or a folder of files: JSON lines, .tsv or .csv, also as .gz, with
            `sentence_good` and `sentence_bad`, or `good` and `bad`. Paradigms are named by `UID` or
            `paradigm`, else by the file; phenomena by `linguistics_term` or `phenomenon`.
        score: The way to score. "next": from left to right, of XLNet "order"; "masks": each token
            masked in turn; "words": the later pieces of its word are masked, too; "replaced": by
            ELECTRA's discriminator; "written": by the decoder of an encoder-decoder. null: the
            usual one.
        normalise: 0 is the sum; 1 the mean of tokens; 0.5 is SLLN-LP of ZhoBLiMP.
        ties: pairs of equal scores are wrong ("strict"), half right ("half"), or right ("official":
            in the pipelines of lm-evaluation-harness and BabyLM the first of two maxima wins).
        by: The groups in the table.
        pairs: The most pairs of a paradigm, the first ones; null: all.
    """

    path: str | None = None
    score: Way | None = None
    normalise: float = 0.0
    ties: Literal["strict", "half", "official"] = "strict"
    by: Literal["phenomenon", "paradigm"] = "phenomenon"
    pairs: int | None = None

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
        if self.path is None:
            fix = "task.path=<folder of BLiMP>"
            raise ConfigError("task.path", None, "a file or a folder of minimal pairs", fix=fix)
        place = files.existing(self.path)
        found = [place]
        if place.is_dir():
            found = sorted(chain.from_iterable(place.glob(pattern) for pattern in PATTERNS))
        if not found:
            allowed = ", ".join(PATTERNS)
            raise DataError(
                f"no file of pairs here ({allowed})", file=place, fix="task.path=<file>"
            )
        kept, left = list[Pair](), 0
        for file in found:
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
            raise DataError("no pair of two sentences that differ", file=place, fix="another file")
        return kept, left

    def judge(self, good: np.ndarray, bad: np.ndarray) -> np.ndarray:
        """[n] 1 where the acceptable sentence has the higher score, 0 where it has the lower one.

        Where the scores are equal but for rounding, it is the value of `ties`.
        """
        for scores in (good, bad):
            if not np.isfinite(scores).all():
                raise DataError(
                    "the model gives a sentence no finite score", fix="train.precision=fp32"
                )
        return np.where(_tied(good, bad), TIES[self.ties], (good > bad).astype(np.float64))

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

    def measure(self, opened: Opened) -> ScoreTable:
        """The accuracies of a checkpoint."""
        loaded, precision = opened.loaded, opened.precision
        pairs, left = self.read()
        way, head = self._choose(find_ways(loaded.model, loaded.vocab))
        texts = list(dict.fromkeys(chain.from_iterable(pair[:2] for pair in pairs)))
        ids = loaded.tokenizer.encode_batch(texts)
        self._check_length(texts, ids, loaded.model.backbone.max_length)
        share = unknown_share([token for row in ids for token in row], loaded.vocab)
        refuse_unknown(share, file=self.path, fix=KNOWING)
        model = loaded.model.to(precision.device).eval()
        scorer = Likelihood(
            model,
            make_scoring(way, model, head, loaded.vocab),
            loaded.vocab.pad,
            precision.device,
            done=ProgressLine("sentences", len(texts)),
        )
        with torch.no_grad(), precision.autocast():
            sums = scorer.score(ids)
        lengths = np.array([max(1, len(row)) for row in ids], np.float64)
        value = dict(zip(texts, (sums / lengths**self.normalise).tolist(), strict=True))
        good, bad = (np.array([value[pair[side]] for pair in pairs]) for side in (0, 1))
        right = self.judge(good, bad)
        scores, intervals = self.summarize(pairs, right)
        extra: dict[str, Any] = {"checkpoint": opened.folder, "score": way, "ties": self.ties}
        if tied := int(np.count_nonzero(_tied(good, bad))):
            extra["tied"] = Told(f"{counted(tied, 'pair')} of equal scores", tied)
        if left:
            why = f"{counted(left, 'pair')} with equal or empty sentences"
            extra["left out"] = Told(why, left)
        if share:
            extra["unknown"] = Told(describe_unknown(share), share)
        name = Path(self.path or "").name or "pairs"
        return ScoreTable(
            "minimal pairs", {name: scores}, extra, {name: intervals}, {name: len(pairs)}
        )

    def _choose(self, ways: Mapping[Way, str]) -> tuple[Way, str]:
        """(the way of asking, the head that answers)."""
        if not ways:
            raise UsageError(
                "task=minimal_pairs asks a head that predicts tokens of a text; this checkpoint has"
                " none\n  fix: a checkpoint of pretraining (objective=mlm, clm, electra, seq2seq)"
            )
        way = next(iter(ways)) if self.score is None else self.score
        if way not in ways:
            allowed = f"{' or '.join(ways)}: this model answers no other way"
            near = nearest(way, WAYS) if way not in WAYS else ""
            fix = f"task.score={next(iter(ways))}"
            raise ConfigError("task.score", way, allowed + near, fix=fix)
        return way, ways[way]

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
    """The interval of a mean of shares p_i from their own intervals (l_i, u_i): `mean -
    sqrt(sum (p_i - l_i)^2) / k` to `mean + sqrt(sum (u_i - p_i)^2) / k` (Zou and Donner, 2008).
    """
    share = np.array([own.mean() for own in groups])
    low, high = np.array([wilson(float(own.sum()), len(own)) for own in groups]).T
    below, above = (np.sqrt((gap**2).sum()) / len(groups) for gap in (share - low, high - share))
    return float(share.mean() - below), float(share.mean() + above)


def _tied(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    return np.abs(good - bad) <= ROUNDING * np.maximum(np.abs(good), np.abs(bad))


def _group(names: Sequence[str], values: np.ndarray) -> dict[str, np.ndarray]:
    """{name: its values}, in order of appearance."""
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = np.array([known[name] for name in names])
    return {name: values[numbers == number] for name, number in known.items()}


def _read_file(file: Path) -> Iterator[Pair]:
    stem = file.name.partition(".")[0]
    for number, row in named_rows(file):
        good, bad = _take(row, GOOD), _take(row, BAD)
        if good is None or bad is None:
            has = ", ".join(map(str, row)) or "nothing"
            message = f"no two sentences, sentence_good and sentence_bad (this row has {has})"
            fix = "name the columns good and bad, in the first line of a table"
            raise DataError(message, file=file, line=number, fix=fix)
        paradigm = _take(row, PARADIGM) or stem
        yield Pair(good.strip(), bad.strip(), paradigm, _take(row, PHENOMENON) or paradigm)


def _take(row: Mapping[Any, Any], names: Sequence[str]) -> str | None:
    """The text of the first of `names` that a row has."""
    found = (row[name] for name in names if name in row)
    return next((text for text in found if isinstance(text, str)), None)
