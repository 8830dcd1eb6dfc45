"""ERNIE 1, 2 and 3 of Baidu (Sun et al., 2019, arXiv:1904.09223; Sun et al., 2020,
arXiv:1907.12412) as `transformers` publishes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Count
from plmctl.interop.bert import SETTINGS, BertFamily, pretrained_classes, tuned_classes
from plmctl.interop.family import Node
from plmctl.interop.names import NameRule, Weights, linear, same
from plmctl.interop.settings import Config, Key, Numbers, change

POOLER = linear("heads.pooler.dense", "ernie.pooler.dense")


class ErnieFamily(BertFamily):
    """BERT's encoder; version 2 and later may add a vector for the task of a row, which is number 0
    in fine-tuning.
    """

    model_type = "ernie"
    systems = ("ERNIE (Baidu)",)
    recipes: tuple[str, ...] = ("ernie_baidu",)
    hub: tuple[tuple[str, int], ...] = (
        ("nghuyong/ernie-2.0-base-en", 110),
        ("nghuyong/ernie-3.0-base-zh", 118),
    )
    stated = change(
        SETTINGS,
        Key("use_task_id", "by_task", bool, False),
        Key("task_type_vocab_size", "num_tasks", Count, 3),
    )
    prefix = "ernie."
    rules: Sequence[NameRule] = (
        *BertFamily.rules,
        same(
            "backbone.embedding.tracks.0.vectors.weight",
            "embeddings.task_type_embeddings.weight",
            optional=True,
        ),
    )
    architectures = (*tuned_classes("Ernie", POOLER), *pretrained_classes("Ernie", POOLER))
    unread: tuple[str, ...] = ()

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        if numbers.by_task:
            part = {"_target_": "plmctl.nn.track_vectors.TrackVectors", "_partial_": True}
            tasks = {**part, "name": "task", "count": numbers.num_tasks}
            nodes["model"]["embedding"]["tracks"] = [tasks]
        return nodes

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        tracks = ((config.get("model") or {}).get("embedding") or {}).get("tracks") or []
        tasks = [each.get("count") for each in tracks if each.get("name") == "task"]
        numbers = super().measure(config, tensors, pad)
        return numbers.but(by_task=bool(tasks), num_tasks=tasks[0] if tasks else 3)
