"""Funnel-Transformer (Dai et al., 2020, arXiv:2006.03236) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.bert import ACTIVATIONS, encoder_nodes, task_architectures, task_head
from plmctl.interop.electra import DISCRIMINATOR
from plmctl.interop.family import Architecture, Family, Node, count_layers, lm_head, row_classes
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.settings import (
    TIED,
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
from plmctl.models.funnel import split_layers
from plmctl.nn.layout import parse

MODEL, CELLS = "plmctl.models.funnel.Funnel", "plmctl.nn.cells"
DECODER = "backbone.decoder."
ROWS = ("class", "score", "choice")  # published without the decoder
SETTINGS: Settings = (
    VOCAB,
    Key("d_model", "width", Count),
    Key("block_sizes", "sizes", list[Count], [4, 4, 4]),
    Key("block_repeats", "repeats", list[Count] | None, None),
    Key("num_decoder_layers", "decoder_layers", Whole, 2),
    Key("n_head", "num_heads", Count, 12),
    Key("d_head", "head_width", Count, 64),
    Key("d_inner", "inner_width", Count, 3072),
    activation("hidden_act", ACTIVATIONS, "gelu_new"),
    Key("hidden_dropout", "dropout", Rate, 0.1),
    Key("attention_dropout", "attention_dropout", Rate, 0.1),
    Key("activation_dropout", "inner_dropout", Rate, 0.0),
    Key("layer_norm_eps", "eps", Number, 1e-9),
    Key("pooling_type", "pooling", str, "mean"),
    Key("separate_cls", "first_apart", bool, True),
    Key("truncate_seq", "truncate", bool, True),
    Key("pool_q_only", "queries_only", bool, True),
    # two ways to compute the same scores
    Written("attention_type", "relative_shift"),
    Written("initializer_range", 0.1),
    TIED,
    pad(written=True),
    Only("is_decoder", False),
)


def layer_rules(ours: str, theirs: str, places: Sequence[tuple[object, str]], heads: int) -> Any:
    """The rules of layers; `places`: our number of each, and theirs."""

    def matrix(found: Sequence[Tensor]) -> Tensor:
        return found[0].flatten(1).T

    def cube(tensor: Tensor) -> list[Tensor]:
        return [tensor.T.unflatten(1, (heads, -1))]

    rules: list[NameRule] = []
    for number, name in places:
        cell, own = f"{ours}.a.{number}.cell", f"{theirs}.{name}.attention"
        rules += [
            same(f"{cell}.q.weight", f"{own}.q_head.weight"),
            *linear(f"{cell}.kv", f"{own}.k_head", f"{own}.v_head"),
            NameRule(f"{cell}.place.weight", (f"{own}.r_kernel",), matrix, cube),
            *(
                NameRule(
                    f"{cell}.{bias}",
                    (f"{own}.{found}",),
                    lambda tensors: tensors[0][:, None],
                    lambda tensor: [tensor[:, 0]],
                )
                for bias, found in (
                    ("content_bias", "r_w_bias"),
                    ("place_bias", "r_r_bias"),
                    ("segment_bias", "r_s_bias"),
                )
            ),
            NameRule(  # theirs: of different segments, then of equal ones
                f"{cell}.segments",
                (f"{own}.seg_embed",),
                lambda tensors: tensors[0].flip(0)[:, :, None],
                lambda tensor: [tensor[:, :, 0].flip(0)],
            ),
            *maps(f"{ours}.a.{number}", own, {"cell.out": "post_proj", "norm_sum": "layer_norm"}),
            *maps(
                f"{ours}.f.{number}",
                f"{theirs}.{name}.ffn",
                {"cell.up": "linear_1", "cell.down": "linear_2", "norm_sum": "layer_norm"},
            ),
        ]
    return rules


def classifier(head: str) -> list[NameRule]:
    """The rules of a head of rows: a map, tanh, and a map."""
    names = {"dense": "linear_hidden", "linear": "linear_out"}
    return maps(f"heads.{head}", "classifier", names)


class FunnelFamily(Family):
    """Blocks of layers with pooling between them, and a decoder.

    Differs: a row too short to be pooled keeps its distances (`transformers` fails on rows of 2 to
    4 tokens). The vector of padding, which pooling mixes in, learns (there: it is zeros
    after loading, and stays so).
    """

    model_type = "funnel"
    systems = ("Funnel-Transformer",)
    recipes: tuple[str, ...] = ("funnel",)
    hub: tuple[tuple[str, int], ...] = (
        ("funnel-transformer/small", 131),
        ("funnel-transformer/medium", 157),
        ("funnel-transformer/intermediate", 177),
        ("funnel-transformer/large", 386),
        ("funnel-transformer/xlarge", 468),
    )
    stated = SETTINGS
    prefix = "funnel."
    architectures: Sequence[Architecture] = (
        *task_architectures("Funnel"),
        Architecture("FunnelForPreTraining", ("discriminator",), DISCRIMINATOR),
        Architecture(
            "FunnelForMaskedLM",
            ("mlm",),
            [
                same("heads.mlm.bias", "lm_head.bias"),
                same("heads.mlm.weight", "lm_head.weight", optional=True),
            ],
        ),
        Architecture("FunnelModel", bare=True),
    )
    ties: Mapping[str, str] = {"lm_head.weight": "embeddings.word_embeddings.weight"}
    decodes = True

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        repeats = numbers.repeats or [1] * len(numbers.sizes)
        if len(repeats) != len(numbers.sizes):
            allowed = f"one number for each of the {len(numbers.sizes)} blocks of block_sizes"
            raise ConfigError("config.json: block_repeats", repeats, allowed)
        return numbers.but(repeats=repeats, num_layers=sum(numbers.sizes))

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        places = [f"{b}.{n}" for b, size in enumerate(numbers.sizes) for n in range(size)]
        rules = [
            same("backbone.embedding.token.weight", "embeddings.word_embeddings.weight"),
            *linear("backbone.embedding.norm", "embeddings.layer_norm"),
            *layer_rules(
                "backbone.stack.blocks",
                "encoder.blocks",
                list(enumerate(places)),
                numbers.num_heads,
            ),
        ]
        above = [(n, str(n)) for n in range(numbers.decoder_layers)] if self.decodes else []
        return rules + layer_rules(f"{DECODER}blocks", "decoder.layers", above, numbers.num_heads)

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers.but(segments=0, max_length=0))
        nodes["position"] = {"_target_": "plmctl.nn.positions.NoPosition"}
        model = nodes["model"]
        stack = model["stack"]
        own = numbers.head_width * numbers.num_heads != numbers.width
        stack["cells"]["a"] |= {
            "_target_": f"{CELLS}.pooled_attention.PooledAttention",
            "head_width": numbers.head_width if own else None,
        }
        stack["cells"]["f"]["dropout"] = numbers.inner_dropout
        stack["layout"] = _spell_layout(numbers)
        decoder = {**stack, "layout": f"af*{numbers.decoder_layers}"}
        model |= {
            "_target_": MODEL,
            "blocks": [
                size * times for size, times in zip(numbers.sizes, numbers.repeats, strict=True)
            ],
            "decoder": decoder if self.decodes else None,
            "classifier": {"pooler": False, "dense": True, "bias": True},
            **{
                name: getattr(numbers, name)
                for name in ("pooling", "first_apart", "truncate", "queries_only")
            },
        }
        model["initializer"]["_target_"] = "plmctl.nn.init.normal"
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "mlm":
            return lm_head(numbers, activation=numbers.activation)
        if name == "discriminator":
            target = "plmctl.heads.discriminator.Discriminator"
            return {"_target_": target, "activation": numbers.activation}
        return task_head(name, numbers, outputs) | ({"dense": True} if name in ROWS else {})

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers, model = super().measure(config, tensors, pad), config.get("model") or {}
        stack = model.get("stack") or {}
        cell = (stack.get("cells") or {}).get("a") or {}
        inner = (stack.get("cells") or {}).get("f") or {}
        sizes, repeats = _find_blocks(model)
        above = count_layers((model.get("decoder") or {}).get("layout", ""))
        known = {"pooling": "mean", "first_apart": True, "truncate": True, "queries_only": True}
        return numbers.but(
            sizes=sizes,
            repeats=repeats,
            decoder_layers=above or (config.get("origin") or {}).get("decoder_layers", 2),
            head_width=cell.get("head_width") or numbers.width // numbers.num_heads,
            inner_dropout=inner.get("dropout", 0.0),
            **{name: model.get(name, default) for name, default in known.items()},
        )

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        model = config["model"]
        if model.get("_target_") == MODEL:
            times = zip(numbers.sizes, numbers.repeats, strict=True)
            model = {**model, "blocks": [size * often for size, often in times]}
        return super().find_differences({**config, "model": model}, numbers)

    def remember(self, numbers: Numbers) -> Node:
        return {"decoder_layers": numbers.decoder_layers}

    def simplify(self, config: Config, tensors: Weights) -> tuple[Config, Weights, list[str]]:
        """Leave out a decoder that no head reads."""
        heads = {name for name, node in (config.get("heads") or {}).items() if node is not None}
        pools = config["model"].get("_target_") == MODEL and config["model"].get("decoder")
        if not pools or not heads or not heads <= set(ROWS):
            return config, tensors, []
        kept = {name: t for name, t in tensors.items() if not name.startswith(DECODER)}
        return {**config, "model": {**config["model"], "decoder": None}}, kept, ["model.decoder"]


class FunnelBaseFamily(FunnelFamily):
    """The same without a decoder, for heads of rows."""

    architectures = (
        *row_classes("FunnelForSequenceClassification", classifier),
        Architecture("FunnelForMultipleChoice", ("choice",), classifier("choice"), outputs=1),
        Architecture("FunnelBaseModel", bare=True),
    )
    ties = {}  # noqa: RUF012
    decodes = False


def _spell_layout(numbers: Numbers) -> str:
    """`af*12`, or with layers that run more than once `af@2 af@2 af`."""
    if set(numbers.repeats) == {1}:
        return f"af*{sum(numbers.sizes)}"
    pairs = zip(numbers.sizes, numbers.repeats, strict=True)
    return " ".join("af" if times == 1 else f"af@{times}" for n, times in pairs for _ in range(n))


def _find_blocks(model: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """(layers with weights of their own, times that each runs) of each block."""
    if model.get("_target_") != MODEL:
        return [1], [1]
    layout = (model.get("stack") or {}).get("layout") or "af"
    runs = [step.copy for step in parse(layout) if step.letter == "a"] or [0]
    sizes, repeats, begin = [], [], 0
    for count in split_layers(model.get("blocks", 3), len(runs)):
        own = set(runs[begin : begin + count]) or {0}
        sizes.append(len(own))
        repeats.append(max(1, count // len(own)))
        begin += count
    return sizes, repeats
