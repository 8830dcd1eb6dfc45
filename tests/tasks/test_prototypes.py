"""Few-shot classes of texts: probabilities by a loop over sec. 2.2 of Snell et al. (2017), classes
of one split, and the command.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.tasks import batches
from plmctl.tasks.prototypes import Prototypes
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from tests.command import plmctl
from tests.tasks.test_few_shot import Mixed

TEXTS = [
    Example(str(n), {"text": f"word{n % 7} of kind{n}", "text2": f"more {n % 5}"}, f"c{n % 4}", "x")
    for n in range(24)
]


def make(**settings: Any) -> Prototypes:
    own = {"ways": 3, "shots": 2, "queries": 2, "max_length": 16, "metrics": ["accuracy"],
           "episodes": {"train": 4, "dev": 3}, "columns": {"text": "text", "label": "label"},
           **settings}  # fmt: skip
    reader = Table(splits={"train": ["train.*"], "dev": ["dev.*"]})
    return Prototypes(name="toy", reader=reader, **own)


def test_probabilities_are_those_of_the_paper(toy: Any) -> None:
    """`p(y = k | x) = exp(-d(f(x), c_k)) / sum_k' exp(-d(f(x), c_k'))`, c_k the mean of a class."""
    task = make()
    episodes = task.episodes.draw(TEXTS, "train")
    batch = batches.collate(task.encode(episodes, toy), np.arange(24))  # two episodes
    model: Any = Mixed()
    found, loss = task.logits(model, batch)["vector"].softmax(-1), 0.0
    states, length = model(batch).last, batch.text.length.tolist()
    vectors = [states[n, : length[n]].mean(0) for n in range(24)]
    for query in range(24):
        begin = 12 * (query // 12)
        if query - begin < 6:
            continue
        powers = []
        for k in range(3):
            c = sum(vectors[begin + 2 * k + shot] for shot in range(2)) / 2
            powers.append(math.exp(-float(((vectors[query] - c) ** 2).sum())))
        p = [power / sum(powers) for power in powers]
        np.testing.assert_allclose(found[query].tolist(), p, rtol=1e-6)
        loss -= math.log(p[(query - begin - 6) // 2])
    out = task(model, batch)
    assert out.terms["vector"].total.item() == pytest.approx(loss)
    assert task.counts(batch) == {"vector": 12}


def test_classes_of_a_single_file_are_divided_or_not(tmp_path: Path) -> None:
    file = tmp_path / "all.tsv"
    rows = [f"text number {n}\tc{n % 6}" for n in range(60)]
    file.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    for new in (True, False):
        task = make(dev_share=0.5, path=str(file), new_classes=new, queries=1)
        classes = [
            {name for episode in task.read(split) for name in episode.label}
            for split in ("train", "dev")
        ]
        assert bool(classes[0] & classes[1]) is not new
    with pytest.raises(DataError, match="3 classes of the split 'dev' have 3 sentences or more"):
        make(dev_share=0.5, path=str(file), ways=4, queries=1).read("dev")
    with pytest.raises(ValueError, match="single texts have no shots"):
        make().parse("a text", 1)


def test_from_the_command_line(tmp_path: Path) -> None:
    rows = [f"abc def {'abcdef'[n % 6] * 4} {n}\tc{n % 6}" for n in range(48)]
    (tmp_path / "all.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    run = tmp_path / "run"
    plmctl(
        "finetune", "task=prototypes", f"task.path={tmp_path}/all.tsv", "task.ways=2",
        "task.shots=2", "task.queries=2", "task.episodes={train:6,dev:4}", "task.max_length=16",
        "checkpoint=null", "size=tiny", "size.width=32", "tokenizer=char", "train.epochs=1",
        "train.threads=1", "train.precision=fp32", f"run.dir={run}",
    )  # fmt: skip
    metrics = json.loads((run / "result.json").read_text())["metrics"]["dev"]
    assert metrics["chance"] == 0.5
    assert metrics["accuracy"] > 0.5
    assert "interval" in metrics
