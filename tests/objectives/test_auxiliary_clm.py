"""Auxiliary losses of deep language models against a loop over layers, targets and positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.objectives.auxiliary_clm import AuxiliaryCLM
from plmctl.objectives.clm import CLM
from plmctl.runs.contract.stand_in import TINY

LAYERS, UPDATES = 3, 60
VOCAB = replace(TINY, size=20)
SMALL = [
    "size=tiny",
    "size.width=8",
    "size.num_heads=2",
    f"size.num_layers={LAYERS}",
    "size.inner_width=12",
    "format.max_length=6",
    "data.path=x",
    "objective=[auxiliary_clm]",
    "objective.auxiliary_clm.targets=3",
    f"train.steps={UPDATES}",
]


def build(*words: str) -> tuple[Model, AuxiliaryCLM]:
    spec: Any = compose("pretrain", "gpt", [*SMALL, *words])
    model = build_model(spec, vocab_size=VOCAB.size, vocab=VOCAB, seed=0).double().eval()
    objective = (
        build_objective(spec.objective, model, VOCAB, seed=spec.seed)
        .double()
        .parts["auxiliary_clm"]
    )
    assert isinstance(objective, AuxiliaryCLM)
    return model, objective


IDS = np.array([[5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 0, 0]])
ROWS = Rows(np.arange(2), {"text": Seq(IDS, np.array([6, 4]))})


def read(objective: AuxiliaryCLM) -> Batch:
    return collate(ROWS.with_targets(**objective.labels(ROWS)), {})


@torch.no_grad()
def ask_all(model: Model, objective: AuxiliaryCLM, batch: Batch, layers: list[int]) -> dict:
    """The sum of each term, one prediction at a time."""
    states = model(batch, None, frozenset({"hidden"})).recorded["hidden"]
    sums: dict[str, torch.Tensor] = {}
    for layer in [*layers, LAYERS]:
        for ahead in (1, 2, 3):
            last = layer == LAYERS
            head = (
                (model.heads["clm"] if ahead == 1 else objective.last[ahead - 2])
                if last
                else objective.below[str(layer)][ahead - 1]
            )
            name = ("clm" if last else "layers") + ("" if ahead == 1 else f"_{ahead}")
            for row, length in enumerate((6, 4)):
                for place in range(length - ahead):
                    scores = head(states[layer][row, place])
                    loss = torch.logsumexp(scores, 0) - scores[IDS[row, place + ahead]]
                    sums[name] = sums.get(name, 0) + loss
    return sums


@pytest.mark.parametrize(
    ("done", "layers"), [(0, [1, 2]), (9, [1, 2]), (10, [2]), (19, [2]), (20, []), (59, [])]
)
def test_is_the_loop_with_the_schedule(done: int, layers: list[int]) -> None:
    """Layer l of 3 is asked before l / 6 of 60 updates are done."""
    model, objective = build()
    objective.train()
    objective.after_step(model, done)
    batch = read(objective)
    out = objective(model, batch)
    wanted = ask_all(model, objective, batch, layers)
    assert {name: term.total.item() for name, term in out.terms.items()} == pytest.approx(
        {name: total.item() for name, total in wanted.items()}, rel=1e-9
    )
    weights = {name: 0.5 if "_" in name else 1.0 for name in wanted}
    assert {name: term.weight for name, term in out.terms.items()} == weights
    counts = objective.counts(batch)
    assert (counts["clm"], counts["clm_2"], counts["layers_3"]) == (8, 6, 4)
    assert objective.facts.terms == counts.keys() >= out.terms.keys()


def test_evaluation_asks_the_last_layer_alone() -> None:
    model, objective = build()
    objective.eval()
    assert set(objective(model, read(objective)).terms) == {"clm", "clm_2", "clm_3"}
    alone = build("objective.auxiliary_clm.layers=false", "objective.auxiliary_clm.targets=1")[1]
    assert alone.train().facts.terms == {"clm"}
    plain = CLM()(model, read(objective)).terms["clm"].total
    assert alone(model, read(alone)).terms["clm"].total == plain


def test_the_stage_is_saved_with_the_run() -> None:
    model, objective = build()
    objective.after_step(model, 15)
    saved = objective.state_dict()
    _, other = build()
    other.load_state_dict(saved)
    other.train()
    assert "layers" in other(model, read(other)).terms
    assert other._find_layers() == [2]


def test_a_document_ends_further_targets_too() -> None:
    document = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    rows = Rows(np.arange(2), {"text": Seq(IDS, np.array([6, 4]), {"document": document})})
    labels, x = build()[1].labels(rows), IGNORE
    assert labels["clm_2"].tolist() == [[7, x, x, 10, x, x], [13, 14, x, x, x, x]]
    assert labels["clm_3"].tolist() == [[x] * 6, [14, x, x, x, x, x]]


def test_half_of_a_row_is_asked() -> None:
    half, x = CLM(asked=0.5).labels(ROWS)["clm"], IGNORE
    assert half.tolist() == [[x, x, x, 9, 10, x], [x, x, 14, x, x, x]]
    given = Rows(np.arange(2), ROWS.seqs, {"clm": np.arange(12, dtype=np.int32).reshape(2, 6)})
    assert CLM(asked=0.25).labels(given)["clm"].tolist()[0] == [x, x, x, x, x, 5]
    assert CLM().labels(given)["clm"] is given.targets["clm"]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match="updates of the training"):
        build("objective.auxiliary_clm.updates=null")
    with pytest.raises(ConfigError, match="asked"):
        build("objective.auxiliary_clm.asked=0")
    with pytest.raises(ConfigError, match="the tokens of the longest row"):
        build("objective.auxiliary_clm.targets=2000")
