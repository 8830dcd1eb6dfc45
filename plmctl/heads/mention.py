"""The head that judges mentions (Xiong et al., 2020, WKLM): is this the entity of the original
text?
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.heads.base import cross_entropy
from plmctl.nn.dropout import Dropout

Place = Literal["boundary", "start", "start_end"]
States = Literal["mlm_transform", "last_layer"]


@part_of("heads")
class MentionHead(nn.Module):
    """`logits = W dropout(x) + b`, [m, P W] -> [m, 2]; class 1 is the original, 0 a replacement.

    x holds the states of P tokens. `representation`: "boundary", the token before the mention and
    the one behind it; "start", its first; "start_end", its first and its last. `states`: those of
    the last layer, or what the head of masked tokens makes of them before its table, as in the
    released code. (Xiong et al., 2020, arXiv:1912.09637, sec. 2.2; github.com/xwhan,
    models/kdn_model.py and models/masked_lm.py, which draws W from N(0, 0.02).)
    Differs: with start_end the code has one classifier for each end; here their logits are added.
    """

    def __init__(
        self,
        *,
        width: int,
        token_embedding: nn.Module | None,
        representation: Place = "boundary",
        states: States = "mlm_transform",
        dropout: DropoutRate = 0.05,
    ) -> None:
        super().__init__()
        if representation not in ("boundary", "start", "start_end"):
            raise ConfigError("representation", representation, "boundary, start or start_end")
        if states not in ("mlm_transform", "last_layer"):
            raise ConfigError("states", states, "mlm_transform or last_layer")
        self.representation, self.states = representation, states
        table = getattr(token_embedding, "weight", None)
        inner = width if states == "last_layer" or table is None else int(table.shape[1])
        self.dropout = Dropout(rate=dropout)
        self.linear = nn.Linear(inner * (1 if representation == "start" else 2), 2)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def places(self, spans: Tensor, width: int) -> Tensor:
        """[m, P]: the flattened positions of the tokens that speak for mentions.

        Args:
            spans: [m, 3+] row, start, length; a token stands before and behind each.
            width: T, of the rows.
        """
        row, start, length = spans[:, :3].unbind(1)
        ends = {
            "boundary": (start - 1, start + length),
            "start": (start,),
            "start_end": (start, start + length - 1),
        }[self.representation]
        return torch.stack([row * width + end for end in ends], 1)

    def forward(self, states: Tensor) -> Tensor:
        """states [m, P, W] -> logits [m, 2]."""
        return self.linear(self.dropout(states.flatten(1)))  # type: ignore[no-any-return]

    def loss(self, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """states [m, P, W], labels [m] -> (summed cross-entropy, the class that each is given)."""
        logits = self(states)
        total, _ = cross_entropy(logits, labels)
        return total, logits.argmax(-1)
