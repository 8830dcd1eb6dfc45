"""Objectives around another one: nothing that the inner one says or does is lost."""

from __future__ import annotations

from types import FunctionType

from plmctl.objectives.base import Objective
from plmctl.objectives.costs import Charged
from plmctl.objectives.wrapper import Wrapper


class Following(Objective):
    """An objective that states everything."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    unfinished = True

    def figures(self):
        return {"rate": 0.3}

    def own_rates(self):
        return {"weight": 0.1}

    def labels(self, rows):
        return {"clm": rows}

    def counts(self, batch):
        return {"mlm": batch}

    def before_step(self, model, optimizer, share):
        self.called.append(f"before {share}")

    def exchange(self, model):
        self.called.append("exchange")

    def after_step(self, model, step):
        self.called.append(f"after {step}")


def test_all_that_an_objective_may_say_is_passed_on() -> None:
    said = {
        name
        for name, value in vars(Objective).items()
        if isinstance(value, FunctionType | property) and not name.startswith("_")
    }
    # a forward is the reason of a wrapper; `share` looks into all modules by itself
    assert said - {"forward", "share"} == {
        name for name in vars(Wrapper) if name in vars(Objective) and not name.startswith("_")
    }


def test_costs_of_a_model_hide_nothing_of_its_objective() -> None:
    inner = Following()
    outer = Charged(objective=inner, costs=[])
    assert outer.unfinished
    assert outer.figures() == {"rate": 0.3}
    assert outer.own_rates() == {"weight": 0.1}
    assert outer.labels(1) == {"clm": 1}
    assert outer.counts(2) == {"mlm": 2}
    outer.before_step(None, None, 0.5)
    outer.exchange(None)
    outer.after_step(None, 3)
    assert inner.called == ["before 0.5", "exchange", "after 3"]
