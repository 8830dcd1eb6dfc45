"""NeoBERT (Le Breton et al., 2025, arXiv:2502.19587) as its authors publish it: `transformers` has
no class of it, and the code next to its files is never run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plmctl.core.values import Count, Number, Rate
from plmctl.interop.bert import encoder_nodes
from plmctl.interop.eurobert import classifier_rules
from plmctl.interop.family import Architecture, Family, Node, lm_head, row_classes
from plmctl.interop.modernbert import GATED, OURS, ROTARY, find_longest
from plmctl.interop.names import NameRule, Weights, by_head, cut, linear, same
from plmctl.interop.settings import VOCAB, Activation, Config, Key, Numbers, Settings, Written, pad

LAYER = "transformer_encoder.{i}"
CODE = "chandar-lab/NeoBERT--model"  # the code that `transformers` asks for, on the hub
SETTINGS: Settings = (
    VOCAB,
    Key("hidden_size", "width", Count),
    Key("num_hidden_layers", "num_layers", Count),
    Key("num_attention_heads", "num_heads", Count),
    Key("intermediate_size", "inner_width", Count),
    Activation("", "activation", str, "silu", names={"silu": "silu"}),
    Key("norm_eps", "eps", Number, 1e-5),
    Key("classifier_dropout", "head_dropout", Rate, 0.1),
    Key("max_length", "longest", Count, 1024),
    Written("embedding_init_range", 0.02),
    Written("decoder_init_range", 0.02),
    Written("trust_remote_code", True),
    Written(
        "auto_map",
        {
            "AutoConfig": f"{CODE}.NeoBERTConfig",
            "AutoModel": f"{CODE}.NeoBERT",
            "AutoModelForMaskedLM": f"{CODE}.NeoBERTLMHead",
            "AutoModelForSequenceClassification": f"{CODE}.NeoBERTForSequenceClassification",
        },
    ),
    pad(written=True),
)


class NeoBertFamily(Family):
    """Pre-norm encoder with rotary positions of neighbouring columns, RMS norms and gated cells.

    Its inner width is two thirds of `intermediate_size`, rounded up to a multiple of 8.
    """

    model_type = "neobert"
    systems = ("NeoBERT",)
    hub: tuple[tuple[str, int], ...] = (("chandar-lab/NeoBERT", 250),)
    rebuilds_code = True
    stated = SETTINGS
    prefix = "model."
    architectures: Sequence[Architecture] = (
        *row_classes("NeoBERTForSequenceClassification", classifier_rules),
        Architecture("NeoBERTLMHead", ("mlm",), linear("heads.mlm", "decoder")),
        Architecture("NeoBERT", bare=True),
    )
    ties: Mapping[str, str] = {}

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        two_thirds = int(2 * numbers.inner_width / 3)
        none = {"dropout": 0.0, "attention_dropout": 0.0, "tied": False}
        return numbers.but(inner_width=-(-two_thirds // 8) * 8, **none)

    def settings(self, numbers: Numbers) -> Node:
        return super().settings(numbers.but(inner_width=3 * numbers.inner_width // 2))

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        inner = f"{OURS}.f.{{i}}.cell"
        qkv = f"{OURS}.a.{{i}}.cell.qkv.weight"
        return [
            same("backbone.embedding.token.weight", "encoder.weight"),
            by_head(qkv, f"{LAYER}.qkv.weight", heads=numbers.num_heads),
            same(f"{OURS}.a.{{i}}.cell.out.weight", f"{LAYER}.wo.weight"),
            same(f"{OURS}.a.{{i}}.norm_in.weight", f"{LAYER}.attention_norm.weight"),
            *cut(f"{LAYER}.ffn.w12.weight", f"{inner}.gate.weight", f"{inner}.up.weight"),
            same(f"{inner}.down.weight", f"{LAYER}.ffn.w3.weight"),
            same(f"{OURS}.f.{{i}}.norm_in.weight", f"{LAYER}.ffn_norm.weight"),
            same("backbone.stack.final_norm.weight", "layer_norm.weight"),
        ]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers)
        nodes["position"] = {"_target_": ROTARY, "pairs": "adjacent"}
        model, cells = nodes["model"], nodes["model"]["stack"]["cells"]
        norm = {"_target_": "plmctl.nn.norm.rms_norm", "_partial_": True, "eps": numbers.eps}
        model["embedding"] |= {"segments": 0, "norm": None}
        cells["a"]["bias"] = False
        cells["f"]["_target_"] = GATED
        model["stack"]["residual"] = {
            "_target_": "plmctl.nn.residual.PreNorm",
            "dropout": 0.0,
            "norm": norm,
        }
        model["classifier"] = {"pooler": False, "dense": True}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "mlm":
            return lm_head(numbers)
        last = {"num_classes": outputs, "dropout": numbers.head_dropout, "dense": True}
        return {"_target_": "plmctl.heads.classify.Classify", **last}

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers = super().measure(config, tensors, pad)
        residual = (config["model"].get("stack") or {}).get("residual") or {}
        heads = config.get("heads") or {}
        head: Node = heads.get("class") or heads.get("score") or {}
        return numbers.but(
            eps=(residual.get("norm") or {}).get("eps") or 0.0,
            head_dropout=head.get("dropout", 0.1),
            longest=find_longest(config, 1024),
        )

    def remember(self, numbers: Numbers) -> Node:
        return {"longest": numbers.longest}

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        differences = super().find_unstated(config, numbers)
        if numbers.inner_width % 8:
            ours = f"model.stack.cells.f.inner_width={numbers.inner_width}"
            differences.append(f"{ours} (published: a multiple of 8)")
        if numbers.tied and "mlm" in (config.get("heads") or {}):
            differences.append("heads.mlm.tied=True (published: False)")
        return differences
