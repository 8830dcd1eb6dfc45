"""Pegasus (Zhang et al., 2020, arXiv:1912.08777) as `transformers` publishes it."""

from __future__ import annotations

from plmctl.interop.bart import SEQ2SEQ, BartFamily, bart_nodes
from plmctl.interop.family import Architecture, Node
from plmctl.interop.marian import SINUSOIDS
from plmctl.interop.mbart import pre_norm_rules
from plmctl.interop.settings import Numbers
from plmctl.interop.stacks import HEAD, TABLES


class PegasusFamily(BartFamily):
    """Marian's sinusoids and one table of tokens, with its norms before the cells and one after
    each stack, `Pegasus...`.

    Differs: the authors' code has other frequencies (google-research/pegasus), as
    `frequencies=released` here; the published classes do not.
    """

    model_type = "pegasus"
    systems = ("Pegasus",)
    recipes: tuple[str, ...] = ("pegasus",)
    ignored: frozenset[str] = BartFamily.ignored | {"static_position_embeddings"}
    hub: tuple[tuple[str, int], ...] = (("google/pegasus-large", 568), ("google/pegasus-xsum", 568))
    first_token = None
    rules = (*TABLES, *(rule for end in ("encoder", "decoder") for rule in pre_norm_rules(end)))
    architectures = (
        Architecture("PegasusForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("PegasusModel", bare=True),
    )

    def nodes(self, numbers: Numbers) -> Node:
        return bart_nodes(
            numbers, positions=SINUSOIDS, embedding={"norm": None}, residual="PreNorm"
        )
