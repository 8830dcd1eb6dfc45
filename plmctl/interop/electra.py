"""ELECTRA (Clark et al., 2020, arXiv:2003.10555) as `transformers` publishes it: discriminators
and generators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plmctl.interop.bert import BACKBONE, PLACES, BertFamily, task_architectures
from plmctl.interop.family import Architecture, Node, Numbers
from plmctl.interop.names import NameRule, linear, same
from plmctl.interop.roberta import classifier_rules

MLM: list[NameRule] = [
    *linear("heads.mlm.dense", "generator_predictions.dense"),
    *linear("heads.mlm.norm", "generator_predictions.LayerNorm"),
    same("heads.mlm.bias", "generator_lm_head.bias"),
    same("heads.mlm.weight", "generator_lm_head.weight", optional=True),
]
DISCRIMINATOR = [
    *linear("heads.discriminator.dense", "discriminator_predictions.dense"),
    *linear("heads.discriminator.linear", "discriminator_predictions.dense_prediction"),
]


TIES = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}


class ElectraFamily(BertFamily):
    """BERT's encoder, whose tables may be narrower than the model (`embedding_size`), without a
    pooler.

    The published sequence classifier has a layer with GELU before its last map, which the paper's
    code has not: export takes heads with `dense=true activation=gelu` only.
    """

    model_type = "electra"
    systems = ("ELECTRA",)
    prefix = "electra."
    architectures = (
        Architecture(
            "ElectraForSequenceClassification", ("score",), classifier_rules("score"), outputs=1
        ),
        Architecture("ElectraForSequenceClassification", ("class",), classifier_rules("class")),
        *task_architectures("Electra"),
        Architecture("ElectraForPreTraining", ("discriminator",), DISCRIMINATOR),
        Architecture("ElectraForMaskedLM", ("mlm",), MLM),
        Architecture("ElectraModel", bare=True),
    )
    ties = TIES
    pooler = ()

    def numbers(self, settings: Mapping[str, Any]) -> Numbers:
        return replace(super().numbers(settings), table_width=settings.get("embedding_size", 128))

    def settings(self, numbers: Numbers) -> Node:
        return super().settings(numbers) | {"embedding_size": numbers.table_width}

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
        node = super().head(name, replace(numbers, activation="gelu"), outputs)
        return node | ({"dense": True, "activation": "gelu"} if name in ("class", "score") else {})

    def find_differences(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
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
