"""Minimal pairs: does a model find the acceptable one of two sentences likelier (eval only)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plmctl.core.parts import part_of
from plmctl.core.progress import ProgressLine
from plmctl.core.terminal import counted
from plmctl.core.values import Count
from plmctl.probes.base import Opened, Probe
from plmctl.probes.ngram import KneserNey, split_words
from plmctl.tasks.predictions import write_rows
from plmctl.text.reader import read_sentences
from plmctl.text.unknown import SAID, describe_spelled, describe_unknown
from plmctl.use.pairs import (
    Pair,
    PairScorer,
    ScoredPairs,
    describe_intervals,
    find_ties,
    list_sentences,
)
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.rehearsal import Rehearsal, rehearse

LEFT = "an empty sentence, or equal ones (but for white space around them)"
SAME = "(white space, capitals or unknown words tell them apart)"
NEAR = "(nearer than 1e-6 of them: rounding)"


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class MinimalPairs(PairScorer, Probe):
    """The share of pairs whose acceptable sentence has the higher `log P / n^normalise`; n counts
    tokens. (Warstadt et al., 2020, arXiv:1912.00582, sec. 4; BLiMP and ZhoBLiMP as published, and
    any file with two columns.)

    `accuracy` is the mean over paradigms, as it is published; `pairs` is the share of all pairs.
    Intervals are of new pairs of the same paradigms; a line names that with new paradigms, too.
    Pairs of equal sentences, or with an empty one, are left out and counted. Pairs of the same
    tokens tie, and are counted.

    Args:
        path: A file, a folder, or a pattern (`blimp/*.jsonl`) of files: JSON lines, .tsv or .csv,
            also as .gz, with `sentence_good` and `sentence_bad`, or `good` and `bad`. Paradigms are
            named by `UID` or `paradigm`, else by the file; phenomena by `linguistics_term` or
            `phenomenon`, pairs in `out` by `pairID`, `pair_id` or `id`, else by their line.
        score: The way to score. "next": from left to right, of XLNet "order"; "bare": the same with
            no token before the sentence, whose first token is not scored; "masks": each token
            masked in turn; "shifted": the same in masked next-token prediction; "words": the later
            pieces of its word are masked, too; "replaced": by ELECTRA's discriminator; "written":
            by the decoder of an encoder-decoder; "forward", "backward", "both": by the directions
            of ELMo. null: the usual one.
        segment: The segment of all tokens, by which UniLM's pattern chooses what a token sees.
        normalise: 0 is the sum; 1 the mean of tokens; 0.5 is SLLN-LP of ZhoBLiMP.
        ties: pairs of equal scores are wrong ("strict"), half right ("half"), or right ("official":
            in the pipelines of lm-evaluation-harness and BabyLM the first of two maxima wins).
            Scores are equal where `|good - bad| <= 1e-6 max(|good|, |bad|)`, for batches round so.
        by: The groups in the table.
        pairs: The most pairs of a paradigm, the first ones; null: all.
        ngram: Text on which a model of n-grams of words is trained. Its accuracies have a column of
            their own; null: none.
        order: The longest n-gram.
    """

    ngram: str | None = None
    order: Count = 5

    def measure(self, opened: Opened) -> ScoreTable:
        """The accuracies of a checkpoint."""
        loaded, device = opened.loaded, opened.precision.device
        out = opened.claim_file("pairs.jsonl")
        pairs, left = self.read()
        model = loaded.model.to(device).eval()
        with torch.no_grad(), opened.precision.autocast():
            done = ProgressLine("sentences", len(list_sentences(pairs)))
            scored = self.score_pairs(model, loaded.tokenizer, pairs, device, done)
        extra: dict[str, Any] = {"checkpoint": opened.folder, "score": scored.way}
        extra |= {"ties": self.ties, "chance": 0.5}
        extra["intervals"] = describe_intervals(pairs, self.judge(scored.good, scored.bad))
        place = Path(self.path or "")
        name = (place if place.exists() else place.parent).name or "pairs"  # a pattern has none
        values = {name: scored}
        if self.ngram is not None:
            values[f"{self.order}-gram of {Path(self.ngram).name}"] = self._count(self.ngram, pairs)
        judged = {
            each: self.summarize(pairs, self.judge(own.good, own.bad))
            for each, own in values.items()
        }
        for each, own in values.items():
            of = "" if each == name else f", {each}"
            if tied := int(np.count_nonzero(find_ties(own.good, own.bad))):
                extra[f"tied{of}"] = Told(f"{counted(tied, 'pair')} of equal scores {NEAR}", tied)
            if own.unknown >= SAID:
                what = describe_unknown(own.unknown) if own is scored else _describe(own.unknown)
                extra[f"unknown{of}"] = Told(what, own.unknown)
        if scored.same:
            why = f"{counted(scored.same, 'pair')} whose sentences have the same tokens {SAME}"
            extra["same tokens"] = Told(why, scored.same)
        if left:
            why = f"{counted(left, 'pair')} with {LEFT}"
            extra["left out"] = Told(why, left)
        if scored.spelled:
            extra["script"] = Told(describe_spelled(scored.spelled), scored.spelled)
        if out is not None:
            rows = list(self._spell(pairs, *values.values()))
            extra["scores"] = str(write_rows(out, rows))
        return ScoreTable(
            "minimal pairs",
            {each: scores for each, (scores, _) in judged.items()},
            extra,
            {each: intervals for each, (_, intervals) in judged.items()},
            dict.fromkeys(judged, len(pairs)),
        )

    def rehearse(self, opened: Opened) -> Rehearsal:
        """The pairs, and the time of a few of them."""
        pairs, _ = self.read()
        device = opened.precision.device
        model = opened.loaded.model.to(device).eval()

        def score(some: Sequence[Pair]) -> None:
            with torch.no_grad(), opened.precision.autocast():
                self.score_pairs(model, opened.loaded.tokenizer, some, device)

        return rehearse("minimal pairs", pairs, score)

    def _spell(self, pairs: Sequence[Pair], *scored: ScoredPairs) -> Iterator[dict[str, Any]]:
        """A row for each pair, with both scores, whether they tie and how far the pair is right; of
        the model, and of n-grams (`ngram_right`).
        """
        columns = dict[str, np.ndarray]()
        for start, own in zip(("", "ngram_"), scored, strict=False):
            columns |= {f"{start}score_good": own.good, f"{start}score_bad": own.bad}
            columns[f"{start}tied"] = find_ties(own.good, own.bad)
            columns[f"{start}right"] = self.judge(own.good, own.bad)
        for pair, *values in zip(pairs, *(each.tolist() for each in columns.values()), strict=True):
            names = {"paradigm": pair.paradigm, "id": pair.id, "good": pair.good, "bad": pair.bad}
            yield names | dict(zip(columns, values, strict=True))

    def _count(self, text: str, pairs: Sequence[Pair]) -> ScoredPairs:
        """The scores of the sentences by the n-grams of a text."""
        counts = KneserNey(read_sentences(text), order=self.order)
        texts = list_sentences(pairs)
        lengths = [len(split_words(each)) + 1 for each in texts]
        good, bad = self.divide(pairs, texts, counts.score(texts), lengths)
        return ScoredPairs("next", good, bad, counts.find_unknown(texts))


def _describe(share: float) -> str:
    return f"{share:.1%} of the words are unknown: the text has them once or never"
