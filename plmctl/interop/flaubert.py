"""FlauBERT (Le et al., 2020, arXiv:1912.05372) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Rate
from plmctl.interop.family import Node
from plmctl.interop.names import NameRule, Weights
from plmctl.interop.settings import Config, Key, Numbers, Settings, change
from plmctl.interop.xlm import SETTINGS, XLMFamily, layer_rules, xlm_classes

STATED: Settings = change(
    SETTINGS,
    Key("pre_norm", "pre_norm", bool, default=False),
    Key("layerdrop", "layerdrop", Rate, 0.0),
)
# settings of its pretraining, which its files state too
_TRAINING = """
amp bptt clip_grad_norm encoder_only fp16 group_by_size langs lg_sampling_factor lgs max_batch_size
max_vocab mlm_steps sample_alpha share_inout_emb tokens_per_batch word_blank word_dropout word_keep
word_mask word_mask_keep_rand word_pred word_rand word_shuffle
"""
PRE_NORM = "plmctl.nn.residual.PreNorm"


class FlaubertFamily(XLMFamily):
    """XLM's encoder of French text, `Flaubert...`; the large model has its norms before each cell,
    and none after the stack.

    Differs: in training no layer is skipped (`layerdrop`).
    """

    model_type = "flaubert"
    systems = ("FlauBERT",)
    recipes = ()
    hub = (
        ("flaubert/flaubert_small_cased", 54),
        ("flaubert/flaubert_base_cased", 138),
        ("flaubert/flaubert_base_uncased", 137),
        ("flaubert/flaubert_large_cased", 373),
    )
    stated = STATED
    ignored = XLMFamily.ignored | frozenset(_TRAINING.split())
    architectures = xlm_classes("Flaubert")

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        return layer_rules("norm_in" if numbers.pre_norm else "norm_sum")

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        if numbers.pre_norm:
            nodes["model"]["stack"]["residual"] |= {"_target_": PRE_NORM, "final_norm": False}
        return nodes

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        residual = (config["model"].get("stack") or {}).get("residual") or {}
        return (
            super()
            .measure(config, tensors, pad)
            .but(
                pre_norm=residual.get("_target_") == PRE_NORM,
                layerdrop=(config.get("origin") or {}).get("layerdrop", 0.0),
            )
        )

    def remember(self, numbers: Numbers) -> Node:
        dropped = {"layerdrop": numbers.layerdrop} if numbers.layerdrop else {}
        return super().remember(numbers) | dropped

    def describe_reading(self, numbers: Numbers) -> str:
        dropped = "training skips no layer: its layerdrop is not read" if numbers.layerdrop else ""
        return "; ".join(filter(None, [super().describe_reading(numbers), dropped]))
