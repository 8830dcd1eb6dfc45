"""RoFormer (Su et al., 2021, arXiv:2104.09864) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plmctl.core.values import Count
from plmctl.interop.bert import BACKBONE, MLM, SETTINGS, BertFamily, task_architectures
from plmctl.interop.family import Architecture, Node, row_classes
from plmctl.interop.modernbert import ROTARY, find_longest
from plmctl.interop.names import NameRule, Tensors, Weights, linear
from plmctl.interop.roberta import classifier_rules
from plmctl.interop.settings import Config, Key, Numbers, change, pad
from plmctl.interop.waves import warn_of_other_waves

# every file has this table, which is a formula
WAVES = "encoder.embed_positions.weight"
LENGTHS = Key("max_position_embeddings", "longest", Count, 1536)
TABLE = Key("embedding_size", "table_width", Count | None, None)
TURNED = Key("rotary_value", "turns_values", bool, False)
TIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


class RoFormerFamily(BertFamily):
    """BERT's encoder with rotary positions of neighbouring columns, of values too where
    `rotary_value` says so, and tables that may be narrower than the model; no pooler.
    """

    model_type = "roformer"
    systems = ("RoFormer",)
    recipes: tuple[str, ...] = ("roformer",)
    hub: tuple[tuple[str, int], ...] = (("junnyu/roformer_chinese_base", 124),)
    stated = change(SETTINGS, LENGTHS, TABLE, TURNED, pad(written=True))
    prefix = "roformer."
    architectures: Sequence[Architecture] = (
        *row_classes("RoFormerForSequenceClassification", classifier_rules),
        *task_architectures("RoFormer"),
        Architecture("RoFormerForMaskedLM", ("mlm",), MLM),
        Architecture("RoFormerModel", bare=True),
    )
    ties = TIES
    pooler = ()
    unread = ()

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        return numbers.but(table_width=numbers.table_width or numbers.width, max_length=0)

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        narrow = numbers.table_width != numbers.width
        own = linear("backbone.embedding.project", "embeddings_project") if narrow else []
        return [*BACKBONE, *own]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["position"] = {
            "_target_": ROTARY,
            "pairs": "adjacent",
            "values": numbers.turns_values,
        }
        embedding = nodes["model"]["embedding"]
        embedding["segments"] = numbers.segments
        embedding["table_width"] = (
            None if numbers.table_width == numbers.width else numbers.table_width
        )
        inner = {"dense": True, "activation": numbers.activation}
        nodes["model"]["classifier"] = {"pooler": False, **inner, "bias": True}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        inner = {"dense": True, "activation": numbers.activation}
        node = super().head(name, numbers, outputs)
        return node | (inner if name in ("class", "score") else {})

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        names = (WAVES, self.prefix + WAVES)
        warn_of_other_waves({name: tensors[name] for name in names if name in tensors})
        return numbers, {name: tensor for name, tensor in tensors.items() if name not in names}

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        prefix = "" if architecture.bare else self.prefix
        waves = make_waves(numbers.longest, numbers.width // numbers.num_heads)
        return {**tensors, prefix + WAVES: waves}

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        return (
            super()
            .measure(config, tensors, pad)
            .but(
                turns_values=config["position"].get("values", False),
                longest=find_longest(config, 1536),
            )
        )

    def remember(self, numbers: Numbers) -> Node:
        return {"longest": numbers.longest}

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        embedding = config["model"].get("embedding") or {}
        if numbers.table_width == numbers.width:  # the same as none
            embedding = {**embedding, "table_width": None}
        model = {**config["model"], "embedding": embedding}
        return super().find_differences({**config, "model": model}, numbers)


def make_waves(rows: int, width: int) -> Tensor:
    """[rows, width] sines and cosines, all sines first, by the library's own steps: the same
    bits.
    """
    angles = np.array(
        [
            [place / np.power(10000, 2 * (j // 2) / width) for j in range(width)]
            for place in range(rows)
        ]
    )
    waves = torch.empty(rows, width)
    half = width // 2 + width % 2
    waves[:, :half] = torch.FloatTensor(np.sin(angles[:, 0::2]))
    waves[:, half:] = torch.FloatTensor(np.cos(angles[:, 1::2]))
    return waves
