"""Tables of many numbers lie in files, and leave memory when they are done; their numbers stay."""

from __future__ import annotations

import os
import re
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.batch import Rows, Seq
from plmctl.core.named_values import MANY, name_rows, to_dict
from plmctl.core.rounding import round_floats
from plmctl.core.tables import LARGE, make_table, release
from plmctl.tasks import inference
from plmctl.tasks.answers.classes import ClassAnswer
from plmctl.tasks.answers.label_sets import SetAnswer
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.texts import encode_texts
from plmctl.tasks.predictions import write_predictions
from plmctl.tasks.readers.holding import hold_out
from plmctl.tasks.record import Example
from plmctl.tasks.transform import Transform

STATUS = Path("/proc/self/status")
ROWS, LABELS = 1600, 5000  # 32 MB of float32, 64 MB of float64
needs_status = pytest.mark.skipif(not STATUS.exists(), reason="this system does not count pages")


def resident() -> int:
    """Bytes of this process that are in memory, those of mapped files among them."""
    found = re.search(r"VmRSS:\s+(\d+) kB", STATUS.read_text())
    assert found
    return 1024 * int(found[1])


def make_rows(count: int) -> Rows:
    length = np.ones(count, dtype=np.int64)
    seq = Seq(np.zeros((count, 1), dtype=np.int32), length)
    return Rows(np.arange(count), {"text": seq}, values={"example": np.arange(count)})


def draw_scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, LABELS)).astype(np.float32)


@needs_status
def test_a_large_table_leaves_memory() -> None:
    table = make_table((ROWS, LABELS), np.float64)
    before = resident()
    table[:] = 1.5
    assert resident() - before > table.nbytes / 2
    release(table)
    assert resident() - before < table.nbytes / 8
    assert (table == 1.5).all()


def test_a_small_table_and_one_without_room_on_disk_are_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert type(make_table((3, 2), np.float32)) is np.ndarray

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    table = make_table((LARGE, 1), np.float64)
    assert type(table) is np.ndarray
    assert not table.any()


@needs_status
def test_probabilities_of_many_labels_take_little_memory(tmp_path: Path) -> None:
    """Rows by labels: logits, probabilities, rounded ones and the file of them, none in memory."""
    scores, rows = draw_scores(), make_rows(ROWS)
    outputs: dict[str, np.ndarray] = {}
    torch.from_numpy(scores[:64]).double().softmax(-1)  # what a first call of torch takes
    before = resident()
    for start in range(0, ROWS, 50):
        index = np.arange(start, start + 50)
        inference.store(outputs, "class", index, scores[index], ROWS)
    answer, names = ClassAnswer(), [f"l{n}" for n in range(LABELS)]
    examples = [Example(str(n), {"text": "a"}, "l1") for n in range(ROWS)]
    told = answer.predict(outputs["class"], rows, examples, names)
    first = to_dict(told[3]["probabilities"])
    rounded = round_floats(few := told[:40], 6)
    write_predictions(tmp_path, "dev", few)
    assert resident() - before < 40e6  # of 96 MB; heaps keep what parts of it take
    expected = torch.from_numpy(scores).double().softmax(-1).numpy()
    assert [p["guess"] for p in told] == [f"l{n}" for n in expected.argmax(-1)]
    assert list(first.values()) == expected[3].tolist()
    assert list(rounded[3]["probabilities"].values()) == [
        float(f"{p:.6g}") for p in expected[3].tolist()
    ]


def test_sets_of_many_labels_have_the_numbers_of_the_whole_table() -> None:
    scores = draw_scores()[:70]
    names = [f"l{n}" for n in range(LABELS)]
    examples = [Example(str(n), {"text": "a"}, ["l1", "l7"]) for n in range(len(scores))]
    sets, rows = SetAnswer(), make_rows(70)
    told = sets.predict(scores, rows, examples, names)
    expected = torch.from_numpy(scores).double().sigmoid().numpy()
    found = [list(to_dict(p["probabilities"]).values()) for p in told]
    assert np.array_equal(found, expected)
    own = sets.label(rows, examples, names).labels["types"]
    assert own.dtype == np.int64
    assert np.array_equal(np.flatnonzero(own[5]), [1, 7])
    assert own.sum() == 140


def test_rows_of_names_compare_as_dicts_do() -> None:
    names = [f"n{n}" for n in range(MANY)]
    first, second = name_rows(names, np.arange(2.0 * MANY).reshape(2, MANY))
    assert first == dict(first) != second
    assert first not in ([], {}, "")
    assert first == first.copy()  # type: ignore[attr-defined]


def plainly_hold_out(examples: list[Example], share: float) -> list[str]:
    """Dev as the definition says it: units in the order of their hashes, while train keeps one
    example of each label.
    """
    import hashlib

    order = sorted(examples, key=lambda e: hashlib.sha256(e.fields["text"].encode()).digest())
    left = Counter(e.label for e in examples)
    dev: list[Example] = []
    for each in order:
        if len(dev) < round(share * len(examples)) and left[each.label] > 1:
            dev.append(each)
            left[each.label] -= 1
    return sorted(e.id for e in dev)


def test_holding_out_is_linear_in_labels_and_rows() -> None:
    """A sum of counts over all labels for each row took minutes."""
    examples = [
        Example(f"{n:05}", {"text": f"text {n}"}, f"l{n % 4000 if n % 3 else n}")
        for n in range(12_000)
    ]
    begin = time.process_time()
    train, dev = hold_out(
        examples, 0.1, unit=lambda e: e.fields["text"], labels=lambda e: [e.label]
    )
    assert time.process_time() - begin < 10
    assert [e.id for e in dev] == plainly_hold_out(examples, 0.1)
    assert len(train) + len(dev) == len(examples)
    assert {e.label for e in dev} <= {e.label for e in train}


def slowly_pad(laid_out: list[encode.Row], vocab: Any) -> tuple[np.ndarray, np.ndarray]:
    """Ids and segments, row by row."""
    width = max(len(row.ids) for row in laid_out)
    ids = np.full((len(laid_out), width), vocab.pad)
    segment = np.zeros(ids.shape)
    for number, row in enumerate(laid_out):
        for place, token in enumerate(row.ids):
            ids[number, place] = token
            segment[number, place] = row.b_start is not None and place >= row.b_start
        if vocab.single[-1] == "cls":
            segment[number, len(row.ids) - 1] = 2
    return ids, segment


@pytest.mark.parametrize("single", [("cls", "A", "sep"), ("A", "sep", "cls")])
def test_rows_that_are_made_one_by_one_are_padded_as_a_list(single: tuple[str, ...]) -> None:
    draw = np.random.default_rng(1)
    vocab: Any = SimpleNamespace(pad=3, single=single)
    laid = [
        encode.Row(draw.integers(9, size=5 + n).tolist(), 1, None if n % 3 else 2 + n % 2, n % 4, n)
        for n in range(11)
    ]
    ids, segment = slowly_pad(laid, vocab)
    rows = encode.pad(iter(laid), vocab, example=range(11))
    assert np.array_equal(rows.seqs["text"].ids, ids)
    assert np.array_equal(rows.seqs["text"].tracks["segment"], segment)
    assert rows.anchors is not None
    assert rows.anchors.tolist() == [[n, n % 4] for n in range(11)]
    assert rows.values["cut"].tolist() == [*range(11)]
    assert rows.seqs["text"].length.tolist() == [5 + n for n in range(11)]


def test_texts_are_tokenized_piece_by_piece() -> None:
    """300 tokens a row: 4 bytes of each stay, where lists of them take 36."""
    count, tokens = 3000, 300
    examples = [Example(str(n), {"text": "a"}, "l1") for n in range(count)]
    roles = {"pad": 0, "cls": 1, "sep": 1, "mask": 1, "bos": 1, "eos": 1, "unk": 1007}
    special = np.arange(2000) < 5
    vocab: Any = SimpleNamespace(
        **roles, single=("cls", "A"), id=roles.get, size=2000, special=special, blank=special
    )

    def encode_batch(texts: list[str]) -> list[list[int]]:
        return [[1000 + n for n in range(tokens)] for _ in texts]

    tracemalloc.start()
    tokenizer: Any = SimpleNamespace(vocab=vocab, encode_batch=encode_batch)
    rows = encode_texts(
        examples, tokenizer, max_length=512, pooling="first", transform=Transform(), symmetric=False
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.seqs["text"].ids.shape == (count, 1 + tokens)
    assert peak < 25e6  # 14 bytes a token, and a piece; lists of all took twice as much
    assert inference.unknown(rows, vocab) == 1 / tokens
