"""After how many layers the state of each token is final, in models whose tokens halt (Dehghani et
al., 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_held_out
from plmctl.artifacts.loading import Loaded
from plmctl.models.capabilities import find_halting
from plmctl.nn.stack import Stack


@dataclass(frozen=True)
class LayersTaken:
    """The layers that the tokens of a sequence took.

    Args:
        seq: The sequence: "text", "source" or "target".
        tokens: The tokens of each row that has some, without padding.
        taken: The number of layers by row and token.
        most: The layers of the stack.
    """

    seq: str
    tokens: list[list[str]]
    taken: list[list[int]]
    most: int

    def by_position(self) -> list[float]:
        """The mean over all rows that have a token at this position."""
        longest = max(map(len, self.taken))
        columns = [
            [row[place] for row in self.taken if place < len(row)] for place in range(longest)
        ]
        return [sum(column) / len(column) for column in columns]


@dataclass(frozen=True)
class TokenLayers(Measure):
    """The layers of each token.

    Args:
        seqs: The sequences whose tokens halt.
        about: The text that was read.
    """

    name: ClassVar[str] = "halting"
    seqs: list[LayersTaken]
    about: str

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded) -> Self | None:
        backbone = opened.model.backbone
        halts = find_halting(backbone)
        if not halts:
            return None
        batch, about = batch_held_out(opened)
        pondered = opened.model(batch).pondered
        stacks = [part for part in backbone.modules() if isinstance(part, Stack)]
        found = []
        for name, halting in halts.items():
            seq = batch.seqs.get(name) or batch.text
            layers = pondered[name][..., 0].round().int()
            filled = [number for number, real in enumerate(seq.real) if bool(real.any())]
            rows = [seq.ids[number][seq.real[number]].tolist() for number in filled]
            taken = [layers[number][seq.real[number]].tolist() for number in filled]
            most = next(stack.num_layers for stack in stacks if stack.halting is halting)
            tokens = [opened.tokenizer.show(row) for row in rows]
            found.append(LayersTaken(name, tokens, taken, most))
        return cls(found, about)
