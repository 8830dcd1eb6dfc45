"""mBART (Liu et al., 2020, arXiv:2001.08210) and mBART-50 (Tang et al., 2020, arXiv:2008.00401) as
`transformers` publishes them.
"""

from __future__ import annotations

from plmctl.interop.bart import (
    NORM,
    SEQ2SEQ,
    BartFamily,
    bart_nodes,
    classifier_rules,
    embedding_rules,
    layer_rules,
    learned,
)
from plmctl.interop.family import Architecture, Node, linear_class, row_classes
from plmctl.interop.names import NameRule, linear
from plmctl.interop.settings import Numbers
from plmctl.interop.stacks import HEAD, TABLES


def pre_norm_rules(end: str, final: str = "layer_norm", *, bias: bool = True) -> list[NameRule]:
    """The rules for the layers of "encoder" or "decoder", each norm before its cell, and for the
    last norm, which they call `final`.
    """
    last = linear(f"backbone.{end}.stack.final_norm", f"{end}.{final}")
    return [*layer_rules(end, norm="norm_in", bias=bias), *last]


class MBartFamily(BartFamily):
    """BART with its norms before the cells and one after each stack, `MBart...`.

    Where no file names the first token of the decoder, it is the last one of the target, which
    names the language.
    """

    model_type = "mbart"
    systems = ("mBART", "mBART-50")
    recipes: tuple[str, ...] = ("mbart",)
    hub: tuple[tuple[str, int], ...] = (
        ("facebook/mbart-large-cc25", 610),
        ("facebook/mbart-large-50", 611),
    )
    first_token = "last"
    rules = (
        *TABLES,
        *(
            rule
            for end in ("encoder", "decoder")
            for rule in [*embedding_rules(end), *pre_norm_rules(end)]
        ),
    )
    architectures = (
        *row_classes("MBartForSequenceClassification", classifier_rules),
        linear_class("MBartForQuestionAnswering", "span", "qa_outputs"),
        Architecture("MBartForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("MBartModel", bare=True),
    )

    def nodes(self, numbers: Numbers) -> Node:
        return bart_nodes(
            numbers, positions=learned(numbers), embedding={"norm": NORM}, residual="PreNorm"
        )
