"""The mean of all tokens stands for a row: against a loop, of padded and of packed rows."""

from __future__ import annotations

import torch

from plmctl.core.batch import Batch, Seq
from plmctl.tasks.base import average_rows


def batch(length: list[int], anchors: list[tuple[int, int]], document: object = None) -> Batch:
    ids = torch.zeros(len(length), 6, dtype=torch.long)
    tracks = {} if document is None else {"document": torch.tensor(document)}
    seq = Seq(ids, torch.tensor(length), tracks)
    return Batch(torch.arange(len(length)), {"text": seq}, anchors=torch.tensor(anchors))


def test_padding_does_not_count() -> None:
    features = torch.randn(3, 6, 4)
    found = average_rows(features, batch([6, 2, 4], [(0, 0), (1, 0), (2, 3)]))
    expected = [features[row, :size].mean(0) for row, size in enumerate([6, 2, 4])]
    torch.testing.assert_close(found, torch.stack(expected))


def test_a_packed_row_has_a_mean_for_each_document() -> None:
    features = torch.randn(2, 6, 4)
    document = [[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]
    found = average_rows(features, batch([6, 5], [(0, 0), (0, 2), (1, 0), (1, 3)], document))
    parts = [features[0, :2], features[0, 2:], features[1, :3], features[1, 3:5]]
    torch.testing.assert_close(found, torch.stack([part.mean(0) for part in parts]))
