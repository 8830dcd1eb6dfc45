"""The numbers of `adapters_library.json`: what the library `adapters` (AdapterHub) computes.

    python -m venv adv && adv/bin/pip install torch adapters
    adv/bin/python tests/interop/adapters_library.py

The library needs a `transformers` before 5, and so an environment of its own; plmctl is not needed
there. `test_adapters_library.py` computes the same numbers from the same weights, which are waves
of their names, and of the same batch: the first logits and the losses of ten updates by AdamW.
`folder` has what the library saves of an adapter: its config, and the names and shapes of its
tensors.
"""

from __future__ import annotations

import json
import re
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STORE = Path(__file__).with_suffix(".json")
BERT: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "layer_norm_eps": 1e-12,
}
LENGTHS = (9, 6)
RATE = 1e-2
FACTOR = 4  # of the width, 16: adapters are 4 columns wide inside
# settings of the library by what we call them; `names`: of the adapters, the last one is trained
METHODS: dict[str, dict[str, Any]] = {
    "houlsby": {"kind": "DoubleSeqBnConfig", "reduction_factor": FACTOR, "non_linearity": "gelu"},
    "pfeiffer": {"kind": "SeqBnConfig", "reduction_factor": FACTOR},
    "parallel": {"kind": "ParBnConfig", "reduction_factor": FACTOR},
    "stack": {"kind": "SeqBnConfig", "reduction_factor": FACTOR, "names": ["a", "b"]},
    "fusion": {"kind": "SeqBnConfig", "reduction_factor": FACTOR, "names": ["a", "b"]},
    "prefix": {"kind": "PrefixTuningConfig", "flat": True, "prefix_length": 3},
    "prefix_network": {"kind": "PrefixTuningConfig", "prefix_length": 3, "bottleneck_size": 5},
    "lora": {"kind": "LoRAConfig", "r": 3, "alpha": 6, "intermediate_lora": True},
    # the library scales before the activation, and the paper behind it: the same with this one
    "ia3": {"kind": "IA3Config", "act": "relu"},
    # rows without padding: the library's gates read padding, too
    "unipelt": {
        "kind": "UniPELTConfig",
        "lengths": (9, 9),
        "parts": {
            "prefix_tuning": {"kind": "PrefixTuningConfig", "flat": True, "prefix_length": 3},
            "adapter": {"kind": "SeqBnConfig", "reduction_factor": FACTOR},
            "lora": {"kind": "LoRAConfig", "r": 3, "alpha": 6},
        },
    },
    "compacter": {"kind": "CompacterConfig", "reduction_factor": FACTOR},
    "mam": {
        "kind": "MAMConfig",
        "parts": {
            "prefix_tuning": {"kind": "PrefixTuningConfig", "flat": True, "prefix_length": 3},
            "adapter": {
                "kind": "ParBnConfig",
                "reduction_factor": FACTOR,
                "scaling": "learned",
                "leave_out": [0],
            },
        },
    },
}
POOL = "bert.encoder.layer.0.attention.self.prefix_tuning.pool."  # the first name of prefixes


def wave(name: str, tensor: Tensor) -> Tensor:
    """Numbers of this shape that follow from a name, exact in float32; a norm's factors are near 1,
    IA3's, too.
    """
    phase = zlib.crc32(name.encode()) % 1000
    steps = torch.arange(tensor.numel(), dtype=torch.float64).reshape(tensor.shape)
    own = (phase + 0.7 * steps + (0.013 * steps).square()).sin()
    own = 1 + 0.1 * own if name.endswith(("LayerNorm.weight", "scale")) else 0.25 * own
    return own.float().double()


def make_batch(lengths: Sequence[int] = LENGTHS) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, their mask, and labels, -100 at padding: [B, T] each."""
    ids = torch.arange(2 * lengths[0]).mul(7).remainder(31).add(5).reshape(2, -1)
    mask = torch.arange(lengths[0]) < torch.tensor(lengths)[:, None]
    labels = ids.mul(3).remainder(40).masked_fill(~mask, -100)
    return ids * mask, mask, labels


def train(
    read: Callable[[], Tensor],
    labels: Tensor,
    trained: list[nn.Parameter],
    penalty: Callable[[], Tensor | float] = lambda: 0.0,
) -> dict[str, list[float]]:
    """The first logits of two tokens, and the losses of ten updates.

    Args:
        read: gives the logits [B, T, V].
        penalty: what is added to the loss.
    """
    optimizer = torch.optim.AdamW(trained, lr=RATE)
    first, losses = list[float](), list[float]()
    for _ in range(10):
        logits = read()
        first = first or logits[:, 2, :6].flatten().tolist()
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + penalty()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"first": first, "losses": losses}


def make(name: str) -> tuple[Any, list[str]]:
    """A model of the library with the adapters of a method, and their names."""
    import adapters
    from transformers import BertConfig, BertForMaskedLM

    settings = dict(METHODS[name])
    names, _ = settings.pop("names", ["a"]), settings.pop("lengths", LENGTHS)
    config = BertConfig(**BERT, hidden_act=settings.pop("act", "gelu"))
    model: Any = BertForMaskedLM(config).double().eval()
    adapters.init(model)
    for each in names:
        model.add_adapter(each, config=configure(settings))
    return model, names


def save(name: str, folder: Path) -> dict[str, Any]:
    """The folder that the library saves: its config, and {the name of a tensor: its shape}."""
    model, names = make(name)
    model.save_adapter(str(folder), names[-1], with_head=False)
    tensors = torch.load(folder / "pytorch_adapter.bin", weights_only=True)
    return {
        "config": json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")),
        "tensors": {key: list(tensor.shape) for key, tensor in tensors.items()},
    }


def run(name: str) -> dict[str, list[float]]:
    """The results of the library with a method."""
    from adapters import composition

    model, names = make(name)
    lengths = METHODS[name].get("lengths", LENGTHS)
    if name == "fusion":
        fuse = composition.Fuse(*names)
        model.add_adapter_fusion(fuse)
        model.set_active_adapters(fuse)
    else:
        model.set_active_adapters(composition.Stack(*names))
    model.double()
    mark = "adapter_fusion_layer." if name == "fusion" else f".{names[-1]}."
    trained = []
    for part, weight in model.named_parameters():
        weight.data.copy_(wave(spell(part, name), weight))
        weight.requires_grad = mark in part
        trained += [weight] if mark in part else []
    ids, mask, labels = make_batch(lengths)
    penalty = model.base_model.get_fusion_regularization_loss if name == "fusion" else lambda: 0.0
    return train(lambda: model(ids, attention_mask=mask.long()).logits, labels, trained, penalty)


def configure(settings: Mapping[str, Any]) -> Any:
    """The config of the library, with those of its parts."""
    import adapters

    own = {key: value for key, value in settings.items() if key not in ("kind", "parts")}
    own |= {key: configure(part) for key, part in settings.get("parts", {}).items()}
    return getattr(adapters, settings["kind"])(**own)


def spell(part: str, method: str) -> str:
    """The name of a weight of the library, as `wave` takes it."""
    return f"{part}.scale" if method == "ia3" and ".loras." in part else part


def main() -> None:
    import adapters
    import transformers

    found: dict[str, Any] = {"adapters": adapters.__version__}
    found |= {"transformers": transformers.__version__}
    for name in METHODS:
        found[name] = {key: [float(f"{x:.10g}") for x in own] for key, own in run(name).items()}
        if "names" not in METHODS[name]:
            with tempfile.TemporaryDirectory() as place:
                found[name]["folder"] = save(name, Path(place))
        print(name, found[name]["losses"][0], found[name]["losses"][-1])
    text = re.sub(r"\[\s+([\d,\s]+?)\s+\]", shorten, json.dumps(found, indent=1))
    STORE.write_text(text + "\n", encoding="utf-8")


def shorten(found: re.Match[str]) -> str:
    """A list of whole numbers on one line."""
    return f"[{' '.join(found[1].split())}]"


if __name__ == "__main__":
    main()
