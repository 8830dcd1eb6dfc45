"""Masking of tokens as BERT does it (Devlin et al., 2019, arXiv:1810.04805, sec. 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Required, TypedDict

from plmctl.noise.masking import Masking, MaskOrReplace, NoiseBudget, Select
from plmctl.text.vocab import Vocab


class MaskSettings(TypedDict, total=False):
    """The settings of `MaskTokens`, which its kinds pass on."""

    rate: Required[float]
    mask_share: float
    random_share: float
    max_predictions: int | None
    selection: str
    random_specials: bool
    static: int | None


class MaskTokens(Masking):
    """BERT's masking of the tokens that `select` chooses with a budget; `count_specials` as in
    `NoiseBudget`.
    """

    count_specials: bool | None = None

    def __init__(
        self,
        *,
        vocab: Vocab,
        select: Callable[..., Select],
        rate: float,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        max_predictions: int | None = None,
        selection: str = "exact",
        random_specials: bool = True,
        static: int | None = None,
    ) -> None:
        budget = NoiseBudget(
            rate=rate,
            max_predictions=max_predictions,
            selection=selection,
            count_specials=self.count_specials,
        )
        super().__init__(
            select=select(budget=budget),
            corrupt=MaskOrReplace(
                vocab=vocab,
                mask_share=mask_share,
                random_share=random_share,
                random_specials=random_specials,
            ),
            static=static,
        )
