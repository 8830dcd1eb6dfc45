"""Minimal pairs at each validation of a pretraining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch

from plmctl.config.groups import Eval
from plmctl.core.terminal import counted
from plmctl.models.base import Model
from plmctl.text.tokenizer import Tokenizer
from plmctl.use.pairs import Pair, PairScorer


@dataclass(frozen=True)
class PairSample:
    """The same pairs at each validation: `eval.pairs` of `eval.minimal_pairs`, or all.

    Args:
        part: The score.
        pairs: The sample.
        known: The number of pairs in the files.
        tokenizer: The tokenizer of the run.
    """

    part: PairScorer
    pairs: Sequence[Pair]
    known: int
    tokenizer: Tokenizer

    @classmethod
    def of(cls, settings: Eval, tokenizer: Tokenizer) -> PairSample | None:
        """The sample of a run, drawn by `eval.seed`; None: the run names no pairs."""
        if settings.minimal_pairs is None:
            return None
        part = PairScorer(path=settings.minimal_pairs)
        pairs, _ = part.read()
        drawn = Random(settings.seed).sample(range(len(pairs)), min(settings.pairs, len(pairs)))
        return cls(part, [pairs[number] for number in sorted(drawn)], len(pairs), tokenizer)

    def describe(self, model: Model) -> str:
        """The size of the sample, and its cost at each validation."""
        rows, tokens = self.part.count_rows(model, self.tokenizer, self.pairs)
        return (
            f"minimal pairs: {len(self.pairs):,} of {self.known:,} at each validation,"
            f" {counted(tokens, 'token')} in {counted(rows, 'row')} (eval.pairs)"
        )

    def score(self, model: Model, device: torch.device) -> dict[str, float]:
        """{"acc/minimal_pairs": the mean accuracy over the paradigms of the sample}."""
        scored = self.part.score_pairs(model, self.tokenizer, self.pairs, device)
        right = self.part.judge(scored.good, scored.bad)
        return {"acc/minimal_pairs": self.part.summarize(self.pairs, right)[0]["accuracy"]}
