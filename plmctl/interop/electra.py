"""ELECTRA (Clark et al., 2020, arXiv:2003.10555) as `transformers` publishes it: discriminators
and generators.
"""

from __future__ import annotations

from plmctl.interop.bert import (
    BACKBONE,
    PLACES,
    SETTINGS,
    TABLE_WIDTH,
    BertFamily,
    choice_class,
    classifier,
    lm_rules,
    task_architectures,
)
from plmctl.interop.family import Architecture, Node, row_classes
from plmctl.interop.names import NameRule, linear, maps, same
from plmctl.interop.roberta import classifier_rules
from plmctl.interop.settings import Config, Numbers, change

MLM = lm_rules(
    "generator_predictions.dense",
    "generator_predictions.LayerNorm",
    "generator_lm_head.bias",
    "generator_lm_head.weight",
)
DISCRIMINATOR = maps(
    "heads.discriminator",
    "discriminator_predictions",
    {"dense": "dense", "linear": "dense_prediction"},
)
ROWS = ("class", "score", "choice")
SUMMARY = maps("heads.choice", "sequence_summary", {"dense": "summary"}) + classifier("choice")
TIES = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}


class ElectraFamily(BertFamily):
    """BERT's encoder, whose tables may be narrower than the model (`embedding_size`), without a
    pooler.

    The published sequence classifier has a layer with GELU before its last map, which the paper's
    code has not: export takes heads with `dense=true activation=gelu` only.
    """

    model_type = "electra"
    systems = ("ELECTRA",)
    recipes: tuple[str, ...] = ("electra",)
    hub: tuple[tuple[str, int], ...] = (
        ("google/electra-small-discriminator", 14),
        ("google/electra-base-discriminator", 110),
        ("google/electra-large-discriminator", 335),
    )
    stated = change(SETTINGS, TABLE_WIDTH)
    prefix = "electra."
    architectures = (
        *row_classes("ElectraForSequenceClassification", classifier_rules),
        choice_class("Electra", (), SUMMARY),
        *task_architectures("Electra"),
        Architecture("ElectraForPreTraining", ("discriminator",), DISCRIMINATOR),
        Architecture("ElectraForMaskedLM", ("mlm",), MLM),
        Architecture("ElectraModel", bare=True),
    )
    ties = TIES
    pooler = ()

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        narrow = numbers.table_width != numbers.width
        return [
            *BACKBONE,
            same(*PLACES),
            *(linear("backbone.embedding.project", "embeddings_project") if narrow else []),
        ]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["model"]["embedding"]["table_width"] = (
            None if numbers.table_width == numbers.width else numbers.table_width
        )
        nodes["model"]["classifier"] = {"pooler": False, "dense": False, "bias": True}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "discriminator":
            return {
                "_target_": "plmctl.heads.discriminator.Discriminator",
                "activation": numbers.activation,
            }
        node = super().head(name, numbers.but(activation="gelu"), outputs)
        return node | ({"dense": True, "activation": "gelu"} if name in ROWS else {})

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        if numbers.table_width == numbers.width:  # the same as none
            model = config["model"]
            config = {
                **config,
                "model": {
                    **model,
                    "embedding": {**(model.get("embedding") or {}), "table_width": None},
                },
            }
        return super().find_differences(config, numbers)
