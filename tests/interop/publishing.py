"""Published models of tiny size with random weights, norms and biases perturbed, saved as
`save_pretrained` writes them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

VOCAB = 40


def publish(place: Path, name: str, *, perturb: float = 0.2, **changes: Any) -> tuple[Any, Path]:
    """`publish(place, "BertForMaskedLM", num_labels=3)` -> (the transformers model in eval mode,
    the folder `place`).
    """
    transformers = pytest.importorskip("transformers")
    if "GPT" in name:
        kind = transformers.GPT2Config if name.startswith("GPT2") else transformers.OpenAIGPTConfig
        numbers: dict[str, Any] = {
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 12,
            "pad_token_id": 0,
        }
        numbers |= {"bos_token_id": 0, "eos_token_id": 0}
    elif name.startswith(("T5", "MT5", "UMT5")):
        kind, numbers = (
            getattr(transformers, f"{name.partition('5')[0]}5Config"),
            {"d_model": 16, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 2},
        )
        numbers |= {
            "d_kv": 8,
            "d_ff": 24,
            "relative_attention_max_distance": 20,
            "decoder_start_token_id": 0,
        }
    elif name.startswith(("Bart", "Marian", "MBart")):
        kind = getattr(transformers, f"{re.match('M?[A-Z][a-z]+', name)[0]}Config")
        numbers = {
            "d_model": 16,
            "encoder_layers": 2,
            "encoder_ffn_dim": 24,
            "encoder_attention_heads": 2,
        }
        numbers |= {
            "decoder_layers": 3,
            "decoder_ffn_dim": 20,
            "decoder_attention_heads": 4,
            "max_position_embeddings": 12,
        }
        numbers |= {
            "pad_token_id": 1,
            "decoder_start_token_id": 1 if name.startswith("Marian") else 2,
        }
    else:
        first = re.match("(?:Big|MP)?[A-Z][a-z]+", name)
        kind = getattr(transformers, f"{first[0]}Config")
        numbers = {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
        }
        numbers |= {
            "max_position_embeddings": 12,
            "layer_norm_eps": 1e-5 if name.startswith("Roberta") else 1e-12,
        }
        numbers |= (
            {"type_vocab_size": 1, "max_position_embeddings": 14}
            if name.startswith("Roberta")
            else {}
        )
        numbers |= {"embedding_size": 8} if name.startswith("Albert") else {}
    torch.manual_seed(0)
    model = getattr(transformers, name)(kind(**{"vocab_size": VOCAB} | numbers | changes)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        # Marian lists its sinusoids too
        for parameter in [one for one in model.parameters() if one.requires_grad]:
            parameter.add_(perturb * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(place)
    return model, place
