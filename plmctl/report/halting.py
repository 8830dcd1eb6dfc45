"""After how many layers the state of each token is final, in models whose tokens halt (Dehghani et
al., 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.nn.stack import Stack
from plmctl.report.held_out import batch_held_out


@dataclass(frozen=True)
class LayersTaken:
    """The layers that the tokens of a sequence took.

    Args:
        seq: the sequence: "text", "source" or "target".
        tokens: of each row that has some, without padding.
        taken: by row, as many as there are tokens.
        most: the layers of the stack.
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


@torch.inference_mode()
def measure_halting(loaded: Loaded) -> tuple[list[LayersTaken], str]:
    """(the layers of each sequence whose tokens halt, none in other models; what was read)."""
    backbone = loaded.model.backbone
    if not backbone.halting:
        return [], ""
    batch, about = batch_held_out(loaded)
    pondered = loaded.model(batch).pondered
    stacks = [part for part in backbone.modules() if isinstance(part, Stack)]
    found = []
    for name, halting in backbone.halting.items():
        seq = batch.seqs.get(name) or batch.text
        layers = pondered[name][..., 0].round().int()
        filled = [number for number, real in enumerate(seq.real) if bool(real.any())]
        rows = [seq.ids[number][seq.real[number]].tolist() for number in filled]
        taken = [layers[number][seq.real[number]].tolist() for number in filled]
        most = next(stack.num_layers for stack in stacks if stack.halting is halting)
        found.append(LayersTaken(name, [loaded.tokenizer.pieces(row) for row in rows], taken, most))
    return found, about
