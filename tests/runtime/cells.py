"""Models of every backbone with the head of every kind of task, and batches of all sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from plmctl.core.batch import Batch
from plmctl.runtime.base import Program
from plmctl.tasks import batches, inference
from plmctl.text.tokenizer import Tokenizer
from tests.tasks.test_head_matrix import BACKBONES, EXAMPLES, MARKED, WRITE, _ready

CELLS = [
    (task, backbone)
    for task in (*EXAMPLES, *MARKED)
    for backbone in BACKBONES
    if (task != "translation" or backbone in WRITE)
    and (task not in MARKED or backbone in ("encoder", "encoder_decoder"))
]


def make_tokenizer() -> Tokenizer:
    texts = ["one small cat sat here", "two dogs sat", "yes no"]
    return Tokenizer.train(
        texts, kind="word", vocab_size=64, lowercase=False, punctuation=True, min_frequency=1
    )


@dataclass(frozen=True)
class Trained:
    """A program with its rows."""

    program: Program
    rows: Any

    def batches(self) -> Iterator[Batch]:
        """Both rows, and each of them alone."""
        units = batches.BatchUnits.of(self.rows)
        last = len(units.length) - 1
        for numbers in ([0, last], [0], [last], [last, 0, last]):
            yield batches.collate(self.rows, units.rows(np.array(numbers)))


def make_cell(task: str, backbone: str, *words: str) -> Trained:
    """A task on a backbone with random weights."""
    tokenizer = make_tokenizer()
    more = ["task.marks=none", "task.label_names=[no,yes]"] if task == "relation" else []
    part, model, _ = _ready(task, backbone, tokenizer, *words, *more)
    examples = (EXAMPLES | MARKED)[task]
    rows = inference.encode_split(part, "train", examples, tokenizer).rows
    return Trained(Program(model.float().eval(), part.logits), rows)
