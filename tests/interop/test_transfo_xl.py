"""The layout of `transfo-xl-wt103` against a loop over its tensors by their documented names:
segments behind each other with the four terms of every score, and the probabilities of clusters.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import plmctl
from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.artifacts.convert import convert
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.nn.tables import real

WIDTH, HEADS, SIZE, LAYERS, VOCAB, LENGTH = 8, 2, 3, 2, 30, 4
CUTOFFS = [6, 14]
SMALL: dict[str, Any] = {
    "model_type": "transfo-xl",
    "architectures": ["TransfoXLLMHeadModel"],
    "vocab_size": VOCAB,
    "cutoffs": CUTOFFS,
    "d_model": WIDTH,
    "d_embed": WIDTH,
    "n_head": HEADS,
    "d_head": SIZE,
    "d_inner": 10,
    "n_layer": LAYERS,
    "div_val": 2,
    "pre_lnorm": False,
    "mem_len": 6,
    "clamp_len": 5,
    "same_length": True,
    "untie_r": True,
    "proj_share_all_but_first": True,
    "dropout": 0.1,
    "dropatt": 0.0,
    "layer_norm_epsilon": 1e-5,
}
KINDS = {
    "as published": {},
    "narrow vectors, not divided": {"div_val": 1, "d_embed": 6},
    "not divided": {"div_val": 1},
    "one pair of biases": {"untie_r": False},
    "norms first": {"pre_lnorm": True, "same_length": False, "clamp_len": -1},
    "own projections": {"proj_share_all_but_first": False},
}


def make_tensors(config: dict[str, Any]) -> dict[str, Tensor]:
    """Random numbers by the names of the published class."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return 0.5 * torch.randn(*shape, generator=generator)

    edges, divided = [0, *CUTOFFS, VOCAB], config["div_val"] > 1
    inner, embed = config["d_inner"], config["d_embed"]
    widths = [embed // config["div_val"] ** i for i in range(3)]
    tensors = {"transformer.pos_emb.inv_freq": torch.ones(WIDTH // 2)}
    if divided:
        for i, (low, high) in enumerate(itertools.pairwise(edges)):
            tensors[f"transformer.word_emb.emb_layers.{i}.weight"] = draw(high - low, widths[i])
            tensors[f"transformer.word_emb.emb_projs.{i}"] = draw(WIDTH, widths[i])
            tensors[f"crit.out_layers.{i}.bias"] = draw(high - low)
    else:
        tensors["transformer.word_emb.emb_layers.0.weight"] = draw(VOCAB, embed)
        tensors["crit.out_layers.0.bias"] = draw(VOCAB)
        if embed != WIDTH:
            tensors["transformer.word_emb.emb_projs.0"] = draw(WIDTH, embed)
    tensors |= {"crit.cluster_weight": draw(2, embed), "crit.cluster_bias": draw(2)}
    for name in [name for name in tensors if "emb_layers" in name]:
        tensors[name.replace("transformer.word_emb.emb", "crit.out")] = tensors[name].clone()
    tied = [False, *[config["proj_share_all_but_first"]] * 2]
    for i in range(3) if divided or embed != WIDTH else ():
        home = tensors[f"transformer.word_emb.emb_projs.{i if divided else 0}"]
        tensors[f"crit.out_projs.{i}"] = home.clone() if tied[i] else draw(*home.shape)
    shared = {name: draw(HEADS, SIZE) for name in ("r_w_bias", "r_r_bias")}
    if not config["untie_r"]:
        tensors |= {f"transformer.{name}": tensor for name, tensor in shared.items()}
    for layer in range(LAYERS):
        where = f"transformer.layers.{layer}"
        if config["untie_r"]:
            for name in shared:
                tensors[f"{where}.dec_attn.{name}"] = draw(HEADS, SIZE)
        shapes = {"qkv": (3 * HEADS * SIZE, WIDTH), "r": (HEADS * SIZE, WIDTH)}
        for name, shape in (shapes | {"o": (WIDTH, HEADS * SIZE)}).items():
            tensors[f"{where}.dec_attn.{name}_net.weight"] = draw(*shape)
        for number, shape in ((0, (inner, WIDTH)), (3, (WIDTH, inner))):
            tensors[f"{where}.pos_ff.CoreNet.{number}.weight"] = draw(*shape)
            tensors[f"{where}.pos_ff.CoreNet.{number}.bias"] = draw(shape[0])
        for norm in ("dec_attn", "pos_ff"):
            tensors[f"{where}.{norm}.layer_norm.weight"] = 1 + draw(WIDTH)
            tensors[f"{where}.{norm}.layer_norm.bias"] = draw(WIDTH)
    return tensors


class Published:
    """The published model, one token, head and key at a time, in float64."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.config = config
        self.tensors = {name: tensor.double() for name, tensor in tensors.items()}
        self.memory: list[list[Tensor]] = [[] for _ in range(LAYERS)]

    def embed(self, token: int) -> Tensor:
        edges, t = [0, *CUTOFFS, VOCAB], self.tensors
        cluster = sum(token >= edge for edge in CUTOFFS)
        if self.config["div_val"] == 1:
            vector = t["transformer.word_emb.emb_layers.0.weight"][token]
            project = t.get("transformer.word_emb.emb_projs.0")
        else:
            table = t[f"transformer.word_emb.emb_layers.{cluster}.weight"]
            vector = table[token - edges[cluster]]
            project = t[f"transformer.word_emb.emb_projs.{cluster}"]
        return (vector if project is None else project @ vector) * math.sqrt(WIDTH)

    def norm(self, x: Tensor, where: str) -> Tensor:
        weight, bias = (self.tensors[f"{where}.layer_norm.{name}"] for name in ("weight", "bias"))
        spread = ((x - x.mean()) ** 2).mean()
        return (x - x.mean()) / torch.sqrt(spread + 1e-5) * weight + bias

    def attend(self, layer: int, states: list[Tensor], place: int) -> Tensor:
        """For the state at `place` of `states`, which begin with the memory."""
        where, t = f"transformer.layers.{layer}.dec_attn", self.tensors
        u, v = (
            t.get(f"{where}.{name}", t.get(f"transformer.{name}"))
            for name in ("r_w_bias", "r_r_bias")
        )
        maps = t[f"{where}.qkv_net.weight"].view(3, HEADS, SIZE, WIDTH)
        places = t[f"{where}.r_net.weight"].view(HEADS, SIZE, WIDTH)
        parts = []
        for head in range(HEADS):
            q = maps[0, head] @ states[place]
            scores, values = [], []
            first = max(0, place - self.config["mem_len"] + 1) if self.config["same_length"] else 0
            for j in range(first, place + 1):
                far = place - j
                far = min(far, self.config["clamp_len"]) if self.config["clamp_len"] > 0 else far
                angles = [far / 10000 ** (i / WIDTH) for i in range(0, WIDTH, 2)]
                waves = [*map(math.sin, angles), *map(math.cos, angles)]
                r = places[head] @ torch.tensor(waves, dtype=torch.float64)
                k = maps[1, head] @ states[j]
                score = q @ k + q @ r + u[head] @ k + v[head] @ r
                scores.append(score / math.sqrt(SIZE))
                values.append(maps[2, head] @ states[j])
            shares = torch.stack(scores).softmax(0)
            parts.append(sum(p * value for p, value in zip(shares, values, strict=True)))
        return t[f"{where}.o_net.weight"] @ torch.cat(parts)

    def read(self, tokens: list[int]) -> Tensor:
        """[T, V] the log-probabilities of a segment."""
        states = [self.embed(token) for token in tokens]
        for layer in range(LAYERS):
            where, t = f"transformer.layers.{layer}", self.tensors
            seen = [*self.memory[layer], *states]
            self.memory[layer] = seen[-self.config["mem_len"] :]
            first = self.config["pre_lnorm"]
            read = [self.norm(x, f"{where}.dec_attn") for x in seen] if first else seen
            new = []
            for number, x in enumerate(states):
                x = x + self.attend(layer, read, len(seen) - len(states) + number)
                x = x if first else self.norm(x, f"{where}.dec_attn")
                inner = self.norm(x, f"{where}.pos_ff") if first else x
                for net in (0, 3):
                    weight, bias = (
                        t[f"{where}.pos_ff.CoreNet.{net}.{name}"] for name in ("weight", "bias")
                    )
                    inner = weight @ inner + bias
                    inner = inner.relu() if net == 0 else inner
                x = x + inner
                new.append(x if first else self.norm(x, f"{where}.pos_ff"))
            states = new
        return torch.stack([self.predict(x) for x in states])

    def predict(self, x: Tensor) -> Tensor:
        t, edges = self.tensors, [0, *CUTOFFS, VOCAB]
        logits = []
        for i, (low, high) in enumerate(itertools.pairwise(edges)):
            divided = self.config["div_val"] > 1
            table = t[f"crit.out_layers.{i if divided else 0}.weight"]
            bias = t[f"crit.out_layers.{i if divided else 0}.bias"]
            table, bias = (table, bias) if divided else (table[low:high], bias[low:high])
            project = t.get(f"crit.out_projs.{i}")
            inner = x if project is None else project.T @ x
            if i == 0:
                table = torch.cat([table, t["crit.cluster_weight"]])
                bias = torch.cat([bias, t["crit.cluster_bias"]])
            logits.append((table @ inner + bias).log_softmax(0))
        common = logits[0][: CUTOFFS[0]]
        rare = [logits[0][CUTOFFS[0] + i] + part for i, part in enumerate(logits[1:])]
        return torch.cat([common, *rare])


def publish(folder: Path, **changes: Any) -> dict[str, Tensor]:
    config = {**SMALL, **changes}
    tensors = make_tensors(config)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_three_segments(kind: str, tmp_path: Path) -> None:
    tensors = publish(tmp_path / "published", **KINDS[kind])
    theirs = Published({**SMALL, **KINDS[kind]}, tensors)
    loaded = plmctl.load(tmp_path / "published")
    assert not loaded.source.unused
    model = loaded.model.double()
    ids = torch.randint(0, VOCAB, (1, 3 * LENGTH), generator=torch.Generator().manual_seed(1))
    state = model.backbone.fresh_state(1, ids.device)
    for number, part in enumerate(ids.split(LENGTH, 1)):
        seq = Seq(part, torch.tensor([LENGTH]), full=True)
        values = {"continues": torch.tensor([number > 0])}
        hidden = model(Batch(torch.arange(1), {"text": seq}, values=values), state)
        state = hidden.state
        scores = model.heads["clm"](hidden.last[0])
        torch.testing.assert_close(scores, theirs.read(part[0].tolist()), rtol=0, atol=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    """Ours are the same bits; theirs too, if one pair of biases becomes one for each layer."""
    tensors = publish(tmp_path / "published", **KINDS[kind])
    convert(tmp_path / "published", tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    convert(tmp_path / "b", tmp_path / "c", to="plmctl")
    first, last = (load_file(tmp_path / place / "model.safetensors") for place in "ac")
    assert first.keys() == last.keys()
    assert all(first[key].equal(last[key]) for key in first)
    assert (tmp_path / "a/config.yaml").read_text() == (tmp_path / "c/config.yaml").read_text()
    again = load_file(tmp_path / "b/model.safetensors")
    for name, tensor in tensors.items():
        if name.startswith("transformer.r_"):
            name = name.replace("transformer.", "transformer.layers.1.dec_attn.")
        elif name.endswith("inv_freq"):
            tensor = torch.tensor([10000 ** (-i / WIDTH) for i in range(0, WIDTH, 2)])
        torch.testing.assert_close(again[name], tensor, rtol=1e-6, atol=0)
    stated = json.loads((tmp_path / "b/config.json").read_text())
    expected = {**SMALL, **KINDS[kind], "untie_r": True}
    assert {key: stated[key] for key in expected} == expected


def test_the_backbone_alone(tmp_path: Path) -> None:
    tensors = publish(tmp_path / "published")
    config = {**SMALL, "architectures": ["TransfoXLModel"]}
    (tmp_path / "published/config.json").write_text(json.dumps(config))
    bare = {
        name.removeprefix("transformer."): tensor
        for name, tensor in tensors.items()
        if not name.startswith("crit.")
    }
    save_file(bare, tmp_path / "published/model.safetensors", {"format": "pt"})
    loaded = plmctl.load(tmp_path / "published")
    assert (list(loaded.model.heads), loaded.source.unused) == ([], [])
    convert(tmp_path / "published", tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    assert load_file(tmp_path / "b/model.safetensors").keys() == bare.keys()


def test_our_recipe_is_published() -> None:
    table = "{_target_:plmctl.nn.adaptive.AdaptiveTable,cutoffs:[10,20],div_val:4}"
    words = ["size=tiny", "size.width=32", "size.inner_width=64", "size.num_heads=2"]
    words += ["format.max_length=8", "data.path=x", "objective=[clm_adaptive]"]
    words += [f"model.embedding.table={table}", "+model.embedding.table.proj_same_dim=true"]
    words += ["heads.clm.tie_projs=[false,true,true]"]
    config = compose("pretrain", "transformer_xl", words)
    model = build_model(config, vocab_size=40, seed=0)
    exported = hf.export(settle_lengths(config), real(model))
    assert exported.architecture == "TransfoXLLMHeadModel"
    settings = exported.settings
    assert (settings["cutoffs"], settings["d_head"], settings["mem_len"]) == ([10, 20], 16, 8)


def test_what_our_parts_cannot_express_is_named(tmp_path: Path) -> None:
    publish(tmp_path / "a", attn_type=1)
    with pytest.raises(ConfigError, match="attn_type"):
        plmctl.load(tmp_path / "a")
    publish(tmp_path / "b")
    (tmp_path / "b/config.json").write_text(json.dumps({**SMALL, "cutoffs": []}))
    with pytest.raises(ConfigError, match="cutoffs"):
        plmctl.load(tmp_path / "b")
