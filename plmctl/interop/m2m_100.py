"""M2M-100 (Fan et al., 2021, arXiv:2010.11125) and NLLB (NLLB Team, 2022, arXiv:2207.04672) as
`transformers` publishes them.
"""

from __future__ import annotations

from plmctl.interop.bart import BartFamily, bart_nodes
from plmctl.interop.family import Architecture, Node
from plmctl.interop.marian import SINUSOIDS
from plmctl.interop.mbart import pre_norm_rules
from plmctl.interop.names import same
from plmctl.interop.settings import Numbers
from plmctl.interop.stacks import HEAD, OUTPUT, TABLES


class M2M100Family(BartFamily):
    """Pegasus with fairseq's sinusoids, which begin after the padding id, `M2M100...`."""

    model_type = "m2m_100"
    systems = ("M2M-100", "NLLB")
    hub: tuple[tuple[str, int], ...] = (
        ("facebook/m2m100_418M", 418),
        ("facebook/nllb-200-distilled-600M", 600),
    )
    rules = (*TABLES, *(rule for end in ("encoder", "decoder") for rule in pre_norm_rules(end)))
    architectures = (
        Architecture(
            "M2M100ForConditionalGeneration",
            (HEAD,),
            [same(f"heads.{HEAD}.weight", OUTPUT, optional=True)],
        ),
        Architecture("M2M100Model", bare=True),
    )

    def nodes(self, numbers: Numbers) -> Node:
        positions = {**SINUSOIDS, "frequencies": "released", "first": numbers.pad + 1}
        return bart_nodes(
            numbers, positions=positions, embedding={"norm": None}, residual="PreNorm"
        )
