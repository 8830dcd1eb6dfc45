"""XLM-R (Conneau et al., 2020, arXiv:1911.02116) and CamemBERT (Martin et al., 2020,
arXiv:1911.03894) as `transformers` publishes them: RoBERTa under other names.
"""

from __future__ import annotations

from plmctl.interop.roberta import POOLER, RobertaFamily, roberta_classes


class XLMRobertaFamily(RobertaFamily):
    """RoBERTa's encoder, `XLMRoberta...`."""

    model_type = "xlm-roberta"
    systems = ("XLM-R",)
    hub: tuple[tuple[str, int], ...] = (
        ("FacebookAI/xlm-roberta-base", 278),
        ("FacebookAI/xlm-roberta-large", 560),
    )
    architectures = roberta_classes("XLMRoberta", POOLER)


class CamembertFamily(RobertaFamily):
    """RoBERTa's encoder, `Camembert...`."""

    model_type = "camembert"
    systems = ("CamemBERT",)
    recipes: tuple[str, ...] = ("camembert",)
    hub: tuple[tuple[str, int], ...] = (
        ("almanach/camembert-base", 111),
        ("almanach/camembert-large", 337),
    )
    architectures = roberta_classes("Camembert", POOLER)
