"""XLM-R (Conneau et al., 2020, arXiv:1911.02116) and CamemBERT (Martin et al., 2020,
arXiv:1911.03894) as `transformers` publishes them: RoBERTa under other names.
"""

from __future__ import annotations

from plmctl.interop.roberta import POOLER, RobertaFamily, roberta_classes


class XLMRobertaFamily(RobertaFamily):
    """RoBERTa's encoder, `XLMRoberta...`."""

    model_type = "xlm-roberta"
    systems = ("XLM-R",)
    architectures = roberta_classes("XLMRoberta", POOLER)


class CamembertFamily(RobertaFamily):
    """RoBERTa's encoder, `Camembert...`."""

    model_type = "camembert"
    systems = ("CamemBERT",)
    architectures = roberta_classes("Camembert", POOLER)
