"""One text a row, token by token: the loop of greedy search and sampling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from plmctl.generation.search import DecodingStep, Hypothesis, Rules, Start

# (logp [N, V], rows [N], t) -> tokens [N], their logp
Choose = Callable[[Tensor, np.ndarray, int], tuple[Tensor, Tensor]]


def walk(step: DecodingStep, start: Start, rules: Rules, choose: Choose) -> list[Hypothesis]:
    """Write a text for each row; a row leaves the batch when its text ends."""
    rows, ids, logp = np.arange(len(start.logp)), start.read, start.logp
    before, texts = ids.shape[1], [Hypothesis([], 0.0, False)] * len(rows)
    scores = np.zeros(len(rows))
    for written in range(int(start.limits.max(initial=0))):
        chosen, gain = choose(rules(logp, written, start.end, ids), rows, written)
        tokens = chosen.cpu().numpy()
        scores += gain.double().cpu().numpy()
        ids = np.concatenate([ids, tokens[:, None]], 1)
        if start.watch is not None:
            start.watch(tokens.tolist())
        ended = tokens == start.end if start.end is not None else np.zeros(len(rows), bool)
        done = ended | (written + 1 >= start.limits[rows])
        if done.any():
            for row in np.flatnonzero(done):
                text = ids[row, before : before + written + 1 - ended[row]]
                texts[rows[row]] = Hypothesis(text.tolist(), float(scores[row]), bool(ended[row]))
            open_rows = np.flatnonzero(~done)
            if not len(open_rows):
                break
            rows, ids, scores, rest = (
                rows[open_rows],
                ids[open_rows],
                scores[open_rows],
                torch.from_numpy(open_rows).to(chosen.device),
            )
            chosen = chosen[rest]
            step.select(rest)
        logp = step.advance(chosen)
    return texts
