"""The denoising entity objective, against a loop over tokens in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.heads.entity_projection import EntityProjection
from plmctl.models.base import Model
from plmctl.objectives.entity_denoise import EntityDenoise
from tests.models.test_encoder import encoder
from tests.models.test_entity_encoder import E, W, build


def _model() -> Model:
    torch.manual_seed(0)
    head = EntityProjection(width=W, entity_width=E).double()
    return Model(backbone=build("ax amx"), heads={"entity_denoise": head})


def _rows() -> Rows:
    rng = np.random.default_rng(0)
    text = Seq(rng.integers(5, 50, (3, 9)), np.array([9, 9, 7]))
    target = np.full((3, 9), IGNORE)
    target[0, 2:4], target[0, 6], target[1, 1], target[1, 4], target[2, 5] = 6, 11, 6, 3, 25
    track = np.where(target == IGNORE, 0, target + 1)
    track[0, 3], track[1, 4] = 0, -3
    return Rows(np.arange(3), {"text": text.with_tracks(entity=track)}, {"entity": target})


@pytest.mark.parametrize("none", [True, False])
@pytest.mark.parametrize("candidates", ["batch", "sequence"])
def test_the_loss_by_a_loop(candidates: Any, none: bool) -> None:
    model, rows = _model(), _rows()
    objective = EntityDenoise(model=model, candidates=candidates, none=none)
    rows = rows.with_targets(**objective.labels(rows))
    batch = collate(rows, {})
    states, table = model(batch).last, model.backbone.entities.vectors.double()
    head: Any = model.heads["entity_denoise"]
    total, right, asked = 0.0, 0, 0
    target = rows.targets["entity"]
    for row in range(3):
        own = range(3) if candidates == "batch" else [row]
        known = sorted({int(n) for r in own for n in target[r] if n != IGNORE and n < 20})
        for column in range(9):
            if target[row, column] == IGNORE or target[row, column] >= 20:
                continue
            vector = head.norm(torch.nn.functional.gelu(head.linear(states[row, column])))
            scores = [float(vector.detach() @ table[n + 1]) for n in known] + [0.0] * none
            own_score = scores[known.index(target[row, column])]
            total -= own_score - math.log(sum(math.exp(score) for score in scores))
            right += own_score == max(scores)
            asked += 1
    out = objective(model, batch)
    assert objective.counts(batch) == {"entity_denoise": asked} == {"entity_denoise": 5}
    assert out.terms["entity_denoise"].total.item() == pytest.approx(total, rel=1e-9)
    assert int(out.logs["acc/entity_denoise"][0]) == right


def test_a_batch_without_entities_has_no_loss() -> None:
    model, rows = _model(), _rows()
    objective = EntityDenoise(model=model)
    rows = rows.with_targets(entity=np.full((3, 9), IGNORE))
    batch = collate(rows.with_targets(**objective.labels(rows)), {})
    out = objective(model, batch)
    assert out.terms["entity_denoise"].total.item() == 0
    out.terms["entity_denoise"].total.backward()


def test_another_model_is_refused() -> None:
    model = Model(backbone=encoder(), heads={})
    with pytest.raises(ConfigError, match="model=entity_encoder"):
        EntityDenoise(model=model)
