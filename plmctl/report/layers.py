"""How far each layer moves its input: distance and angle between the states before and after it (Lan et al., 2020, fig. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from plmctl.batch import Batch, Seq
from plmctl.errors import DataError, PlmctlError
from plmctl.loading import Loaded, load
from plmctl.report.chart import Curve, line_chart
from plmctl.report.page import Block, Chart, Heading, Text

SENTENCES = (  # the same for every run, so that runs compare
    "The river rose in the night, and by morning the lower fields were under water.",
    "She had read the letter twice before she understood who had written it.",
    "In 1905 the town counted four schools, two mills and a railway station.",
    "Most birds of this kind build their nests close to the ground.",
    "The committee will meet again next week to vote on the new budget.",
    "He asked for a cup of tea, sat down by the window and said nothing.",
    "Iron becomes soft at high temperatures and can then be bent into any shape.",
    "Nobody knows how the old bridge survived the storm.",
)


@dataclass(frozen=True)
class Move:
    """What one layer does to the states that it is given, averaged over tokens."""

    distance: float  # L2
    angle: float  # degrees


def moves(states: Sequence[Tensor], real: Tensor) -> list[Move]:
    """For each layer's input x and output y: the means of `|y - x|` and of `arccos(x . y / |x| |y|)` over the real tokens.

    states: L + 1 of [B, T, W], the embedding output first; real [B, T]. (Lan et al., 2020, arXiv:1909.11942, fig. 1.)
    The angle is taken as `2 atan2(|u - v|, |u + v|)` of the unit vectors u, v, which is exact for small ones too.
    """
    found = []
    for x, y in pairwise(states):
        x, y = x[real].double(), y[real].double()
        u, v = (z / z.norm(dim=-1, keepdim=True) for z in (x, y))
        angle = torch.rad2deg(2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1)))
        found.append(Move(float((y - x).norm(dim=-1).mean()), float(angle.mean())))
    return found


@torch.inference_mode()
def measured(loaded: Loaded, sentences: Sequence[str] = SENTENCES) -> tuple[list[Move], int]:
    """(the moves of every layer of a trained model, over how many tokens of `sentences`, special ones included)."""
    vocab, longest = loaded.vocab, loaded.model.backbone.max_length
    template = vocab.single if vocab.cls is not None else ("A",)
    rows = [[i for r in template for i in (loaded.tokenizer.encode(text) if r == "A" else [vocab.id(r)])] for text in sentences]
    rows = [row[:longest] for row in rows]
    length = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(length.max())), vocab.pad)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
    seq = Seq(ids, length)
    hidden = loaded.model(Batch(torch.arange(len(rows)), {"text": seq}), record=frozenset({"hidden"}))
    if not hidden.recorded:
        raise DataError("this model does not record the states between its layers")
    return moves(hidden.recorded["hidden"], seq.real), int(length.sum())


def panel(runs: Sequence[tuple[str, Path]]) -> list[Block]:
    """A chart of distances and one of angles, a curve for each of `runs` (name, folder); a line for a run without a model."""
    distances: dict[str, Curve] = {}
    angles: dict[str, Curve] = {}
    notes = []
    for name, folder in runs:
        try:
            loaded = load(folder)
            found, tokens = measured(loaded)
        except PlmctlError as error:
            notes.append(f"{name}: not measured, {str(error).splitlines()[0]}.")
            continue
        notes.append(f"{name}: {loaded.source.folder.name}, {tokens} tokens.")
        distances[name] = [(float(layer), move.distance) for layer, move in enumerate(found, 1)]
        angles[name] = [(float(layer), move.angle) for layer, move in enumerate(found, 1)]
    text = f"Means over the tokens of {len(SENTENCES)} English sentences that come with plmctl. {' '.join(notes)}"
    blocks: list[Block] = [Heading("What each layer changes"), Text(text)]
    for name, curves, title, y in (
        ("layer_distance", distances, "Distance between a layer's input and output", "L2 distance"),
        ("layer_angle", angles, "Angle between a layer's input and output", "degrees"),
    ):
        if curves:
            blocks.append(Chart(name, line_chart(curves, title=title, x="layer", y=y)))
    return blocks
