"""Adaptive masking (AMLM): tokens that are predicted well are masked less often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Rate, Whole
from plmctl.heads.base import ScoringHead, head_of
from plmctl.models.base import Model
from plmctl.noise.masking import MaskOrReplace, NoiseBudget, Select, Spans
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output
from plmctl.text.vocab import Vocab

LEAST = 1e-6  # weight: a token that is always right may still be masked


class WeightedTokens(Select):
    """The budget of each row, drawn without replacement from its ordinary tokens. Each draw is in
    proportion to the weights of the types that are left.

    The k smallest of `-log(u) / weight`, u ~ U(0, 1), have that distribution (Efraimidis and
    Spirakis, 2006).
    """

    def __init__(self, *, special: np.ndarray, rate: float, weights: np.ndarray) -> None:
        self.special, self.weights = special, weights
        self.budget = NoiseBudget(rate=rate, max_predictions=None, selection="exact")

    def count(self, rows: Rows) -> np.ndarray:
        """[n] how many tokens are chosen from each row."""
        seq = rows.seqs[rows.input]
        ordinary = (~self.special[seq.ids] & seq.real).sum(1)
        return np.minimum(self.budget.of_rows(rows, Draws(0, 0)), ordinary)

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        seq = rows.seqs[rows.input]
        drawn = -np.log(1.0 - draws.uniform(rows.key, "mask", seq.ids.shape[1]))
        turn = drawn / np.maximum(self.weights[seq.ids], LEAST)
        turn = np.where(self.special[seq.ids] | ~seq.real, np.inf, turn)
        order = np.argsort(turn, 1, kind="stable")
        row, place = np.nonzero(np.arange(seq.ids.shape[1]) < self.count(rows)[:, None])
        return Spans(row, order[row, place], np.ones_like(row))


@part_of("objective")
class AdaptiveMLM(Objective):
    """Masked language modelling whose masks follow what the model has learned: `w_v = decay w_v +
    (1 - decay) p (1 - score_v)` after every `every` updates, w_v = p at first.

    The hard score is the share of right predictions of the type v where it was masked, smoothed:
    `(right + 1) / (masked + 2)`. The soft one is `1 - mean loss / largest mean loss of a type`. A
    type that was not masked keeps its weight. A share p of each row is masked, from `rate` at first
    to `end_rate`; tokens are chosen in proportion to w. Each chosen token is shown as in BERT.
    Rows come without masks (noise=[]); where a noise has masked them, as in validation, its masks
    stay. (AMLM, arXiv:2510.20475, abstract; released as a BabyLM entry of 2025.)
    Differs: the row has exactly its share of masks, where the paper draws each token by itself with
    probabilities of this mean; the smoothing of the scores is not published.

    Args:
        rate: p at first.
        end_rate: p at the end of the run, on a line.
        decay: The share of the old weight that stays.
        every: Updates between two changes of the weights.
        score: hard (right or wrong), or soft (losses).
        mask_share: The share of chosen tokens that become the mask.
        random_share: The share that become a random token; the rest stay.
        seed: The seed of the masks.
    """

    facts = Facts(needs=frozenset({"text"}), heads=frozenset({"mlm"}), terms=frozenset({"mlm"}))
    weights: Tensor
    tallies: Tensor
    updates: Tensor
    done: Tensor

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: Rate,
        end_rate: Rate,
        decay: Rate = 0.2,
        every: Count = 200,
        score: Literal["hard", "soft"] = "hard",
        mask_share: Rate = 0.8,
        random_share: Rate = 0.1,
        seed: Whole = 0,
    ) -> None:
        super().__init__()
        self.rates, self.decay, self.every = (rate, end_rate), decay, every
        self.score, self.seed, self.special = score, seed, np.asarray(vocab.special)
        self.corrupt = MaskOrReplace(
            vocab=vocab, mask_share=mask_share, random_share=random_share, random_specials=False
        )
        self.register_buffer("weights", torch.full((vocab.size,), rate))
        # right, masked, and summed losses of each type since the last change
        self.register_buffer("tallies", torch.zeros(3, vocab.size, dtype=torch.float64))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("done", torch.zeros((), dtype=torch.float64))
        self._own: list[Tensor] = []  # tallies of the micro-batches of this update

    @property
    def rate(self) -> float:
        """The share of each row that is masked now."""
        first, last = self.rates
        return first + (last - first) * float(self.done)

    def figures(self) -> dict[str, float]:
        return {"mask_rate": self.rate, "mask_weights": float(self.weights.mean())}

    def counts(self, batch: Batch) -> dict[str, int]:
        if "mlm" in batch.targets:
            if self.training:
                allowed = "[]: objective.adaptive_mlm masks by itself"
                raise ConfigError("noise", ..., allowed, fix="noise=[]")
            return {"mlm": batch.counts["mlm"]}
        return {"mlm": int(self._select().count(_read_rows(batch)).sum())}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        noised = batch if "mlm" in batch.targets else self.mask(batch)
        targets, head = noised.targets["mlm"], head_of(model, "mlm")
        hidden = model(noised, state)
        features = hidden.gather_words(targets.index)
        loss, right = head.loss(features, targets.ids)
        if self.training and not batch.spare:
            self._tally(head, features, targets.ids)
        return make_output("mlm", loss, right, noised.counts["mlm"], hidden.state)

    def mask(self, batch: Batch) -> Batch:
        """The batch with masks and their targets, the same for the same rows and update."""
        rows, select = _read_rows(batch), self._select()
        draws = Draws(self.seed, int(self.updates), ("adaptive",))
        noised = self.corrupt(rows, select(rows, draws), draws)
        made = collate(noised, {"mlm": select.capacity(rows.seqs["text"].ids.shape[1])})
        made = made.to(batch.key.device)
        text = replace(batch.text, ids=made.text.ids)
        counts = {**batch.counts, "mlm": made.counts["mlm"]}
        return replace(
            batch,
            seqs={**batch.seqs, "text": text},
            targets={**batch.targets, "mlm": made.targets["mlm"]},
            counts=counts,
        )

    def _select(self) -> WeightedTokens:
        weights = self.weights.detach().cpu().numpy()
        return WeightedTokens(special=self.special, rate=self.rate, weights=weights)

    @torch.no_grad()
    def _tally(self, head: ScoringHead, features: Tensor, ids: Tensor) -> None:
        features, ids = features[ids != IGNORE], ids[ids != IGNORE]
        logits = head(features).float()
        own = torch.zeros_like(self.tallies)
        losses = torch.nn.functional.cross_entropy(logits, ids, reduction="none")
        seen = (logits.argmax(-1) == ids, torch.ones_like(losses), losses)
        for number, values in enumerate(seen):
            own[number].index_add_(0, ids, values.to(own.dtype))
        self._own.append(own)

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        self.done.fill_(share)

    @torch.no_grad()
    def after_step(self, model: Model, step: int) -> None:
        own = torch.stack([torch.zeros_like(self.tallies), *self._own]).sum(0)
        self._own = []
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(own)
        self.tallies += own
        self.updates += 1
        if int(self.updates) % self.every == 0:
            self.weights.copy_(self._weigh())
            self.tallies.zero_()

    def _weigh(self) -> Tensor:
        """[V] the next weights, from the tallies."""
        right, masked, losses = self.tallies
        seen = masked > 0
        score = (right + 1) / (masked + 2)
        if self.score == "soft":
            mean = losses / masked.clamp(min=1)
            score = 1 - mean / mean[seen].max() if seen.any() else score
        old = self.weights.double()
        new = self.decay * old + (1 - self.decay) * self.rate * (1 - score)
        return torch.where(seen, new, old).to(self.weights.dtype)


def _read_rows(batch: Batch) -> Rows:
    """The text of a batch, as noise reads it."""
    text = batch.text
    tracks: Mapping[str, np.ndarray] = {"real": text.real.cpu().numpy()}
    seq = Seq(text.ids.cpu().numpy(), text.length.cpu().numpy(), tracks)
    return Rows(key=batch.key.cpu().numpy(), seqs={"text": seq})
