"""BigBird (Zaheer et al., 2020, arXiv:2007.14062) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired

from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Whole
from plmctl.interop.bert import MLM, NSP, BertConfig, BertFamily
from plmctl.interop.family import Architecture, Node, Numbers
from plmctl.interop.names import NameRule, linear
from plmctl.interop.roberta import classifier_rules

PATTERN = "plmctl.attention.patterns.big_bird.BigBird"
OWN_POOLER: list[NameRule] = linear("heads.pooler.dense", "pooler")
POOLER: list[NameRule] = linear("heads.pooler.dense", "bert.pooler")


class BigBirdConfig(BertConfig):
    """The settings of `config.json` that are read."""

    attention_type: NotRequired[Literal["block_sparse", "original_full"]]
    block_size: NotRequired[Count]
    num_random_blocks: NotRequired[Whole]
    use_bias: NotRequired[bool]
    rescale_embeddings: NotRequired[bool]


@dataclass(frozen=True, kw_only=True)
class BigBirdNumbers(Numbers):
    """What members of this family have beside."""

    block: int = 0  # tokens of a block; 0: full attention
    random: int = 0  # random blocks of each block
    seed: int = 0  # of these, ours alone


class BigBirdFamily(BertFamily):
    """BERT's encoder whose blocks of tokens see their neighbours, the first and the last one, and
    random ones.

    The published class draws its random blocks itself, others than ours: in training other ones for
    each head, in evaluation the first block again and again. It reads rows of up to 5 + 2 r blocks
    by full attention, for r random blocks. Its question answering has a layer of its own and is not
    read.
    """

    model_type = "big_bird"
    systems = ("BigBird",)
    schema = BigBirdConfig
    architectures = (
        Architecture(
            "BigBirdForSequenceClassification", ("score",), classifier_rules("score"), outputs=1
        ),
        Architecture("BigBirdForSequenceClassification", ("class",), classifier_rules("class")),
        Architecture(
            "BigBirdForTokenClassification", ("tag",), linear("heads.tag.linear", "classifier")
        ),
        Architecture("BigBirdForPreTraining", ("mlm", "pooler", "nsp"), MLM + POOLER + NSP),
        Architecture("BigBirdForMaskedLM", ("mlm",), MLM),
        Architecture("BigBirdModel", ("pooler",), OWN_POOLER, bare=True),
        Architecture("BigBirdModel", bare=True),
    )
    pooler = OWN_POOLER
    unread: tuple[str, ...] = ()

    def numbers(self, settings: Mapping[str, Any]) -> BigBirdNumbers:
        for key, allowed in (("use_bias", True), ("rescale_embeddings", False)):
            if settings.get(key, allowed) != allowed:
                raise ConfigError(f"config.json: {key}", settings[key], f"{allowed}, nothing else")
        plain = super().numbers({"hidden_act": "gelu_new", **settings})
        full = settings.get("attention_type") == "original_full"
        block, random = settings.get("block_size", 64), settings.get("num_random_blocks", 3)
        return BigBirdNumbers(
            **vars(plain), block=0 if full else block, random=0 if full else random
        )

    def settings(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, BigBirdNumbers)
        sparse = {"block_size": numbers.block, "num_random_blocks": numbers.random}
        kind = "block_sparse" if numbers.block else "original_full"
        more = {"attention_type": kind, "pad_token_id": numbers.pad, "sep_token_id": "sep"}
        return super().settings(numbers) | more | (sparse if numbers.block else {})

    def nodes(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, BigBirdNumbers)
        nodes = super().nodes(numbers)
        nodes["model"]["classifier"] = {
            "pooler": False,
            "dense": True,
            "activation": numbers.activation,
            "bias": True,
        }
        if numbers.block:
            nodes["pattern"] = {
                "_target_": PATTERN,
                "block": numbers.block,
                "window": 3,
                "first": 1,
                "last": 1,
                "random": numbers.random,
                "seed": numbers.seed,
                "num_layers": numbers.num_layers,
            }
        return nodes

    def measure(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad: int
    ) -> BigBirdNumbers:
        plain, pattern = super().measure(config, tensors, pad), config["pattern"]
        known = pattern if pattern.get("_target_") == PATTERN else {}
        own = {name: known.get(name, 0) for name in ("block", "random", "seed")}
        return BigBirdNumbers(**vars(plain), **own)

    def find_unstated(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
        assert isinstance(numbers, BigBirdNumbers)
        none = numbers.block and not numbers.random
        few = ["pattern.random=0 (published: 1 or more)"] if none else []
        return super().find_unstated(config, numbers) + few

    def describe_reading(self, numbers: Numbers) -> str:
        assert isinstance(numbers, BigBirdNumbers)
        full = (5 + 2 * numbers.random) * numbers.block
        if not numbers.block or not numbers.random or numbers.max_length <= full:
            return ""
        return (
            f"rows over {full:,} tokens, 5 + 2 * {numbers.random} blocks, are read with other"
            " random blocks than transformers draws: there the answers of this model are others"
        )

    def list_unexpressed(self, config: Mapping[str, Any]) -> list[str]:
        if not config["pattern"].get("random"):
            return []
        return ["pattern.random: the published class has other random blocks"]

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        node = super().head(name, numbers, outputs)
        if name not in ("class", "score"):
            return node
        return node | {"dense": True, "activation": numbers.activation}
