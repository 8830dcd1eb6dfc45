"""Learned positions of each layer, as a loop; and rows and layers for which there are none."""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.positions import LearnedByLayer
from plmctl.runs.contract.stand_in import TINY

SMALL = ["size=tiny", "size.width=8", "size.num_heads=2", "size.inner_width=12", "data.path=x"]
SMALL += ["size.num_layers=3", "format.max_length=6", "position=learned_by_layer"]


def test_every_layer_adds_its_own_table() -> None:
    """With cells that give nothing, only positions and norms are left."""
    spec = compose("pretrain", "gpt", [*SMALL, "model.embedding.dropout=0"])
    made = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    backbone = made.backbone
    assert backbone.max_length == 6
    ids = torch.tensor([[5, 6, 7, 6]])
    with torch.no_grad():
        for cells in backbone.stack.blocks.values():
            for block in cells:
                block.cell.projection.weight.zero_()
                block.cell.projection.bias.zero_()
        last = made(Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([4]), full=True)})).last
        for place, token in enumerate(ids[0].tolist()):
            x = backbone.embedding.token.weight[token]
            for layer in range(3):
                x = x + backbone.position.tables[layer].weight[place]
                for letter in "af":
                    x = backbone.stack.blocks[letter][layer].norm_sum(x)
            torch.testing.assert_close(last[0, place], x)


def test_what_it_does_not_know_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match="a table for each layer"):
        build_model(compose("pretrain", "gpt", [*SMALL, "position.num_layers=2"]), vocab_size=8)
    position = LearnedByLayer(width=4, max_length=3, num_layers=2)
    with pytest.raises(ConfigError, match="at most 3"):
        position.every_step(torch.zeros(1, 4, 4), 0, torch.arange(4)[None])
