"""Predictions read from the disk are those that the teacher gave, bit for bit; nothing of another
teacher is ever read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.distill import cache
from plmctl.distill.base import LOGITS, Predictions
from plmctl.distill.cache import Cached, Store, hash_rows
from plmctl.distill.questions import OfTask
from plmctl.distill.teachers import Frozen
from plmctl.models.base import Model
from plmctl.tasks import batches
from plmctl.tasks.choices import Choice
from plmctl.tasks.classification import Classification
from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.squad import Squad
from plmctl.tasks.tagging import Tagging
from plmctl.tasks.task import Task

ROWS, LONGEST = 8, 9
LENGTHS = np.array([9, 4, 7, 2, 5, 3, 8, 6])
RECORD = frozenset({LOGITS, "hidden", "scores", "values"})
TABLE: dict[str, Any] = {
    "name": "toy",
    "reader": Table(splits={}),
    "columns": {},
    "max_length": 16,
    "metrics": ["accuracy"],
}
TASKS: dict[str, Task] = {
    "class": Classification(**TABLE, label_names=["a", "b", "c"]),
    "tag": Tagging(**TABLE, label_names=["O", "B-x"]),
    "choice": Choice(**TABLE),
    "span": Squad(
        **{**TABLE, "reader": SquadFiles(splits={}), "metrics": ["f1"]},
        version=1,
        stride=4,
        max_query=4,
        n_best=2,
        max_answer=4,
    ),
}
HEADS = {
    "class": {"_target_": "plmctl.heads.classify.Classify", "num_classes": 3, "dropout": 0.1},
    "tag": {"_target_": "plmctl.heads.tag.Tag", "num_classes": 2, "dropout": 0.1},
    "choice": {"_target_": "plmctl.heads.classify.Classify", "num_classes": 1, "dropout": 0.1},
    "span": {"_target_": "plmctl.heads.span.Span"},
}


def rows() -> Rows:
    draw = np.random.default_rng(0)
    ids = draw.integers(5, 40, (ROWS, LONGEST)) * (np.arange(LONGEST) < LENGTHS[:, None])
    segment = (np.arange(LONGEST) >= 2).astype(np.int64) * np.ones((ROWS, 1), np.int64)
    targets = np.where(
        np.arange(LONGEST) < LENGTHS[:, None], draw.integers(0, 2, (ROWS, LONGEST)), IGNORE
    )
    choice = np.where(np.arange(ROWS) % 2, IGNORE, 1)
    return Rows(
        np.arange(ROWS),
        {"text": Seq(ids, LENGTHS, {"segment": segment})},
        targets={"tag": targets},
        anchors=np.stack([np.arange(ROWS), np.zeros(ROWS, np.int64)], 1),
        labels={
            "class": draw.integers(0, 3, ROWS),
            "span": np.ones((ROWS, 2), np.int64),
            "choice": choice,
        },
        values={
            "example": np.arange(ROWS),
            "cut": np.zeros(ROWS, np.int64),
            "group": np.arange(ROWS) // 2,
        },
    )


def model(seed: int = 0) -> Model:
    size = [
        "size=tiny",
        "size.width=16",
        "size.num_heads=2",
        "size.inner_width=32",
        "format.max_length=16",
    ]
    return build_model(compose("pretrain", "bert", size), vocab_size=40, heads=HEADS, seed=seed)


class Counting(Frozen):
    asked = 0

    def predict(self, *given: Any) -> Predictions:
        self.asked += 1
        return super().predict(*given)


@pytest.fixture
def teacher() -> Counting:
    return Counting(model=model(), name="the teacher")


def batch(*index: int) -> Batch:
    return batches.collate(rows(), np.array(index))


def same(found: Predictions, expected: Predictions) -> Iterator[bool]:
    real = expected.real
    yield torch.equal(found.real, real)
    yield found.logits.keys() == expected.logits.keys()
    for name, logits in expected.logits.items():
        labelled = logits.labelled
        yield torch.equal(found.logits[name].labelled, labelled)
        yield torch.equal(found.logits[name].gather(labelled), logits.gather(labelled))
    for kind, layers in expected.recorded.items():
        for ours, theirs in zip(found.recorded[kind], layers, strict=True):
            if kind == "hidden":
                yield torch.equal(ours[real], theirs[real])
            else:  # [B, H, T, ...]: the places of queries that are no padding, before all keys
                yield torch.equal(ours.transpose(1, 2)[real], theirs.transpose(1, 2)[real])


@pytest.mark.parametrize("head", TASKS)
def test_what_is_read_is_what_was_answered(head: str, teacher: Counting, tmp_path: Path) -> None:
    question, told = OfTask(TASKS[head]), list[str]()
    first = Cached(teacher=teacher, folder=tmp_path, identity="one", rows=800, say=told.append)
    parts = [batch(0, 1, 2, 3), batch(4, 5, 6, 7)]
    answered = [first.predict(part, question, RECORD) for part in parts]
    assert all(
        all(same(a, Frozen.predict(teacher, p, question, RECORD)))
        for a, p in zip(answered, parts, strict=True)
    )
    assert len(told) == 1
    assert "for 800 rows" in told[0]
    assert teacher.asked == 2
    assert all(
        all(same(first.predict(p, question, RECORD), a))
        for a, p in zip(answered, parts, strict=True)
    )  # still in memory
    first._stores[RECORD].flush()
    again = Cached(teacher=teacher, folder=tmp_path, identity="one", rows=800, say=told.append)
    assert all(
        all(same(again.predict(p, question, RECORD), a))
        for a, p in zip(answered, parts, strict=True)
    )
    assert (teacher.asked, len(told)) == (2, 1)
    # rows meet others: read all the same, and but for the last digits as if answered together
    other = [2, 3, 6, 7, 0, 1]
    mixed = again.predict(batch(*other), question, RECORD)
    assert teacher.asked == 2
    direct = Frozen.predict(teacher, batch(*other), question, RECORD)
    for name, logits in direct.logits.items():
        torch.testing.assert_close(
            mixed.logits[name].gather(logits.labelled),
            logits.gather(logits.labelled),
            atol=1e-6,
            rtol=1e-5,
        )


def test_another_teacher_or_another_record_reads_nothing(teacher: Counting, tmp_path: Path) -> None:
    question = OfTask(TASKS["class"])
    for identity, record in (("one", RECORD), ("two", RECORD), ("one", frozenset({LOGITS}))):
        made = Cached(
            teacher=teacher, folder=tmp_path, identity=identity, rows=8, say=lambda line: None
        )
        before = teacher.asked
        made.predict(batch(0, 1), question, record)
        made._stores[record].flush()
        assert teacher.asked == before + 1
    assert len(list(tmp_path.iterdir())) == 3
    assert len(list(tmp_path.rglob("*.safetensors"))) == 3


def test_one_new_row_and_the_whole_batch_is_asked(teacher: Counting, tmp_path: Path) -> None:
    made = Cached(teacher=teacher, folder=tmp_path, identity="one", rows=8, say=lambda line: None)
    question = OfTask(TASKS["class"])
    made.predict(batch(0, 1), question, RECORD)
    mixed = made.predict(batch(1, 2), question, RECORD)
    assert all(same(mixed, Frozen.predict(teacher, batch(1, 2), question, RECORD)))
    assert teacher.asked == 2


def test_rows_are_known_by_what_is_read_of_them() -> None:
    whole = rows()
    keys = hash_rows(batches.collate(whole, np.arange(ROWS)))
    assert len(set(keys)) == ROWS
    # padded to another length, and groups from 0
    assert hash_rows(batches.collate(whole, np.array([2, 3]))) == keys[2:4]
    text = whole.seqs["text"]
    changed = {
        "ids": whole.with_seq("text", replace(text, ids=text.ids + (np.arange(LONGEST) == 1))),
        "track": whole.with_seq("text", text.with_tracks(segment=1 - text.tracks["segment"])),
        "anchor": replace(whole, anchors=whole.anchors + np.array([0, 1])),
    }
    for other in changed.values():
        assert not set(hash_rows(batches.collate(other, np.arange(ROWS)))) & set(keys)
    first = text.ids.copy()
    first[1, 0] += 1  # of a group of two rows, the other one
    assert (
        hash_rows(
            batches.collate(whole.with_seq("text", replace(text, ids=first)), np.arange(ROWS))
        )[0]
        != keys[0]
    )
    numbered = replace(whole, values={**whole.values, "example": np.arange(ROWS) + 9}, labels={})
    assert hash_rows(batches.collate(numbered, np.arange(ROWS))) == keys


def test_shards_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SHARD", 64)
    store = Store(tmp_path / "one")
    for number in range(5):
        store.add(bytes([number] * 16), {"logits/class": torch.full((3 + number,), float(number))})
    written = sorted((tmp_path / "one").glob("shard-*.safetensors"))
    assert len(written) == 1  # 12 + 16 + 20 + 24 bytes
    again = Store(tmp_path / "one")
    assert len(again) == 4
    assert torch.equal(again[bytes([2] * 16)]["logits/class"], torch.full((5,), 2.0))
    del store  # what waited is written
    assert len(Store(tmp_path / "one")) == 5
    written[0].write_bytes(written[0].read_bytes()[:50])
    assert len(Store(tmp_path / "one")) == 1
    assert not list((tmp_path / "one").glob(".*"))


@pytest.mark.parametrize("harm", ["larger", "negative", "fewer"])
def test_a_shard_whose_shapes_do_not_fit_is_as_if_it_were_not_there(
    tmp_path: Path, harm: str
) -> None:
    from safetensors.torch import load_file, save_file

    store = Store(tmp_path)
    store.add(b"0" * 16, {"hidden/0": torch.ones(2, 3)})
    store.flush()
    (file,) = tmp_path.glob("shard-*.safetensors")
    tensors = load_file(file)
    shape = tensors["hidden/0/shape"]
    tensors["hidden/0/shape"] = {
        "larger": shape + (1 << 40),
        "negative": -shape,
        "fewer": shape[:0],
    }[harm]
    save_file(tensors, file)
    assert len(Store(tmp_path)) == 0
