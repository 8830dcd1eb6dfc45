"""A model of lm-evaluation-harness (`lm_eval`) that is a run of plmctl, masked models included.

    import lm_eval
    from lm_eval_plmctl import Plmctl
    lm_eval.simple_evaluate(model=Plmctl("runs/bert"), tasks=["blimp"])

Methods and their results are those of `lm_eval.api.model.LM` (lm-eval 0.4.9 to 0.4.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lm_eval.api.model import LM
from torch import Tensor

import plmctl
from plmctl.use.likelihood import Likelihood, Scoring, Way, choose_way, find_ways, make_scoring


@dataclass(frozen=True)
class Misses:
    """Counts tokens that are not the likeliest ones, by the rows and states of a scoring."""

    scoring: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scoring, name)

    def losses(self, features: Tensor, tokens: Tensor) -> Tensor:
        return (self.scoring.head(features).argmax(-1) != tokens).to(features.dtype)


class Plmctl(LM):
    """Answers the requests of the harness with a checkpoint of plmctl.

    Args:
        checkpoint: A run, a checkpoint or a Hugging Face folder.
        score: The way to score, as `task.score` of minimal pairs; None: the usual one.
        device: The device of the computation.
        batch_size: Texts that are written at the same time.
    """

    def __init__(
        self,
        checkpoint: str,
        score: Way | None = None,
        device: Any = "cpu",
        batch_size: int = 32,
        **_: Any,
    ) -> None:
        super().__init__()
        self.model = plmctl.load(checkpoint, device=device or "cpu")
        self.batch_size = int(batch_size)
        model, vocab = self.model.model, self.model.vocab
        way, head = choose_way(find_ways(model, vocab), score)
        self.scoring = make_scoring(way, model, head, self.model.tokenizer)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """(log-likelihood, whether greedy writing gives it) of each continuation."""
        texts, scored = list[list[int]](), list[int]()
        for request in requests:
            context, continuation = request.args
            cut = len(context.rstrip())  # spaces belong to the text that follows
            both = [context[:cut], context + continuation]
            before, ids = self.model.tokenizer.encode_batch(both)
            texts.append(ids)
            scored.append(len(ids) - len(before))
        sums, missed = (self._sum(each, texts, scored) for each in self._scorings())
        return [(float(s), bool(m == 0)) for s, m in zip(sums, missed, strict=True)]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """The log-likelihood of each text, in parts of the model's length."""
        longest = self.model.model.backbone.max_length
        parts, owner = list[list[int]](), list[int]()
        for number, request in enumerate(requests):
            ids = self.model.tokenizer.encode_batch([request.args[0]])[0]
            room = max(1, len(ids) if longest is None else longest - 2)
            for start in range(0, len(ids), room):
                parts.append(ids[start : start + room])
                owner.append(number)
        sums = np.zeros(len(requests))
        np.add.at(sums, owner, self._sum(self.scoring, parts, [len(part) for part in parts]))
        return [float(each) for each in sums]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """The greedy continuation of each context, up to the first of its `until` texts."""
        texts = []
        for request in requests:
            context, how = request.args
            found = self.model.generate([context], max_new=how.get("max_gen_toks"))
            text = found[0]["texts"][0]["text"].removeprefix(context)
            until = how.get("until") or []
            for stop in [until] if isinstance(until, str) else until:
                text = text.partition(stop)[0] if stop else text
            texts.append(text)
        return texts

    def _scorings(self) -> tuple[Scoring, Scoring]:
        return self.scoring, Misses(self.scoring)

    def _sum(
        self, scoring: Scoring, texts: Sequence[Sequence[int]], scored: Sequence[int]
    ) -> np.ndarray:
        """[n] the sums over the last `scored` tokens of each text."""
        scorer = Likelihood(self.model.model, scoring, self.model.precision.device)
        with torch.no_grad():
            values = scorer.score_tokens(texts)
        return np.array(
            [own[len(own) - last :].sum() for own, last in zip(values, scored, strict=True)]
        )
