"""MPNet (Song et al., 2020, arXiv:2004.09297) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plmctl.core.errors import ConfigError
from plmctl.interop.bert import EMBEDDING, INNER, LAYER, OURS, PLACES, SETTINGS
from plmctl.interop.family import Architecture, Node
from plmctl.interop.names import NameRule, Tensors, Weights, linear, maps, same, skip_rows
from plmctl.interop.roberta import RobertaFamily, roberta_classes
from plmctl.interop.settings import Config, Numbers, Only, Settings, change, pad

PAD = 1  # its code counts positions by this id, whatever a file says
BUCKETS = 32
POOLER = linear("heads.pooler.dense", "mpnet.pooler.dense")
STATED: Settings = change(
    [each for each in SETTINGS if each.key != "type_vocab_size"],
    replace(pad(written=True), default=PAD),
    Only(
        "relative_attention_num_buckets",
        BUCKETS,
        why=": the published code counts so many, whatever a file says",
        written=True,
        ignored=True,
    ),
)


class MPNetFamily(RobertaFamily):
    """RoBERTa's encoder, whose scores have a learned number for each range of distances, the same
    in all layers.
    """

    model_type = "mpnet"
    systems = ("MPNet",)
    recipes: tuple[str, ...] = ("mpnet",)
    hub: tuple[tuple[str, int], ...] = (
        ("microsoft/mpnet-base", 110),
        ("sentence-transformers/all-mpnet-base-v2", 110),
    )
    stated = STATED
    prefix = "mpnet."
    rules: Sequence[NameRule] = (
        *EMBEDDING,
        skip_rows(*PLACES, rows=PAD + 1),
        same("backbone.position.buckets.table.weight", "encoder.relative_attention_bias.weight"),
        *maps(
            f"{OURS}.a.{{i}}",
            f"{LAYER}.attention",
            {"cell.qkv": "attn.q attn.k attn.v", "cell.out": "attn.o", "norm_sum": "LayerNorm"},
        ),
        *INNER,
    )
    architectures = roberta_classes("MPNet", POOLER)

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        if numbers.pad != PAD:
            allowed = f"{PAD}: the published code counts positions by it, whatever a file says"
            fix = f'"pad_token_id": {PAD} in this file'
            raise ConfigError("config.json: pad_token_id", numbers.pad, allowed, fix=fix)
        return numbers

    def simplify(self, config: Config, tensors: Weights) -> tuple[Config, Weights, list[str]]:
        if config["model"].get("_target_") != "plmctl.models.mpnet.MPNet":
            return config, tensors, []
        # the same weights; only its pretraining reads them otherwise
        model = {**config["model"], "_target_": "plmctl.models.encoder.Encoder"}
        return {**config, "model": model}, tensors, []

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        return list(self.rules)

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers.but(segments=0))
        nodes["position"] |= {
            "_target_": "plmctl.nn.positions.LearnedBuckets",
            "num_heads": numbers.num_heads,
        }
        return nodes

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        return numbers, tensors

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        return tensors

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        other = [f"the id of the padding token: {numbers.pad} (published: {PAD})"]
        return super().find_unstated(config, numbers) + other * (numbers.pad != PAD)
