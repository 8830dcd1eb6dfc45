"""NeoBERT as the code beside its files computes it (chandar-lab/NeoBERT, model.py): complex numbers
for positions, one map for queries, keys and values of each head, SwiGLU.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F


def turn(x: Tensor, waves: Tensor) -> Tensor:
    """[B, T, H, D] by waves [T, D / 2]."""
    complex_x = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(complex_x * waves[None, :, None]).flatten(3)


class SwiGLU(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(width, 2 * inner, bias=False)
        self.w3 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(first) * second)


class EncoderBlock(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads, width = config.num_attention_heads, config.hidden_size
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        inner = int(2 * config.intermediate_size / 3)
        self.ffn = SwiGLU(width, 8 * ((inner + 7) // 8))
        self.attention_norm = nn.RMSNorm(width, config.norm_eps)
        self.ffn_norm = nn.RMSNorm(width, config.norm_eps)

    def forward(self, x: Tensor, seen: Tensor, waves: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.attention_norm(x)).view(batch, length, self.heads, -1)
        q, k, v = split.chunk(3, dim=-1)
        q, k = turn(q, waves), turn(k, waves)
        parts = (each.transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(*parts, attn_mask=seen)
        x = x + self.wo(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.ffn(self.ffn_norm(x))


class NeoBERT(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size)
        blocks = (EncoderBlock(config) for _ in range(config.num_hidden_layers))
        self.transformer_encoder = nn.ModuleList(blocks)
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.encoder(ids)
        width = self.config.hidden_size // self.config.num_attention_heads
        rates = 1.0 / 10000.0 ** (torch.arange(0, width, 2, dtype=x.dtype) / width)
        angles = torch.outer(torch.arange(ids.shape[1], dtype=x.dtype), rates)
        waves = torch.polar(torch.ones_like(angles), angles)
        for block in self.transformer_encoder:
            x = block(x, mask[:, None, None, :].bool(), waves)
        return self.layer_norm(x)


class LMHead(nn.Module):
    name = "NeoBERTLMHead"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.model = config, NeoBERT(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Any:
        return SimpleNamespace(logits=self.decoder(self.model(ids, attention_mask)))


class Classifier(nn.Module):
    name = "NeoBERTForSequenceClassification"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.model = config, NeoBERT(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Any:
        first = self.model(ids, attention_mask)[:, 0]
        return SimpleNamespace(logits=self.classifier(torch.tanh(self.dense(first))))


def save(folder: Path, model: Any) -> None:
    """Write a folder as the authors' is, with the name of its code."""
    code = {"AutoConfig": "model.NeoBERTConfig", "AutoModel": "model.NeoBERT"}
    own = {"model_type": "neobert", "architectures": [model.name], "auto_map": code}
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**vars(model.config), **own, "classifier_dropout": 0.0}
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(model.state_dict(), folder / "model.safetensors", {"format": "pt"})
