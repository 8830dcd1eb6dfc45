"""fairseq's checkpoints of RoBERTa and BART: a folder with `model.pt` and `dict.txt`. Nothing of
the pickle in the file is executed (pickled.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import DataError
from plmctl.interop import hf
from plmctl.interop.names import Tensors
from plmctl.interop.pickled import SavedRecord, StoredTensor, read_pickled
from plmctl.interop.settings import Config
from plmctl.interop.sizes import guess_heads

WORDS = "dict.txt"
NAMES = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
PAD = 1  # the id of padding
# names of activations, theirs -> those of transformers; `gelu` is the exact form
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "gelu_accurate": "gelu_new", "gelu_fast": "gelu_new"}
SKIPPED = re.compile(r"(^|\.)version$|_float_tensor$|^decoder\.output_projection\.")
RENAMED = (
    (r"^(?:encoder|decoder)\.sentence_encoder\.layers\.", "roberta.encoder.layer."),
    (r"^(?:encoder|decoder)\.sentence_encoder\.", "roberta.embeddings."),
    (r"^(?:encoder|decoder)\.lm_head\.weight$", "lm_head.decoder.weight"),
    (r"^(?:encoder|decoder)\.lm_head\.", "lm_head."),
    (r"^(roberta\.embeddings)\.embed_tokens\.", r"\1.word_embeddings."),
    (r"^(roberta\.embeddings)\.embed_positions\.", r"\1.position_embeddings."),
    (r"^(roberta\.embeddings)\.(emb_layer_norm|layernorm_embedding)\.", r"\1.LayerNorm."),
    (r"(\.layer\.\d+)\.self_attn\.q_proj\.", r"\1.attention.self.query."),
    (r"(\.layer\.\d+)\.self_attn\.k_proj\.", r"\1.attention.self.key."),
    (r"(\.layer\.\d+)\.self_attn\.v_proj\.", r"\1.attention.self.value."),
    (r"(\.layer\.\d+)\.self_attn\.out_proj\.", r"\1.attention.output.dense."),
    (r"(\.layer\.\d+)\.self_attn_layer_norm\.", r"\1.attention.output.LayerNorm."),
    (r"(\.layer\.\d+)\.fc1\.", r"\1.intermediate.dense."),
    (r"(\.layer\.\d+)\.fc2\.", r"\1.output.dense."),
    (r"(\.layer\.\d+)\.final_layer_norm\.", r"\1.output.LayerNorm."),
)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder has a model of fairseq and no config.json."""
    has = (folder / WORDS).is_file() and any(folder.glob("*.pt"))
    return has and not (folder / "config.json").is_file()


def read(folder: Path) -> hf.Imported:
    """The model of a folder.

    Raises:
        DataError: Its pickle names other code, or it is neither RoBERTa nor BART.
    """
    files = sorted(folder.glob("*.pt"))
    file = next((folder / name for name in NAMES if folder / name in files), files[0])
    saved = read_pickled(file)
    content = saved.content if isinstance(saved.content, Mapping) else {}
    stored = content.get("model")
    if not isinstance(stored, Mapping):
        raise DataError("it has no model of fairseq", file=file, fix=f"give {' or '.join(NAMES)}")
    kept = {
        name: value
        for name, value in stored.items()
        if isinstance(value, StoredTensor) and not SKIPPED.search(name)
    }
    stated = _find_settings(content)
    if any(".sentence_encoder." in name for name in kept):
        stated = _state_heads(stated, kept, file, "encoder")
        return _read_roberta(folder, file, stated, lambda: saved.read(kept), kept)
    if "encoder.embed_tokens.weight" in kept and "decoder.embed_tokens.weight" in kept:
        stated = _state_heads(stated, kept, file, "encoder", "decoder")
        settings = _measure_bart(stated, kept)
        return hf.understand(settings, lambda: _rename_bart(saved.read(kept), stated), folder)
    shown = ", ".join(list(kept)[:3])
    raise DataError(f"it is neither RoBERTa nor BART: {shown}", file=file, fix="plmctl models ls")


def _read_roberta(
    folder: Path, file: Path, stated: Config, tensors: Any, kept: Config
) -> hf.Imported:
    if any(re.search(r"sentence_encoder\.layer_norm\.", name) for name in kept):
        what = "its norms stand before the layers, and RoBERTa's behind them"
        raise DataError(what, file=file, fix="plmctl models ls lists the families that are read")
    return hf.understand(
        _measure_roberta(stated, kept), lambda: _rename_roberta(tensors(), file), folder
    )


def _find_settings(content: Mapping[str, Any]) -> Config:
    """The settings of the model: `args`, or `cfg.model` of later versions."""
    args, whole = _plain(content.get("args")), _plain(content.get("cfg"))
    inner = whole.get("model") if isinstance(whole, Mapping) else None
    return next((each for each in (args, inner) if isinstance(each, Mapping)), {})


def _plain(value: Any) -> Any:
    """The values of a record; those of omegaconf are in `_content` and `_val`."""
    own = getattr(value, "values", {}) if isinstance(value, SavedRecord) else value
    if not isinstance(own, Mapping):
        return own
    for key in ("_content", "_val"):
        if key in own:
            return _plain(own[key])
    return {key: _plain(each) for key, each in own.items()}


def _find_shape(kept: Mapping[str, StoredTensor], end: str) -> tuple[int, ...]:
    return next((each.shape for name, each in kept.items() if name.endswith(end)), (0, 0))


def _count_layers(kept: Config, end: str) -> int:
    pattern = re.compile(rf"{end}(?:\.sentence_encoder)?\.layers\.(\d+)\.")
    return len({match[1] for name in kept if (match := pattern.match(name))})


def _state_heads(
    stated: Config, kept: Mapping[str, StoredTensor], file: Path, *ends: str
) -> Config:
    """The settings with the numbers of heads, which no shape says."""
    keys = [f"{end}_attention_heads" for end in ends]
    if all(stated.get(key) for key in keys):
        return stated
    width = _find_shape(kept, "embed_tokens.weight")[1]
    guessed = guess_heads(width, file.parent, "`args`")
    return {**stated, **{key: stated.get(key) or guessed for key in keys}}


def _spell_activation(stated: Config) -> str:
    name = str(stated.get("activation_fn") or "gelu")
    return ACTIVATIONS.get(name, name)  # another one is refused by its name


def _measure_roberta(stated: Config, kept: Mapping[str, StoredTensor]) -> dict[str, Any]:
    rows, width = _find_shape(kept, "embed_tokens.weight")
    layers = _count_layers(kept, "encoder") or _count_layers(kept, "decoder")
    return {
        "model_type": "roberta",
        "vocab_size": rows,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": stated["encoder_attention_heads"],
        "intermediate_size": _find_shape(kept, "fc1.weight")[0],
        "hidden_act": _spell_activation(stated),
        "hidden_dropout_prob": stated.get("dropout", 0.1),
        "attention_probs_dropout_prob": stated.get("attention_dropout", 0.1),
        "max_position_embeddings": _find_shape(kept, "embed_positions.weight")[0],
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": PAD,
    }


def _rename_roberta(tensors: Tensors, file: Path) -> Tensors:
    """The tensors by the names of transformers, with the token type that is zero."""
    tensors = _divide(tensors)
    heads = sorted({name.split(".")[1] for name in tensors if name.startswith(_HEADS)})
    if len(heads) > 1:
        what = f"it has the classifiers {', '.join(heads)}"
        raise DataError(f"{what}, and one is read", file=file, fix="leave one of them in the file")
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        spelled = re.sub(rf"^{re.escape(_HEADS)}\w+\.", "classifier.", name)
        for pattern, new in RENAMED:
            spelled = re.sub(pattern, new, spelled)
        renamed[spelled] = tensor
    width = renamed["roberta.embeddings.word_embeddings.weight"].shape[1]
    renamed["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, width)
    return renamed


_HEADS = "classification_heads."


def _divide(tensors: Tensors) -> Tensors:
    """Tensors with three maps instead of `in_proj`, whose rows are q, k, v."""
    divided: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place, mark, kind = name.rpartition("in_proj_")
        if not mark:
            divided[name] = tensor
            continue
        for letter, part in zip("qkv", tensor.chunk(3), strict=True):
            divided[f"{place}{letter}_proj.{kind}"] = part.contiguous()
    return {name: t.float() if t.is_floating_point() else t for name, t in divided.items()}


def _measure_bart(stated: Config, kept: Mapping[str, StoredTensor]) -> dict[str, Any]:
    rows, width = _find_shape(kept, "encoder.embed_tokens.weight")
    own = {
        key: value
        for end in ("encoder", "decoder")
        for key, value in {
            f"{end}_layers": _count_layers(kept, end),
            f"{end}_attention_heads": stated[f"{end}_attention_heads"],
            f"{end}_ffn_dim": _find_shape(kept, f"{end}.layers.0.fc1.weight")[0],
        }.items()
    }
    return {
        "model_type": "bart",
        "vocab_size": rows,
        "d_model": width,
        **own,
        "activation_function": _spell_activation(stated),
        "dropout": stated.get("dropout", 0.1),
        "attention_dropout": stated.get("attention_dropout", 0.0),
        "activation_dropout": stated.get("activation_dropout", 0.0),
        "max_position_embeddings": _find_shape(kept, "embed_positions.weight")[0] - 2,
        "scale_embedding": not stated.get("no_scale_embedding", True),
        "normalize_before": bool(stated.get("encoder_normalize_before", False)),
        "decoder_start_token_id": 2,
        "pad_token_id": PAD,
    }


def _rename_bart(tensors: Tensors, stated: Config) -> Tensors:
    """The tensors by the names of transformers: one table, and a bias of zeros."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in _divide(tensors).items():
        if name.startswith(_HEADS):
            renamed[re.sub(rf"^{re.escape(_HEADS)}\w+\.", "classification_head.", name)] = tensor
        else:
            renamed[f"model.{name}"] = tensor
    table = renamed["model.encoder.embed_tokens.weight"]
    for end in ("encoder", "decoder"):
        del renamed[f"model.{end}.embed_tokens.weight"]
    return {
        **renamed,
        "model.shared.weight": table,
        "final_logits_bias": table.new_zeros(1, len(table)),
    }
