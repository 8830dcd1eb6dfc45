"""GPT-Neo against `transformers` in odd configurations: logits, losses, gradients, weights there
and back.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import plmctl
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.interop.names import to_theirs
from tests.interop.test_encoder_decoders import Double
from tests.interop.test_translation_families import assert_equal

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

BOTH = ["global", "local"]
MEMBERS: list[dict[str, Any]] = [
    {"attention_types": [[BOTH, 1]], "num_layers": 2, "window_size": 3},
    {"attention_types": [[["global"], 3]], "num_layers": 3, "activation_function": "relu"},
    {"attention_types": [[["local"], 1], [BOTH, 1]], "num_layers": 3, "window_size": 1,
     "intermediate_size": 21, "tie_word_embeddings": False, "activation_function": "silu"},
]  # fmt: skip


def make(settings: dict[str, Any]) -> Any:
    numbers = {"vocab_size": 43, "hidden_size": 16, "num_heads": 2, "max_position_embeddings": 12}
    torch.manual_seed(0)
    config = transformers.GPTNeoConfig(**numbers | settings, bos_token_id=0, eos_token_id=0)
    model = transformers.GPTNeoForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def compare(model: Any, loaded: plmctl.Loaded, tolerance: float, how: Any = nullcontext) -> None:
    ids = torch.randint(1, 43, (3, 9), generator=torch.Generator().manual_seed(1))
    length = torch.tensor([9, 5, 1])
    text = Seq(ids, length)
    logits = loaded.model.heads["clm"](loaded.model(Batch(torch.arange(3), {"text": text})).last)
    with how():
        wanted = model(ids, attention_mask=text.real.long()).logits
    assert_equal(logits[text.real], wanted[text.real], tolerance)
    follows = text.real[:, 1:]
    losses = [
        torch.nn.functional.cross_entropy(one[:, :-1][follows], ids[:, 1:][follows])
        for one in (logits, wanted)
    ]
    assert_equal(*losses, tolerance)
    for one, loss in zip((loaded.model, model), losses, strict=True):
        one.zero_grad()
        loss.backward()
    family = next(f for f in hf.FAMILIES if f.model_type == "gpt_neo")
    own = {name: p.grad for name, p in loaded.model.named_parameters() if p.grad is not None}
    numbers = family.measure(loaded.config, loaded.source.tensors, 0)
    architecture = next(a for a in family.architectures if a.name == "GPTNeoForCausalLM")
    found, left = to_theirs(own, family.table(numbers, architecture))
    assert not left
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        assert_equal(found[name][: len(grad)], grad, tolerance)


@pytest.mark.parametrize("settings", MEMBERS)
def test_odd_configurations_agree_there_and_back(settings: dict[str, Any], tmp_path: Path) -> None:
    model = make(settings)
    model.save_pretrained(tmp_path / "a")
    loaded = plmctl.load(tmp_path / "a")
    assert not loaded.source.unused
    compare(model, loaded, 1e-5)
    loaded.model.double(), model.double()
    compare(model, loaded, 1e-12, Double)
    exported = hf.export(loaded.config, loaded.source.tensors)
    assert (exported.architecture, exported.left_out) == ("GPTNeoForCausalLM", [])
    hf.write(tmp_path / "b", exported, tokens={})
    again, info = transformers.GPTNeoForCausalLM.from_pretrained(
        tmp_path / "b", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    for name, tensor in model.float().state_dict().items():
        assert again.state_dict()[name].equal(tensor), name
    assert again.config.attention_layers == model.config.attention_layers
    back = hf.read(tmp_path / "b")
    assert back.config == loaded.source.config | {"position": back.config["position"]}
    assert all(back.tensors[key].equal(one) for key, one in loaded.source.tensors.items())


def test_layers_of_another_number_are_refused() -> None:
    family = next(f for f in hf.FAMILIES if f.model_type == "gpt_neo")
    settings = make(MEMBERS[0]).config.to_dict() | {"attention_types": [[BOTH, 4]]}
    with pytest.raises(ConfigError, match="attention_types"):
        family.numbers(settings)
