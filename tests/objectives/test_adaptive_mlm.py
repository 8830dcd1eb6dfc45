"""Adaptive masking: weights as a loop, masks in proportion to them, the same on every cut."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.heads.lm import LMHead
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.objectives.adaptive_mlm import AdaptiveMLM, WeightedTokens
from plmctl.objectives.mix import Entry, Mix
from tests.noise.plain_rows import make_vocab

VOCAB = make_vocab()
V, T, W = VOCAB.size, 20, 6


class Table(Backbone):
    """A state for each type of token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token_embedding = nn.Embedding(V, W)

    def forward(self, batch, state=None, record=frozenset()):
        return Hidden(self.token_embedding(batch.text.ids))


def make_model() -> Model:
    table = Table()
    head = LMHead(
        width=W,
        vocab_size=V,
        token_embedding=table.token_embedding,
        tied=True,
        transform=False,
        bias=True,
    )
    return Model(backbone=table, heads={"mlm": head})


def make(**settings) -> AdaptiveMLM:
    return AdaptiveMLM(vocab=VOCAB, **{"rate": 0.4, "end_rate": 0.15, "every": 2, **settings})


def make_batch(rows: int, first: int = 0, types: int = 12) -> Batch:
    key = np.arange(first, first + rows)
    ordinary = np.flatnonzero(~VOCAB.special)[:types]
    ids = ordinary[np.random.default_rng(key[0]).integers(0, types, (rows, T))]
    ids[:, 0], ids[:, -1] = VOCAB.cls, VOCAB.sep
    length = np.full(rows, T)
    length[-1] = T - 4
    ids[-1, -4:] = VOCAB.pad
    return collate(Rows(key, {"text": Seq(ids, length)}), {})


def test_masks_are_counted_before_they_are_drawn():
    objective, model, batch = make(), make_model(), make_batch(5)
    expected = sum(max(1, round(0.4 * int(length))) for length in batch.text.length)
    assert objective.counts(batch) == {"mlm": expected}
    masked = objective.mask(batch)
    targets = masked.targets["mlm"]
    real = targets.ids != IGNORE
    assert int(real.sum()) == targets.count == expected
    original = batch.text.ids.flatten()[targets.index[real]]
    assert torch.equal(targets.ids[real], original)
    assert not VOCAB.special[original.numpy()].any()
    untouched = torch.ones(batch.text.ids.numel(), dtype=torch.bool)
    untouched[targets.index[real]] = False
    same = masked.text.ids.flatten() == batch.text.ids.flatten()
    assert same[untouched].all()
    assert (~same).sum() > 0.7 * expected
    assert objective(model, batch).terms["mlm"].total.requires_grad


def test_the_cut_into_micro_batches_changes_no_mask():
    objective = make()
    whole = objective.mask(make_batch(1, 3)).text.ids
    keys = torch.tensor([7, 3])
    both = make_batch(1, 3)
    text = Seq(both.text.ids.repeat(2, 1), both.text.length.repeat(2), {})
    both = Batch(keys, {"text": text}, counts={})
    ids = objective.mask(both).text.ids
    assert torch.equal(ids[1:], whole)
    assert not torch.equal(ids[:1], whole)
    objective.updates += 1
    assert not torch.equal(objective.mask(make_batch(1, 3)).text.ids, whole)


def test_tokens_are_chosen_in_proportion_to_their_weights():
    weights = np.ones(V)
    ordinary = np.flatnonzero(~VOCAB.special)[:4]
    weights[ordinary] = [1.0, 2.0, 4.0, 9.0]
    rows = 20_000
    ids = np.tile(ordinary, (rows, 1))
    seq = Seq(ids, np.full(rows, 4))
    # round(0.25 * 4) = 1 of each row
    select = WeightedTokens(special=VOCAB.special, rate=0.25, weights=weights)
    spans = select(Rows(np.arange(rows), {"text": seq}), Draws(0, 0))
    shares = np.bincount(spans.start, minlength=4) / rows
    assert shares == pytest.approx(np.array([1, 2, 4, 9]) / 16, abs=0.01)


def step(objective, model, batches, share=0.0):
    for batch in batches:
        objective(model, batch)
    objective.before_step(model, None, share)
    objective.after_step(model, 1)


@pytest.mark.parametrize("score", ["hard", "soft"])
def test_the_weights_are_those_of_a_loop(score):
    objective, model = make(score=score, decay=0.3), make_model()
    right, masked, losses = np.zeros(V), np.zeros(V), np.zeros(V)
    weights = np.full(V, 0.4)
    for update in range(4):
        batches = [make_batch(3, 10 * update), make_batch(2, 10 * update + 5)]
        for batch in batches:
            noised = objective.mask(batch)
            targets = noised.targets["mlm"]
            for place, label in zip(targets.index.tolist(), targets.ids.tolist(), strict=True):
                if label == IGNORE:
                    continue
                with torch.no_grad():
                    state = model.backbone.token_embedding(noised.text.ids.flatten()[place])
                    logits = model.heads["mlm"](state[None])[0]
                right[label] += int(logits.argmax()) == label
                masked[label] += 1
                losses[label] -= float(logits.log_softmax(-1)[label])
        step(objective, model, batches, share=(update + 1) / 4)
        rate = 0.4 - 0.25 * (update + 1) / 4
        assert objective.rate == pytest.approx(rate)
        if update % 2:
            seen = masked > 0
            found = (right + 1) / (masked + 2)
            if score == "soft":
                mean = losses / np.maximum(masked, 1)
                found = 1 - mean / mean[seen].max()
            changed = 0.3 * weights + 0.7 * rate * (1 - found)
            weights = np.where(seen, changed, weights)
            right, masked, losses = np.zeros(V), np.zeros(V), np.zeros(V)
            assert 0 < seen.sum() < V
        assert objective.weights.numpy() == pytest.approx(weights, rel=1e-5)


def test_validation_has_the_masks_of_its_noise_and_training_refuses_them():
    objective, model = make(), make_model()
    masked = make().mask(make_batch(4))
    objective.eval()
    before = objective.tallies.clone()
    assert objective.counts(masked) == {"mlm": masked.counts["mlm"]}
    objective(model, masked)
    assert objective._own == []
    assert torch.equal(objective.tallies, before)
    objective.train()
    with pytest.raises(ConfigError, match=r"noise=\[\]"):
        objective.counts(masked)


def test_a_mix_hands_on_what_an_update_tells():
    objective, model = make(), make_model()
    mix = Mix({"adaptive_mlm": Entry(objective)})
    step(mix, model, [make_batch(2)], share=0.5)
    assert mix.figures()["mask_rate"] == pytest.approx(0.275)
    assert int(objective.updates) == 1


def test_processes_share_their_tallies(monkeypatch):
    """One sum over all processes adds the counts of the others."""
    objective, model = make(), make_model()
    there = SimpleNamespace(calls=0)

    def all_reduce(tensor):
        there.calls += 1
        tensor += 1

    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    step(objective, model, [])
    assert there.calls == 1
    assert (objective.tallies == 1).all()
