"""Adapters, prefixes, LoRA and IA3 against the library `adapters`: the first logits and the losses
of ten updates from one start, which `adapters_library.py` has stored.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import plmctl
from plmctl.artifacts.assemble import build_model
from plmctl.nn.restrained import Restrained
from plmctl.training.checkpoint import load_tensors
from plmctl.training.freezing import apply_freezing
from tests.interop.adapters_library import (
    BERT,
    LENGTHS,
    METHODS,
    STORE,
    make_batch,
    spell,
    train,
    wave,
)
from tests.interop.publishing import publish
from tests.interop.test_families import batch

pytestmark = pytest.mark.parity
WANTED = json.loads(STORE.read_text(encoding="utf-8"))
PEFT = "plmctl.nn.peft"
PFEIFFER = {
    "_target_": f"{PEFT}.bottleneck.Bottleneck",
    "cells": ["feed-forward"],
    "inner_width": 4,
    "activation": "relu",
    "normed": True,
}
BESIDE = {"parallel": True, "scale": 4.0, "normed": False}
PREFIX = {"_target_": f"{PEFT}.prefix.PrefixTuning", "length": 3}
LORA = {"_target_": f"{PEFT}.lora.LowRank", "maps": ["query", "value", "up"], "rank": 3, "alpha": 6}
IA3 = {"_target_": f"{PEFT}.ia3.LearnedScales", "maps": ["key", "value"], "inputs": ["down"]}
BELOW = {"_target_": f"{PEFT}.fusion.TrainedAdapters", "runs": ["a"], "adapters": [PFEIFFER]}
FUSION = {
    "_target_": f"{PEFT}.fusion.AdapterFusion",
    "runs": ["a", "b"],
    "adapters": [PFEIFFER, PFEIFFER],
}
# a gate stands in place of the factor
GATED_LORA = LORA | {"maps": ["query", "value"], "alpha": 3}
UNIPELT = {
    "_target_": f"{PEFT}.gates.GatedMethod",
    "parts": {"prefix": PREFIX, "adapter": PFEIFFER, "lora": GATED_LORA},
}
COMPACTER = {
    "_target_": f"{PEFT}.compacter.Compacter",
    "cells": ["attention", "feed-forward"],
    "inner_width": 4,
    "activation": "gelu",
}
HOULSBY = {"cells": ["attention", "feed-forward"], "activation": "gelu", "normed": False}
NODES: dict[str, dict[str, Any]] = {
    "houlsby": {"own": PFEIFFER | HOULSBY},
    "pfeiffer": {"own": PFEIFFER},
    "parallel": {"own": PFEIFFER | BESIDE},
    "stack": {"below": BELOW, "own": PFEIFFER},
    "fusion": {"own": FUSION},
    "prefix": {"own": PREFIX},
    "prefix_network": {"own": PREFIX | {"inner_width": 5}},
    "lora": {"own": LORA},
    "ia3": {"own": IA3},
    "unipelt": {"own": UNIPELT},
    "compacter": {"own": COMPACTER},
}
CELLS = {"a": "attention.output", "f": "output"}
MODULES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "up": "intermediate.dense",
    "down": "intermediate.dense",  # IA3's: the library scales one step earlier
}
PARTS = {
    "down": "adapter_down.0.weight",
    "down_bias": "adapter_down.0.bias",
    "up": "adapter_up.weight",
    "up_bias": "adapter_up.bias",
}
FACTORS = {"left": "W_left", "right": "W_right", "bias": "b"}
NETWORK = {
    "vectors": "wte.weight",
    "first": "control_trans.0.weight",
    "first_bias": "control_trans.0.bias",
    "second": "control_trans.2.weight",
    "second_bias": "control_trans.2.bias",
}
PREFIXES = "bert.encoder.layer.0.attention.self.prefix_tuning.pool.prefix_tunings.a.self_prefix"


def find_value(name: str, like: Tensor, method: str) -> Tensor:
    """What the weight of the library has at first that stands where one of ours does."""
    if name.startswith("prefix."):  # one network for all layers
        return wave(f"{PREFIXES}.{NETWORK[name.removeprefix('prefix.')]}", like)
    found = re.fullmatch(r"stack\.blocks\.(\w)\.(\d)\.cell\.(?:(.+)\.)?(\w+)", name)
    assert found is not None
    letter, layer, way, last = found.groups()
    place = f"bert.encoder.layer.{layer}"
    if gate := re.fullmatch(r"(?:\w+\.)?(prefix|adapter|lora)\.(?:gate|gates\.(\w+))", way):
        kind, rows = gate.groups()
        owner = {
            "prefix": "attention.self.prefix_tuning.prefix_gates.a",
            "adapter": "output.adapters.a.gate",
            "lora": f"{MODULES.get(rows, rows)}.loras.a.gate",
        }
        return wave(f"{place}.{owner[kind]}.{last}", like)
    way = way.replace(".inner", "")
    if way == "prefix":  # one vector for all layers
        length, width = like.shape
        flat = wave(f"{PREFIXES}.control_trans", torch.empty(length * 2 * width))
        return flat.view(length, 2, width)[:, int(layer)]
    if way.startswith("compacter"):
        if last == "weight":  # of all layers
            return wave("bert.shared_parameters.a.phm_rule", like)
        map_of = "adapter_down.0" if ".down" in way else "adapter_up"
        return wave(f"{place}.{CELLS[letter]}.adapters.a.{map_of}.{FACTORS[last]}", like)
    if way == "fusion":
        return wave(f"{place}.output.adapter_fusion_layer.a,b.{end(last)}", like)
    if way == "adapter" or "adapters" in way:
        number = int(way[-1]) if "adapters" in way else int(method == "stack")
        return wave(f"{place}.{CELLS[letter]}.adapters.{'ab'[number]}.{PARTS[last]}", like)
    side = "A" if way.endswith("lora.down") else "B"
    return wave(spell(f"{place}.{MODULES[last]}.loras.a.lora_{side}", method), like)


def end(name: str) -> str:
    """`query` -> `query.weight`, `query_bias` -> `query.bias`."""
    return name.replace("_", ".") if name.endswith("_bias") else f"{name}.weight"


def publish_waves(folder: Path, **settings: Any) -> Path:
    """A published BERT, every weight of which follows from its name."""
    publish(folder, "BertForMaskedLM", **(BERT | settings))
    file = folder / "model.safetensors"
    tensors = {name: wave(name, tensor).float() for name, tensor in load_file(file).items()}
    save_file(tensors, file, {"format": "pt"})
    return folder


@pytest.mark.parametrize("name", NODES)
def test_ten_updates_have_the_losses_of_the_library(name: str, tmp_path: Path) -> None:
    loaded = plmctl.load(publish_waves(tmp_path, hidden_act=METHODS[name].get("act", "gelu")))
    config = {**loaded.config, "peft": NODES[name]}
    model = build_model(config, vocab_size=loaded.source.vocab_size, seed=5).double().eval()
    load_tensors(model, loaded.source.tensors)
    names = {part for method in model.methods for part in method.trains(model.backbone)}
    for part, weight in model.backbone.named_parameters():
        if part in names or ".adapters." in part:
            weight.data.copy_(find_value(part, weight, name))
    apply_freezing(model, trainable=[f"backbone.{part}" for part in names])
    ids, mask, labels = make_batch(METHODS[name].get("lengths", LENGTHS))
    given = batch(ids, mask)
    restrained = [part for part in model.modules() if isinstance(part, Restrained)]
    found = train(
        lambda: model.heads["mlm"](model(given).last),
        labels,
        [weight for weight in model.parameters() if weight.requires_grad],
        lambda: sum(part.penalty() for part in restrained),
    )
    assert found["first"] == pytest.approx(WANTED[name]["first"], rel=1e-8, abs=1e-9)
    assert found["losses"] == pytest.approx(WANTED[name]["losses"], rel=1e-8)
    assert found["losses"][-1] < 0.98 * found["losses"][0]
