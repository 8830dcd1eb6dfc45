"""Blenderbot of 90M parameters (Roller et al., 2021, arXiv:2004.13637) as `transformers` publishes
it.
"""

from __future__ import annotations

from plmctl.interop.bart import NORM, SEQ2SEQ, BartFamily, bart_nodes, layer_rules, learned
from plmctl.interop.family import Architecture, Node
from plmctl.interop.names import linear, same
from plmctl.interop.settings import Numbers
from plmctl.interop.stacks import HEAD, TABLES


class BlenderbotSmallFamily(BartFamily):
    """BART whose decoder adds positions after the norm of its embeddings, and does not scale them,
    `BlenderbotSmall...`.
    """

    model_type = "blenderbot-small"
    systems = ("Blenderbot-small",)
    hub: tuple[tuple[str, int], ...] = (("facebook/blenderbot_small-90M", 90),)
    first_token = 1
    rules = (
        *TABLES,
        *(
            rule
            for end in ("encoder", "decoder")
            for rule in [
                same(f"backbone.{end}.position.table.weight", f"{end}.embed_positions.weight"),
                *linear(f"backbone.{end}.embedding.norm", f"{end}.layernorm_embedding"),
                *layer_rules(end),
            ]
        ),
    )
    architectures = (
        Architecture("BlenderbotSmallForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("BlenderbotSmallModel", bare=True),
    )

    def nodes(self, numbers: Numbers) -> Node:
        nodes = bart_nodes(numbers, positions=learned(numbers), embedding={"norm": NORM})
        above = nodes["model"]["decoder"]
        above["embedding"] = {**above["embedding"], "norm_first": True, "scaled": False}
        return nodes
