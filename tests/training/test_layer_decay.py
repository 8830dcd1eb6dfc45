"""Layer-wise rates are those of ELECTRA's `_get_layer_lrs`: lr d^(L + 2 - depth) (Clark et al.,
2020).
"""

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import ConfigError
from plmctl.training.optim.groups import groups, layer_scales

HEADS = {"class": {"_target_": "plmctl.heads.classify.Classify", "num_classes": 2, "dropout": 0.1}}


def _rates(*words: str, decay: float = 0.8) -> dict[str, float]:
    cfg = config.compose("pretrain", "bert", ["size=tiny", "size.num_layers=4", *words])
    with torch.device("meta"):
        model = build_model(cfg, vocab_size=64, heads=HEADS)
    found = groups(list(model.named_parameters()), lr=1.0, weight_decay=0.01, layer_decay=decay)
    return {name: group["lr"] for group in found for name, _ in group["params"]}


@pytest.mark.parametrize(
    "words", [[], ["model.embedding.table_width=16"], ["model=decoder"], ["position=rotary"]]
)
def test_every_parameter_has_the_rate_of_its_depth(words):
    layers, rates = 4, _rates(*words)
    for name, rate in rates.items():
        part = name.split(".")
        if part[0] == "heads":
            depth = layers + 2
        elif part[1] == "stack" and part[2] == "blocks":
            depth = int(part[4]) + 1
        else:
            # the norm after the last layer; tables, places, projection
            depth = layers if part[1] == "stack" else 0
        assert rate == pytest.approx(0.8 ** (layers + 2 - depth)), name
    assert rates["backbone.embedding.token.weight"] == pytest.approx(0.8**6)
    assert rates["backbone.stack.blocks.f.3.cell.up.weight"] == pytest.approx(0.8**2)
    assert rates["heads.class.linear.weight"] == 1.0


def test_one_rate_for_all_without_it():
    assert set(_rates(decay=1.0).values()) == {1.0}


def test_shared_blocks_have_the_depth_of_their_last_layer():
    shared = _rates("model.stack.layout=af@4")  # one distinct layer
    assert shared["backbone.stack.blocks.a.0.cell.qkv.weight"] == pytest.approx(0.8**2)
    assert shared["backbone.embedding.token.weight"] == pytest.approx(0.8**3)
    partly = _rates("+model.stack.share={a: 2}")  # a.0 serves layers 1 and 2, a.1 layers 3 and 4
    for copy, depth in ((0, 2), (1, 4)):
        assert partly[f"backbone.stack.blocks.a.{copy}.cell.qkv.weight"] == pytest.approx(
            0.8 ** (6 - depth)
        )
    assert partly["backbone.stack.blocks.f.0.cell.up.weight"] == pytest.approx(0.8**5)


def test_scales_win_and_decay_is_apart():
    named = [
        (name, torch.nn.Parameter(torch.zeros(2, 2)))
        for name in ("backbone.stack.blocks.a.0.w", "heads.x.w", "objective.y")
    ]
    found = groups(named, lr=2.0, weight_decay=0.1, layer_decay=0.5, scales={"heads.*": 3.0})
    assert {name: group["lr"] for group in found for name, _ in group["params"]} == {
        "backbone.stack.blocks.a.0.w": 0.5,
        "heads.x.w": 6.0,
        "objective.y": 2.0,
    }
    assert layer_scales([], 0.5) == {}


def test_it_is_a_setting_of_adamw():
    cfg = config.compose(
        "finetune", None, ["task=sst2", "task.path=x", "checkpoint=null", "optim.layer_decay=0.8"]
    )
    named = [
        ("backbone.stack.blocks.a.0.w", torch.nn.Parameter(torch.ones(2, 2))),
        ("heads.w", torch.nn.Parameter(torch.ones(2, 2))),
    ]
    optimizer = build(cfg.optim, path="optim")(parameters=named)
    assert [group["initial_lr"] for group in optimizer.param_groups] == pytest.approx(
        [2e-5 * 0.64, 2e-5]
    )
    for wrong in (0.0, 1.5):
        with pytest.raises(ConfigError, match=r"optim\.layer_decay"):
            build({**cfg.optim, "layer_decay": wrong}, path="optim")(parameters=named)
