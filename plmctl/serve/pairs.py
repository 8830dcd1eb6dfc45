"""Scores of a text for a question by a model that reads both together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.runtime.base import Runtime
from plmctl.serve.labels import BYTES, name_unread
from plmctl.serve.queue import QueuedItem
from plmctl.tasks import inference
from plmctl.tasks.batches import OVERHEAD
from plmctl.tasks.inference import Split
from plmctl.tasks.record import Example
from plmctl.training.device.precision import Precision


class PairEngine:
    """The logit of each pair."""

    name = "pairs"

    def __init__(
        self, loaded: Loaded, task: Any, *, precision: Precision, runtime: Runtime, rows: int
    ) -> None:
        loaded.model.eval()
        self.loaded, self.task, self.precision = loaded, task, precision
        self.runtime, self.rows = runtime, rows

    def read(self, pairs: Sequence[tuple[str, str]]) -> list[QueuedItem]:
        """The questions of pairs."""
        sizes = (sum(len(text.encode(errors="replace")) for text in pair) for pair in pairs)
        longest = self.task.max_length
        return [
            QueuedItem(pair, min(longest, 3 + size // BYTES))
            for pair, size in zip(pairs, sizes, strict=True)
        ]

    def answer(self, questions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """The logit of each pair as `score`, with its marks."""
        rows = self.task.encode_pairs(questions, self.loaded.tokenizer)
        examples = [Example("", {"text": own, "text2": other}) for own, other in questions]
        device = self.precision.device
        how: Any = {"batch_size": self.rows, "device": device, "overhead": OVERHEAD[device.type]}
        with torch.no_grad(), self.precision.autocast():
            found, _ = inference.run(
                self.loaded.model, self.task, rows, runtime=self.runtime, **how
            )
        scores = [{"score": float(score)} for score in found["score"]]
        return name_unread(scores, Split(self.name, examples, rows), self.loaded.tokenizer)
