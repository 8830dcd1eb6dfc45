"""DistilBERT (Sanh et al., 2019, arXiv:1910.01108) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Count, Rate
from plmctl.interop.bert import (
    ACTIVATIONS,
    OURS,
    PLACES,
    BertFamily,
    choice_class,
    lm_rules,
    task_architectures,
)
from plmctl.interop.family import Architecture, Node, row_classes
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.settings import (
    TIED,
    VOCAB,
    Config,
    Key,
    Numbers,
    Settings,
    Written,
    activation,
    pad,
)

LAYER = "transformer.layer.{i}"
MLM = lm_rules(
    "vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector.weight"
)
ROWS = ("class", "score", "choice")
SETTINGS: Settings = (
    VOCAB,
    Key("dim", "width", Count),
    Key("n_layers", "num_layers", Count),
    Key("n_heads", "num_heads", Count),
    Key("hidden_dim", "inner_width", Count),
    activation("activation", ACTIVATIONS),
    Key("dropout", "dropout", Rate, 0.1),
    Key("attention_dropout", "attention_dropout", Rate, 0.1),
    Key("seq_classif_dropout", "row_dropout", Rate, 0.2),
    Key("max_position_embeddings", "max_length", Count, 512),
    # whatever they began as, a file has the vectors of positions
    Written("sinusoidal_pos_embds", False),
    Written("initializer_range", 0.02),
    TIED,
    pad(written=False),
)


def classifier_rules(head: str) -> list[NameRule]:
    """The rules for the layers of the classifier."""
    return [
        *linear(f"heads.{head}.dense", "pre_classifier"),
        *linear(f"heads.{head}.linear", "classifier"),
    ]


class DistilBertFamily(BertFamily):
    """BERT's encoder without segments and pooler; a row is classified through a layer with ReLU.

    Differs: dropout acts before that layer, too (released code: only behind it).
    """

    model_type = "distilbert"
    systems = ("DistilBERT",)
    recipes: tuple[str, ...] = ("distilbert",)
    hub: tuple[tuple[str, int], ...] = (
        ("distilbert/distilbert-base-uncased", 66),
        ("distilbert/distilbert-base-multilingual-cased", 135),
    )
    stated = SETTINGS
    ignored = frozenset({"tie_weights_"})
    prefix = "distilbert."
    rules: Sequence[NameRule] = (
        same("backbone.embedding.token.weight", "embeddings.word_embeddings.weight"),
        *linear("backbone.embedding.norm", "embeddings.LayerNorm"),
        same(*PLACES),
        *maps(
            f"{OURS}.a.{{i}}",
            LAYER,
            {
                "cell.qkv": "attention.q_lin attention.k_lin attention.v_lin",
                "cell.out": "attention.out_lin",
                "norm_sum": "sa_layer_norm",
            },
        ),
        *maps(
            f"{OURS}.f.{{i}}",
            LAYER,
            {"cell.up": "ffn.lin1", "cell.down": "ffn.lin2", "norm_sum": "output_layer_norm"},
        ),
    )
    architectures = (
        *row_classes("DistilBertForSequenceClassification", classifier_rules),
        choice_class("DistilBert", (), classifier_rules("choice")),
        *task_architectures("DistilBert"),
        Architecture("DistilBertForMaskedLM", ("mlm",), MLM),
        Architecture("DistilBertModel", bare=True),
    )
    ties = {"vocab_projector.weight": "embeddings.word_embeddings.weight"}  # noqa: RUF012
    pooler = ()
    unread: tuple[str, ...] = ()

    def numbers(self, settings: Config) -> Numbers:
        return super().numbers(settings).but(eps=1e-12)

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers.but(eps=1e-12))
        nodes["model"]["embedding"]["segments"] = 0
        nodes["model"]["classifier"] = {
            "pooler": False,
            "dense": True,
            "activation": "relu",
            "bias": True,
        }
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        own = {"dense": True, "activation": "relu", "dropout": numbers.row_dropout}
        node = super().head(name, numbers.but(eps=1e-12), outputs)
        return node | (own if name in ROWS else {})

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        heads = config.get("heads") or {}
        rates = [heads[name]["dropout"] for name in ROWS if "dropout" in (heads.get(name) or {})]
        return super().measure(config, tensors, pad).but(row_dropout=next(iter(rates), 0.2))
