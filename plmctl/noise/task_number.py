"""The number of the task that rows are for, one for all of them (Sun et al., 2020, ERNIE 2.0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Whole
from plmctl.noise.base import Noise


@part_of("noise")
class TaskNumber(Noise):
    """Every token has the task `number`, for the vectors of tasks in the embedding
    (`nn.track_vectors`).

    A stage or a source of data states another number. Rows without this noise are of task 0, which
    fine-tuning uses, too. (arXiv:1907.12412, sec. 4.1: task embedding.)
    """

    writes = frozenset({"tracks.task"})
    changes = False
    fields: Mapping[str, Field] = {
        "tracks.task": Field("[n, T]", "int", "number of the task that the row is for")
    }

    def __init__(self, *, number: Whole) -> None:
        self.number = number

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seqs = {
            name: seq.with_tracks(task=np.full(seq.ids.shape, self.number, np.int32))
            for name, seq in rows.seqs.items()
        }
        return replace(rows, seqs=seqs)
