"""BigBird (Zaheer et al., 2020, arXiv:2007.14062) as `transformers` publishes it."""

from __future__ import annotations

from typing import Literal

from plmctl.core.values import Count, Whole
from plmctl.interop.bert import ACTIVATIONS, MLM, NSP, SETTINGS, BertFamily, choice_class
from plmctl.interop.family import Architecture, Family, Node, linear_class, row_classes
from plmctl.interop.names import NameRule, Weights, linear
from plmctl.interop.roberta import classifier_rules
from plmctl.interop.settings import Config, Key, Numbers, Only, Written, activation, change, pad

PATTERN = "plmctl.attention.patterns.big_bird.BigBird"
OWN_POOLER: list[NameRule] = linear("heads.pooler.dense", "pooler")
POOLER: list[NameRule] = linear("heads.pooler.dense", "bert.pooler")
FULL, BLOCKS = "original_full", "block_sparse"


def block_pattern(numbers: Numbers) -> Node:
    """The node of the pattern of an encoder."""
    return {
        "_target_": PATTERN,
        "block": numbers.block,
        "window": 3,
        "first": 1,
        "last": 1,
        "random": numbers.random,
        "seed": numbers.seed,
        "num_layers": numbers.num_layers,
    }


class BlocksFamily(Family):
    """A family whose encoder sees blocks of tokens, or all of them."""

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        none = {"block": 0, "random": 0} if numbers.kind == FULL else {}
        return numbers.but(seed=0, **none)  # the seed of the random blocks is ours alone

    def settings(self, numbers: Numbers) -> Node:
        settings = super().settings(numbers.but(kind=BLOCKS if numbers.block else FULL))
        unused = () if numbers.block else ("block_size", "num_random_blocks")
        return {key: value for key, value in settings.items() if key not in unused}

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        known = config["pattern"] if config["pattern"].get("_target_") == PATTERN else {}
        blocks = {name: known.get(name, 0) for name in ("block", "random", "seed")}
        return super().measure(config, tensors, pad).but(**blocks)

    def describe_reading(self, numbers: Numbers) -> str:
        """A line on the rows whose random blocks the published class draws otherwise, or ""."""
        full = (5 + 2 * numbers.random) * numbers.block
        if not numbers.block or not numbers.random or numbers.max_length <= full:
            return ""
        return (
            f"rows over {full:,} tokens, 5 + 2 * {numbers.random} blocks, are read with other"
            " random blocks than transformers draws: there the answers of this model are others"
        )

    def list_unexpressed(self, config: Config) -> list[str]:
        other = ["pattern.random: the published class has other random blocks"]
        return other if config["pattern"].get("random") else []


class BigBirdFamily(BlocksFamily, BertFamily):
    """BERT's encoder whose blocks of tokens see their neighbours, the first and the last one, and
    random ones.

    The published class draws its random blocks itself, unlike ours: in training different ones for
    each head; in evaluation the first block again and again. It reads rows of up to 5 + 2 r blocks
    by full attention, for r random blocks. Its question answering has a layer of its own and is not
    read.
    """

    model_type = "big_bird"
    systems = ("BigBird",)
    recipes: tuple[str, ...] = ("big_bird",)
    hub: tuple[tuple[str, int], ...] = (
        ("google/bigbird-roberta-base", 128),
        ("google/bigbird-roberta-large", 360),
    )
    stated = change(
        SETTINGS,
        activation("hidden_act", ACTIVATIONS, "gelu_new"),
        pad(written=True),
        Key("attention_type", "kind", Literal["block_sparse", "original_full"], BLOCKS),
        Written("sep_token_id", "sep"),
        # ours are 0 where attention is full: the tokens of a block, and random blocks of each
        Key("block_size", "block", Count, 64),
        Key("num_random_blocks", "random", Whole, 3),
        Only("use_bias", True, why=", nothing else"),
        Only("rescale_embeddings", False, why=", nothing else"),
    )
    architectures = (
        *row_classes("BigBirdForSequenceClassification", classifier_rules),
        choice_class("BigBird", POOLER),
        linear_class("BigBirdForTokenClassification", "tag", "classifier"),
        Architecture("BigBirdForPreTraining", ("mlm", "pooler", "nsp"), MLM + POOLER + NSP),
        Architecture("BigBirdForMaskedLM", ("mlm",), MLM),
        Architecture("BigBirdModel", ("pooler",), OWN_POOLER, bare=True),
        Architecture("BigBirdModel", bare=True),
    )
    pooler = OWN_POOLER
    unread: tuple[str, ...] = ()

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["model"]["classifier"] = {
            "pooler": False,
            "dense": True,
            "activation": numbers.activation,
            "bias": True,
        }
        if numbers.block:
            nodes["pattern"] = block_pattern(numbers)
        return nodes

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        none = numbers.block and not numbers.random
        few = ["pattern.random=0 (published: 1 or more)"] if none else []
        return super().find_unstated(config, numbers) + few

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        node = super().head(name, numbers, outputs)
        if name not in ("class", "score"):
            return node
        return node | {"dense": True, "activation": numbers.activation}
