"""The number of a task is at every token, and the embedding adds its vector."""

from __future__ import annotations

import numpy as np
import torch

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.nn.track_vectors import TrackVectors
from plmctl.noise.task_number import TaskNumber


def test_every_token_has_the_vector_of_its_task() -> None:
    part = TrackVectors(width=4, vocab_size=9, name="task", count=3)
    ids = np.array([[2, 5, 7], [2, 6, 0]])
    rows = Rows(np.arange(2), {"text": Seq(ids, np.array([3, 2]))})
    for number in range(3):
        track = TaskNumber(number=number)(rows, Draws(0, 0)).seqs["text"].tracks["task"]
        tracks = {"task": torch.from_numpy(track)}
        found = part(Seq(torch.from_numpy(ids), torch.tensor([3, 2]), tracks))
        assert found.equal(part.vectors.weight[number].expand(2, 3, 4))
    without = part(Seq(torch.from_numpy(ids), torch.tensor([3, 2]), {}))
    assert without.equal(part.vectors.weight[0].expand(2, 3, 4))
