"""NEZHA, whose class `transformers` has no longer, against its formulas by loops over heads and
pairs of tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.core.batch import Batch, Seq

W, V = 12, 23
Tensors = dict[str, Tensor]
ODD: list[dict[str, Any]] = [
    {"hidden_act": "gelu", "max_relative_position": 2, "num_attention_heads": 3},
    {"hidden_act": "relu", "max_relative_position": 64, "num_attention_heads": 2},
    {"hidden_act": "tanh", "max_relative_position": 5, "type_vocab_size": 4},
]


def publish(place: Path, odd: dict[str, Any]) -> tuple[dict[str, Any], Tensors]:
    """A folder as version 4 wrote it: for pretraining, the table of outputs tied."""
    settings = {"model_type": "nezha", "architectures": ["NezhaForPreTraining"], "vocab_size": V}
    settings |= {"hidden_size": W, "num_hidden_layers": 2, "intermediate_size": 20}
    settings |= {"num_attention_heads": 2, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
    settings |= {"max_position_embeddings": 40, "pad_token_id": 0, **odd}
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (V, W),
        "embeddings.token_type_embeddings.weight": (settings["type_vocab_size"], W),
    }
    norms, maps = ["embeddings.LayerNorm"], {"pooler.dense": (W, W)}
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        maps |= {f"{layer}.attention.self.{name}": (W, W) for name in ("query", "key", "value")}
        maps |= {f"{layer}.attention.output.dense": (W, W)}
        maps |= {f"{layer}.intermediate.dense": (20, W), f"{layer}.output.dense": (W, 20)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    heads = {"cls.predictions.transform.dense": (W, W), "cls.seq_relationship": (2, W)}
    shapes |= {f"{name}.weight": shape for name, shape in maps.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in maps.items()}
    shapes |= {f"{name}.{end}": (W,) for name in norms for end in ("weight", "bias")}
    shapes = {f"nezha.{name}": shape for name, shape in shapes.items()}
    shapes |= {f"{name}.weight": shape for name, shape in heads.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in heads.items()}
    shapes |= {f"cls.predictions.transform.LayerNorm.{end}": (W,) for end in ("weight", "bias")}
    shapes["cls.predictions.bias"] = (V,)
    torch.manual_seed(0)
    tensors = {name: 0.5 * torch.randn(shape) for name, shape in shapes.items()}
    place.mkdir()
    (place / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    save_file(tensors, place / "model.safetensors")
    return settings, tensors


def wave(distance: int, clip: int, width: int) -> Tensor:
    """The fixed vector of a distance: row `distance + clip` of a table of sinusoids."""
    row = max(-clip, min(clip, distance)) + clip
    steps = torch.arange(0, width, 2, dtype=torch.float64)
    angles = row * 10000.0 ** (-steps / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten()


def answer(settings: dict[str, Any], t: Tensors, ids: Tensor) -> tuple[Tensor, Tensor]:
    """(logits of tokens, logits of the pair) of one row [T]."""
    activation = getattr(F, settings["hidden_act"])
    heads, clip = settings["num_attention_heads"], settings["max_relative_position"]
    width = W // heads

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (W,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-12)

    table = t["nezha.embeddings.word_embeddings.weight"]
    first = t["nezha.embeddings.token_type_embeddings.weight"][0]
    x = norm(table[ids] + first, "nezha.embeddings.LayerNorm")
    for layer in ("nezha.encoder.layer.0", "nezha.encoder.layer.1"):
        parts = {n: linear(x, f"{layer}.attention.self.{n}") for n in ("query", "key", "value")}
        rows = []
        for i in range(len(ids)):
            seen = []
            for h in range(heads):
                q, k, v = (part[:, h * width : (h + 1) * width] for part in parts.values())
                moved = [wave(j - i, clip, width) for j in range(len(ids))]
                scores = [q[i] @ (k[j] + moved[j]) / width**0.5 for j in range(len(ids))]
                p = torch.stack(scores).softmax(0)
                seen.append(sum(p[j] * (v[j] + moved[j]) for j in range(len(ids))))
            rows.append(torch.cat(seen))
        attended = linear(torch.stack(rows), f"{layer}.attention.output.dense")
        x = norm(attended + x, f"{layer}.attention.output.LayerNorm")
        inner = activation(linear(x, f"{layer}.intermediate.dense"))
        x = norm(linear(inner, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    states = activation(linear(x, "cls.predictions.transform.dense"))
    states = norm(states, "cls.predictions.transform.LayerNorm")
    pooled = linear(x[0], "nezha.pooler.dense").tanh()
    logits = states @ table.T + t["cls.predictions.bias"]
    return logits, linear(pooled, "cls.seq_relationship")


@pytest.mark.parametrize("odd", ODD)
def test_a_folder_is_read_and_written_back(odd: dict[str, Any], tmp_path: Path) -> None:
    settings, tensors = publish(tmp_path / "published", odd)
    loaded = plmctl.load(tmp_path / "published")
    assert not loaded.source.unused
    model = loaded.model.double().eval()
    exact = {name: tensor.double().requires_grad_() for name, tensor in tensors.items()}
    ids = torch.tensor([[5, 9, 3, 17, 2, 9, 11], [4, 20, 8, 0, 0, 0, 0]])
    batch = Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([7, 3]), {})})
    last = model(batch).last
    totals = torch.zeros(2, dtype=torch.float64)
    for row, length in enumerate((7, 3)):
        wanted = answer(settings, exact, ids[row, :length])
        pooled = model.heads["pooler"](last[row, 0])
        found = model.heads["mlm"](last[row, :length]), model.heads["nsp"](pooled)
        for one, other in zip(found, wanted, strict=True):
            # sinusoids are computed in fp32
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        totals = totals + torch.stack([sum(x.sin().sum() for x in y) for y in (found, wanted)])
    for total in totals:
        total.backward(retain_graph=True)
    table = model.backbone.token_embedding.weight.grad[:V]
    wanted_grad = exact["nezha.embeddings.word_embeddings.weight"].grad
    torch.testing.assert_close(table, wanted_grad, rtol=1e-4, atol=1e-4)
    convert(tmp_path / "published", tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "back", to="hf")
    back = load_file(tmp_path / "back/model.safetensors")
    assert back.keys() == tensors.keys()
    assert all(back[name].equal(tensors[name]) for name in tensors)
    again = json.loads((tmp_path / "back/config.json").read_text(encoding="utf-8"))
    assert again["max_relative_position"] == settings["max_relative_position"]
