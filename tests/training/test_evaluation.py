"""Sums over held-out batches: rows in which every answer is right."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from plmctl.core.batch import IGNORE
from plmctl.objectives.base import Facts, Output, Term
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World


def test_exact_counts_batches_without_a_wrong_answer() -> None:
    answers = {"mlm": [(3, 3), (2, 3), (0, 0), (1, 1)], "nsp": [(1, 1), (0, 1), (1, 1), (0, 1)]}

    class Answers:
        facts = Facts()

        def counts(self, batch: Any) -> dict[str, int]:
            return {"mlm": 1}

        def __call__(self, model: Any, batch: Any, state: Any) -> Output:
            row = batch.key[0]
            found = {name: given[row] for name, given in answers.items()}
            logs = {f"acc/{name}": (torch.tensor(n), of) for name, (n, of) in found.items()}
            return Output({"mlm": Term(torch.tensor(1.0))}, logs)

    def batches() -> Any:
        for number in range(4):
            batch = SimpleNamespace(key=[number])
            batch.to = lambda device, batch=batch: batch
            yield batch

    model: Any = SimpleNamespace(backbone=SimpleNamespace(fresh_state=lambda *_: None))
    parts: Any = Answers()
    means = measure(model, parts, batches(), world=World(), exact=True).means()
    wanted = {"loss": 1.0, "loss/mlm": 1.0, "acc/mlm": 6 / 7, "acc/nsp": 0.5}
    # the third row asks nothing of mlm
    assert means == pytest.approx({**wanted, "exact/mlm": 2 / 3, "exact/nsp": 0.5})
    assert "exact/mlm" not in measure(model, parts, batches(), world=World()).means()


def test_one_constant_answer_is_scored_by_the_answers_of_all_batches() -> None:
    """The entropy of the answers, and the share of the most frequent one."""
    answers = [[0, 0, 1, IGNORE], [2, 0, 0, 0], [IGNORE] * 4]

    class Answers:
        facts = Facts()

        def counts(self, batch: Any) -> dict[str, int]:
            return {}

        def __call__(self, model: Any, batch: Any, state: Any) -> Output:
            return Output({}, answers={"sort": torch.tensor(answers[batch.key[0]])})

    def batches() -> Any:
        for number in range(3):
            batch = SimpleNamespace(key=[number])
            batch.to = lambda device, batch=batch: batch
            yield batch

    model: Any = SimpleNamespace(backbone=SimpleNamespace(fresh_state=lambda *_: None))
    parts: Any = Answers()
    sums = measure(model, parts, batches(), world=World())
    entropy = -sum(share * math.log(share) for share in (5 / 7, 1 / 7, 1 / 7))
    wanted = {"constant/sort": entropy, "constant_acc/sort": 5 / 7}
    assert sums.means() == pytest.approx(wanted, rel=1e-6)
    assert Measured.together([sums, sums]).means() == sums.means()
