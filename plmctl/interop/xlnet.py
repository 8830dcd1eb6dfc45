"""XLNet (Yang et al., 2019, arXiv:1906.08237) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.bert import ACTIVATIONS, encoder_nodes, task_head
from plmctl.interop.family import Architecture, Family, Node, linear_class, lm_head, row_classes
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.settings import (
    TIED,
    VOCAB,
    Also,
    Config,
    Key,
    Numbers,
    Only,
    Settings,
    Written,
    activation,
    pad,
)

CELL, THEIRS = "backbone.stack.blocks.a.{i}.cell", "layer.{i}.rel_attn"
FIXED = {  # settings with one supported value
    "attn_type": "bi",
    "same_length": False,
    "bi_data": False,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
}
SUMMARY = linear("heads.pooler.dense", "sequence_summary.summary")


def summary_rules(head: str) -> list[NameRule]:
    """The rules of a linear map behind the summary."""
    return linear(f"heads.{head}.linear", "logits_proj")


def projection_rules(num_heads: int) -> list[NameRule]:
    """The rules for the maps: theirs are [W, H, D], ours are matrices; keys and values are one."""

    def join(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.flatten(1).T for tensor in tensors])

    def split(ours: Tensor, parts: int = 1) -> list[Tensor]:
        return [part.T.unflatten(1, (num_heads, -1)) for part in ours.chunk(parts)]

    def reshape(ours: str, theirs: str, axis: int, *, optional: bool = False) -> NameRule:
        """Our tensor has one more axis of size 1."""
        return NameRule(
            ours,
            (theirs,),
            lambda tensors: tensors[0].unsqueeze(axis),
            lambda tensor: [tensor.squeeze(axis)],
            optional,
        )

    return [
        *(
            NameRule(f"{CELL}.{ours}.weight", (f"{THEIRS}.{name}",), join, split)
            for ours, name in (("q", "q"), ("place", "r"))
        ),
        NameRule(
            f"{CELL}.kv.weight", (f"{THEIRS}.k", f"{THEIRS}.v"), join, lambda ours: split(ours, 2)
        ),
        NameRule(
            f"{CELL}.out.weight",
            (f"{THEIRS}.o",),
            lambda tensors: tensors[0].flatten(1),
            lambda ours: [ours.unflatten(1, (num_heads, -1))],
        ),
        reshape(f"{CELL}.content_bias", f"{THEIRS}.r_w_bias", 1),
        reshape(f"{CELL}.place_bias", f"{THEIRS}.r_r_bias", 1),
        reshape(f"{CELL}.segment_bias", f"{THEIRS}.r_s_bias", 1),
        reshape(f"{CELL}.segments", f"{THEIRS}.seg_embed", 2),
    ]


SETTINGS: Settings = (
    VOCAB,
    Key("d_model", "width", Count),
    Key("n_layer", "num_layers", Count),
    Key("n_head", "num_heads", Count),
    Key("d_inner", "inner_width", Count),
    activation("ff_activation", ACTIVATIONS),
    Key("dropout", "dropout", Rate, 0.1),
    Key("layer_norm_eps", "eps", Number, 1e-12),
    Key("mem_len", "memory", Whole | None, None, lambda size: size or 0, lambda n: n or None),
    Key("reuse_len", "reuse", Whole | None, None, read=lambda size: size or None),
    Key("clamp_len", "farthest", int, -1, write=lambda _: -1),
    Written("untie_r", True),
    Written("initializer_range", 0.02),
    pad(written=True),
    TIED,
    Also("summary_last_dropout", "dropout"),
    *(Only(key, value, written=True) for key, value in FIXED.items()),
)


class XLNetFamily(Family):
    """Two streams over relative attention, `XLNet...`; the last token, `<cls>`, represents a
    row.
    """

    model_type = "xlnet"
    systems = ("XLNet",)
    recipes: tuple[str, ...] = ("xlnet",)
    hub: tuple[tuple[str, int], ...] = (
        ("xlnet/xlnet-base-cased", 110),
        ("xlnet/xlnet-large-cased", 340),
    )
    stated = SETTINGS
    ignored = frozenset({"d_head", "use_mems_eval", "start_n_top", "end_n_top"})
    prefix = "transformer."
    rules: Sequence[NameRule] = (
        same("backbone.embedding.token.weight", "word_embedding.weight"),
        NameRule(
            "backbone.query",
            ("mask_emb",),
            lambda found: found[0][0],
            lambda tensor: [tensor[None]],
        ),
        *linear("backbone.stack.blocks.a.{i}.norm_sum", f"{THEIRS}.layer_norm"),
        *maps(
            "backbone.stack.blocks.f.{i}",
            "layer.{i}.ff",
            {"cell.up": "layer_1", "cell.down": "layer_2", "norm_sum": "layer_norm"},
        ),
    )
    architectures: Sequence[Architecture] = (
        *row_classes("XLNetForSequenceClassification", summary_rules, SUMMARY),
        Architecture(
            "XLNetForMultipleChoice",
            ("pooler", "choice"),
            SUMMARY + summary_rules("choice"),
            outputs=1,
        ),
        linear_class("XLNetForTokenClassification", "tag", "classifier"),
        linear_class("XLNetForQuestionAnsweringSimple", "span", "qa_outputs"),
        Architecture(
            "XLNetLMHeadModel",
            ("plm",),
            [
                same("heads.plm.bias", "lm_loss.bias"),
                same("heads.plm.weight", "lm_loss.weight", optional=True),
            ],
        ),
        Architecture("XLNetModel", bare=True),
    )
    ties = {"lm_loss.weight": "word_embedding.weight"}  # noqa: RUF012

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        return [*self.rules, *projection_rules(numbers.num_heads)]

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        if numbers.farthest > 0:
            allowed = "-1: every distance counts as it is"
            raise ConfigError("config.json: clamp_len", numbers.farthest, allowed)
        return numbers.but(attention_dropout=numbers.dropout)

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers) | {
            "position": {"_target_": "plmctl.nn.positions.NoPosition"}
        }
        model = nodes["model"]
        model |= {"_target_": "plmctl.models.xlnet.XLNet", "two_streams": True}
        model |= {"memory": numbers.memory, "reuse": numbers.reuse}
        model["embedding"] |= {"segments": 0, "norm": None}
        model["stack"]["cells"]["a"] |= {
            "_target_": "plmctl.nn.cells.relative_attention.RelativeAttention",
            "segments": True,
        }
        model["initializer"]["_target_"] = "plmctl.nn.init.normal"
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name != "plm":
            return task_head(name, numbers, outputs)
        return lm_head(numbers, about="next")

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers, model = super().measure(config, tensors, pad), config.get("model") or {}
        memory = {"memory": model.get("memory") or 0, "reuse": model.get("reuse")}
        return numbers.but(max_length=0, farthest=-1, **memory)
