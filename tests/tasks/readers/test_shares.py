"""Every task of one class an example learns the probabilities that a column states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.batch import Batch
from plmctl.tasks.aspect_sentiment import AspectSentiment
from plmctl.tasks.batches import collate
from plmctl.tasks.classification import Classification
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.tasks.sentence_classes import SentenceClasses
from plmctl.tasks.tree_classification import TreeClassification
from plmctl.tasks.wic import WordInContext

FIELDS = {
    "word": "tea",
    "text": "the tea is fine",
    "text2": "a tea",
    "places": [(4, 7), (2, 5)],
    "entities": [{"start": 4, "end": 7, "id": "", "type": ""}],
}
SHARES = [{"a": 0.75, "b": 0.25}, {"b": 1.0}]
EXAMPLES = [
    Example(str(n), FIELDS, label, shares=own)
    for n, (label, own) in enumerate(zip("ab", SHARES, strict=True))
]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (Classification, {}),
        (TreeClassification, {}),
        (WordInContext, {}),
        (SentenceClasses, {}),
        (AspectSentiment, {"read": "marks"}),
    ],
)
def test_the_loss_is_that_of_the_shares(
    toy: Any, kind: type[Classification], more: dict[str, Any]
) -> None:
    reader = Table(splits={"train": ["train.tsv"]})
    columns = {"text": 0, "text2": 1, "label": 2, "probabilities": 3}
    own = {"max_length": 32, "metrics": ["accuracy"], **more}
    task = kind(name="toy", reader=reader, columns=columns, **own)
    task.fit_labels(EXAMPLES)
    rows = task.encode(EXAMPLES, toy)
    batch: Batch = collate(rows, np.arange(len(rows.key)))
    first = (batch.labels["class"] >= 0).nonzero()[:, 0]
    scores = torch.randn(len(rows.key), 2, generator=torch.Generator().manual_seed(1))
    total = task.loss({"class": scores}, batch).terms["class"].total
    logs = scores[first].log_softmax(-1)
    wanted = -(0.75 * logs[0, 0] + 0.25 * logs[0, 1] + logs[1, 1])
    torch.testing.assert_close(total, wanted)
    without = task.encode([replace(each, shares=None) for each in EXAMPLES], toy)
    assert "shares" not in without.labels
