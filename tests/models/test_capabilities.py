"""Capabilities of backbones, for one that has them and one that has none."""

import pytest
import torch

from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.core.locate import parameters, takes_any
from plmctl.models.base import Backbone
from plmctl.models.capabilities import (
    find_halting,
    find_own_losses,
    find_prompt_reader,
    list_layer_parts,
    make_cache,
    start_memory,
    start_reading,
)
from plmctl.models.encoder import Encoder
from plmctl.models.luke import Luke
from plmctl.models.xlnet import XLNet

CPU = torch.device("cpu")


class _Plain(Backbone):
    """A backbone that states nothing."""


class _Remembering(_Plain):
    def fresh_state(self, rows: int, device: torch.device, memory: int | None = None) -> int:
        return rows * (3 if memory is None else memory)


def test_a_plain_backbone_has_none() -> None:
    plain = _Plain()
    assert not find_halting(plain)
    assert not find_own_losses(plain)
    assert not list_layer_parts(plain)
    assert find_prompt_reader(plain) is None
    assert start_memory(plain, 2, CPU) is start_reading(plain, 2, CPU) is None
    with pytest.raises(UsageError, match="_Plain cannot read token by token"):
        make_cache(plain, Batch(torch.arange(1), {}))


def test_reading_starts_as_training_where_nothing_is_computed_before() -> None:
    backbone = _Remembering()
    assert start_memory(backbone, 2, CPU) == start_reading(backbone, 2, CPU) == 6
    assert start_memory(backbone, 2, CPU, 5) == start_reading(backbone, 2, CPU, 5) == 10


def test_an_encoder_of_another_kind_takes_the_settings_of_an_encoder() -> None:
    whole, own = parameters(Encoder), parameters(Luke)
    assert whole.keys() - {"stack"} < own.keys()
    assert own["classifier"].default is None
    assert not takes_any(Luke)
    assert "initializer" in parameters(XLNet)
