"""SMART's proximal point against algorithm 1 of its paper, written as a loop in float64."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.training.stabilisers.base import Stabilised
from plmctl.training.stabilisers.proximal import ProximalPoint
from plmctl.training.stabilisers.r_drop import TwoPasses
from tests.training.regularised import Rows, average, make_micro_batches
from tests.training.toy import make_model

SIZES: dict[str, Any] = {"mu": 0.7, "early": 0.6, "late": 0.9, "early_share": 0.5}
UPDATES, ROWS = 4, 5


class Guessed(Rows):
    """The class of a row, or two numbers, as a task has it."""

    def __init__(self, *, chooses: bool = True) -> None:
        super().__init__()
        self.facts = TaskFacts(own_label="row", chooses=chooses)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """[B, 2]."""
        return {"row": model.heads["row"](average(model(batch).last, batch.text.real))}

    def flatten_logits(self, logits: Any, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """All rows but the first one of a micro-batch."""
        return {"row": (logits["row"], torch.arange(len(batch.key)) > 0)}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        logits = self.logits(model, batch)["row"]
        return Output(
            {"row": Term(F.cross_entropy(logits, batch.labels["class"], reduction="sum"))}
        )


def begin(part: Any, *, dropout: float = 0.0, chooses: bool = True) -> tuple[Any, Any]:
    model, task = make_model(dropout).double(), Guessed(chooses=chooses)
    model.train()
    part.begin(SimpleNamespace(model=model, task=task))
    return model, Stabilised(objective=task, parts={part.group: part})


def differ(p: Tensor, q: Tensor, chooses: bool) -> Tensor:
    """One row: `KL(P || Q) + KL(Q || P)` by its sums."""
    if not chooses:
        return ((p - q) ** 2).sum()
    a, b = p.exp() / p.exp().sum(), q.exp() / q.exp().sum()
    apart = [x * (x / y).log() + y * (y / x).log() for x, y in zip(a, b, strict=True)]
    return torch.stack(apart).sum()


@pytest.mark.parametrize("chooses", [True, False])
def test_it_is_algorithm_1(chooses: bool) -> None:
    model, both = begin(ProximalPoint(**SIZES), chooses=chooses)
    own, mean, asked = copy.deepcopy(model), copy.deepcopy(model), Guessed(chooses=chooses)
    ours = torch.optim.SGD(model.parameters(), lr=0.5)
    theirs = torch.optim.SGD(own.parameters(), lr=0.5)
    terms = []
    for update in range(1, UPDATES + 1):
        losses = []
        for batch in make_micro_batches():
            out = both(model, batch)
            assert both.counts(batch) == {"row": len(batch.key), "proximal": len(batch.key)}
            sum(term.weight * term.total / ROWS for term in out.terms.values()).backward()
            terms.append(float(out.terms["proximal"].total.detach()))
            p, q = (asked.logits(each, batch)["row"] for each in (own, mean))
            apart = sum(differ(p[n], q[n].detach(), chooses) for n in range(1, len(p)))
            losses.append(asked(own, batch).terms["row"].total / ROWS + 0.7 * apart / ROWS)
        sum(losses).backward()
        both.before_step(model, ours, update / UPDATES)
        for step in (ours, theirs):
            step.step()
            step.zero_grad()
        both.after_step(model, update)
        keep = 0.6 if update / UPDATES <= 0.5 else 0.9
        with torch.no_grad():
            for w, v in zip(own.parameters(), mean.parameters(), strict=True):
                v.copy_(keep * v + (1 - keep) * w)
    assert terms[:2] == [0, 0]
    assert min(terms[2:]) > 1e-4
    for (name, found), wanted in zip(model.named_parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12, msg=name)
    saved = dict(both.parts["proximal"].named_buffers())
    for name, v in mean.named_parameters():
        torch.testing.assert_close(saved[f"mean.{name}"], v, rtol=1e-9, atol=1e-12)
    assert not list(both.parameters())  # the mean is saved, not trained


def test_both_passes_drop_the_same_values_and_the_mean_is_asked_once() -> None:
    part = ProximalPoint(**SIZES)
    model, both = begin(part, dropout=0.5)
    batch, asked = make_micro_batches()[0], []
    part.mean.heads["row"].register_forward_hook(lambda *each: asked.append(each[2]))
    torch.manual_seed(3)
    out = both(model, batch)
    drawn = torch.get_rng_state()
    torch.manual_seed(3)
    plain = Guessed()(model, batch)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.equal(out.terms["row"].total, plain.terms["row"].total)
    assert float(out.terms["proximal"].total.detach()) == 0  # as long as weights are the same
    torch.manual_seed(3)
    both(model, batch)
    assert len(asked) == 1
    both.before_step(model, None, 0.1)
    both(model, batch)
    assert len(asked) == 2


def test_it_stands_beside_r_drop() -> None:
    model, task = make_model(0.5).double(), Guessed()
    parts: dict[str, Any] = {"proximal": ProximalPoint(**SIZES), "r_drop": TwoPasses(alpha=1.0)}
    for part in parts.values():
        part.begin(SimpleNamespace(model=model, task=task))
    for order in (["proximal", "r_drop"], ["r_drop", "proximal"]):
        both = Stabilised(objective=task, parts={name: parts[name] for name in order})
        out = both(model, make_micro_batches()[0])
        assert float(out.terms["proximal"].total.detach()) == 0
        assert float(out.terms["r_drop"].total.detach()) > 1e-4
        assert "logits" not in vars(task)


def test_kept_outputs_of_frozen_layers_are_refused() -> None:
    model = make_model(0.0)
    model.kept = SimpleNamespace()  # type: ignore[assignment]
    begun: Any = SimpleNamespace(model=model, task=Guessed())
    with pytest.raises(ConfigError, match=r"train\.frozen_outputs=batch"):
        ProximalPoint(**SIZES).begin(begun)
