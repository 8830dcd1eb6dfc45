"""RoBERTa (Liu et al., 2019, arXiv:1907.11692) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plmctl.interop.bert import (
    BACKBONE,
    OWN_POOLER,
    PLACES,
    SETTINGS,
    BertFamily,
    choice_class,
    encoder_nodes,
    lm_rules,
    task_architectures,
)
from plmctl.interop.family import Architecture, Node, row_classes
from plmctl.interop.names import NameRule, Tensors, linear, maps, skip_rows
from plmctl.interop.settings import Config, Numbers, change, pad

SEGMENTS = "embeddings.token_type_embeddings.weight"
MLM = lm_rules("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.weight")


def classifier_rules(head: str) -> list[NameRule]:
    """The rules for the layers of the classifier."""
    return maps(f"heads.{head}", "classifier", {"dense": "dense", "linear": "out_proj"})


POOLER = linear("heads.pooler.dense", "roberta.pooler.dense")


def roberta_classes(prefix: str, pooler: Sequence[NameRule]) -> list[Architecture]:
    """The classes of RoBERTa and of families with the same heads.

    Args:
        prefix: The first part of their names.
        pooler: The rules of the pooler before the head of choices, the only one that has it.
    """
    return [
        *row_classes(f"{prefix}ForSequenceClassification", classifier_rules),
        choice_class(prefix, pooler),
        *task_architectures(prefix),
        Architecture(f"{prefix}ForMaskedLM", ("mlm",), MLM),
        Architecture(f"{prefix}Model", ("pooler",), OWN_POOLER, bare=True),
        Architecture(f"{prefix}Model", bare=True),
    ]


TIES = {
    "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}


class RobertaFamily(BertFamily):
    """BERT's encoder without segments; positions begin at `pad + 1`, and the table has as many
    unused rows before them.

    A token type that is added to every token is kept as one segment; one that is all zeros is none.
    """

    model_type = "roberta"
    systems = ("RoBERTa",)
    recipes: tuple[str, ...] = ("roberta",)
    hub: tuple[tuple[str, int], ...] = (
        ("FacebookAI/roberta-base", 125),
        ("FacebookAI/roberta-large", 355),
    )
    stated = change(SETTINGS, replace(pad(written=True), default=1))
    prefix = "roberta."
    architectures: Sequence[Architecture] = roberta_classes("Roberta", POOLER)
    ties = TIES

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        return numbers.but(max_length=numbers.max_length - numbers.pad - 1)

    def settings(self, numbers: Numbers) -> Node:
        rows = numbers.max_length + numbers.pad + 1
        return super().settings(numbers.but(max_length=rows, segments=max(1, numbers.segments)))

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        return [*BACKBONE, skip_rows(*PLACES, rows=numbers.pad + 1)]

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        name = next((name for name in (self.prefix + SEGMENTS, SEGMENTS) if name in tensors), None)
        if name is None or tensors[name].count_nonzero():
            return numbers, tensors
        return numbers.but(segments=0), {
            key: tensor for key, tensor in tensors.items() if key != name
        }

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        if numbers.segments:
            return tensors
        prefix = "" if architecture.bare else self.prefix
        return tensors | {
            prefix + SEGMENTS: (
                tensors[f"{prefix}embeddings.word_embeddings.weight"].new_zeros(1, numbers.width)
            )
        }

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers)
        nodes["model"]["classifier"] = {"pooler": False, "dense": True, "bias": True}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "mlm":  # its activation is GELU whatever the encoder's is
            return super().head(name, numbers.but(activation="gelu"), outputs)
        return super().head(name, numbers, outputs) | (
            {"dense": True} if name in ("class", "score") else {}
        )
