"""Attention maps, drawn as lines between two columns of tokens (after Vig, 2019, arXiv:1906.05714,
its head view).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import DataError, UsageError
from plmctl.report.chart import draw_frame
from plmctl.report.sentences import batch_sentences
from plmctl.report.style import SERIES, draw_text

LONGEST = 40  # tokens of a sentence that is drawn
FAINT = 0.03  # a weight below this has no line, unless it is among the strongest of its token
_STRONGEST = 2
_ROW, _TOP, _LEFT, _RIGHT = 17, 36, 200, 360


@torch.inference_mode()
def measure_attention(
    loaded: Loaded, sentences: Sequence[str]
) -> list[tuple[list[str], list[Tensor]]]:
    """For each sentence its tokens, and for each layer of self-attention the probabilities [H, T,
    T], query by key.

    DataError where the model records none.
    """
    if "attention" not in loaded.model.backbone.records:
        raise DataError("this model has no self-attention that is recorded")
    batch, rows = batch_sentences(loaded, sentences, most=LONGEST)
    layers = loaded.model(batch, record=frozenset({"attention"})).recorded["attention"]
    return [
        (
            loaded.tokenizer.pieces(row),
            [layer[index, :, : len(row), : len(row)] for layer in layers],
        )
        for index, row in enumerate(rows)
    ]


def draw_attention(tokens: Sequence[str], weights: Sequence[Sequence[float]], *, title: str) -> str:
    """One SVG with a line from each token (left) to each token that it attends to (right); the
    weight is the opacity.
    """
    strongest = [
        torch.tensor(row).topk(min(_STRONGEST, len(row))).indices.tolist() for row in weights
    ]
    parts = []
    for query, token in enumerate(tokens):
        y = _TOP + _ROW * query + 10
        lines = [
            f'<line x1="{_LEFT}" y1="{y - 4}" x2="{_RIGHT}" y2="{_TOP + _ROW * key + 6}"'
            f' stroke-opacity="{weight:.2f}"/>'
            for key, weight in enumerate(weights[query])
            if weight >= FAINT or key in strongest[query]
        ]
        name = draw_text(_LEFT - 6, y, escape(token), "end")
        parts.append(
            f'<g class="from c0" color="{SERIES[0]}" stroke-width="2">{name}<g'
            f' stroke="currentColor">{"".join(lines)}</g></g>'
        )
    parts += [
        draw_text(_RIGHT + 6, _TOP + _ROW * key + 10, escape(token))
        for key, token in enumerate(tokens)
    ]
    return draw_frame(parts, title=title, height=_TOP + _ROW * len(tokens) + 10, kind="pairs")


def check(heads: Sequence[tuple[int, int]], layers: Sequence[Tensor]) -> None:
    """Raise UsageError for a head that the model does not have."""
    for layer, head in heads:
        if not (0 <= layer < len(layers) and 0 <= head < len(layers[layer])):
            shape = f"{len(layers)} layers of {len(layers[0])} heads, counted from 0"
            raise UsageError(
                f"--attention {layer}.{head}: there is no such head; this model has {shape}"
            )
