"""Minimal pairs at each validation of a pretraining."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch

from plmctl.config.groups import Eval
from plmctl.core.terminal import counted
from plmctl.models.base import Model
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import describe_spelled, find_spelled
from plmctl.use.pairs import Pair, PairScorer, list_sentences

ACCURACY = "acc/minimal_pairs"  # in the log


@dataclass(frozen=True)
class PairSample:
    """The same pairs at each validation: `eval.pairs` of `eval.minimal_pairs`, or all.

    Args:
        part: The score.
        known: The number of pairs in the files.
    """

    part: PairScorer
    pairs: Sequence[Pair]
    known: int
    tokenizer: Tokenizer

    @classmethod
    def of(cls, settings: Eval, tokenizer: Tokenizer) -> PairSample | None:
        """The sample of a run, drawn by `eval.seed`, as many pairs of each paradigm as of others or
        one more; None: the run names no pairs.
        """
        if settings.minimal_pairs is None:
            return None
        part = _Validation(path=settings.minimal_pairs)
        pairs, _ = part.read()
        drawn = _draw_evenly(pairs, settings.pairs, Random(settings.seed))
        return cls(part, [pairs[number] for number in sorted(drawn)], len(pairs), tokenizer)

    def describe(self, model: Model) -> str:
        """The size of the sample, and its cost at each validation."""
        rows, tokens = self.part.count_rows(model, self.tokenizer, self.pairs)
        ids = self.tokenizer.encode_batch(list_sentences(self.pairs))
        share = find_spelled([token for row in ids for token in row], self.tokenizer.vocab)
        return (
            f"minimal pairs: {len(self.pairs):,} of {self.known:,} at each validation,"
            f" {counted(tokens, 'token')} in {counted(rows, 'row')} (eval.pairs)"
            + (f"; {describe_spelled(share)}" if share else "")
        )

    def score(self, model: Model, device: torch.device) -> dict[str, float]:
        """{"acc/minimal_pairs": the mean accuracy over the paradigms of the sample}, with the ends
        of its 95% interval; computed in fp32, as `plmctl eval` does.
        """
        with torch.autocast(device.type, enabled=False):
            scored = self.part.score_pairs(model, self.tokenizer, self.pairs, device)
        right = self.part.judge(scored.good, scored.bad)
        scores, intervals = self.part.summarize(self.pairs, right)
        low, high = intervals["accuracy"]
        found = {"acc": scores["accuracy"], "low": low, "high": high}
        return {f"{kind}/minimal_pairs": value for kind, value in found.items()}


class _Validation(PairScorer):
    """The scorer of `eval.minimal_pairs`."""

    setting = "eval.minimal_pairs"


def _draw_evenly(pairs: Sequence[Pair], most: int, draws: Random) -> list[int]:
    """The numbers of `most` pairs: one of each paradigm, then a second one of each, and so on."""
    rank, rounds = Counter[str](), list[tuple[int, int]]()
    for number in draws.sample(range(len(pairs)), len(pairs)):
        rounds.append((rank[pairs[number].paradigm], number))
        rank[pairs[number].paradigm] += 1
    return [number for _, number in sorted(rounds, key=lambda each: each[0])[:most]]
