"""mT5 (Xue et al., 2021, arXiv:2010.11934) as `transformers` publishes it."""

from __future__ import annotations

from plmctl.interop.family import Node
from plmctl.interop.settings import Config, Numbers
from plmctl.interop.t5 import EncoderAlone, T5Family, encoder_classes, t5_classes


class MT5Family(T5Family):
    """T5 1.1 with a vocabulary of many languages, `MT5...`. States are never multiplied before the
    output table.
    """

    model_type = "mt5"
    systems = ("mT5",)
    hub: tuple[tuple[str, int], ...] = (
        ("google/mt5-small", 300),
        ("google/mt5-base", 580),
        ("google/mt5-large", 1200),
    )
    architectures = t5_classes("MT5")

    def numbers(self, settings: Config) -> Numbers:
        return super().numbers(settings).but(scaled=False)

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        return super().head(name, numbers.but(scaled=False), outputs)


class MT5EncoderFamily(EncoderAlone, MT5Family):
    """mT5's encoder alone."""

    architectures = encoder_classes("MT5")
