"""Losses that contrast vectors, with dropout: the gradient of two passes over micro-batches is that
of one graph over all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.stack import checkpoint_stacks
from plmctl.objectives.base import Contrast, Objective, Output
from plmctl.objectives.costs import Charged
from plmctl.objectives.infoword import InfoWord
from plmctl.objectives.mix import Entry, Mix
from plmctl.objectives.simcse import SimCSE
from plmctl.training import together
from plmctl.training.carried_states import CarriedStates
from plmctl.training.device.precision import choose
from plmctl.training.optim.momentum import Momentum
from plmctl.training.processes.world import World
from plmctl.training.regularisers.fgm import FastGradient
from plmctl.training.stabilisers.base import Stabilised
from plmctl.training.strategy.single import Single
from plmctl.training.update import Update
from tests.objectives.contrastive import VOCAB, W, cells_of, encoder, holed

LENGTHS = [10, 7, 9, 4, 8, 6, 10, 5]
SPANS = [(row, 1 + row % 2, 2) for row in range(8) for _ in range(1 + (row == 3))]
WORLD = World()


def simcse() -> Objective:
    torch.manual_seed(1)
    return SimCSE(width=W, temperature=0.05).double()


def infoword() -> Objective:
    return InfoWord(vocab=VOCAB, temperature=1.0, max_tokens=3)


def both() -> Objective:
    parts = {"simcse": Entry(simcse(), 0.3), "infoword": Entry(infoword(), 2.0)}
    return Charged(objective=Stabilised(objective=Mix(parts), parts={}), costs=[])


def cut(edges: list[int]) -> list[Batch]:
    """Rows with hidden n-grams, in micro-batches that are as wide as their longest row."""
    rows = holed(cells_of(LENGTHS), SPANS)
    batches = []
    for first, end in pairwise(edges):
        width = max(LENGTHS[first:end])
        text = rows.seqs["text"]
        own = np.array([s for s in rows.spans["chosen"] if first <= s[0] < end]).reshape(-1, 3)
        own[:, 0] -= first
        part = type(rows)(
            rows.key[first:end],
            {"text": type(text)(text.ids[first:end, :width], text.length[first:end])},
            {"mlm": rows.targets["mlm"][first:end, :width]},
            spans={"chosen": own},
        )
        batches.append(collate(part, {"mlm": width}))
    return batches


def make_update(model: Model, objective: Objective, **more: object) -> Update:
    strategy, parameters = Single(WORLD), [*model.parameters(), *objective.parameters()]
    strategy.train(parameters)
    named = [*model.named_parameters(), *objective.named_parameters()]
    return Update(
        model=model,
        objective=objective,
        optimizer=Momentum(parameters=named, lr=0.1, momentum=0.0),
        precision=choose("fp32", WORLD.device),
        strategy=strategy,
        run=objective,
        memory=CarriedStates(model.backbone, WORLD.device),
        clip=0.0,
        **more,
    )


def gradients(*modules: torch.nn.Module) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for m in modules for p in m.parameters()]


def join_by_hand(parts: list[Contrast]) -> Output:
    """The contrast of all vectors, each still in its graph."""
    first = parts[0]
    vectors = {n: torch.cat([part.vectors[n] for part in parts]) for n in first.vectors}
    width = max(part.beside["ids"].shape[1] for part in parts)
    beside = {
        n: torch.cat(
            [
                torch.nn.functional.pad(x, (0, width - x.shape[1]), value=-100) if n == "ids" else x
                for x in (part.beside[n] for part in parts)
            ]
        )
        for n in first.beside
    }
    rows = [part.numbers["row"] + 100 * k for k, part in enumerate(parts) if part.numbers]
    return first.compare(vectors, {**beside, **({"row": torch.cat(rows)} if rows else {})})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("make", [simcse, infoword, both])
def test_two_passes_drop_the_same_values(make: Callable[[], Objective], checkpointed: bool) -> None:
    batches, model, objective = cut([0, 3, 4, 8]), encoder(0.3, layers=2), make()
    if checkpointed:
        checkpoint_stacks(model, objective)
    update = make_update(model, objective)
    counts = update.count(batches, {})
    torch.manual_seed(7)
    _, entries = update.gradient(batches, counts)
    found, after = gradients(model, objective), torch.rand(1)
    update.end()
    assert (update.memory.tensors()) == {}

    torch.manual_seed(7)
    outputs = [objective(model, batch) for batch in batches]
    assert torch.equal(torch.rand(1), after), "the generator goes on as after one pass"
    loss = torch.zeros((), dtype=torch.float64)
    for name in outputs[0].contrasts:
        joined = join_by_hand([output.contrasts[name] for output in outputs])
        for term in joined.terms.values():
            loss = loss + term.weight * term.total / term.count
    loss.backward()
    for one, other in zip(found, gradients(model, objective), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    logged = sum(float(total) for name, total, _ in entries if name == "loss")
    assert logged == pytest.approx(float(loss.detach()), rel=1e-9)
    totals = {name: float(count) for name, _, count in entries if name.startswith("acc/")}
    assert totals == {f"acc/{n}": {"simcse": 8, "infoword": len(SPANS)}[n]
                      for n in outputs[0].contrasts}  # fmt: skip


def test_one_micro_batch_is_read_once() -> None:
    """Alone it is not read twice, and two sources, each in one piece, are not compared."""
    model, seen = encoder(0.0), 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1

    model.backbone.register_forward_hook(count)
    batches = cut([0, 8])
    update = make_update(model, infoword())
    update.gradient(batches, update.count(batches, {}))
    assert seen == 2  # sentences, and n-grams
    assert not together.is_cut([batches[0], Batch(batches[0].key, {}, source="other")], WORLD)


def test_a_regulariser_of_several_pieces_is_refused() -> None:
    batches = cut([0, 4, 8])
    update = make_update(encoder(0.0), infoword(), regulariser=FastGradient())
    with pytest.raises(ConfigError, match="compares rows of several micro-batches or processes"):
        update.gradient(batches, update.count(batches, {}))


def test_losses_of_a_stage() -> None:
    """What is only logged has no gradient."""
    batches, model, objective = cut([0, 4, 8]), encoder(0.0), both()
    update = make_update(model, objective)
    update.losses = ["simcse"]
    _, entries = update.gradient(batches, update.count(batches, {}))
    found = gradients(model)
    update.end()
    alone = make_update(model, Mix({"simcse": Entry(simcse(), 0.3)}))
    alone.gradient(batches, alone.count(batches, {}))
    torch.testing.assert_close(found, gradients(model))
    assert {name for name, *_ in entries} >= {"loss/simcse", "loss/infoword"}
