"""EuroBERT (Boizard et al., 2025, arXiv:2503.05500) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.values import Count, Number, Rate
from plmctl.interop.bert import ACTIVATIONS, encoder_nodes
from plmctl.interop.family import Architecture, Family, Node, linear_class, lm_head, row_classes
from plmctl.interop.modernbert import GATED, LONGEST, OURS, ROTARY, find_longest, free_bias
from plmctl.interop.names import NameRule, Weights, fuse, linear, same
from plmctl.interop.settings import (
    VOCAB,
    Config,
    Key,
    Numbers,
    Only,
    Settings,
    Written,
    activation,
    pad,
)

POOLINGS = {"bos": None, "mean": "mean", "late": "late"}  # theirs -> ours
ATTENTION = "layers.{i}.self_attn"
TIES = {"lm_head.weight": "embed_tokens.weight"}
BACKBONE: list[NameRule] = [
    same("backbone.embedding.token.weight", "embed_tokens.weight"),
    same(f"{OURS}.a.{{i}}.norm_in.weight", "layers.{i}.input_layernorm.weight"),
    *free_bias(f"{OURS}.a.{{i}}.cell.out", f"{ATTENTION}.o_proj"),
    same(f"{OURS}.f.{{i}}.norm_in.weight", "layers.{i}.post_attention_layernorm.weight"),
    *free_bias(f"{OURS}.f.{{i}}.cell.gate", "layers.{i}.mlp.gate_proj"),
    *free_bias(f"{OURS}.f.{{i}}.cell.up", "layers.{i}.mlp.up_proj"),
    *free_bias(f"{OURS}.f.{{i}}.cell.down", "layers.{i}.mlp.down_proj"),
    same("backbone.stack.final_norm.weight", "norm.weight"),
]
MLM = [
    same("heads.mlm.weight", "lm_head.weight", optional=True),
    same("heads.mlm.bias", "lm_head.bias", optional=True),
]
SETTINGS: Settings = (
    VOCAB,
    Key("hidden_size", "width", Count),
    Key("num_hidden_layers", "num_layers", Count),
    Key("num_attention_heads", "num_heads", Count),
    Key("num_key_value_heads", "kv_heads", Count | None, None),
    Key("head_dim", "head_width", Count | None, None),
    Key("intermediate_size", "inner_width", Count),
    activation("hidden_act", ACTIVATIONS, "silu"),
    Key("attention_dropout", "attention_dropout", Rate, 0.0),
    Key("rms_norm_eps", "eps", Number, 1e-5),
    Key("attention_bias", "attention_bias", bool, False),
    Key("mlp_bias", "inner_bias", bool, False),
    # the first files, whose code is not in the library, call it otherwise
    Key("clf_pooling", "older_pooling", str | None, None, written=False),
    Key("classifier_pooling", "pooling", str | None, None),
    Key("rope_theta", "base", Number, 10000.0),
    Key("rope_parameters", "turns", dict[str, Any] | None, None),
    Only("rope_scaling", None),
    LONGEST,
    Written("initializer_range", 0.02),
    Key("tie_word_embeddings", "tied", bool, False),
    pad(written=True),
)


def classifier_rules(head: str) -> list[NameRule]:
    """The rules of the classifier of rows."""
    return [*linear(f"heads.{head}.dense", "dense"), *linear(f"heads.{head}.linear", "classifier")]


class EuroBertFamily(Family):
    """Pre-norm encoder like LLaMA that sees both sides: rotary positions, RMS norms, gated cells,
    and fewer heads of keys than of queries.
    """

    model_type = "eurobert"
    systems = ("EuroBERT",)
    hub: tuple[tuple[str, int], ...] = (
        ("EuroBERT/EuroBERT-210m", 210),
        ("EuroBERT/EuroBERT-610m", 610),
        ("EuroBERT/EuroBERT-2.1B", 2100),
    )
    rebuilds_code = True
    stated = SETTINGS
    ignored = frozenset({"pretraining_tp"})
    prefix = "model."
    architectures: Sequence[Architecture] = (
        *row_classes("EuroBertForSequenceClassification", classifier_rules),
        linear_class("EuroBertForTokenClassification", "tag", "classifier"),
        Architecture("EuroBertForMaskedLM", ("mlm",), MLM),
        Architecture("EuroBertModel", bare=True),
    )
    ties = TIES

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        pooling = numbers.pooling or numbers.older_pooling or "late"
        if pooling not in POOLINGS:
            allowed = f"one of {', '.join(POOLINGS)}{nearest(pooling, POOLINGS)}"
            raise ConfigError("config.json: classifier_pooling", pooling, allowed)
        turns = numbers.turns or {}
        if (kind := turns.get("rope_type", "default")) != "default":
            allowed = "default (nothing else is supported)"
            raise ConfigError("config.json: rope_parameters.rope_type", kind, allowed)
        return numbers.but(
            pooling=pooling,
            base=float(turns.get("rope_theta", numbers.base)),
            kv_heads=numbers.kv_heads or numbers.num_heads,
            head_width=numbers.head_width or numbers.width // numbers.num_heads,
            dropout=0.0,
        )

    def settings(self, numbers: Numbers) -> Node:
        turns = {"rope_type": "default", "rope_theta": numbers.base}
        return super().settings(numbers.but(turns=turns))

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        q, k, v = (f"{ATTENTION}.{name}_proj" for name in "qkv")
        ours = f"{OURS}.a.{{i}}.cell"
        maps: dict[str, tuple[str, ...]] = {"qkv": (q, k, v)}
        if numbers.kv_heads != numbers.num_heads:
            maps = {"q": (q,), "kv": (k, v)}
        own = [
            fuse(f"{ours}.{name}.{part}", *(f"{each}.{part}" for each in theirs))
            for name, theirs in maps.items()
            for part in (("weight", "bias") if numbers.attention_bias else ("weight",))
        ]
        return [*BACKBONE, *own]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers)
        nodes["position"] = {"_target_": ROTARY, "base": numbers.base}
        model, cells = nodes["model"], nodes["model"]["stack"]["cells"]
        norm = {"_target_": "plmctl.nn.norm.rms_norm", "_partial_": True, "eps": numbers.eps}
        model["embedding"] |= {"segments": 0, "norm": None}
        usual = numbers.head_width * numbers.num_heads == numbers.width
        cells["a"] |= {
            "bias": numbers.attention_bias,
            "head_width": None if usual else numbers.head_width,
            "kv_heads": None if numbers.kv_heads == numbers.num_heads else numbers.kv_heads,
        }
        cells["f"] |= {"_target_": GATED, "bias": numbers.inner_bias}
        model["stack"]["residual"] = {
            "_target_": "plmctl.nn.residual.PreNorm",
            "dropout": 0.0,
            "norm": norm,
        }
        pooling = {} if POOLINGS[numbers.pooling] is None else {"pooling": numbers.pooling}
        inner = {"dense": True, "activation": "gelu"}
        model["classifier"] = {"pooler": False, **pooling, **inner}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "mlm":
            return lm_head(numbers, bias=numbers.inner_bias)
        last = {"num_classes": outputs, "dropout": 0.0}
        if name == "tag":
            return {"_target_": "plmctl.heads.tag.Tag", **last}
        late = {"late": True} if numbers.pooling == "late" else {}
        inner = {"dense": True, "activation": "gelu"}
        return {"_target_": "plmctl.heads.classify.Classify", **last, **inner, **late}

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers = super().measure(config, tensors, pad)
        stack = config["model"].get("stack") or {}
        cells, residual = stack.get("cells") or {}, stack.get("residual") or {}
        attention, inner = cells.get("a") or {}, cells.get("f") or {}
        pooling = (config["model"].get("classifier") or {}).get("pooling")
        base = config["position"].get("base", 10000.0)
        return numbers.but(
            kv_heads=attention.get("kv_heads") or numbers.num_heads,
            head_width=attention.get("head_width") or numbers.width // numbers.num_heads,
            attention_bias=attention.get("bias", True),
            inner_bias=inner.get("bias", False),
            eps=(residual.get("norm") or {}).get("eps") or 0.0,
            pooling=pooling if pooling in ("mean", "late") else "bos",
            base=base[0] if isinstance(base, list | tuple) and len(set(base)) == 1 else base,
            longest=find_longest(config),
        )

    def remember(self, numbers: Numbers) -> Node:
        return {"longest": numbers.longest}

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        if config["position"].get("_target_") == ROTARY and not isinstance(numbers.base, list):
            config = {**config, "position": {**config["position"], "base": numbers.base}}
        return super().find_differences(config, numbers)

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        stated = dict(config["model"].get("classifier") or {})
        if stated.get("pooling") in ("mean", "late"):
            stated["pooling"] = None
            config = {**config, "model": {**config["model"], "classifier": stated}}
        differences = super().find_unstated(config, numbers)
        if isinstance(numbers.base, list | tuple):
            differences.append(f"position.base={numbers.base} (published: one number)")
        return differences
